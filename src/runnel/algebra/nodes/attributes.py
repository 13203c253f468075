"""What conditions look at and compare with: attributes of an item, and constants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal


@dataclass(frozen=True, slots=True)
class Ago:
    """A moment that lies this long before an item's acceptance: never before the reader's clock, so replays agree."""

    length: timedelta


Constant = str | float | bool | datetime | date | Ago
"""A constant of the language. A `date` is a whole UTC day, a `datetime` an instant in UTC."""

Part = Literal["year", "month", "day", "hour", "minute", "weekday"]
PARTS: tuple[Part, ...] = ("year", "month", "day", "hour", "minute", "weekday")
"""Parts of a moment, in UTC. Weekdays count from Monday = 1 to Sunday = 7 (ISO 8601)."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """What an atom looks at: the values of an attribute, or a part of its moments."""

    name: str
    part: Part | None = None


WHOLE = Attribute("*")
"""The whole item: any value of any attribute. It is written `item`."""
