"""An event loop in a thread of its own, so that code without one can keep requests under way between its turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class LoopThread:
    """Started by the first `run`; `close` ends it. `name` is the thread's.

    >>> loop = LoopThread("example")
    >>> loop.run(lambda: asyncio.sleep(0, "done"))
    'done'
    >>> loop.close()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether there is anything to close."""
        return self._loop is not None

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine in the loop and wait for it; one caller at a time."""
        with self._turn:
            return asyncio.run_coroutine_threadsafe(work(), self._started()).result()

    def close(self) -> None:
        """End the loop and its thread. What is still under way in it is dropped: cancel it before."""
        with self._turn:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is None or thread is None:
                return
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        return self._loop
