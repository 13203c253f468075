"""Columns of tables: values of items in, values as a column holds them out, and back.

A number of an item is a double, a moment is in UTC. What a column cannot hold is in none of its rows.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from sqlalchemy import Column

from runnel.model.item import Value, clean_text, moment

_LARGEST = 2**63


def for_column(value: Value, column: Column[Any]) -> Any | None:
    """A value of an item as a column holds it, or None where it holds none such.

    >>> from sqlalchemy import Integer, Text
    >>> for_column(7.0, Column(Integer())), for_column(7.5, Column(Integer())), for_column("a", Column(Text()))
    (7, None, 'a')
    """
    kind = _kind(column)
    match value:
        case bool():
            return value if kind is bool else None
        case str() if kind is UUID:
            return _uuid(value)
        case str():
            return value.replace("\0", "") if kind is str else None
        case datetime():
            return _moment_for(value, kind, column)
        case _ if kind is int:
            return int(value) if abs(value) < _LARGEST and value == int(value) else None
        case _ if kind is float:
            return float(value)
        case _ if kind is Decimal:
            return _decimal(value)
        case _:
            return None


def from_column(value: Any) -> Value | None:
    """What a column held, as a value of conditions; None for what it did not hold. ValueError for a kind they lack.

    >>> from_column(Decimal("12.50")), from_column(date(2026, 11, 15)), from_column(None)
    (12.5, datetime.datetime(2026, 11, 15, 0, 0, tzinfo=datetime.timezone.utc), None)
    """
    match value:
        case None | bool():
            return value
        case str():
            return clean_text(value)
        case int() | float() | Decimal():
            return _finite(value)
        case datetime():
            return moment(value)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case UUID():
            return str(value)
        case _:
            raise ValueError(f"a value of the kind {type(value).__name__} cannot stand in a condition")


def comparable(value: Any) -> Any:
    """A key as it is compared, however the database's driver gives it."""
    return moment(value) if isinstance(value, datetime) else value


def _kind(column: Column[Any]) -> type | None:
    try:
        return column.type.python_type
    except NotImplementedError:
        return None


def _moment_for(value: datetime, kind: type | None, column: Column[Any]) -> Any | None:
    if kind is datetime:
        return value if getattr(column.type, "timezone", False) else moment(value).replace(tzinfo=None)
    midnight = (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0)
    return value.date() if kind is date and midnight else None


def _decimal(value: float) -> Decimal | None:
    try:
        return Decimal(repr(value))
    except InvalidOperation:
        return None


def _uuid(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None


def _finite(value: float | Decimal) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number
