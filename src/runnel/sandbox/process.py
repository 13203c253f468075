"""Sandboxes: child processes with limits on memory, CPU time, files and processes.

In: requests, as bytes. Out: the replies of the child's program, or a SandboxError with the reason. Every process that
reads untrusted input or runs a plug-in is started here. It is an isolated interpreter with the permissions that its
program declares. By default, its module path contains only the standard library and the folders of the packages that
the program names, and it does not inherit the environment. Its current folder is `/`. Replies are not trusted: their
size is checked here, and their content by the `read` function that the caller passes with a request.
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
"""Time limit for a child to load its program."""

_MAIN = Path(__file__).with_name("child_main.py")
_ENVIRONMENT: Mapping[str, str] = {"LC_ALL": "C.UTF-8", "XML_CATALOG_FILES": ""}
_CRASHES = frozenset({signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV})
_CHUNK = 1 << 18
_FIRST_CHUNK = 1 << 14
"""Size of the first read. Most replies are small, and allocating a whole chunk costs more than receiving them."""

_MAX_ERROR_BYTES = 4096
_STATUS_BYTES = 1024
_MINOR_FAULTS = 7
"""The index of the minor page faults in /proc/PID/stat, counted after the name."""


_IS_NESTED = getattr(sys.modules.get("__main__"), "__file__", None) == str(_MAIN)
"""Whether this process is a sandbox. Those that it starts then stay in its process group and end with it."""


class EndCause(StrEnum):
    """Why a child did not reply."""

    DEADLINE = "deadline"
    CPU_TIME = "CPU time"
    MEMORY = "memory"
    BAD_REPLY = "bad reply"
    CRASHED = "crashed"
    ENDED = "ended"
    NOT_STARTED = "not started"
    CLOSED = "closed"


class SandboxError(Exception):
    """A child did not reply. `reason` is a text, and `served` is the number of requests that it answered before."""

    def __init__(self, reason: str, cause: EndCause, served: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause
        self.served = served


class BadReplyError(ValueError):
    """Raised by the function that reads a reply: the child sent something that its program never sends."""


@dataclass(frozen=True, slots=True)
class SandboxProgram:
    """The program of a child, and its limits.

    `module` has a function `open_program`, which is called with `arguments`; every user of the machine can read
    these. `packages` are the imported packages other than the standard library and Runnel; None allows everything
    that this process can import. `megabytes` is the memory in addition to that of the loaded program. `cpu_seconds`
    is the limit per request, or None for no limit. `files` is the maximum of open files, or None for no limit and
    permission to write files.
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
    """The folder that contains the top-level package of the module."""

    def module_path(self) -> list[str]:
        """Return the folders that the child can import from, without the standard library if `packages` is given."""
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
    """A child process, which answers one request at a time. Not thread-safe."""

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
                    # Avoid the descriptors of the three standard streams, which may be closed in this process.
                    descriptor = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR)
                try:
                    self._process = self._start(descriptor)
                finally:
                    os.close(descriptor)
            except BaseException:
                ours.close()
                raise
        except OSError as error:
            raise SandboxError(f"cannot start a process: {error.strerror}", EndCause.NOT_STARTED) from error
        self._socket = ours
        ours.setblocking(False)
        self._status = _open_status(self._process.pid)
        assert self._process.stderr is not None  # noqa: S101 - for the type checker
        self._stderr = self._process.stderr.fileno()
        os.set_blocking(self._stderr, False)
        try:
            self.ask(None, lambda reply: None, seconds=start_seconds, max_reply=0)
        except SandboxError as error:
            raise SandboxError(f"cannot start a process: {error.reason}", EndCause.NOT_STARTED) from error
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
        return subprocess.Popen(  # noqa: S603 - the program and its arguments are ours
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
        """The process ID."""
        return self._process.pid

    def is_usable(self) -> bool:
        """Return whether the child waits for a request and was started by this process, not before a fork."""
        if self._is_closed or self._owner != os.getpid() or self._process.poll() is not None:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False  # it closed the socket, or sent data without a request

    def ask(self, request: bytes | None, read: Callable[[memoryview], T], *, seconds: float, max_reply: int) -> T:
        """Send a request, and return the result of `read` for the reply. Without a request, wait for the first frame.

        `read` validates the reply, and raises BadReplyError for everything that the program does not send. After a
        SandboxError, the process has ended.
        """
        touched_before = self._touched_bytes()
        frame = b"" if request is None else REQUEST.pack(len(request), seconds) + request
        reply: memoryview | None = None
        try:
            reply = self._exchange(frame, time.monotonic() + seconds, max_reply, touched_before)
            value = read(reply)
        except _DeadlineError:
            self.close()
            raise SandboxError(f"it took more than {seconds:g} seconds", EndCause.DEADLINE, self.served) from None
        except (ValueError, LookupError, OverflowError, RecursionError) as error:
            self.close()
            reason = f"its process sent a bad reply: {str(error)[:200]}"
            raise SandboxError(reason, EndCause.BAD_REPLY, self.served) from error
        finally:
            if reply is None:  # even after an interrupt, or else its reply would be read for the next request
                self.close()
        self.served += 1
        return value

    def kill(self) -> None:
        """Kill the process. The thread that waits for its reply then closes it."""
        if self._owner == os.getpid() and self._process.returncode is None:
            with suppress(OSError):
                if _IS_NESTED:
                    os.kill(self._process.pid, signal.SIGKILL)
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and close its streams. In a forked process, only close the streams."""
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

    def _exchange(self, data: bytes, deadline: float, max_reply: int, touched_before: int) -> memoryview:
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
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise _DeadlineError
                for descriptor, _ in poller.poll(math.ceil(1000 * remaining)):
                    if descriptor == self._stderr:
                        if self._read_errors() == 0:
                            poller.unregister(self._stderr)
                        continue
                    with suppress(BlockingIOError):
                        if self._receive(received, max_reply):
                            return memoryview(received)[LENGTH.size :]
        except (OSError, EOFError):
            raise self._explain_end(touched_before) from None

    def _receive(self, received: bytearray, max_reply: int) -> bool:
        """Receive available data. Return whether the reply is complete."""
        data = self._socket.recv(_CHUNK if received else _FIRST_CHUNK)
        if not data:
            raise EOFError
        received += data
        if len(received) < LENGTH.size:
            return False
        size: int = LENGTH.unpack_from(received)[0]
        if size > max_reply:
            raise BadReplyError(f"the reply has more than {max_reply:,} bytes")
        if len(received) > LENGTH.size + size:
            raise BadReplyError("the reply is longer than its header says")
        return len(received) == LENGTH.size + size

    def _read_errors(self) -> int:
        """Read standard error of the child, and keep its end. Return the bytes read, 0 at its end, or -1 if none."""
        try:
            data = os.read(self._stderr, _CHUNK)
        except BlockingIOError:
            return -1
        self._errors = (self._errors + data)[-_MAX_ERROR_BYTES:]
        return len(data)

    def has_grown(self) -> bool:
        """Return whether the process uses so much memory after earlier requests that the next may get too little."""
        return self._size() - self._size_at_start > (self._program.megabytes << 20) // 4

    def _size(self) -> int:
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):
            return 0

    def _touched_bytes(self) -> int:
        """Return the bytes of memory that the process has touched so far. Possible until the process is reaped.

        The kernel's peak of resident memory cannot be used, because it starts with that of the parent.
        """
        try:
            fields = b"" if self._status is None else os.pread(self._status, _STATUS_BYTES, 0).rpartition(b")")[2]
            return int(fields.split()[_MINOR_FAULTS]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):
            return 0

    def _explain_end(self, touched_before: int) -> SandboxError:
        """Return the error for a process that closed its socket, and close the process."""
        with suppress(OSError, ChildProcessError):
            # It closed the socket, so it is about to end. Its memory use can be read until it is reaped.
            deadline = time.monotonic() + 1.0
            while os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
            else:
                self.kill()  # the processes that it started; its own exit status is kept
        touched = self._touched_bytes() - touched_before
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
        # A library that gets no memory may crash before Python raises MemoryError. The touched memory indicates this.
        crashed_without_memory = code not in (0, -signal.SIGKILL) and touched > (program.megabytes << 20) // 2
        if code == EXHAUSTED or crashed_without_memory:
            return SandboxError(f"it took more than {program.megabytes:,} MB of memory", EndCause.MEMORY, self.served)
        description = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        lines = self._errors.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        shown = "".join(character if character.isprintable() else "�" for character in last)[:300]
        cause = EndCause.CRASHED if -code in _CRASHES else EndCause.ENDED
        return SandboxError(f"its process {description}" + (f": {shown}" if shown else ""), cause, self.served)


def _open_status(pid: int) -> int | None:
    """Open /proc/PID/stat once, because it is read for every request and opening takes longer than reading."""
    try:
        return os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None


class _DeadlineError(Exception):
    """The deadline passed."""
