"""The operands of conditions: attributes of an item, and constants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal


@dataclass(frozen=True, slots=True)
class Ago:
    """A time relative to an item's acceptance, this long before it. It ignores the current time, so replays agree."""

    length: timedelta


Constant = str | float | bool | datetime | date | Ago
"""A constant of the language. A `date` is a whole UTC day, a `datetime` an instant in UTC."""

Part = Literal["year", "month", "day", "hour", "minute", "weekday"]
PARTS: tuple[Part, ...] = ("year", "month", "day", "hour", "minute", "weekday")
"""Parts of a time in UTC. Weekdays are numbered from 1 (Monday) to 7 (Sunday), as in ISO 8601."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The operand of an atom: the values of an attribute, or a date part of its times."""

    name: str
    part: Part | None = None


WHOLE = Attribute("*")
"""The whole item: any value of any attribute. It is written `item`."""
