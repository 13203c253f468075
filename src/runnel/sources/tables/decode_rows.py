"""Decodes changes that are written as rows: an object with the columns, or with the key and `row:deleted`.

In: a JSON object, or a line of CSV by column. Out: the attributes of a change. Members that are not columns are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runnel.errors import InvalidItemError
from runnel.model.item import Attributes
from runnel.model.table import DELETED, Column, ColumnType, TableSchema
from runnel.sources.tables.column_values import read_value

_MARK = Column(DELETED, ColumnType.BOOLEAN)


def decode_row(value: Mapping[str, Any], schema: TableSchema, place: str) -> list[Attributes]:
    """Return the change that an object describes.

    >>> schema = TableSchema((Column("symbol", ColumnType.TEXT, True), Column("per", ColumnType.NUMBER)))
    >>> decode_row({"symbol": "GOOG", "per": 51.7, "source": "x"}, schema, "a.jsonl:1")
    [{'symbol': ('GOOG',), 'per': (51.7,)}]
    >>> decode_row({"symbol": "GOOG", "row:deleted": True}, schema, "a.jsonl:2")
    [{'symbol': ('GOOG',), 'row:deleted': (True,)}]
    """
    if read_value(_MARK, value.get(DELETED), place):
        return [deleted_attributes(value, schema, place)]
    return [row_attributes(value, schema, place)]


def row_attributes(value: Mapping[str, Any], schema: TableSchema, place: str) -> Attributes:
    """Return the attributes of a row."""
    attributes: dict[str, Any] = {}
    for column in schema.columns:
        typed = read_value(column, value.get(column.name), place)
        if typed is not None:
            attributes[column.name] = (typed,)
    _require_key(attributes, schema, place)
    return attributes


def deleted_attributes(value: Mapping[str, Any], schema: TableSchema, place: str) -> Attributes:
    """Return the attributes of a deletion: the key, and the value by which changes are ordered if there is one."""
    attributes: dict[str, Any] = {}
    for column in schema.columns:
        if column.is_key or column.name == schema.ordered_by:
            typed = read_value(column, value.get(column.name), place)
            if typed is not None:
                attributes[column.name] = (typed,)
    _require_key(attributes, schema, place)
    attributes[DELETED] = (True,)
    return attributes


def _require_key(attributes: Attributes, schema: TableSchema, place: str) -> None:
    for column in schema.key:
        if column.name not in attributes:
            raise InvalidItemError(
                f"the key column {column.name} is missing", place=place, hint="every change needs the whole key"
            )
