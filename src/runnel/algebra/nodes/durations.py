"""Lengths of time as people write them. In: a length. Out: its canonical text."""

from __future__ import annotations

from datetime import timedelta

UNITS: dict[str, int] = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": 86_400,
    "week": 7 * 86_400,
    "month": 30 * 86_400,
    "year": 365 * 86_400,
}
"""Units of time in seconds; each may be written in the plural."""

_RENDERED = ("day", "hour", "minute", "second")
"""Weeks, months and years are only ways to write days."""


def render_duration(duration: timedelta) -> str:
    """A duration in the largest unit that divides it.

    >>> render_duration(timedelta(minutes=90)), render_duration(timedelta(days=1))
    ('90 minutes', '1 day')
    """
    seconds, rest = divmod(duration, timedelta(seconds=1))
    if seconds < 1 or rest:
        raise ValueError(f"a duration is at least one second and whole, not {duration!r}")
    unit = next(one for one in _RENDERED if seconds % UNITS[one] == 0)
    count = seconds // UNITS[unit]
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
