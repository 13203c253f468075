"""The process in which a plug-in runs: questions on its standard input, answers on its standard output.

In: frames (a length, then JSON), first what to load, then batches of asks. Out: a frame for each. It ends with its
input; by itself when a batch takes far too long, should the worker that started it be gone; and when memory runs out.
What the plug-in prints goes to the standard error, of which the worker keeps the end.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, Input, Operator, OperatorContext
from runnel.matching.operators.plugins.encoding import from_bytes, plain, to_bytes
from runnel.matching.operators.plugins.registry import Signature, find_operator, open_operator, signature_of

LENGTH = struct.Struct(">I")
"""What a frame begins with: the number of its bytes."""

MAX_FRAME = 64 << 20
"""Bytes of the longest frame that is sent or taken."""

EXHAUSTED = 77
"""Exit code of a process that ran out of memory."""


def main() -> None:
    """Serve until the input ends."""
    questions: BinaryIO = os.fdopen(os.dup(0), "rb")
    replies = os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # Whatever prints must not be taken for a reply.
    operator: Operator | None = None
    while header := questions.read(LENGTH.size):
        frame = from_bytes(questions.read(LENGTH.unpack(header)[0]))
        # The worker ends a process that is late; this is for the case that the worker itself is gone.
        signal.setitimer(signal.ITIMER_REAL, 2 * frame["seconds"] + 5)
        if operator is None:
            operator, reply = _loaded(frame)
        else:
            reply = _answered(operator, frame["asks"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(replies, reply)


def _loaded(frame: Mapping[str, Any]) -> tuple[Operator | None, bytes]:
    """The operator of a first frame, where a place is given, and what it says of itself."""
    _limit_memory(frame["megabytes"])
    sys.path[:] = [*sys.path, *(one for one in frame["path"] if one not in sys.path)]
    try:
        found = find_operator(frame["source"], frame["modules"])
        place = frame["place"]
        operator = None if place is None else open_operator(found, _place(place))
        return operator, to_bytes({"ready": _described(signature_of(found))})
    except OperatorRefusedError as refused:
        message = f"{refused.place}: {refused.message}" if refused.place else refused.message
        return None, to_bytes({"refused": message, "hint": refused.hint})


def _place(told: Mapping[str, Any]) -> OperatorContext:
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


def _send(descriptor: int, reply: bytes) -> None:
    data = memoryview(LENGTH.pack(len(reply)) + reply)
    while data:
        data = data[os.write(descriptor, data) :]


def _limit_memory(megabytes: int) -> None:
    used = 1 << 30
    with contextlib.suppress(OSError, ValueError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for what, limit in ((resource.RLIMIT_AS, used + (megabytes << 20)), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(OSError, ValueError):  # Some systems know fewer limits; the worker's clock remains.
            resource.setrlimit(what, (limit, limit))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(EXHAUSTED)
