"""Decodes change events of Debezium: envelopes with `op`, `before` and `after`, with or without a schema.

In: a JSON object. Out: the attributes of its changes. A change of the key is a deletion and an insertion. Tombstones
follow a deletion and have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from runnel.errors import InvalidItemError
from runnel.model.item import Attributes
from runnel.model.table import ColumnType, TableSchema
from runnel.sources.tables.decode_rows import deleted_attributes, row_attributes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UPSERTS = ("c", "u", "r")
_UNITS: dict[str, Callable[[int], timedelta]] = {
    "io.debezium.time.Date": lambda count: timedelta(days=count),
    "io.debezium.time.Timestamp": lambda count: timedelta(milliseconds=count),
    "io.debezium.time.MicroTimestamp": lambda count: timedelta(microseconds=count),
    "io.debezium.time.NanoTimestamp": lambda count: timedelta(microseconds=count // 1000),
    "org.apache.kafka.connect.data.Date": lambda count: timedelta(days=count),
    "org.apache.kafka.connect.data.Timestamp": lambda count: timedelta(milliseconds=count),
}
"""How dates that are numbers are read, by the name of their type in the schema of the envelope."""


def decode_debezium(value: Mapping[str, Any], schema: TableSchema, place: str) -> list[Attributes]:
    """Return the changes that an envelope describes.

    >>> from runnel.model.table import Column
    >>> schema = TableSchema((Column("id", ColumnType.TEXT, True), Column("n", ColumnType.NUMBER)))
    >>> decode_debezium({"op": "d", "before": {"id": "a", "n": 1}, "after": None}, schema, "a.jsonl:1")
    [{'id': ('a',), 'row:deleted': (True,)}]
    """
    envelope = value.get("payload", value)
    if envelope is None:
        return []
    if not isinstance(envelope, Mapping) or "op" not in envelope:
        raise InvalidItemError(
            "this is not a change event of Debezium: it has no op",
            place=place,
            hint="the table is registered `as debezium`; register it `as rows` for plain rows",
        )
    dates = _dates_of(value.get("schema"))
    before = _side(envelope, "before", schema, dates, place)
    after = _side(envelope, "after", schema, dates, place)
    op = envelope["op"]
    if op == "d":
        return [deleted_attributes(_required(before, "before", op, place), schema, place)]
    if op not in _UPSERTS:
        raise InvalidItemError(
            f"the operation {str(op)[:20]!r} is not supported", place=place, hint="supported: c, u, d and r"
        )
    row = row_attributes(_required(after, "after", op, place), schema, place)
    if before is None or any(before.get(column.name) is None for column in schema.key):
        return [row]
    old = deleted_attributes(before, schema, place)
    if all(old[column.name] == row[column.name] for column in schema.key):
        return [row]
    return [old, row]


def _required(side: Mapping[str, Any] | None, name: str, op: str, place: str) -> Mapping[str, Any]:
    if side is None:
        raise InvalidItemError(
            f"the operation {op} has no {name}",
            place=place,
            hint="d needs `before` with the key (REPLICA IDENTITY in PostgreSQL); c, r and u need `after`",
        )
    return side


def _side(
    envelope: Mapping[str, Any], name: str, schema: TableSchema, dates: Mapping[str, str], place: str
) -> Mapping[str, Any] | None:
    """Return the row before or after the change, with dates that are numbers converted."""
    side = envelope.get(name)
    if side is None:
        return None
    if not isinstance(side, Mapping):
        raise InvalidItemError(f"{name} is not an object", place=place)
    row = dict(side)
    for column in schema.columns:
        count = row.get(column.name)
        if column.type is ColumnType.DATE and type(count) is int and column.name in dates:
            try:
                row[column.name] = _EPOCH + _UNITS[dates[column.name]](count)
            except OverflowError:
                raise InvalidItemError(f"{column.name} is not a date: {count}", place=place) from None
    return row


def _dates_of(schema: Any) -> dict[str, str]:
    """Return the types of the columns whose dates are numbers, according to the schema of an envelope."""
    sides = schema.get("fields") if isinstance(schema, Mapping) else None
    dates: dict[str, str] = {}
    for side in sides if isinstance(sides, list) else ():
        fields = side.get("fields") if isinstance(side, Mapping) else None
        for field in fields if isinstance(fields, list) else ():
            match field:
                case {"field": str() as name, "name": str() as kind} if kind in _UNITS:
                    dates[name] = kind
    return dates
