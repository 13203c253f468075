"""A catalog as files: one Parquet file per table, identical for SQLite and PostgreSQL.

In: one snapshot of a catalog. Out: files that can fill another catalog, of either kind, with the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import BigInteger, Connection, Integer, LargeBinary, Table, column, insert, select, table, text

from runnel.catalog.store import migrations, schema
from runnel.catalog.store.connection import Catalog, now
from runnel.errors import CorruptDataError
from runnel.private_files import make_private_folder, open_private

_ROWS = 20_000


def copy_out(connection: Connection, folder: Path) -> dict[str, int]:
    """Write every table of a catalog to a folder. Return the numbers of rows."""
    make_private_folder(folder)
    return {source.name: _copy_table(connection, source, folder / f"{source.name}.parquet") for source in _tables()}


def _tables() -> list[Table]:
    return list(schema.metadata.sorted_tables)


def _copy_table(connection: Connection, source: Table, path: Path) -> int:
    arrow_schema = pa.schema([(each.name, _arrow_type(each.type)) for each in source.columns])
    rows = 0
    with (
        open(path, "xb", opener=open_private) as file,
        pq.ParquetWriter(file, arrow_schema, compression="zstd") as writer,
    ):
        result = connection.execute(select(source), execution_options={"yield_per": _ROWS})
        for chunk in result.partitions():
            arrays = [
                pa.array([row[index] for row in chunk], type=kind) for index, kind in enumerate(arrow_schema.types)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=arrow_schema))
            rows += len(chunk)
    return rows


def _arrow_type(kind: object) -> Any:
    match kind:
        case BigInteger() | Integer():
            return pa.int64()
        case LargeBinary():
            return pa.binary()
        case _:
            return pa.string()


def identities(connection: Connection) -> dict[str, int]:
    """Return the last assigned id of every table with ids, even if its row was deleted."""
    if connection.dialect.name == "sqlite":
        return {row.name: int(row.seq) for row in connection.execute(text("select name, seq from sqlite_sequence"))}
    result = connection.execute(
        text(
            "select c.table_name, c.column_name from information_schema.columns c"
            " where c.table_schema = current_schema() and c.is_identity = 'YES'"
        )
    ).all()
    last: dict[str, int] = {}
    for name, column_name in result:
        query = text("select pg_sequence_last_value(pg_get_serial_sequence(:t, :c)::regclass)")
        last[name] = int(connection.execute(query, {"t": name, "c": column_name}).scalar() or 0)
    return last


def copy_in(catalog: Catalog, folder: Path, *, version: int, ids: Mapping[str, int]) -> dict[str, int]:
    """Fill an empty catalog from a folder, in one transaction. Return the numbers of rows.

    Rows of an older version are inserted into the current tables and upgraded there.
    """
    history = migrations.HISTORY
    if not 1 <= version <= history.version:
        raise CorruptDataError(f"there is no catalog of version {version}")
    rows: dict[str, int] = {}
    with catalog.write() as connection:
        migrations.create_tables(connection, history)
        for path in sorted(folder.glob("*.parquet")):
            rows[path.stem] = _fill(connection, path)
        migrations.upgrade_rows(connection, version, history)
        _go_on_after(connection, ids)
    return rows


def _fill(connection: Connection, path: Path) -> int:
    name = path.stem
    if name not in schema.metadata.tables:
        raise CorruptDataError(f"{path.name} is not a table of a catalog")
    file = pq.ParquetFile(path)
    target = table(name, *(column(column_name) for column_name in file.schema_arrow.names))
    connection.execute(target.delete())  # delete the initial rows of a new catalog
    rows = 0
    for batch in _batches(file):
        connection.execute(insert(target), batch)
        rows += len(batch)
    return rows


def _batches(file: Any) -> Iterator[list[dict[str, Any]]]:
    for batch in file.iter_batches(batch_size=_ROWS):
        if batch.num_rows:
            yield batch.to_pylist()


def _go_on_after(connection: Connection, ids: Mapping[str, int]) -> None:
    """Continue after the assigned ids, so that no id is reused."""
    for name, last in ids.items():
        if name not in schema.metadata.tables or not last:
            continue
        if connection.dialect.name == "sqlite":
            connection.execute(text("delete from sqlite_sequence where name = :n"), {"n": name})
            connection.execute(
                text("insert into sqlite_sequence (name, seq) values (:n, :s)"), {"n": name, "s": last}
            )
        else:
            key = next(iter(schema.metadata.tables[name].columns)).name
            connection.execute(
                text("select setval(pg_get_serial_sequence(:t, :c), :s)"), {"t": name, "c": key, "s": last}
            )


def make_ready(connection: Connection) -> None:
    """Prepare a copied catalog for use: no runner, no checkpoint to continue from, and no cached answers."""
    connection.execute(schema.operator_cache.delete())  # the files are not copied, so operators are called again
    connection.execute(schema.leases.update().values(expires=0, detail="restored"))
    connection.execute(
        schema.lineages.update()
        .where(schema.lineages.c.abandoned.is_(None))
        .values(abandoned=now(connection), reason="restored from a backup")
    )
