"""Hosts of operators: asks in, answers that are not checked yet out, or an OperatorHostError.

Operators that come with Runnel run in a thread of the worker. Plug-ins run in sandboxes, which are started when they
are first needed and ended when they are late. These have little of the worker's environment, and bounded memory.
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
from runnel.matching.operators.plugins.contract import Ask, Failed, OperatorContext
from runnel.matching.operators.plugins.encoding import from_bytes, to_bytes
from runnel.matching.operators.plugins.operator_child import MAX_FRAME
from runnel.matching.operators.plugins.registry import (
    Signature,
    check_operator,
    check_source,
    find_operator,
    is_shipped,
    open_operator,
    signature_of,
)
from runnel.model.operator import Parameter
from runnel.sandbox.process import BadReplyError, EndCause, SandboxError, SandboxProcess, SandboxProgram

CHILD = "runnel.matching.operators.plugins.operator_child"
START_SECONDS = 120.0
"""How long loading a plug-in may take: models are large."""

MEGABYTES = 4_096
"""Memory that a plug-in's process may take by default."""

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""What a plug-in's process has of the worker's environment: nothing that usually holds a secret."""

FailureKind = Literal["late", "died", "raised", "refused"]


class OperatorHostError(Exception):
    """There are no answers: too late, a process that ended, an exception, or an operator that cannot be loaded."""

    def __init__(self, reason: str, kind: FailureKind, refused: OperatorRefusedError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.refused = refused
        """The refusal that the operator's own process told, in its parts."""


class OperatorHost(Protocol):
    """Runs one operator, one batch at a time."""

    def prepare(self) -> None:
        """Load the operator, unless it is loaded."""

    def answer(self, asks: Sequence[Ask], seconds: float) -> Sequence[object]:
        """An answer for every ask, or an OperatorHostError after this time."""

    def close(self) -> None:
        """End the operator, whatever it does."""


def open_operator_host(
    source: str, context: OperatorContext, modules: Collection[str], megabytes: int
) -> OperatorHost:
    """A thread for an operator that comes with Runnel, a sandbox for a plug-in of one of these modules."""
    if is_shipped(source):
        return OperatorThread(source, context)
    return OperatorProcess(source, context, modules, megabytes)


def describe_operator(
    source: str, context: OperatorContext, modules: Collection[str], megabytes: int = MEGABYTES
) -> Signature:
    """The signature of an operator, which is made as it will be for its work and closed again.

    An OperatorRefusedError where it cannot be made. A plug-in is imported in a sandbox, never here.
    """
    if is_shipped(source):
        found = find_operator(source, modules)
        check_operator(found, context)
        return signature_of(found)
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
    """Runs an operator that comes with Runnel in a thread; one that is late is abandoned with its thread."""

    def __init__(self, source: str, context: OperatorContext) -> None:
        self._source = source
        self._context = context
        self._asks: queue.SimpleQueue[Sequence[Ask] | None] | None = None
        self._answers: queue.SimpleQueue[Sequence[object] | OperatorHostError] = queue.SimpleQueue()

    def prepare(self) -> None:
        """See `OperatorHost.prepare`."""
        if self._asks is None:
            self._start()

    def answer(self, asks: Sequence[Ask], seconds: float) -> Sequence[object]:
        """See `OperatorHost.answer`."""
        self.prepare()
        assert self._asks is not None  # noqa: S101 - for the type checker
        self._asks.put(asks)
        try:
            said = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise OperatorHostError(f"it took more than {seconds:g} seconds", "late") from None
        if isinstance(said, OperatorHostError):
            raise said
        return said

    def close(self) -> None:
        """Have the thread end after what it does now."""
        if self._asks is not None:
            self._asks.put(None)
        self._asks = None

    def _start(self) -> None:
        asks: queue.SimpleQueue[Sequence[Ask] | None] = queue.SimpleQueue()
        answers: queue.SimpleQueue[Sequence[object] | OperatorHostError] = queue.SimpleQueue()
        arguments = (self._source, self._context, asks, answers)
        threading.Thread(target=_serve, args=arguments, name=f"operator {self._source}", daemon=True).start()
        try:
            said = answers.get(timeout=START_SECONDS)
        except queue.Empty:
            said = OperatorHostError(f"it was not ready in {START_SECONDS:g} seconds", "refused")
        if isinstance(said, OperatorHostError):
            asks.put(None)
            raise said
        self._asks, self._answers = asks, answers


def _serve(
    source: str,
    context: OperatorContext,
    asks: queue.SimpleQueue[Sequence[Ask] | None],
    answers: queue.SimpleQueue[Sequence[object] | OperatorHostError],
) -> None:
    """The work of an OperatorThread: first whether the operator could be made, then an answer for every batch."""
    try:
        operator = open_operator(find_operator(source, ()), context)
    except OperatorRefusedError as refused:
        answers.put(OperatorHostError(str(refused), "refused"))
        return
    answers.put(())
    while (batch := asks.get()) is not None:
        try:
            answers.put(operator.answer(batch))
        except Exception as error:  # whatever it is, the batch has no answer and the next one may have
            answers.put(OperatorHostError(f"{type(error).__name__}: {error}"[:300], "raised"))
    close: Callable[[], None] | None = getattr(operator, "close", None)
    if close is not None:
        with suppress(Exception):
            close()


class OperatorProcess:
    """Runs an operator in a sandbox, which is replaced when it is late or ends."""

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
        """The number of the process, while there is one."""
        return None if self._sandbox is None else self._sandbox.pid

    def prepare(self) -> None:
        """See `OperatorHost.prepare`."""
        if self._sandbox is not None and not self._sandbox.is_usable():
            self.close()  # it ended while it was idle, which is no failure of a question
        if self._sandbox is None:
            self.start()

    def answer(self, asks: Sequence[Ask], seconds: float) -> Sequence[object]:
        """See `OperatorHost.answer`."""
        self.prepare()
        request = to_bytes([[dict(ask.attributes), ask.inputs] for ask in asks])
        if len(request) > MAX_FRAME:
            raise OperatorHostError(f"the questions have more than {MAX_FRAME:,} bytes", "raised")
        try:
            reply = self._ask(request, seconds)
        except SandboxError as error:
            kind: FailureKind = "late" if error.cause is EndCause.DEADLINE else "died"
            raise OperatorHostError(error.reason, kind) from None
        match reply:
            case {"answers": list(answers)} if len(answers) == len(asks):
                return [_said(one) for one in answers]
            case {"raised": str(reason)}:
                raise OperatorHostError(_printable(reason), "raised")
            case _:
                self.close()
                raise OperatorHostError("its process sent something else than answers", "died")

    def start(self) -> Signature:
        """Start the process and have the operator loaded; gives what it says of itself."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
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
            reply = self._ask(to_bytes(self._what_to_load()), START_SECONDS)
        except SandboxError as error:
            is_late = error.cause is EndCause.DEADLINE
            raise OperatorHostError(f"loading {error.reason}" if is_late else error.reason, "refused") from None
        match reply:
            case {"ready": dict(described)} if (signature := _signature(described)) is not None:
                return signature
            case {"refused": str(message), "hint": hint}:
                self.close()
                refused = OperatorRefusedError(
                    _printable(message), hint=_printable(hint) if isinstance(hint, str) else None
                )
                raise OperatorHostError(str(refused), "refused", refused)
            case _:
                self.close()
                raise OperatorHostError("its process sent something else than was expected", "refused")

    def close(self) -> None:
        """End the process and whatever it started."""
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

    def _what_to_load(self) -> dict[str, object]:
        context: dict[str, Any] = asdict(self._context)
        # A plug-in gets those databases that its configuration names.
        named = set(self._context.configuration.values())
        context["databases"] = [(name, url) for name, url in context["databases"].items() if name in named]
        # As pairs: a mapping with the one key `date` would arrive as a moment.
        context["configuration"] = list(context["configuration"].items())
        context["folder"] = None if context["folder"] is None else str(context["folder"])
        return {"source": self._source, "modules": self._modules, "context": context}


def _read_reply(reply: memoryview) -> Any:
    try:
        return from_bytes(bytes(reply))
    except CorruptDataError as error:
        raise BadReplyError(error.message) from error


def _said(one: object) -> object:
    """An answer that came over a pipe: rows to be checked, or a failure."""
    match one:
        case {"failed": str(reason), "passing": bool(passing)}:
            return Failed(_printable(reason), passing)
        case _:
            return one


def _signature(told: dict[str, Any]) -> Signature | None:
    """The signature that a process told, or None where it is none."""
    try:
        parameters, cost, reads = told["parameters"], told["cost"], told["reads"]
        described = type("Described", (), {
            "parameters": None if parameters is None else tuple(Parameter(*one) for one in parameters),
            "cost": None if cost is None else timedelta(seconds=cost),
            "pure": told["pure"],
            "batch": told["batch"],
            "reads": None if reads is None else tuple(reads),
        })  # fmt: skip
        return signature_of(described)
    except (KeyError, TypeError, ValueError, OverflowError, OperatorRefusedError):
        return None


def _printable(text: str) -> str:
    """Text of a plug-in, for a person: on one line, without what a terminal would act on."""
    return "".join(map(visible, " ".join(text.split())))[:500]
