"""An event loop in a background thread, for callers that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class BackgroundLoop:
    """Runs coroutines in a background thread, which the first `run` starts and `close` stops. It is thread-safe.

    >>> background = BackgroundLoop("example")
    >>> background.run(asyncio.sleep(0, "done"))
    'done'
    >>> background.close()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and wait for it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    @property
    def started(self) -> bool:
        """Whether the loop has been started and not closed."""
        return self._loop is not None

    def close(self) -> None:
        """Stop the loop and its thread. Coroutines that are still running are dropped, so cancel them first."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
