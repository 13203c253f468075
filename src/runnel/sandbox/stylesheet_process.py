"""Stylesheets, applied in sandboxes.

In: an XSLT 1.0 stylesheet and a document, from anybody. Out: what the one makes of the other, or a StylesheetError
with the line of the stylesheet.
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
"""Largest stylesheet that is taken, in bytes."""

CLOCK = 2
"""How many times longer than its CPU time a stylesheet may take."""

_MEDIA_TYPES = {
    ReplyKind.XML: "application/xml; charset=utf-8",
    ReplyKind.HTML: "text/html; charset=utf-8",
    ReplyKind.TEXT: "text/plain; charset=utf-8",
}
_MAX_COMPLAINT = 4096
_REASONS = {
    EndCause.MEMORY: "it took too much memory",
    EndCause.CRASHED: "it broke the stylesheet processor",
    EndCause.ENDED: "it broke the stylesheet processor",
}


@dataclass(frozen=True, slots=True)
class TransformedDocument:
    """What a stylesheet made of a document: bytes in UTF-8, and what they are."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Outcome:
    became: ReplyKind
    line: int
    data: bytes


class StylesheetTransformer:
    """Applies XSLT 1.0 stylesheets in child processes. Blocking; may be used from several threads.

    `seconds` of processor time and `megabytes` of memory are for one document, `max_output` bytes for its result.
    As many as `children` work at once, by default one for each core up to four; others wait for their turn.
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

    def check(self, sheet: bytes, place: str) -> None:
        """Refuse a stylesheet that cannot be used, with SheetFailed: for when somebody declares it."""
        self._ask(Command.CHECK, sheet, b"", place)

    def apply(self, sheet: bytes, document: bytes, place: str) -> TransformedDocument:
        """What a stylesheet makes of a document, or SheetFailed."""
        outcome = self._ask(Command.APPLY, sheet, document, place)
        return TransformedDocument(_MEDIA_TYPES[outcome.became], outcome.data)

    def close(self) -> None:
        """End all children, also those at work: their callers get a RunnelError, as their sheets are not to blame."""
        self._sandboxes.close()

    def _ask(self, do: Command, sheet: bytes, document: bytes, place: str) -> _Outcome:
        if len(sheet) > MAX_STYLESHEET:
            raise StylesheetError(f"the stylesheet has more than {MAX_STYLESHEET} bytes", place=place)
        try:
            outcome = self._try(TASK.pack(do, len(sheet)) + sheet + document)
        except SandboxError as error:
            if error.cause is EndCause.CLOSED:
                raise RunnelError("the stylesheet processor was closed") from error
            if error.cause is EndCause.NOT_STARTED:
                raise RunnelError("no process for stylesheets could be started", hint="try again later") from error
            raise StylesheetError(
                f"the stylesheet was stopped: {_REASONS.get(error.cause, error.reason)}",
                place=place,
                hint="simplify it, or give it smaller documents",
            ) from error
        if outcome.became is ReplyKind.FAILED:
            message, _, hint = outcome.data.decode("utf-8", "replace").partition("\0")
            raise StylesheetError(
                message, place=f"{place}:{outcome.line}" if outcome.line else place, hint=hint or None
            )
        if outcome.became is ReplyKind.LARGE:
            raise StylesheetError(f"the result has more than {self._max_output} bytes", place=place)
        return outcome

    def _try(self, request: bytes) -> _Outcome:
        """One attempt, and a second one in a fresh process if something else than the stylesheet may be to blame."""
        try:
            return self._exchange(request)
        except SandboxError as error:
            match error.cause:
                case EndCause.MEMORY if error.served:
                    pass  # Earlier documents may have left too little.
                case EndCause.CRASHED | EndCause.ENDED | EndCause.BAD_REPLY:
                    pass
                case _:
                    raise
        return self._exchange(request, fresh=True)

    def _exchange(self, request: bytes, *, fresh: bool = False) -> _Outcome:
        return self._sandboxes.ask(
            request,
            _read_reply,
            seconds=CLOCK * self._seconds,
            max_reply=REPLY.size + max(self._max_output, _MAX_COMPLAINT),
            fresh=fresh,
        )


def _read_reply(reply: memoryview) -> _Outcome:
    if len(reply) < REPLY.size:
        raise BadReplyError("it is too short")
    kind, line = REPLY.unpack_from(reply)
    return _Outcome(ReplyKind(kind), line, bytes(reply[REPLY.size :]))


def transformer_of(settings: Settings) -> StylesheetTransformer:
    """A transformer with the limits of the settings."""
    return StylesheetTransformer(
        seconds=settings.stylesheet_seconds,
        megabytes=settings.stylesheet_megabytes,
        max_output=settings.max_document_bytes,
    )
