"""Conversion of the values in documents to the types of columns.

In: a value as JSON or CSV has it. Out: a typed value, None for a missing one, or an InvalidItemError. A text that can
be read as the type of its column is accepted. NaN, infinity and several values are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from runnel.errors import InvalidItemError
from runnel.model.item import Value, clean_text, moment
from runnel.model.table import Column, ColumnType
from runnel.sources.documents.dates import parse_date

_HINTS = {
    ColumnType.TEXT: 'write a text: "5"',
    ColumnType.NUMBER: "write a finite number such as 51.7",
    ColumnType.DATE: "write it as 2026-11-15T09:30:00Z",
    ColumnType.BOOLEAN: "write true or false",
}
_TRUTHS = {"true": True, "false": False}
_SHOWN = 60


def read_value(column: Column, value: Any, place: str) -> Value | None:
    """Return a value with the type of its column, or None if there is none.

    >>> read_value(Column("per", ColumnType.NUMBER), "51.7", "a.csv:2")
    51.7
    """
    if value is None or value == "":
        return None
    if isinstance(value, list | tuple | set | frozenset | Mapping):
        raise InvalidItemError(
            f"{column.name} has several values", place=place, hint="a column of a table has at most one value"
        )
    typed = _READERS[column.type](value)
    if typed is None:
        raise InvalidItemError(
            f"{column.name} is not a {column.type.value}: {_show(value)}", place=place, hint=_HINTS[column.type]
        )
    return typed if typed != "" else None


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _read_text(value: Any) -> Value | None:
    return clean_text(value) if isinstance(value, str) else None


def _read_number(value: Any) -> Value | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    # Python reads `1_000`, and digits of other scripts, which no source of changes writes as numbers.
    is_plain = not isinstance(value, str) or (value.isascii() and "_" not in value)
    return number + 0.0 if math.isfinite(number) and is_plain else None


def _read_date(value: Any) -> Value | None:
    match value:
        case datetime():
            return moment(value)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case str():
            return parse_date(value)
        case _:
            return None


def _read_boolean(value: Any) -> Value | None:
    return value if isinstance(value, bool) else _TRUTHS.get(value.lower()) if isinstance(value, str) else None


_READERS = {
    ColumnType.TEXT: _read_text,
    ColumnType.NUMBER: _read_number,
    ColumnType.DATE: _read_date,
    ColumnType.BOOLEAN: _read_boolean,
}
