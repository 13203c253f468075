"""Segments: the files of the answer cache, which are immutable and memory-mapped.

A segment is an Arrow file with sorted keys. The rows of each answer are bytes that begin with a checksum over key and
rows. This module does not read the catalog, so that workers start quickly; workers receive the list of segments. A
missing or damaged segment is skipped with a warning, because the operator can be called again for its answers.
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
_CHECKSUM = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class CacheDraft:
    """Answers that are in no segment yet: their keys, and their rows as bytes, in the order of their arrival."""

    entries: tuple[tuple[bytes, bytes], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)


def write_segment(storage: Storage, draft: CacheDraft) -> CacheSegment | None:
    """Write answers as a new segment, which workers use once the catalog lists it. Return None for an empty draft."""
    stored = ((key, _CHECKSUM.pack(_checksum(key, rows)) + rows) for key, rows in draft.entries)
    return write_stored(storage, stored)


def write_stored(storage: Storage, stored: Iterable[tuple[bytes, bytes]]) -> CacheSegment | None:
    """Write answers that carry their checksums as a new segment. For a repeated key the last answer counts."""
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
        """Yield the answers in this segment: the position of each key in `keys`, and the rows."""
        wanted = _key_array(keys)
        insertion_points = np.searchsorted(self._keys, wanted)
        present = np.flatnonzero(self._keys[np.minimum(insertion_points, len(self._keys) - 1)] == wanted)
        for position in present.tolist():
            stored = self._rows[int(insertion_points[position])].as_py()
            rows = stored[_CHECKSUM.size :]
            if _is_intact(keys[position], stored):
                try:
                    yield position, rows_from_bytes(rows)
                except CorruptDataError:
                    continue

    def stored(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key and the stored bytes, which begin with a checksum, of every undamaged answer."""
        for stripped_key, value in zip(self._keys.tolist(), self._rows, strict=True):
            key = bytes(stripped_key).ljust(KEY_BYTES, b"\0")  # numpy strips trailing zeros
            stored = value.as_py()
            if _is_intact(key, stored):
                yield key, stored


def open_segment(storage: Storage, path: str) -> CacheFile | None:
    """Open a segment. Log a warning and return None if it is missing or damaged."""
    try:
        table = read_arrow(storage, path)
        if not table.schema.equals(_SCHEMA):
            raise CorruptDataError(f"{path} does not have the columns of an answer cache file")
        table.validate(full=True)
        key_column, rows = (column.combine_chunks() for column in table.columns)
        if not len(rows) or rows.null_count or key_column.null_count:
            raise CorruptDataError(f"{path} has no rows, or rows without a value")
        start = key_column.offset * KEY_BYTES
        keys = np.frombuffer(key_column.buffers()[1], dtype=f"S{KEY_BYTES}", count=len(rows), offset=start)
        if not np.all(keys[:-1] < keys[1:]):
            raise CorruptDataError(f"the keys of {path} are not sorted or not unique")
        return CacheFile(keys, rows)
    except (CorruptDataError, OSError, ValueError, pa.ArrowException) as error:
        logger.warning("skipping a cache file of operator answers; operators are called again instead: %s", error)
        return None


def _key_array(keys: Sequence[bytes]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(keys), dtype=f"S{KEY_BYTES}")


def _is_intact(key: bytes, stored: bytes) -> bool:
    if len(stored) < _CHECKSUM.size:
        return False
    return bool(_CHECKSUM.unpack_from(stored)[0] == _checksum(key, stored[_CHECKSUM.size :]))


def _checksum(key: bytes, rows: bytes) -> int:
    return zlib.crc32(rows, zlib.crc32(key))
