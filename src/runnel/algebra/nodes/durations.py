"""Units of time, and the canonical text of durations. In: a duration. Out: its canonical text."""

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
"""Units of time in seconds. Statements may also use their plurals."""

_RENDERED = ("day", "hour", "minute", "second")
"""The units of canonical texts. Weeks, months and years become days."""


def render_duration(duration: timedelta) -> str:
    """Render a duration in the largest unit that divides it.

    >>> render_duration(timedelta(minutes=90)), render_duration(timedelta(days=1))
    ('90 minutes', '1 day')
    """
    seconds, rest = divmod(duration, timedelta(seconds=1))
    if seconds < 1 or rest:
        raise ValueError(f"duration must be a positive whole number of seconds, not {duration!r}")
    unit = next(name for name in _RENDERED if seconds % UNITS[name] == 0)
    count = seconds // UNITS[unit]
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
