"""Dates as feeds write them: RFC 822 with its odd zones, and ISO 8601 in whole or in part.

In: a text. Out: the moment in UTC, or None where it is not a date. A moment without a zone is taken to be UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_LONGEST = 64
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_RFC_822 = re.compile(
    r"(?:[A-Za-z]{2,9}\.?,?\s+)?(\d{1,2})[\s-]+([A-Za-z]{3})[A-Za-z]{0,6}\.?,?[\s-]+(\d{4}|\d{2})"
    r"(?:,?\s+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?)?\s*([+-]\d{1,2}:?\d{2}|[A-Za-z]{1,5})?"
    r"(?:\s*[+-]\d{1,2}:?\d{2})?(?:\s*\([^)]*\))?"
)
_PARTIAL = re.compile(r"(\d{4})(?:-(\d{2}))?")
_SPACED_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2})\s+(\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2})?"
)
_ZONES = {
    "ut": 0, "utc": 0, "gmt": 0, "z": 0, "wet": 0, "west": 1, "bst": 1, "ist": 5.5, "cet": 1, "met": 1, "cest": 2,
    "mest": 2, "eet": 2, "eest": 3, "msk": 3, "sgt": 8, "hkt": 8, "awst": 8, "jst": 9, "kst": 9, "acst": 9.5,
    "aest": 10, "aedt": 11, "nzst": 12, "nzdt": 13, "nst": -3.5, "ndt": -2.5, "ast": -4, "adt": -3, "est": -5,
    "edt": -4, "et": -5, "cst": -6, "cdt": -5, "ct": -6, "mst": -7, "mdt": -6, "mt": -7, "pst": -8, "pdt": -7,
    "pt": -8, "akst": -9, "akdt": -8, "hst": -10, "brt": -3,
}  # fmt: skip
"""Hours east of Greenwich. Where a name is used for several zones, feeds mostly mean this one."""


def parse_date(text: str) -> datetime | None:
    """The moment that a text names.

    >>> parse_date("Sun, 15 Nov 2026 09:30:00 EST").isoformat()
    '2026-11-15T14:30:00+00:00'
    >>> parse_date("2026-11-15T09:30:00+01:00").isoformat()
    '2026-11-15T08:30:00+00:00'
    >>> parse_date("yesterday") is None
    True
    """
    text = " ".join(text.split())
    if not text or len(text) > _LONGEST or not text.isascii():
        return None
    try:
        found = _iso(text) or _rfc_822(text)
        return None if found is None else _in_utc(found)
    except (ValueError, OverflowError):
        return None


def _iso(text: str) -> datetime | None:
    partial = _PARTIAL.fullmatch(text)
    if partial:
        return datetime(int(partial[1]), int(partial[2] or 1), 1, tzinfo=UTC)
    if not re.match(r"\d{4}-?[\dW]", text):
        return None
    spaced = _SPACED_ISO.fullmatch(text)
    if spaced:
        zone = "" if spaced[3] is None else "Z" if spaced[3][0] in "ZUG" else spaced[3]
        text = f"{spaced[1]}T{spaced[2]}{zone}"
    return datetime.fromisoformat(text.upper())


def _rfc_822(text: str) -> datetime | None:
    found = _RFC_822.fullmatch(text)
    if found is None or found[2].lower() not in _MONTHS:
        return None
    month = _MONTHS.index(found[2].lower()) + 1
    day, year = int(found[1]), int(found[3])
    if len(found[3]) == 2:
        year += 2000 if year < 70 else 1900
    # A leap second, and the midnight at a day's end, are the first moments of what follows.
    time = timedelta(hours=int(found[4] or 0), minutes=int(found[5] or 0), seconds=int(found[6] or 0))
    if time > timedelta(days=1, seconds=1):
        return None
    return datetime(year, month, day, tzinfo=_zone(found[7])) + time


def _zone(text: str | None) -> timezone:
    if text is None:
        return UTC
    if text[0] in "+-":
        digits = text[1:].replace(":", "").zfill(4)
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return timezone(-offset if text[0] == "-" else offset)
    return timezone(timedelta(hours=_ZONES.get(text.lower(), 0)))


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
