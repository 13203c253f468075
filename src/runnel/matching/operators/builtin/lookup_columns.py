"""Conversion between values of items and values of database columns.

Numbers of items are doubles, and times are in UTC. A value that a column cannot contain equals none of its values.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from sqlalchemy import Column

from runnel.model.item import Value, clean_text, moment

_INTEGER_LIMIT = 2**63


def for_column(value: Value, column: Column[Any]) -> Any | None:
    """Convert a value of an item to the type of a column. Return None if the column cannot contain it.

    >>> from sqlalchemy import Integer, Text
    >>> for_column(7.0, Column(Integer())), for_column(7.5, Column(Integer())), for_column("a", Column(Text()))
    (7, None, 'a')
    """
    kind = _python_type(column)
    match value:
        case bool():
            return value if kind is bool else None
        case str() if kind is UUID:
            return _uuid(value)
        case str():
            return value.replace("\0", "") if kind is str else None
        case datetime():
            return _time_for_column(value, kind, column)
        case _ if kind is int:
            return int(value) if abs(value) < _INTEGER_LIMIT and value == int(value) else None
        case _ if kind is float:
            return float(value)
        case _ if kind is Decimal:
            return _decimal(value)
        case _:
            return None


def from_column(value: Any) -> Value | None:
    """Convert a value of a column to a value of conditions, or null to None. Raise ValueError for other types.

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
            raise ValueError(f"column values of the type {type(value).__name__} cannot be used in conditions")


def comparable(value: Any) -> Any:
    """Convert a key value to the form in which keys are compared: times in UTC, whatever the driver returns."""
    return moment(value) if isinstance(value, datetime) else value


def _python_type(column: Column[Any]) -> type | None:
    try:
        return column.type.python_type
    except NotImplementedError:
        return None


def _time_for_column(value: datetime, kind: type | None, column: Column[Any]) -> Any | None:
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
        raise ValueError("a column value is not a finite number")
    return number
