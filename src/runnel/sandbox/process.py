"""Sandboxes: child processes with limits on memory, CPU time, files and processes.

In: requests, as bytes. Out: the replies of the child's program, or a SandboxError that says why there is none. Every
process that reads input of strangers or runs a plug-in is started here. It is an isolated interpreter with the
rights that its program names: by default its module path holds the standard library and the folders of the packages
that the program names, and it has none of this process's environment. `/` is its current folder. Whatever a child
sends is untrusted: its size is checked here, its content by the caller, with the `read` function of a request.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from runnel.sandbox.child_main import DESCRIPTOR, EXHAUSTED, LENGTH, REQUEST

T = TypeVar("T")

START_SECONDS = 60.0
"""How long a child may take to load its program."""

_MAIN = Path(__file__).with_name("child_main.py")
_ENVIRONMENT: Mapping[str, str] = {"LC_ALL": "C.UTF-8", "XML_CATALOG_FILES": ""}
_CRASHES = frozenset({signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV})
_CHUNK = 1 << 18
_FIRST_CHUNK = 1 << 14
"""Most replies are small, and allocating a buffer of a whole chunk would cost more than receiving them."""

_KEPT_ERRORS = 4096
_STATUS_BYTES = 1024
_MINOR_FAULTS = 7
"""The index of the page faults in /proc/PID/stat, after the name."""


_IS_NESTED = getattr(sys.modules.get("__main__"), "__file__", None) == str(_MAIN)
"""Whether this process is a sandbox itself: those that it starts then stay in its group, and end with it."""


class EndCause(StrEnum):
    """Why a child gave no reply."""

    DEADLINE = "deadline"
    CPU_TIME = "CPU time"
    MEMORY = "memory"
    BAD_REPLY = "bad reply"
    CRASHED = "crashed"
    ENDED = "ended"
    NOT_STARTED = "not started"
    CLOSED = "closed"


class SandboxError(Exception):
    """A child gave no reply; `reason` in words. `served` is the number of requests that it had answered before."""

    def __init__(self, reason: str, cause: EndCause, served: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause
        self.served = served


class BadReplyError(ValueError):
    """Raised by the function that reads a reply: the child sent what its program never sends."""


@dataclass(frozen=True, slots=True)
class SandboxProgram:
    """What a child runs, and what it may take.

    `module` has the function `open_program`, which is called with `arguments`; every user of the machine can read
    these. `packages` are those that it imports besides the standard library and Runnel; None stands for whatever this
    process can import. `megabytes` are beyond those of the loaded program. `cpu_seconds` are for one request, and
    None is no limit. `files` can be open at the same time; None is no limit, and the program may write files.
    """

    module: str
    packages: tuple[str, ...] | None
    megabytes: int
    cpu_seconds: float | None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    files: int | None = 0
    can_start_processes: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: _ENVIRONMENT, repr=False)
    folder: Path = Path(__file__).parents[2]
    """The folder that holds the module's top-level package."""

    def module_path(self) -> list[str]:
        """The folders that the child can import from: all of them, or those besides the standard library."""
        if self.packages is None:
            return [folder for folder in sys.path if folder]
        folders = [self.folder, *map(_folder_of, self.packages)]
        return list(dict.fromkeys(str(folder.resolve()) for folder in folders if folder is not None))


def _folder_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations is None else origin.parent.parent


class SandboxProcess:
    """One child, which answers one request at a time. Not for several threads at once."""

    def __init__(self, program: SandboxProgram, *, start_seconds: float = START_SECONDS) -> None:
        self.served = 0
        self._program = program
        self._owner = os.getpid()
        self._errors = b""
        self._is_closed = False
        try:
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    # Not one of the three standard streams, which may be closed here.
                    descriptor = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR)
                try:
                    self._process = self._start(descriptor)
                finally:
                    os.close(descriptor)
            except BaseException:
                ours.close()
                raise
        except OSError as error:
            raise SandboxError(f"no process could be started: {error.strerror}", EndCause.NOT_STARTED) from error
        self._socket = ours
        ours.setblocking(False)
        self._status = _open_status(self._process.pid)
        assert self._process.stderr is not None  # noqa: S101 - for the type checker
        self._stderr = self._process.stderr.fileno()
        os.set_blocking(self._stderr, False)
        try:
            self.ask(None, lambda reply: None, seconds=start_seconds, max_reply=0)
        except SandboxError as error:
            raise SandboxError(f"no process could be started: {error.reason}", EndCause.NOT_STARTED) from error
        self.served = 0
        self._size_at_start = self._size()

    def _start(self, descriptor: int) -> subprocess.Popen[bytes]:
        program = self._program
        start = {
            "module": program.module,
            "path": program.module_path(),
            "is_whole_path": program.packages is None,
            "arguments": dict(program.arguments),
            "megabytes": program.megabytes,
            "cpu_seconds": program.cpu_seconds,
            "files": program.files,
            "can_start_processes": program.can_start_processes,
        }
        # Some installed packages can be imported only after `site` has run their hooks.
        options = ["-I"] if program.packages is None else ["-I", "-S", "-B"]
        return subprocess.Popen(  # noqa: S603 - our own file, and arguments of ours
            [sys.executable, *options, str(_MAIN), str(descriptor), json.dumps(start)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env=dict(program.environment),
            start_new_session=not _IS_NESTED,
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def is_usable(self) -> bool:
        """Whether the child waits for a request, and was started by this process and not before a fork."""
        if self._is_closed or self._owner != os.getpid() or self._process.poll() is not None:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False  # It closed the socket, or sent something that nobody asked for.

    def ask(self, request: bytes | None, read: Callable[[memoryview], T], *, seconds: float, max_reply: int) -> T:
        """What `read` makes of the reply to a request; without a request, of the frame that says that it is ready.

        `read` checks what it is given, and raises a BadReplyError for everything that its program does not send.
        After a SandboxError the process is gone.
        """
        touched = self._touched()
        frame = b"" if request is None else REQUEST.pack(len(request), seconds) + request
        reply: memoryview | None = None
        try:
            reply = self._exchange(frame, time.monotonic() + seconds, max_reply, touched)
            value = read(reply)
        except _DeadlineError:
            self.close()
            raise SandboxError(f"it took more than {seconds:g} seconds", EndCause.DEADLINE, self.served) from None
        except (ValueError, LookupError, OverflowError, RecursionError) as error:
            self.close()
            reason = f"its process sent a bad reply: {str(error)[:200]}"
            raise SandboxError(reason, EndCause.BAD_REPLY, self.served) from error
        finally:
            if reply is None:  # also after an interrupt: its reply would be taken for that of the next request
                self.close()
        self.served += 1
        return value

    def kill(self) -> None:
        """End the process, whatever it does, and leave the rest to the thread that waits for its reply."""
        if self._owner == os.getpid() and self._process.returncode is None:
            with suppress(OSError):
                if _IS_NESTED:
                    os.kill(self._process.pid, signal.SIGKILL)
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and close its streams; in a fork only the streams of this side."""
        if self._is_closed:
            return
        self._is_closed = True
        self.kill()
        if self._owner == os.getpid():
            self._process.wait()
        self._socket.close()
        if self._status is not None:
            os.close(self._status)
            self._status = None
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _exchange(self, data: bytes, deadline: float, max_reply: int, touched: int) -> memoryview:
        unsent = memoryview(data)
        received = bytearray()
        poller = select.poll()
        poller.register(self._stderr, select.POLLIN)
        try:
            while True:
                if unsent:
                    with suppress(BlockingIOError):
                        unsent = unsent[self._socket.send(unsent[:_CHUNK]) :]
                poller.register(self._socket, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise _DeadlineError
                for descriptor, _ in poller.poll(math.ceil(1000 * left)):
                    if descriptor == self._stderr:
                        if self._read_errors() == 0:
                            poller.unregister(self._stderr)
                        continue
                    with suppress(BlockingIOError):
                        if self._receive(received, max_reply):
                            return memoryview(received)[LENGTH.size :]
        except (OSError, EOFError):
            raise self._ended(touched) from None

    def _receive(self, received: bytearray, max_reply: int) -> bool:
        """Take what has arrived; whether the reply is complete."""
        data = self._socket.recv(_CHUNK if received else _FIRST_CHUNK)
        if not data:
            raise EOFError
        received += data
        if len(received) < LENGTH.size:
            return False
        size: int = LENGTH.unpack_from(received)[0]
        if size > max_reply:
            raise BadReplyError(f"it has more than {max_reply:,} bytes")
        if len(received) > LENGTH.size + size:
            raise BadReplyError("it is longer than it says")
        return len(received) == LENGTH.size + size

    def _read_errors(self) -> int:
        """Keep the end of what the child writes to its standard error; 0 at its end."""
        try:
            data = os.read(self._stderr, _CHUNK)
        except BlockingIOError:
            return -1
        self._errors = (self._errors + data)[-_KEPT_ERRORS:]
        return len(data)

    def has_grown(self) -> bool:
        """Whether the process kept so much memory of earlier requests that the next one could have too little."""
        return self._size() - self._size_at_start > (self._program.megabytes << 20) // 4

    def _size(self) -> int:
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):
            return 0

    def _touched(self) -> int:
        """The bytes of memory that the process has touched so far, also after its end until it is reaped.

        The kernel's peak of resident memory cannot be used: it begins with that of the process that forked.
        """
        try:
            fields = b"" if self._status is None else os.pread(self._status, _STATUS_BYTES, 0).rpartition(b")")[2]
            return int(fields.split()[_MINOR_FAULTS]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):
            return 0

    def _ended(self, touched: int) -> SandboxError:
        """The reason why a process closed its socket; the process is gone afterwards."""
        with suppress(OSError, ChildProcessError):
            # It closed the socket, so it is about to end. Its memory can be read until it is reaped.
            deadline = time.monotonic() + 1.0
            while os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
            else:
                self.kill()  # what it started; its own exit status stays
        grown = self._touched() - touched
        with suppress(OSError):
            while self._read_errors() > 0:
                pass
        code = self._process.poll()
        self.close()
        program = self._program
        if code is None:
            return SandboxError("its process closed the connection", EndCause.ENDED, self.served)
        if code == -signal.SIGPROF:
            reason = f"it took more than {program.cpu_seconds:g} seconds of CPU time"
            return SandboxError(reason, EndCause.CPU_TIME, self.served)
        # A library that gets no memory may crash before Python can say so: then the memory that it touched tells.
        crashed = code not in (0, -signal.SIGKILL) and grown > (program.megabytes << 20) // 2
        if code == EXHAUSTED or crashed:
            return SandboxError(f"it took more than {program.megabytes:,} MB of memory", EndCause.MEMORY, self.served)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        lines = self._errors.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        shown = "".join(one if one.isprintable() else "�" for one in last)[:300]
        cause = EndCause.CRASHED if -code in _CRASHES else EndCause.ENDED
        return SandboxError(f"its process {how}" + (f": {shown}" if shown else ""), cause, self.served)


def _open_status(pid: int) -> int | None:
    """The descriptor of /proc/PID/stat: it is read for every request, and opening it takes longer than reading it."""
    try:
        return os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None


class _DeadlineError(Exception):
    """The deadline passed."""
