"""Tables: their columns and options, and the changes of their rows.

A row is identified by its key, the values of one or more columns. A change is an item of the table: either the whole
row, or a deletion, which has the key columns and `row:deleted`. A column has at most one value in a row.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from runnel.errors import InvalidItemError
from runnel.model.item import MAX_ID, MAX_TEXT, MOMENTS, Attributes, Item, Value
from runnel.model.structured_value import kind_of_attribute

DELETED = "row:deleted"
"""The attribute of a change that deletes a row. No column has this name, because columns contain no `:`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIGN = 1 << 63


class ColumnType(StrEnum):
    """The type of a column's values."""

    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    BOOLEAN = "boolean"

    def accepts(self, value: Value) -> bool:
        """Return whether a typed value has this type.

        >>> ColumnType.NUMBER.accepts(3.5), ColumnType.NUMBER.accepts(True)
        (True, False)
        """
        return type(value) is _PYTHON_TYPES[self]


_PYTHON_TYPES: dict[ColumnType, type] = {
    ColumnType.TEXT: str,
    ColumnType.NUMBER: float,
    ColumnType.DATE: datetime,
    ColumnType.BOOLEAN: bool,
}


class ChangeForm(StrEnum):
    """How published changes are written: as rows, or as the change events of Debezium."""

    ROWS = "rows"
    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: ColumnType
    is_key: bool = False


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table, and how its changes are read.

    Rows whose newest version is older than `keep` are deleted. A change whose value of the column `ordered_by` is
    smaller than the row's is skipped.
    """

    columns: tuple[Column, ...]
    form: ChangeForm = ChangeForm.ROWS
    keep: timedelta | None = None
    ordered_by: str | None = None

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def key(self) -> tuple[Column, ...]:
        """The key columns, in the order of declaration."""
        return tuple(column for column in self.columns if column.is_key)

    def to_json(self) -> str:
        """Encode the schema for the catalog and for sandboxes."""
        return json.dumps(
            {
                "columns": [[column.name, column.type.value, column.is_key] for column in self.columns],
                "form": self.form.value,
                "keep": None if self.keep is None else self.keep // _MICROSECOND,
                "ordered_by": self.ordered_by,
            }
        )

    @staticmethod
    def from_json(text: str) -> TableSchema:
        """Decode the output of `to_json`."""
        fields = json.loads(text)
        return TableSchema(
            tuple(Column(name, ColumnType(kind), is_key) for name, kind, is_key in fields["columns"]),
            ChangeForm(fields["form"]),
            None if fields["keep"] is None else fields["keep"] * _MICROSECOND,
            fields["ordered_by"],
        )


def reserved_column(name: str, kind: ColumnType) -> str | None:
    """Return why a column cannot have this name, or None if it can.

    >>> reserved_column("price", ColumnType.NUMBER), reserved_column("graph", ColumnType.TEXT)
    (None, 'values of the attribute graph are not single values')
    """
    if ":" in name:
        return "names of columns cannot contain a colon"
    if name in MOMENTS and kind is not ColumnType.DATE:
        return f"the attribute {name} is always a date"
    if kind_of_attribute(name) is not None:
        return f"values of the attribute {name} are not single values"
    return None


@dataclass(frozen=True, slots=True)
class RowChange:
    """An upsert or a deletion of a row, as an item of its table.

    `position` orders the changes of a row in a table with `ordered by`. If `replaces` is given, the change applies
    only while the newest version of the row has this sequence.
    """

    item: Item
    position: bytes | None = None
    replaces: int | None = None

    @property
    def is_deletion(self) -> bool:
        """Whether the change deletes the row."""
        return DELETED in self.item.attributes


def change_of(table: str, schema: TableSchema, attributes: Attributes, place: str | None = None) -> RowChange:
    """Return the change with these attributes. Raise InvalidItemError if they do not fit the schema.

    >>> schema = TableSchema((Column("symbol", ColumnType.TEXT, True), Column("per", ColumnType.NUMBER)))
    >>> change_of("Stocks", schema, {"symbol": ("GOOG",), "per": (51.7,)}).item.id
    'GOOG'
    """
    is_deletion = DELETED in attributes
    for name, values in attributes.items():
        column = schema.by_name.get(name)
        if name != DELETED and (column is None or len(values) != 1 or not column.type.accepts(values[0])):
            raise InvalidItemError(f"{name} does not fit the columns of {table}", place=place)
        if isinstance(values[0], str) and len(values[0]) > MAX_TEXT:
            raise InvalidItemError(f"{name} is longer than {MAX_TEXT} characters", place=place, hint="shorten it")
        if isinstance(values[0], float) and not math.isfinite(values[0]):
            raise InvalidItemError(f"{name} is not a finite number", place=place)
    item = Item(table, row_id(schema, attributes, place), dict(attributes))
    if schema.ordered_by is None:
        return RowChange(item)
    ordering = attributes.get(schema.ordered_by)
    if ordering is None and not is_deletion:
        raise InvalidItemError(
            f"the changes of {table} are ordered by {schema.ordered_by}, which is missing",
            place=place,
            hint="give every change a value of this column; `ordered by` can be removed only by dropping the table",
        )
    return RowChange(item, None if ordering is None else position_of(ordering[0]))


def deletion_of(table: str, schema: TableSchema, key: Sequence[Value], replaces: int | None = None) -> RowChange:
    """Return the change that deletes the row with this key."""
    attributes: dict[str, tuple[Value, ...]] = {
        column.name: (value,) for column, value in zip(schema.key, key, strict=True)
    }
    attributes[DELETED] = (True,)
    return RowChange(Item(table, row_id(schema, attributes), attributes), replaces=replaces)


def row_id(schema: TableSchema, attributes: Attributes, place: str | None = None) -> str:
    """Return the id of a row's items: its key as a text, or as JSON if there are several key columns.

    >>> schema = TableSchema((Column("a", ColumnType.TEXT, True), Column("b", ColumnType.NUMBER, True)))
    >>> row_id(schema, {"a": ("x",), "b": (2.0,)})
    '["x",2]'
    """
    parts: list[Any] = []
    for column in schema.key:
        values = attributes.get(column.name)
        if values is None:
            raise InvalidItemError(
                f"the key column {column.name} is missing", place=place, hint="every change needs the whole key"
            )
        parts.append(_key_part(values[0]))
    if len(parts) > 1:
        text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    else:
        text = parts[0] if isinstance(parts[0], str) else json.dumps(parts[0])
    if len(text) > MAX_ID:
        raise InvalidItemError(f"the key is longer than {MAX_ID} characters", place=place)
    return text


def _key_part(value: Value) -> Any:
    match value:
        case bool() | str():
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case number:
            return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def position_of(value: Value) -> bytes:
    """Return bytes that sort like the values of a column.

    >>> position_of(-2.5) < position_of(0.0) == position_of(-0.0) < position_of(3.0)
    True
    """
    match value:
        case bool():
            return bytes([value])
        case str():
            return value.encode()
        case datetime():
            return struct.pack(">Q", _SIGN + (value - _EPOCH) // _MICROSECOND)
        case number:
            (bits,) = struct.unpack(">Q", struct.pack(">d", number + 0.0))
            return struct.pack(">Q", bits ^ ((1 << 64) - 1 if bits & _SIGN else _SIGN))
