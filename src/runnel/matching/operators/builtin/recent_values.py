"""A few values that are dear to make, kept while they are used: keys in, values out, the longest unused dropped."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class RecentValues(Generic[_Value]):
    """Keeps what was made for the last `most` texts that were asked for. Several threads may ask.

    >>> lengths = RecentValues(len, most=2)
    >>> [lengths.get(text) for text in ("one", "three", "one")], lengths.made
    ([3, 5, 3], 2)
    """

    def __init__(self, make: Callable[[str], _Value], *, most: int) -> None:
        self._make = make
        self._most = most
        self._kept: OrderedDict[str, _Value] = OrderedDict()
        self._lock = threading.Lock()
        self.made = 0

    def get(self, text: str) -> _Value:
        """What is made of a text."""
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        made = self._make(text)  # Without the lock: two threads may make the same, which does no harm.
        with self._lock:
            self.made += 1
            found = self._kept[text] = made
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return found
