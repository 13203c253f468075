"""Answers that are known already: keys in, rows out. In memory those used last, and in files those of all workers.

Only pure operators come here. What is in memory is bounded in bytes, and so is what waits to be written: a cache may
always forget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runnel.bounded_cache import BoundedCache
from runnel.matching.operators.ask.cache_files import CacheDraft, CacheFile, open_segment
from runnel.matching.operators.ask.question_keys import quick_bytes
from runnel.matching.operators.plugins.encoding import size_of
from runnel.model.operator import Rows
from runnel.storage.file_storage import Storage

_MOST_FRESH = 64 << 20
_LARGEST_STORED = 1 << 20
"""Bytes of the largest answer that is written to a file."""


class AnswerCache:
    """What a worker knows: answers in memory, those in the segments that exist, and fresh ones in no file yet."""

    def __init__(self, memory_bytes: int = 64 << 20) -> None:
        self._memory = BoundedCache[bytes, Rows](memory_bytes)
        self._segments: dict[tuple[str, str], CacheFile | None] = {}
        self._fresh: dict[bytes, bytes] = {}
        self._fresh_bytes = 0

    def use_segments(self, storage: Storage, paths: Iterable[str]) -> None:
        """Look into these segments from now on, the newest last; what was open stays open."""
        known = self._segments
        wanted = [(storage.url, path) for path in paths]
        self._segments = {
            one: known[one] if one in known else open_segment(storage, one[1]) for one in dict.fromkeys(wanted)
        }

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Rows]:
        """The answers that are known of some keys."""
        found: dict[bytes, Rows] = {}
        unknown: list[bytes] = []
        for key in keys:
            rows = self._memory.get(key)
            if rows is None:
                unknown.append(key)
            else:
                found[key] = rows
        for segment in reversed(self._segments.values()):
            if not unknown:
                break
            if segment is None:
                continue
            here = {unknown[place]: rows for place, rows in segment.find(unknown)}
            for key, rows in here.items():
                self._memory.put(key, rows, size_of(rows))
            found.update(here)
            unknown = [key for key in unknown if key not in here]
        return found

    def add(self, key: bytes, rows: Rows) -> None:
        """Know a new answer."""
        self._memory.put(key, rows, size_of(rows))
        stored = quick_bytes(rows)
        if len(stored) <= _LARGEST_STORED and self._fresh_bytes + len(stored) <= _MOST_FRESH:
            self._fresh[key] = stored
            self._fresh_bytes += len(key) + len(stored)

    def take_fresh(self) -> CacheDraft:
        """The answers that are in no file yet; the next time only those that come after."""
        draft = CacheDraft(tuple(self._fresh.items()))
        self._fresh, self._fresh_bytes = {}, 0
        return draft
