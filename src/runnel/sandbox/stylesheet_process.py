"""Applies stylesheets in sandboxes.

In: an XSLT 1.0 stylesheet and a document, both untrusted. Out: the transformed document, or a StylesheetError with
the line of the stylesheet.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from runnel.errors import RunnelError, StylesheetError
from runnel.sandbox.pool import SandboxPool
from runnel.sandbox.process import BadReplyError, EndCause, SandboxError, SandboxProgram
from runnel.sandbox.stylesheet_child import REPLY, TASK, Command, ReplyKind
from runnel.settings import Settings

MAX_STYLESHEET = 1 << 20
"""Maximum size of a stylesheet in bytes."""

WALL_CLOCK_FACTOR = 2
"""The wall-clock limit of a stylesheet, as a multiple of its CPU time limit."""

_MEDIA_TYPES = {
    ReplyKind.XML: "application/xml; charset=utf-8",
    ReplyKind.HTML: "text/html; charset=utf-8",
    ReplyKind.TEXT: "text/plain; charset=utf-8",
}
_MAX_MESSAGE_BYTES = 4096
_REASONS = {
    EndCause.MEMORY: "it took too much memory",
    EndCause.CRASHED: "the stylesheet processor crashed",
    EndCause.ENDED: "the process of the stylesheet processor ended",
}


@dataclass(frozen=True, slots=True)
class TransformedDocument:
    """The result of a stylesheet: its media type, and bytes in UTF-8."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Outcome:
    kind: ReplyKind
    line: int
    data: bytes


class StylesheetTransformer:
    """Applies XSLT 1.0 stylesheets in sandboxes. Blocking and thread-safe.

    `seconds` of CPU time and `megabytes` of memory are the limits per document, `max_output` that of the result in
    bytes. At most `children` sandboxes run at once, by default one per core and at most four. Further calls wait.
    """

    def __init__(
        self, *, seconds: float, megabytes: int, max_output: int = 15 << 20, children: int | None = None
    ) -> None:
        self._seconds = seconds
        self._max_output = max_output
        arguments = {"megabytes": megabytes, "max_output": max_output}
        program = SandboxProgram("runnel.sandbox.stylesheet_child", ("lxml",), megabytes, seconds, arguments)
        self._sandboxes = SandboxPool(program, children or min(4, os.cpu_count() or 1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def check(self, stylesheet: bytes, place: str) -> None:
        """Raise StylesheetError if a stylesheet cannot be used. Called when a stylesheet is declared."""
        self._run(Command.CHECK, stylesheet, b"", place)

    def apply(self, stylesheet: bytes, document: bytes, place: str) -> TransformedDocument:
        """Apply a stylesheet to a document, or raise StylesheetError."""
        outcome = self._run(Command.APPLY, stylesheet, document, place)
        return TransformedDocument(_MEDIA_TYPES[outcome.kind], outcome.data)

    def close(self) -> None:
        """Stop all sandboxes. Calls in progress raise RunnelError, not StylesheetError."""
        self._sandboxes.close()

    def _run(self, command: Command, stylesheet: bytes, document: bytes, place: str) -> _Outcome:
        if len(stylesheet) > MAX_STYLESHEET:
            raise StylesheetError(f"the stylesheet has more than {MAX_STYLESHEET} bytes", place=place)
        try:
            outcome = self._send(TASK.pack(command, len(stylesheet)) + stylesheet + document)
        except SandboxError as error:
            if error.cause is EndCause.CLOSED:
                raise RunnelError("the stylesheet processor was closed") from error
            if error.cause is EndCause.NOT_STARTED:
                raise RunnelError("cannot start a process for stylesheets", hint="try again later") from error
            raise StylesheetError(
                f"the stylesheet was stopped: {_REASONS.get(error.cause, error.reason)}",
                place=place,
                hint="simplify the stylesheet, or use smaller documents",
            ) from error
        if outcome.kind is ReplyKind.FAILED:
            message, _, hint = outcome.data.decode("utf-8", "replace").partition("\0")
            raise StylesheetError(
                message, place=f"{place}:{outcome.line}" if outcome.line else place, hint=hint or None
            )
        if outcome.kind is ReplyKind.LARGE:
            raise StylesheetError(f"the output of the stylesheet has more than {self._max_output} bytes", place=place)
        return outcome

    def _send(self, request: bytes) -> _Outcome:
        """Send a request. Repeat it in a new process if the cause of a failure may be unrelated to the stylesheet."""
        try:
            return self._exchange(request)
        except SandboxError as error:
            match error.cause:
                case EndCause.MEMORY if error.served:
                    pass  # earlier documents may have left too little memory
                case EndCause.CRASHED | EndCause.ENDED | EndCause.BAD_REPLY:
                    pass
                case _:
                    raise
        return self._exchange(request, fresh=True)

    def _exchange(self, request: bytes, *, fresh: bool = False) -> _Outcome:
        return self._sandboxes.ask(
            request,
            _read_reply,
            seconds=WALL_CLOCK_FACTOR * self._seconds,
            max_reply=REPLY.size + max(self._max_output, _MAX_MESSAGE_BYTES),
            fresh=fresh,
        )


def _read_reply(reply: memoryview) -> _Outcome:
    if len(reply) < REPLY.size:
        raise BadReplyError("the reply is too short")
    kind, line = REPLY.unpack_from(reply)
    return _Outcome(ReplyKind(kind), line, bytes(reply[REPLY.size :]))


def transformer_of(settings: Settings) -> StylesheetTransformer:
    """Return a transformer with the limits of the settings."""
    return StylesheetTransformer(
        seconds=settings.stylesheet_seconds,
        megabytes=settings.stylesheet_megabytes,
        max_output=settings.max_document_bytes,
    )
