"""The cache of operator answers: recently used answers in memory, and the answers of all workers in files.

In: keys of questions. Out: the rows of the cached answers. Only answers of pure operators are cached. The answers in
memory and the answers that wait to be written are bounded in bytes, so an answer may be evicted at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runnel.bounded_cache import BoundedCache
from runnel.matching.operators.ask.cache_files import CacheDraft, CacheFile, open_segment
from runnel.matching.operators.ask.question_keys import quick_bytes
from runnel.matching.operators.plugins.encoding import size_of
from runnel.model.operator import Rows
from runnel.storage.file_storage import Storage

_MAX_UNSAVED_BYTES = 64 << 20
_MAX_STORED_BYTES = 1 << 20
"""Size of the largest answer that is written to a file."""


class AnswerCache:
    """The answer cache of a worker: answers in memory, in segments, and new answers that are in no segment yet."""

    def __init__(self, memory_bytes: int = 64 << 20) -> None:
        self._memory = BoundedCache[bytes, Rows](memory_bytes)
        self._segments: dict[tuple[str, str], CacheFile | None] = {}
        self._unsaved: dict[bytes, bytes] = {}
        self._unsaved_bytes = 0

    def use_segments(self, storage: Storage, paths: Iterable[str]) -> None:
        """Search these segments from now on. `paths` lists the newest segment last. Open segments stay open."""
        opened = self._segments
        wanted = dict.fromkeys((storage.url, path) for path in paths)
        self._segments = {
            location: opened[location] if location in opened else open_segment(storage, location[1])
            for location in wanted
        }

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Rows]:
        """Return the cached answers of these keys. A key without a cached answer is missing in the result."""
        answers: dict[bytes, Rows] = {}
        missing: list[bytes] = []
        for key in keys:
            rows = self._memory.get(key)
            if rows is None:
                missing.append(key)
            else:
                answers[key] = rows
        for segment in reversed(self._segments.values()):
            if not missing:
                break
            if segment is None:
                continue
            from_segment = {missing[position]: rows for position, rows in segment.find(missing)}
            for key, rows in from_segment.items():
                self._memory.put(key, rows, size_of(rows))
            answers.update(from_segment)
            missing = [key for key in missing if key not in from_segment]
        return answers

    def add(self, key: bytes, rows: Rows) -> None:
        """Add a new answer."""
        self._memory.put(key, rows, size_of(rows))
        stored = quick_bytes(rows)
        if len(stored) <= _MAX_STORED_BYTES and self._unsaved_bytes + len(stored) <= _MAX_UNSAVED_BYTES:
            self._unsaved[key] = stored
            self._unsaved_bytes += len(key) + len(stored)

    def take_unsaved(self) -> CacheDraft:
        """Return the answers that were added since the last call, for writing them to a segment."""
        draft = CacheDraft(tuple(self._unsaved.items()))
        self._unsaved, self._unsaved_bytes = {}, 0
        return draft
