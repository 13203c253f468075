"""A cache of computed values for recently used texts, with least-recently-used eviction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from runnel.bounded_cache import BoundedCache

_Value = TypeVar("_Value")


class RecentValues(Generic[_Value]):
    """Caches the values of the `max_values` most recently used texts. Thread-safe. `computed` counts computations.

    >>> lengths = RecentValues(len, max_values=2)
    >>> [lengths.get(text) for text in ("one", "three", "one")], lengths.computed
    ([3, 5, 3], 2)
    >>> no_values = RecentValues(lambda text: None, max_values=2)
    >>> no_values.get("one"), no_values.get("one"), no_values.computed
    (None, None, 1)
    """

    def __init__(self, compute: Callable[[str], _Value], *, max_values: int) -> None:
        self._compute = compute
        self._cache = BoundedCache[str, tuple[_Value]](max_values)
        self._lock = threading.Lock()
        self.computed = 0

    def get(self, text: str) -> _Value:
        """Return the value of a text; compute it if it is not cached."""
        with self._lock:
            cached = self._cache.get(text)
        if cached is not None:
            return cached[0]
        value = self._compute(text)  # not under the lock: two threads may compute the same value, which is harmless
        with self._lock:
            self.computed += 1
            self._cache.put(text, (value,))
        return value
