"""A thread-safe pool of sandboxes that run the same program.

In: requests. Out: replies, or a SandboxError. Sandboxes are started on demand, serve many requests, and are replaced
after they end. A sandbox handles one request at a time, so if it ends, no other request is affected.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from runnel.sandbox.process import EndCause, SandboxError, SandboxProcess, SandboxProgram

T = TypeVar("T")

MAX_SERVED = 1000
"""Number of requests after which a sandbox is replaced."""


class SandboxPool:
    """Up to `workers` sandboxes of a program. Further requests wait. In a forked process, the pool is empty."""

    def __init__(self, program: SandboxProgram, workers: int) -> None:
        self._program = program
        self._workers = workers
        self._open()
        pool = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _open_in_fork(pool()))

    def _open(self) -> None:
        self._slots = threading.Semaphore(self._workers)
        self._lock = threading.Lock()
        self._idle: list[SandboxProcess] = []
        self._busy: set[SandboxProcess] = set()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def pids(self) -> list[int]:
        """Return the process IDs of the idle sandboxes."""
        with self._lock:
            return [process.pid for process in self._idle]

    def ask(
        self,
        request: bytes,
        read: Callable[[memoryview], T],
        *,
        seconds: float,
        max_reply: int,
        fresh: bool = False,
    ) -> T:
        """Send a request, and return the result of `read` for the reply. Raise SandboxError if there is none.

        With `fresh`, use a new process that has not served any request.
        """
        with self._slots, self._process(fresh) as process:
            try:
                return process.ask(request, read, seconds=seconds, max_reply=max_reply)
            except SandboxError as error:
                if self._is_closed:
                    raise SandboxError("the sandbox was closed", EndCause.CLOSED, error.served) from None
                raise

    def close(self) -> None:
        """Stop all sandboxes, including busy ones."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            # Only kill the busy sandboxes. The threads that wait for them close them.
            for process in self._busy:
                process.kill()
        for process in idle:
            process.close()

    @contextmanager
    def _process(self, fresh: bool) -> Iterator[SandboxProcess]:
        process = self._take(fresh)
        try:
            yield process
        finally:
            with self._lock:
                self._busy.discard(process)
                is_reusable = (
                    not self._is_closed
                    and process.served < MAX_SERVED
                    and process.is_usable()
                    and not process.has_grown()
                )
                if is_reusable:
                    self._idle.append(process)
            if not is_reusable:
                process.close()

    def _take(self, fresh: bool) -> SandboxProcess:
        while True:
            with self._lock:
                if self._is_closed:
                    raise SandboxError("the sandbox was closed", EndCause.CLOSED)
                process = self._idle.pop() if self._idle else None
            if process is None or fresh or not process.is_usable():
                if process is not None:
                    process.close()
                    if not fresh:
                        continue
                process = SandboxProcess(self._program)
            with self._lock:
                self._busy.add(process)
                is_closed = self._is_closed
            if not is_closed:
                return process
            process.close()


def _open_in_fork(pool: SandboxPool | None) -> None:
    """Reset a pool in a forked process. Its sandboxes belong to the parent, whose threads may hold the lock."""
    if pool is not None:
        inherited = [*pool._idle, *pool._busy]
        pool._open()
        for process in inherited:
            process.close()
