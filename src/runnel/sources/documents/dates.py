"""Parsing of the date formats of feeds: RFC 822 with named time zones, and full or partial ISO 8601.

In: a text. Out: a time in UTC, or None if the text is not a date. A time without a zone is taken as UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_MAX_LENGTH = 64
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
"""Offsets from UTC in hours. If several zones have the same name, this is the one that feeds usually mean."""


def parse_date(text: str) -> datetime | None:
    """Parse a date. Return None if the text is not a date.

    >>> parse_date("Sun, 15 Nov 2026 09:30:00 EST").isoformat()
    '2026-11-15T14:30:00+00:00'
    >>> parse_date("2026-11-15T09:30:00+01:00").isoformat()
    '2026-11-15T08:30:00+00:00'
    >>> parse_date("yesterday") is None
    True
    """
    text = " ".join(text.split())
    if not text or len(text) > _MAX_LENGTH or not text.isascii():
        return None
    try:
        date = _parse_iso(text) or _parse_rfc_822(text)
        return None if date is None else _in_utc(date)
    except (ValueError, OverflowError):
        return None


def _parse_iso(text: str) -> datetime | None:
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


def _parse_rfc_822(text: str) -> datetime | None:
    match = _RFC_822.fullmatch(text)
    if match is None or match[2].lower() not in _MONTHS:
        return None
    month = _MONTHS.index(match[2].lower()) + 1
    day, year = int(match[1]), int(match[3])
    if len(match[3]) == 2:
        year += 2000 if year < 70 else 1900
    # Leap seconds and 24:00 are accepted. They become the first moment of the next minute or day.
    time = timedelta(hours=int(match[4] or 0), minutes=int(match[5] or 0), seconds=int(match[6] or 0))
    if time > timedelta(days=1, seconds=1):
        return None
    return datetime(year, month, day, tzinfo=_parse_zone(match[7])) + time


def _parse_zone(text: str | None) -> timezone:
    if text is None:
        return UTC
    if text[0] in "+-":
        digits = text[1:].replace(":", "").zfill(4)
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return timezone(-offset if text[0] == "-" else offset)
    return timezone(timedelta(hours=_ZONES.get(text.lower(), 0)))


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
