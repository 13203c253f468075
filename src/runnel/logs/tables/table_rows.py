"""Rows of tables in columns. This module does not import the catalog.

In: changes of a table, as items in columns. Out: Arrow tables with the columns of the schema and those below, whose
names contain a colon, which no column does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.model.item_batch import ItemBatch
from runnel.model.table import DELETED, ColumnType, TableSchema

SEQUENCE, ACCEPTED, VERSION = "row:sequence", "row:accepted", "row:version"
"""The columns of all rows: the sequence, time and version of its newest change."""

ID = "row:id"
"""The id of the row's items, unless the key is one column of texts, which is the same."""

ENDED = "row:ended"
"""The sequence of the change that ended a row, in histories."""

_TYPES = {
    ColumnType.TEXT: pa.string(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.DATE: pa.timestamp("us", tz="UTC"),
    ColumnType.BOOLEAN: pa.bool_(),
}
_CHILDREN = {
    ColumnType.TEXT: "text",
    ColumnType.NUMBER: "number",
    ColumnType.DATE: "moment",
    ColumnType.BOOLEAN: "number",
}
_COMMON = [
    (SEQUENCE, pa.int64()),
    (ACCEPTED, pa.timestamp("us", tz="UTC")),
    (VERSION, pa.int32()),
]


def id_column(schema: TableSchema) -> str:
    """Return the column with the ids of the rows' items.

    >>> from runnel.model.table import Column
    >>> id_column(TableSchema((Column("symbol", ColumnType.TEXT, is_key=True),)))
    'symbol'
    """
    key = schema.key
    return key[0].name if len(key) == 1 and key[0].type is ColumnType.TEXT else ID


def row_schema(schema: TableSchema, *more: tuple[str, Any]) -> Any:
    """Return the Arrow schema of a table's rows, with further columns."""
    ids = [(ID, pa.string())] if id_column(schema) == ID else []
    columns = [(column.name, _TYPES[column.type]) for column in schema.columns]
    return pa.schema([*ids, *_COMMON, *more, *columns])


def change_schema(schema: TableSchema) -> Any:
    """Return the Arrow schema of a table's changes."""
    return row_schema(schema, (DELETED, pa.bool_()))


def history_schema(schema: TableSchema) -> Any:
    """Return the Arrow schema of rows that ended."""
    return row_schema(schema, (ENDED, pa.int64()))


def conform(rows: Any, schema: Any) -> Any:
    """Return rows with exactly the columns of a schema. Columns that were added to the table later have no values."""
    missing = [field for field in schema if field.name not in rows.column_names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(schema.names).cast(schema)


def changes_of(batch: ItemBatch, schema: TableSchema) -> Any:
    """Return the changes in a batch, all of which are of one table."""
    records = batch.records
    lists = records.column("attributes")
    offsets = lists.offsets.to_numpy()
    owners = np.repeat(np.arange(len(batch)), np.diff(offsets))
    values = lists.flatten()
    names = values.field("name")
    ids = ["id"] if id_column(schema) == ID else []
    columns = [records.column(name) for name in (*ids, "sequence", "accepted", "version")]
    columns.append(pa.array(_rows_of(names, owners, DELETED, len(batch)) >= 0))
    for column in schema.columns:
        places = _rows_of(names, owners, column.name, len(batch))
        child = values.field(_CHILDREN[column.type]).take(pa.array(places, mask=places < 0))
        columns.append(pc.equal(child, 1.0) if column.type is ColumnType.BOOLEAN else child)
    return pa.Table.from_arrays(columns, schema=change_schema(schema))


def _rows_of(names: Any, owners: npt.NDArray[np.int64], name: str, count: int) -> npt.NDArray[np.int64]:
    """Return the position of each item's value of an attribute in the flat values, or -1."""
    places = np.full(count, -1, dtype=np.int64)
    of_name = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False))
    places[owners[of_name]] = of_name
    return places


def apply_changes(rows: Any, changes: Any, schema: TableSchema) -> Any:
    """Return the rows after changes, which are in order."""
    if not len(changes):
        return rows
    ids = id_column(schema)
    newest = changes.take(pa.array(_newest_of_each(changes.column(ids))))
    kept = rows.filter(pc.invert(pc.is_in(rows.column(ids), value_set=newest.column(ids).combine_chunks())))
    live = newest.filter(pc.invert(newest.column(DELETED))).select(rows.column_names)
    return pa.concat_tables([kept, live.cast(rows.schema)])


def ended_rows(rows: Any, changes: Any, schema: TableSchema) -> Any:
    """Return the rows that changes ended, with the sequence of the change that ended each.

    A version of a row ends when the row is changed or deleted. `rows` are the rows before the changes.
    """
    wanted = history_schema(schema)
    if not len(changes):
        return wanted.empty_table()
    sequences = changes.column(SEQUENCE).to_numpy()
    ids = id_column(schema)
    codes = _codes(changes.column(ids))
    order = np.argsort(codes, kind="stable")
    is_first = np.r_[True, codes[order][1:] != codes[order][:-1]]
    # Changes that ended an earlier change of the same row, which was not a deletion.
    later = order[~is_first]
    before = order[np.flatnonzero(~is_first) - 1]
    replaced = changes.take(pa.array(before)).append_column(ENDED, pa.array(sequences[later]))
    replaced = replaced.filter(pc.invert(replaced.column(DELETED)))
    # The first change of each row ended the row from before the changes, if it existed.
    first = order[is_first]
    found = pc.index_in(rows.column(ids), value_set=changes.column(ids).combine_chunks().take(pa.array(first)))
    places = np.asarray(found.fill_null(-1).to_numpy())
    ended = rows.filter(pa.array(places >= 0)).append_column(ENDED, pa.array(sequences[first][places[places >= 0]]))
    together = pa.concat_tables([conform(ended, wanted), conform(replaced, wanted)])
    return together.sort_by(ENDED)


def _newest_of_each(ids: Any) -> npt.NDArray[np.int64]:
    """Return the positions of the last change of each row, in order."""
    codes = _codes(ids)
    last = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    last[codes] = np.arange(len(codes))  # of repeated indexes, the last one counts
    return np.sort(last)


def _codes(ids: Any) -> npt.NDArray[np.int64]:
    """Return a number for each change that is the same for changes of the same row."""
    encoded = ids.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(), dtype=np.int64)
