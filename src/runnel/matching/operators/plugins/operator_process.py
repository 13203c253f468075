"""Hosts, which run operators. In: batches of calls. Out: unchecked answers, or an OperatorHostError.

A built-in operator runs in a thread of the worker. A plug-in runs in a sandbox, which is started with its first batch
and killed when a batch exceeds its time limit. A sandbox sees only a few of the worker's environment variables, and
its memory is limited.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Literal, Protocol

from runnel.errors import CorruptDataError, OperatorRefusedError, visible
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext
from runnel.matching.operators.plugins.encoding import from_bytes, to_bytes
from runnel.matching.operators.plugins.operator_child import MAX_FRAME
from runnel.matching.operators.plugins.registry import (
    Signature,
    check_operator,
    check_source,
    find_operator,
    is_builtin,
    open_operator,
    signature_of,
)
from runnel.model.operator import Parameter
from runnel.sandbox.process import BadReplyError, EndCause, SandboxError, SandboxProcess, SandboxProgram

CHILD = "runnel.matching.operators.plugins.operator_child"
START_SECONDS = 120.0
"""Time limit for loading an operator. It is long because models can be large."""

MEGABYTES = 4_096
"""Default memory limit of a plug-in's process."""

_PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""Environment variables of the worker that a plug-in's process receives. None of them usually contains a secret."""

FailureKind = Literal["late", "died", "raised", "refused"]


class OperatorHostError(Exception):
    """A batch has no answers: it timed out, its process died, it raised an exception, or loading the operator failed.

    `refused` is the refusal that a plug-in's process reported while loading the operator, with message and hint.
    """

    def __init__(self, reason: str, kind: FailureKind, refused: OperatorRefusedError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.refused = refused


class OperatorHost(Protocol):
    """Runs one operator, one batch at a time."""

    def prepare(self) -> None:
        """Load the operator, unless it is loaded."""

    def answer(self, calls: Sequence[OperatorCall], seconds: float) -> Sequence[object]:
        """Return one unchecked answer per call. Raise OperatorHostError if that fails or exceeds the time limit."""

    def close(self) -> None:
        """Stop the operator. A thread ends after its current batch, a sandbox is ended at once."""


def open_operator_host(
    source: str, context: OperatorContext, modules: Collection[str], megabytes: int
) -> OperatorHost:
    """Return a thread for a built-in operator, or a sandbox for a plug-in. `modules` are the allowed modules."""
    if is_builtin(source):
        return OperatorThread(source, context)
    return OperatorProcess(source, context, modules, megabytes)


def describe_operator(
    source: str, context: OperatorContext, modules: Collection[str], megabytes: int = MEGABYTES
) -> Signature:
    """Load an operator as a worker does, return its signature, and close it.

    Raise OperatorRefusedError if it cannot be loaded. A plug-in is imported in a sandbox, never in this process.
    """
    if is_builtin(source):
        implementation = find_operator(source, modules)
        check_operator(implementation, context)
        return signature_of(implementation)
    check_source(source, modules)
    child = OperatorProcess(source, context, modules, megabytes)
    try:
        return child.start()
    except OperatorHostError as failure:
        refused = failure.refused or OperatorRefusedError(f"{source} cannot be loaded: {failure.reason}")
        raise refused from failure
    finally:
        child.close()


class OperatorThread:
    """Runs a built-in operator in a thread. If a batch exceeds its time limit, operator and thread are abandoned."""

    def __init__(self, source: str, context: OperatorContext) -> None:
        self._source = source
        self._context = context
        self._asks: queue.SimpleQueue[Sequence[OperatorCall] | None] | None = None
        self._answers: queue.SimpleQueue[Sequence[object] | OperatorHostError] = queue.SimpleQueue()

    def prepare(self) -> None:
        """See `OperatorHost.prepare`."""
        if self._asks is None:
            self._start()

    def answer(self, calls: Sequence[OperatorCall], seconds: float) -> Sequence[object]:
        """See `OperatorHost.answer`."""
        self.prepare()
        assert self._asks is not None  # noqa: S101 - for the type checker
        self._asks.put(calls)
        try:
            result = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise OperatorHostError(f"it took more than {seconds:g} seconds", "late") from None
        if isinstance(result, OperatorHostError):
            raise result
        return result

    def close(self) -> None:
        """Make the thread end after its current batch."""
        if self._asks is not None:
            self._asks.put(None)
        self._asks = None

    def _start(self) -> None:
        calls: queue.SimpleQueue[Sequence[OperatorCall] | None] = queue.SimpleQueue()
        answers: queue.SimpleQueue[Sequence[object] | OperatorHostError] = queue.SimpleQueue()
        arguments = (self._source, self._context, calls, answers)
        threading.Thread(target=_serve, args=arguments, name=f"operator {self._source}", daemon=True).start()
        try:
            result = answers.get(timeout=START_SECONDS)
        except queue.Empty:
            result = OperatorHostError(f"loading it took more than {START_SECONDS:g} seconds", "refused")
        if isinstance(result, OperatorHostError):
            calls.put(None)
            raise result
        self._asks, self._answers = calls, answers


def _serve(
    source: str,
    context: OperatorContext,
    calls: queue.SimpleQueue[Sequence[OperatorCall] | None],
    answers: queue.SimpleQueue[Sequence[object] | OperatorHostError],
) -> None:
    """Run the thread of an `OperatorThread`: load the operator and report the outcome, then answer batches."""
    try:
        operator = open_operator(find_operator(source, ()), context)
    except OperatorRefusedError as refused:
        answers.put(OperatorHostError(str(refused), "refused"))
        return
    answers.put(())
    while (batch := calls.get()) is not None:
        try:
            answers.put(operator.answer(batch))
        except Exception as error:  # whatever was raised, only this batch fails; the next batch may succeed
            answers.put(OperatorHostError(f"{type(error).__name__}: {error}"[:300], "raised"))
    close: Callable[[], None] | None = getattr(operator, "close", None)
    if close is not None:
        with suppress(Exception):
            close()


class OperatorProcess:
    """Runs an operator in a sandbox, which is replaced after a timeout or a crash."""

    def __init__(
        self, source: str, context: OperatorContext, modules: Collection[str], megabytes: int = MEGABYTES
    ) -> None:
        self._source = source
        self._context = context
        self._modules = tuple(modules)
        self._megabytes = megabytes
        self._sandbox: SandboxProcess | None = None

    @property
    def process(self) -> int | None:
        """The process ID, or None if no process is running."""
        return None if self._sandbox is None else self._sandbox.pid

    def prepare(self) -> None:
        """See `OperatorHost.prepare`."""
        if self._sandbox is not None and not self._sandbox.is_usable():
            self.close()  # the process ended while it was idle, so no call has failed
        if self._sandbox is None:
            self.start()

    def answer(self, calls: Sequence[OperatorCall], seconds: float) -> Sequence[object]:
        """See `OperatorHost.answer`."""
        self.prepare()
        request = to_bytes([[dict(call.attributes), call.inputs] for call in calls])
        if len(request) > MAX_FRAME:
            raise OperatorHostError(f"the request exceeds {MAX_FRAME:,} bytes", "raised")
        try:
            reply = self._ask(request, seconds)
        except SandboxError as error:
            kind: FailureKind = "late" if error.cause is EndCause.DEADLINE else "died"
            raise OperatorHostError(error.reason, kind) from None
        match reply:
            case {"answers": list(answers)} if len(answers) == len(calls):
                return [_decode_answer(answer) for answer in answers]
            case {"raised": str(reason)}:
                raise OperatorHostError(_printable(reason), "raised")
            case _:
                self.close()
                raise OperatorHostError("its process sent an invalid reply to a batch", "died")

    def start(self) -> Signature:
        """Start the process, load the operator in it, and return the operator's signature."""
        environment = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # for processes that the plug-in starts
        program = SandboxProgram(
            CHILD,
            packages=None,
            megabytes=self._megabytes,
            cpu_seconds=None,
            files=None,
            can_start_processes=True,
            environment=environment,
        )
        try:
            self._sandbox = SandboxProcess(program)
            reply = self._ask(to_bytes(self._load_request()), START_SECONDS)
        except SandboxError as error:
            is_late = error.cause is EndCause.DEADLINE
            raise OperatorHostError(f"loading {error.reason}" if is_late else error.reason, "refused") from None
        match reply:
            case {"ready": dict(described)} if (signature := _decode_signature(described)) is not None:
                return signature
            case {"refused": str(message), "hint": hint}:
                self.close()
                refused = OperatorRefusedError(
                    _printable(message), hint=_printable(hint) if isinstance(hint, str) else None
                )
                raise OperatorHostError(str(refused), "refused", refused)
            case _:
                self.close()
                raise OperatorHostError("its process sent an invalid reply while loading", "refused")

    def close(self) -> None:
        """End the process and all processes that it started."""
        if self._sandbox is not None:
            self._sandbox.close()
        self._sandbox = None

    def _ask(self, request: bytes, seconds: float) -> Any:
        assert self._sandbox is not None  # noqa: S101 - for the type checker
        try:
            return self._sandbox.ask(request, _read_reply, seconds=seconds, max_reply=MAX_FRAME)
        except SandboxError:
            self._sandbox = None
            raise

    def _load_request(self) -> dict[str, object]:
        context: dict[str, Any] = asdict(self._context)
        # A plug-in receives only the databases that its configuration names.
        named = set(self._context.configuration.values())
        context["databases"] = [(name, url) for name, url in context["databases"].items() if name in named]
        # Send pairs: a mapping whose only key is `date` would be decoded as a time.
        context["configuration"] = list(context["configuration"].items())
        context["folder"] = None if context["folder"] is None else str(context["folder"])
        return {"source": self._source, "modules": self._modules, "context": context}


def _read_reply(reply: memoryview) -> Any:
    try:
        return from_bytes(bytes(reply))
    except CorruptDataError as error:
        raise BadReplyError(error.message) from error


def _decode_answer(answer: object) -> object:
    """Decode an answer of the process: unchecked rows, or a failure."""
    match answer:
        case {"failed": str(reason), "passing": bool(passing)}:
            return FailedCall(_printable(reason), passing)
        case _:
            return answer


def _decode_signature(encoded: dict[str, Any]) -> Signature | None:
    """Decode the signature that a process sent. Return None if it is invalid."""
    try:
        parameters, cost, reads = encoded["parameters"], encoded["cost"], encoded["reads"]
        described = type("Described", (), {
            "parameters": None if parameters is None else tuple(Parameter(*fields) for fields in parameters),
            "cost": None if cost is None else timedelta(seconds=cost),
            "pure": encoded["pure"],
            "batch": encoded["batch"],
            "reads": None if reads is None else tuple(reads),
        })  # fmt: skip
        return signature_of(described)
    except (KeyError, TypeError, ValueError, OverflowError, OperatorRefusedError):
        return None


def _printable(text: str) -> str:
    """Put the text of a plug-in on one line, and replace control characters, which a terminal would interpret."""
    return "".join(map(visible, " ".join(text.split())))[:500]
