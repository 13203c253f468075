"""Stylesheets, applied where they can do no harm: in child processes with little time and memory, and no files.

In: an XSLT 1.0 stylesheet and a document, from anybody. Out: what the one makes of the other, or SheetFailed with the
line of the stylesheet. A child serves many documents; one that dies is replaced, and the next call works.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Self

import lxml

from runnel.errors import RunnelError, StylesheetError
from runnel.sandbox.stylesheet_child import EXHAUSTED, REPLY, TASK, Command, ReplyKind
from runnel.settings import Settings

CHILD = "runnel.sandbox.stylesheet_child"
MAX_STYLESHEET = 1 << 20
"""Largest stylesheet that is taken, in bytes."""

START_SECONDS = 60.0
"""How long a child may take to be ready."""

CLOCK = 2
"""How much longer than its processor time a stylesheet may take by the clock."""

SERVED = 1000
"""Documents after which a child is replaced by a fresh one."""

_MEDIA_TYPES = {
    ReplyKind.XML: "application/xml; charset=utf-8",
    ReplyKind.HTML: "text/html; charset=utf-8",
    ReplyKind.TEXT: "text/plain; charset=utf-8",
}
_MAX_COMPLAINT = 4096
_MINOR_FAULTS = 7
"""The place of the page faults in what the kernel tells of a process, after its name."""


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


class _Blame(Enum):
    """Whose doing it may be that a child ended."""

    SHEET = auto()
    SHEET_OR_PAST = auto()
    ANYBODY = auto()


class _ProcessDiedError(Exception):
    """A child ended instead of answering; `reason` in words."""

    def __init__(self, reason: str, blame: _Blame) -> None:
        super().__init__(reason)
        self.reason = reason
        self.blame = blame


class _Child:
    """One process and the talk with it."""

    def __init__(self, seconds: float, megabytes: int, most: int) -> None:
        self.served = 0
        self.dead = False
        self._seconds = seconds
        self._plenty = (megabytes << 20) // 2
        self._most = most
        try:
            self._process = self._start(seconds, megabytes, most)
            with self._watched(START_SECONDS):
                self._receive()
        except (OSError, _ProcessDiedError) as error:
            raise RunnelError("no process for stylesheets could be started", hint="try again later") from error

    @staticmethod
    def _start(seconds: float, megabytes: int, most: int) -> subprocess.Popen[bytes]:
        places = {str(Path(__file__).parents[2]), str(Path(lxml.__path__[0]).parent)}
        return subprocess.Popen(  # noqa: S603 - our own module, and arguments that are numbers
            [sys.executable, "-s", "-P", "-m", CHILD, str(seconds), str(megabytes), str(most)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(sorted(places)), "LC_ALL": "C.UTF-8", "XML_CATALOG_FILES": ""},
            start_new_session=True,
        )

    def ask(self, do: Command, sheet: bytes, document: bytes) -> _Outcome:
        """Send a task and wait for what becomes of it, CLOCK times the processor time at most."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        with self._watched(CLOCK * self._seconds):
            with suppress(BrokenPipeError):  # The exit code tells more.
                self._process.stdin.write(TASK.pack(do, len(sheet), len(document)) + sheet + document)
                self._process.stdin.flush()
            outcome = self._receive()
        self.served += 1
        return outcome

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _touched(self) -> int:
        """The memory that the process has touched, in bytes; also after its end, until it is reaped."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return int(fields[_MINOR_FAULTS]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):
            return 0

    @contextmanager
    def _watched(self, seconds: float) -> Iterator[None]:
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        watchdog = threading.Timer(seconds, end)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        except EOFError as error:
            raise self._died(late=late.is_set()) from error
        finally:
            watchdog.cancel()
        if late.is_set():
            raise self._died(late=True)

    def _receive(self) -> _Outcome:
        became, line, size = REPLY.unpack(self._read(REPLY.size))
        # A child that was taken over could say anything: what it says is measured before it is read.
        if became not in set(ReplyKind) or size > max(self._most, _MAX_COMPLAINT):
            raise EOFError
        return _Outcome(ReplyKind(became), line, self._read(size))

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _died(self, *, late: bool) -> _ProcessDiedError:
        self.dead = True
        touched = self._touched()
        self.kill()
        match self._process.returncode:
            case _ if late:
                return _ProcessDiedError(f"it took more than {CLOCK * self._seconds:g} seconds", _Blame.SHEET)
            case code if code == -signal.SIGPROF:
                return _ProcessDiedError(
                    f"it took more than {self._seconds:g} seconds of processor time", _Blame.SHEET
                )
            # A processor that finds no memory may fall over it before it can say so; what it had touched tells.
            case code if code == EXHAUSTED or (code and touched > self._plenty):
                return _ProcessDiedError("it took too much memory", _Blame.SHEET_OR_PAST)
            case _:
                return _ProcessDiedError("it broke the stylesheet processor", _Blame.ANYBODY)


class StylesheetTransformer:
    """Applies XSLT 1.0 stylesheets in child processes. Blocking; may be used from several threads.

    `seconds` of processor time and `megabytes` of memory are for one document, `max_output` bytes for its result.
    As many as `children` work at once, by default one for each core up to four; others wait for their turn.
    """

    def __init__(
        self, *, seconds: float, megabytes: int, max_output: int = 15 << 20, children: int | None = None
    ) -> None:
        self._seconds = seconds
        self._megabytes = megabytes
        self._max_output = max_output
        self._turns = threading.Semaphore(children or min(4, os.cpu_count() or 1))
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._closed = False

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
        with self._lock:
            self._closed = True
            ended = [*self._idle, *self._busy]
            self._idle.clear()
        for child in ended:
            child.kill()

    def _ask(self, do: Command, sheet: bytes, document: bytes, place: str) -> _Outcome:
        if len(sheet) > MAX_STYLESHEET:
            raise StylesheetError(f"the stylesheet has more than {MAX_STYLESHEET} bytes", place=place)
        with self._turns:
            try:
                outcome = self._tried(do, sheet, document)
            except _ProcessDiedError as error:
                if self._closed:
                    raise self._over() from error
                raise StylesheetError(
                    f"the stylesheet was stopped: {error.reason}",
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

    def _tried(self, do: Command, sheet: bytes, document: bytes) -> _Outcome:
        """One attempt; a second one in a fresh child where something else than the stylesheet may be to blame."""
        with self._child() as child:
            used = child.served > 0
            try:
                return child.ask(do, sheet, document)
            except _ProcessDiedError as error:
                again = error.blame is _Blame.ANYBODY or (error.blame is _Blame.SHEET_OR_PAST and used)
                if not again or self._closed:
                    raise
        with self._child(fresh=True) as child:
            return child.ask(do, sheet, document)

    @contextmanager
    def _child(self, *, fresh: bool = False) -> Iterator[_Child]:
        with self._lock:
            if self._closed:
                raise self._over()
            child = self._idle.pop() if self._idle and not fresh else None
        child = child or _Child(self._seconds, self._megabytes, self._max_output)
        with self._lock:
            self._busy.add(child)
            over = self._closed
        sound = False
        try:
            if over:
                raise self._over()
            yield child
            sound = not child.dead and child.served < SERVED
        finally:
            with self._lock:
                self._busy.discard(child)
                keep = sound and not self._closed
                if keep:
                    self._idle.append(child)
            if not keep:
                child.kill()

    def _over(self) -> RunnelError:
        return RunnelError("the stylesheet processor was closed")


def transformer_of(settings: Settings) -> StylesheetTransformer:
    """A transformer with the limits of the settings."""
    return StylesheetTransformer(
        seconds=settings.sheet_seconds,
        megabytes=settings.sheet_megabytes,
        max_output=settings.max_document_bytes,
    )
