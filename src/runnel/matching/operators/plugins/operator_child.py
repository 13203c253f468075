"""The program that runs an operator in a sandbox.

The first request names the operator to load, and the reply is its signature. All other requests are batches of calls,
and the reply has one answer per call. Requests and replies are JSON, see `encoding`. The operator is loaded by a
request and not earlier, so that the sandbox's memory limit applies to its models, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.plugins.contract import (
    Answer,
    FailedCall,
    Input,
    Operator,
    OperatorCall,
    OperatorContext,
)
from runnel.matching.operators.plugins.encoding import from_bytes, plain, to_bytes
from runnel.matching.operators.plugins.registry import Signature, find_operator, open_operator, signature_of

MAX_FRAME = 64 << 20
"""Bytes of the largest request or reply."""


def open_program() -> Callable[[bytes], bytes]:
    """Return the function that replies to requests."""
    return OperatorProgram().answer


class OperatorProgram:
    """Loads an operator and calls it."""

    def __init__(self) -> None:
        self._operator: Operator | None = None

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request."""
        decoded = from_bytes(request)
        if self._operator is not None:
            return _call_operator(self._operator, decoded)
        try:
            implementation = find_operator(decoded["source"], decoded["modules"])
            signature = _encode_signature(signature_of(implementation))
            self._operator = open_operator(implementation, _decode_context(decoded["context"]))
            return to_bytes({"ready": signature})
        except OperatorRefusedError as refused:
            message = f"{refused.place}: {refused.message}" if refused.place else refused.message
            return to_bytes({"refused": message, "hint": refused.hint})


def _decode_context(encoded: Mapping[str, Any]) -> OperatorContext:
    folder = encoded["folder"]
    typed = {
        "configuration": dict(encoded["configuration"]),  # sent as pairs, like the databases
        "databases": dict(encoded["databases"]),
        "folder": folder and Path(folder),
        "allowed_addresses": tuple(encoded["allowed_addresses"]),
    }
    return OperatorContext(**{**encoded, **typed})


def _encode_signature(signature: Signature) -> dict[str, object]:
    parameters = signature.parameters
    return {
        "parameters": None
        if parameters is None
        else [[parameter.name, parameter.role, parameter.type] for parameter in parameters],
        "cost": None if signature.cost is None else signature.cost.total_seconds(),
        "pure": signature.pure,
        "batch": signature.batch,
        "reads": signature.reads,
    }


def _call_operator(operator: Operator, encoded_asks: Sequence[Any]) -> bytes:
    try:
        answers = operator.answer([_decode_ask(encoded) for encoded in encoded_asks])
        if len(answers) != len(encoded_asks):
            return to_bytes({"raised": f"it returned {len(answers)} answers for {len(encoded_asks)} calls"})
        encoded = b",".join(_encode_answer(answer) for answer in answers)
    except MemoryError:
        raise
    except Exception as error:  # a plug-in may raise anything
        return to_bytes({"raised": f"{type(error).__name__}: {error}"[:300]})
    if len(encoded) > MAX_FRAME - 64:
        return to_bytes({"raised": f"its answers exceed {MAX_FRAME:,} bytes"})
    return b'{"answers":[' + encoded + b"]}"


def _decode_ask(encoded: Sequence[Any]) -> OperatorCall:
    attributes, encoded_inputs = encoded
    inputs: tuple[Input, ...] = tuple(tuple(value) if isinstance(value, list) else value for value in encoded_inputs)
    return OperatorCall({name: tuple(values) for name, values in attributes.items()}, inputs)


def _encode_answer(answer: Answer) -> bytes:
    """Encode an answer: a list of rows, or the reason of a failure."""
    if isinstance(answer, FailedCall):
        return to_bytes({"failed": str(answer.reason), "passing": bool(answer.passing)})
    try:
        return to_bytes([[plain(value) for value in row] for row in answer])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return to_bytes({"failed": f"its answer cannot be encoded as JSON: {error}"[:300], "passing": False})
