"""A few values that are dear to make, kept while they are used: keys in, values out, the longest unused dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from runnel.bounded_cache import BoundedCache

_Value = TypeVar("_Value")


class RecentValues(Generic[_Value]):
    """Keeps what was made for the last `most` texts that were asked for. Several threads may ask.

    >>> lengths = RecentValues(len, most=2)
    >>> [lengths.get(text) for text in ("one", "three", "one")], lengths.made
    ([3, 5, 3], 2)
    >>> nothing = RecentValues(lambda text: None, most=2)
    >>> nothing.get("one"), nothing.get("one"), nothing.made
    (None, None, 1)
    """

    def __init__(self, make: Callable[[str], _Value], *, most: int) -> None:
        self._make = make
        self._kept = BoundedCache[str, tuple[_Value]](most)
        self._lock = threading.Lock()
        self.made = 0

    def get(self, text: str) -> _Value:
        """What is made of a text."""
        with self._lock:
            kept = self._kept.get(text)
        if kept is not None:
            return kept[0]
        made = self._make(text)  # Without the lock: two threads may make the same, which does no harm.
        with self._lock:
            self.made += 1
            self._kept.put(text, (made,))
        return made
