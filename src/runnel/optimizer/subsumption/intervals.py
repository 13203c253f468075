"""The values that satisfy a comparison, as intervals.

Values of different kinds cannot be compared, so an interval has one kind: numbers, texts, truth values, times, or
times relative to an item's acceptance. A whole UTC day is an interval of times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from typing import Any

from runnel.algebra.nodes.attributes import Ago, Constant
from runnel.algebra.nodes.expressions import Atom, Between, Compare, In

Intervals = tuple["Interval", ...]

_MAX_AGE = timedelta(days=100_000)


class ValueKind(IntEnum):
    """The kind of values in an interval."""

    NUMBER = 0
    TEXT = 1
    TRUTH = 2
    MOMENT = 3
    AGE = 4


@dataclass(frozen=True, slots=True)
class Interval:
    """The values from `low` to `high`, where None means no bound. `with_low`: the bound itself is included."""

    kind: ValueKind
    low: Any = None
    high: Any = None
    with_low: bool = True
    with_high: bool = True

    def __contains__(self, other: Interval) -> bool:
        """Return whether every value of the other interval is in this one."""
        return (
            self.kind == other.kind
            and _starts_before(self.low, self.with_low, other.low, other.with_low)
            and _ends_after(self.high, self.with_high, other.high, other.with_high)
        )


def _starts_before(mine: Any, closed: bool, theirs: Any, their_closed: bool) -> bool:
    if mine is None or theirs is None:
        return mine is None
    return bool(mine < theirs or (mine == theirs and (closed or not their_closed)))


def _ends_after(mine: Any, closed: bool, theirs: Any, their_closed: bool) -> bool:
    if mine is None or theirs is None:
        return mine is None
    return bool(mine > theirs or (mine == theirs and (closed or not their_closed)))


def intervals_of(atom: Atom) -> Intervals | None:
    """Return the intervals of values that satisfy an atom, or None if it is not a comparison or no value satisfies
    it.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> price = Attribute("price")
    >>> low, high = intervals_of(Compare(price, ">", 10.0)), intervals_of(Compare(price, ">", 20.0))
    >>> high[0] in low[0], low[0] in high[0]
    (True, False)
    """
    match atom:
        case Compare(_, operator, constant):
            interval = _comparison_interval(operator, constant)
            return None if interval is None else (interval,)
        case Between(_, low, high):
            return _between_intervals(low, high)
        case In(_, constants):
            points = [_comparison_interval("=", constant) for constant in constants]
            intervals = tuple(point for point in points if point is not None)
            return intervals if intervals and len(intervals) == len(points) else None
        case _:
            return None


def _comparison_interval(operator: str, constant: Constant) -> Interval | None:
    span = _constant_interval(constant)
    if span is None:
        return None
    match operator:
        case "=":
            return span
        case "<":
            return Interval(span.kind, None, span.low, with_high=not span.with_low)
        case "<=":
            return Interval(span.kind, None, span.high, with_high=span.with_high)
        case ">":
            # No time is after the last day of the calendar.
            return None if span.high is None else Interval(span.kind, span.high, None, not span.with_high)
        case ">=":
            return Interval(span.kind, span.low, None, span.with_low)
        case _:
            return None


def _between_intervals(low: Constant, high: Constant) -> Intervals | None:
    first, last = _constant_interval(low), _constant_interval(high)
    if first is None or last is None or first.kind != last.kind:
        return None
    return (Interval(first.kind, first.low, last.high, first.with_low, last.with_high),)


def _constant_interval(constant: Constant) -> Interval | None:
    """Return the values that equal a constant, or None if there are none or the constant is not supported."""
    match constant:
        case bool():
            return Interval(ValueKind.TRUTH, constant, constant)
        case int() | float():
            return None if math.isnan(constant) else Interval(ValueKind.NUMBER, constant, constant)
        case str():
            return Interval(ValueKind.TEXT, constant, constant)
        case datetime():
            return None if constant.tzinfo is None else Interval(ValueKind.MOMENT, constant, constant)
        case Ago(length):
            # Relative times of an item have the same reference, so they are comparable, unless they leave the
            # calendar.
            return Interval(ValueKind.AGE, -length, -length) if length <= _MAX_AGE else None
        case date():
            start = datetime(constant.year, constant.month, constant.day, tzinfo=UTC)
            end = None if constant == date.max else start + timedelta(days=1)
            return Interval(ValueKind.MOMENT, start, end, with_high=False)
        case _:
            return None
