"""The values that satisfy a comparison, as intervals over one kind of value.

Values of two kinds stand in no relation, so an interval belongs to one kind: numbers, texts, truth values, moments,
or moments as they are seen from an item's acceptance. A whole UTC day is an interval of moments.
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

_LONGEST_AGE = timedelta(days=100_000)


class ValueKind(IntEnum):
    """The kind of value that an interval is made of."""

    NUMBER = 0
    TEXT = 1
    TRUTH = 2
    MOMENT = 3
    AGE = 4


@dataclass(frozen=True, slots=True)
class Interval:
    """The values from `low` to `high`; None is no bound, and a bound belongs to the interval or does not."""

    kind: ValueKind
    low: Any = None
    high: Any = None
    with_low: bool = True
    with_high: bool = True

    def __contains__(self, other: Interval) -> bool:
        """Whether every value of the other interval lies in this one."""
        return (
            self.kind == other.kind
            and _below(self.low, self.with_low, other.low, other.with_low)
            and _above(self.high, self.with_high, other.high, other.with_high)
        )


def _below(mine: Any, closed: bool, theirs: Any, their_closed: bool) -> bool:
    if mine is None or theirs is None:
        return mine is None
    return bool(mine < theirs or (mine == theirs and (closed or not their_closed)))


def _above(mine: Any, closed: bool, theirs: Any, their_closed: bool) -> bool:
    if mine is None or theirs is None:
        return mine is None
    return bool(mine > theirs or (mine == theirs and (closed or not their_closed)))


def intervals_of(atom: Atom) -> Intervals | None:
    """The intervals of values that satisfy an atom; None where it is no comparison, or no value can satisfy it.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> price = Attribute("price")
    >>> low, high = intervals_of(Compare(price, ">", 10.0)), intervals_of(Compare(price, ">", 20.0))
    >>> high[0] in low[0], low[0] in high[0]
    (True, False)
    """
    match atom:
        case Compare(_, operator, constant):
            found = _compared(operator, constant)
            return None if found is None else (found,)
        case Between(_, low, high):
            return _between(low, high)
        case In(_, constants):
            points = [_compared("=", constant) for constant in constants]
            known = tuple(point for point in points if point is not None)
            return known if known and len(known) == len(points) else None
        case _:
            return None


def _compared(operator: str, constant: Constant) -> Interval | None:
    span = _span(constant)
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
            # After the last day of the calendar there is nothing.
            return None if span.high is None else Interval(span.kind, span.high, None, not span.with_high)
        case ">=":
            return Interval(span.kind, span.low, None, span.with_low)
        case _:
            return None


def _between(low: Constant, high: Constant) -> Intervals | None:
    first, last = _span(low), _span(high)
    if first is None or last is None or first.kind != last.kind:
        return None
    return (Interval(first.kind, first.low, last.high, first.with_low, last.with_high),)


def _span(constant: Constant) -> Interval | None:
    """The values that equal a constant; None for one that equals nothing, or that this module does not know."""
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
            # All relative times of an item count from the same moment; one of centuries may leave the calendar.
            return Interval(ValueKind.AGE, -length, -length) if length <= _LONGEST_AGE else None
        case date():
            start = datetime(constant.year, constant.month, constant.day, tzinfo=UTC)
            end = None if constant == date.max else start + timedelta(days=1)
            return Interval(ValueKind.MOMENT, start, end, with_high=False)
        case _:
            return None
