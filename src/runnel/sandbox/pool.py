"""Several sandboxes of one program, for callers in many threads.

In: requests. Out: replies, as from one sandbox. Children are started when they are needed, serve many requests, and
are replaced when they end. A child has one request at a time, so that one that ends takes no other request with it.
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

SERVED = 1000
"""Requests after which a child is replaced."""


class SandboxPool:
    """Up to `workers` sandboxes of a program; further requests wait. A fork begins with an empty pool."""

    def __init__(self, program: SandboxProgram, workers: int) -> None:
        self._program = program
        self._workers = workers
        self._open()
        pool = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _open_in_fork(pool()))

    def _open(self) -> None:
        self._turns = threading.Semaphore(self._workers)
        self._lock = threading.Lock()
        self._idle: list[SandboxProcess] = []
        self._busy: set[SandboxProcess] = set()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def pids(self) -> list[int]:
        """The numbers of the processes that wait for a request."""
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
        """What `read` makes of the reply, or a SandboxError; `fresh` asks for a process that has served nothing."""
        with self._turns, self._process(fresh) as process:
            try:
                return process.ask(request, read, seconds=seconds, max_reply=max_reply)
            except SandboxError as error:
                if self._is_closed:
                    raise SandboxError("the sandbox was closed", EndCause.CLOSED, error.served) from None
                raise

    def close(self) -> None:
        """End all processes, including those at work."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            # Those at work belong to the threads that wait for them: without a process they close them themselves.
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
                keep = (
                    not self._is_closed
                    and process.served < SERVED
                    and process.is_usable()
                    and not process.has_grown()
                )
                if keep:
                    self._idle.append(process)
            if not keep:
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
    """Leave the sandboxes of a pool to the process that forked, whose threads may hold the pool's lock now."""
    if pool is not None:
        inherited = [*pool._idle, *pool._busy]
        pool._open()
        for process in inherited:
            process.close()
