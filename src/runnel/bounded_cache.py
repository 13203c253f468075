"""A least-recently-used cache with a limit on the total weight of its values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class BoundedCache(Generic[_Key, _Value]):
    """Keeps the most recently used values, up to a total weight. Not thread-safe.

    >>> cache = BoundedCache[str, str](10)
    >>> cache.put("a", "1", 6), cache.put("b", "2", 4), cache.get("a"), cache.put("c", "3", 4)
    (None, None, '1', None)
    >>> cache.get("a"), cache.get("b"), cache.get("c"), cache.weight
    ('1', None, '3', 10)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self.weight = 0
        """The total weight of the cached values."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _Key) -> _Value | None:
        """Return the value of a key, or None, and mark it as the most recently used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: _Key, value: _Value, weight: int = 1) -> None:
        """Cache a value, and evict the least recently used ones. A value that exceeds the limit is not cached."""
        if key in self._entries:
            self.weight -= self._entries.pop(key)[1]
        if weight > self._limit:
            return
        self._entries[key] = (value, weight)
        self.weight += weight
        while self.weight > self._limit:
            self.weight -= self._entries.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Remove all values."""
        self._entries.clear()
        self.weight = 0
