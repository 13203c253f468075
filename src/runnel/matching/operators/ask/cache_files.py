"""The durable part of the cache: answers in, immutable files under the root out, and found again by mapping them.

A segment is an Arrow file with the keys in order and the rows of each answer as bytes that begin with a checksum over
key and rows. No catalog here, so that workers start quickly: which segments exist is told them. What is missing or
damaged is passed over with a warning, since an answer that is not found is asked for again.
"""

from __future__ import annotations

import logging
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from runnel.errors import CorruptDataError
from runnel.matching.operators.ask.question_keys import KEY_BYTES
from runnel.matching.operators.plugins.encoding import rows_from_bytes
from runnel.model.operator import Rows
from runnel.model.operator_cache import CacheSegment
from runnel.storage.arrow_files import read_arrow, write_arrow
from runnel.storage.file_storage import Storage

logger = logging.getLogger("runnel")

FOLDER = "operators/cache"
_SCHEMA = pa.schema([("key", pa.binary(KEY_BYTES)), ("rows", pa.large_binary())], metadata={b"runnel": b"answers/1"})
_CHECK = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class CacheDraft:
    """Answers that are in no file yet: their keys and rows as bytes, in the order in which they were given."""

    entries: tuple[tuple[bytes, bytes], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)


def write_segment(storage: Storage, draft: CacheDraft) -> CacheSegment | None:
    """Write answers as a new file, which exists once its row is in the catalog; None where there is nothing."""
    stored = ((key, _CHECK.pack(_sum(key, rows)) + rows) for key, rows in draft.entries)
    return write_stored(storage, stored)


def write_stored(storage: Storage, stored: Iterable[tuple[bytes, bytes]]) -> CacheSegment | None:
    """Write answers, with their checksums, as a new file; of several under one key the last."""
    ordered = sorted(dict(stored).items())
    if not ordered:
        return None
    keys = pa.array([key for key, _ in ordered], _SCHEMA.field("key").type)
    rows = pa.array([rows for _, rows in ordered], _SCHEMA.field("rows").type)
    path = f"{FOLDER}/{uuid.uuid4().hex}.arrow"
    file = write_arrow(storage, path, [pa.RecordBatch.from_arrays([keys, rows], schema=_SCHEMA)], _SCHEMA)
    return CacheSegment(file.path, file.size, len(ordered))


class CacheFile:
    """A segment, mapped into memory."""

    def __init__(self, keys: np.ndarray[Any, Any], rows: Any) -> None:
        self._keys = keys
        self._rows = rows

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, keys: Sequence[bytes]) -> Iterator[tuple[int, Rows]]:
        """The answers that are here: the places of their keys among those asked for, and their rows."""
        wanted = _key_array(keys)
        places = np.searchsorted(self._keys, wanted)
        there = np.flatnonzero(self._keys[np.minimum(places, len(self._keys) - 1)] == wanted)
        for number in there.tolist():
            stored = self._rows[int(places[number])].as_py()
            rows = stored[_CHECK.size :]
            if len(stored) >= _CHECK.size and _CHECK.unpack_from(stored)[0] == _sum(keys[number], rows):
                try:
                    yield number, rows_from_bytes(rows)
                except CorruptDataError:
                    continue

    def stored(self) -> Iterator[tuple[bytes, bytes]]:
        """All that is here and sound, with its checksum."""
        for key, value in zip(self._keys.tolist(), self._rows, strict=True):
            whole = bytes(key).ljust(KEY_BYTES, b"\0")  # numpy leaves out zeros at the end
            stored = value.as_py()
            if len(stored) >= _CHECK.size and _CHECK.unpack_from(stored)[0] == _sum(whole, stored[_CHECK.size :]):
                yield whole, stored


def open_segment(storage: Storage, path: str) -> CacheFile | None:
    """A segment, or None with a warning where it is missing or damaged."""
    try:
        table = read_arrow(storage, path)
        if not table.schema.equals(_SCHEMA):
            raise CorruptDataError(f"{path} does not hold answers")
        table.validate(full=True)
        key_column, rows = (column.combine_chunks() for column in table.columns)
        if not len(rows) or rows.null_count or key_column.null_count:
            raise CorruptDataError(f"{path} has no answers, or gaps")
        start = key_column.offset * KEY_BYTES
        keys = np.frombuffer(key_column.buffers()[1], dtype=f"S{KEY_BYTES}", count=len(rows), offset=start)
        if not np.all(keys[:-1] < keys[1:]):
            raise CorruptDataError(f"the keys of {path} are not in order")
        return CacheFile(keys, rows)
    except (CorruptDataError, OSError, ValueError, pa.ArrowException) as error:
        logger.warning("answers of operators that were kept cannot be used, and are asked for again: %s", error)
        return None


def _key_array(keys: Sequence[bytes]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(keys), dtype=f"S{KEY_BYTES}")


def _sum(key: bytes, rows: bytes) -> int:
    return zlib.crc32(rows, zlib.crc32(key))
