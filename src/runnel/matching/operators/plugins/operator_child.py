"""The program of an operator's sandbox: its first request says what to load, all others are batches of asks.

In: JSON, see `encoding`. Out: JSON: first the operator's signature, then an answer for every ask. The operator is
loaded by a request and not before, so that the sandbox's limit of memory holds for models, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, Input, Operator, OperatorContext
from runnel.matching.operators.plugins.encoding import from_bytes, plain, to_bytes
from runnel.matching.operators.plugins.registry import Signature, find_operator, open_operator, signature_of

MAX_FRAME = 64 << 20
"""Bytes of the largest request or reply."""


def open_program() -> Callable[[bytes], bytes]:
    """The function that answers requests."""
    return OperatorProgram().answer


class OperatorProgram:
    """Loads an operator, and has it answer."""

    def __init__(self) -> None:
        self._operator: Operator | None = None

    def answer(self, request: bytes) -> bytes:
        """The reply to a request."""
        told = from_bytes(request)
        if self._operator is not None:
            return _answered(self._operator, told)
        try:
            found = find_operator(told["source"], told["modules"])
            signature = _described(signature_of(found))
            self._operator = open_operator(found, _context(told["context"]))
            return to_bytes({"ready": signature})
        except OperatorRefusedError as refused:
            message = f"{refused.place}: {refused.message}" if refused.place else refused.message
            return to_bytes({"refused": message, "hint": refused.hint})


def _context(told: Mapping[str, Any]) -> OperatorContext:
    folder = told["folder"]
    typed = {
        "configuration": dict(told["configuration"]),  # it comes as pairs, and so do the databases
        "databases": dict(told["databases"]),
        "folder": folder and Path(folder),
        "allowed_addresses": tuple(told["allowed_addresses"]),
    }
    return OperatorContext(**{**told, **typed})


def _described(signature: Signature) -> dict[str, object]:
    parameters = signature.parameters
    return {
        "parameters": None if parameters is None else [[one.name, one.role, one.type] for one in parameters],
        "cost": None if signature.cost is None else signature.cost.total_seconds(),
        "pure": signature.pure,
        "batch": signature.batch,
        "reads": signature.reads,
    }


def _answered(operator: Operator, asks: Sequence[Any]) -> bytes:
    try:
        answers = operator.answer([_ask(one) for one in asks])
        if len(answers) != len(asks):
            return to_bytes({"raised": "it did not give one answer for every question"})
        encoded = b",".join(_encoded(one) for one in answers)
    except MemoryError:
        raise
    except Exception as error:  # a plug-in may raise anything
        return to_bytes({"raised": f"{type(error).__name__}: {error}"[:300]})
    if len(encoded) > MAX_FRAME - 64:
        return to_bytes({"raised": f"its answers have more than {MAX_FRAME:,} bytes"})
    return b'{"answers":[' + encoded + b"]}"


def _ask(told: Sequence[Any]) -> Ask:
    attributes, inputs = told
    given: tuple[Input, ...] = tuple(tuple(one) if isinstance(one, list) else one for one in inputs)
    return Ask({name: tuple(values) for name, values in attributes.items()}, given)


def _encoded(answer: Answer) -> bytes:
    """An answer as it is sent: a list of rows, or the reason why there are none."""
    if isinstance(answer, Failed):
        return to_bytes({"failed": str(answer.reason), "passing": bool(answer.passing)})
    try:
        return to_bytes([[plain(value) for value in row] for row in answer])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return to_bytes({"failed": f"its answer cannot be sent: {error}"[:300], "passing": False})
