"""Arrow and Parquet files of the logs: written in one step, and read by memory mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.storage.checksums import ChecksummedFile, check_file, damaged, has_checksum, write_with_checksum
from runnel.storage.file_storage import Storage

_ROW_GROUP = 5_000


def write_arrow(storage: Storage, path: str, batches: list[Any], schema: Any) -> ChecksummedFile:
    """Write record batches as an Arrow file. Its name gets its size and checksum."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return write_with_checksum(storage, path, memoryview(sink.getvalue()))


def read_arrow(storage: Storage, path: str) -> Any:
    """Verify the checksum of an Arrow file and map it as a table."""
    with _reading(storage, path), pa.memory_map(str(storage.local(path))) as source:
        return pa.ipc.open_file(source).read_all()


def write_parquet(storage: Storage, path: str, batches: Iterable[Any], schema: Any) -> ChecksummedFile:
    """Write record batches as a Parquet file. Its name gets its size and checksum."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        waiting: list[Any] = []
        rows = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _ROW_GROUP:
                writer.write_table(pa.Table.from_batches(waiting, schema), row_group_size=_ROW_GROUP)
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema), row_group_size=_ROW_GROUP)
    return write_with_checksum(storage, path, memoryview(sink.getvalue()))


def read_parquet_rows(
    storage: Storage, path: str, first: int, count: int, columns: Sequence[str] | None = None
) -> Any:
    """Read consecutive rows of a Parquet file. Only the row groups and columns that contain them are decoded."""
    with _reading(storage, path):
        file = pq.ParquetFile(storage.local(path))
        groups: list[int] = []
        start = skip = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if start < first + count and start + rows > first:
                skip = skip if groups else first - start
                groups.append(group)
            start += rows
        return file.read_row_groups(groups, columns).slice(skip, count)


def read_parquet(storage: Storage, path: str) -> Any:
    """Read the whole table of a Parquet file."""
    with _reading(storage, path):
        return pq.ParquetFile(storage.local(path)).read()


def read_parquet_column(storage: Storage, path: str, name: str) -> Any:
    """Read one column of a Parquet file without decoding the others."""
    with _reading(storage, path):
        return pq.ParquetFile(storage.local(path)).read(columns=[name]).column(name).combine_chunks()


@contextmanager
def _reading(storage: Storage, path: str) -> Iterator[None]:
    """Verify the checksum of a file, and convert errors of its reader into CorruptDataError with the file's path.

    A file without a checksum in its name is refused: the offsets in it might point outside of it.
    """
    if not has_checksum(path):
        raise damaged(storage, path, "its name contains no checksum")
    check_file(storage, path)
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise damaged(storage, path, str(error)) from error
