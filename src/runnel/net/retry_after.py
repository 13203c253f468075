"""The HTTP header Retry-After: how long a server asks clients to wait."""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

DAY = 86_400.0


def retry_after(value: str | None, now: float, *, limit: float = DAY) -> float | None:
    """Return the seconds from `now` (seconds since 1970) that the header gives, at most `limit`.

    The header contains seconds or a date. Return None if it is missing or invalid.

    >>> retry_after("120", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0), retry_after("soon", 0.0)
    (120.0, 40.0, None)
    """
    text = (value or "").strip()[:64]
    if text.isascii() and text.isdigit():
        wait = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
            wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(max(wait, 0.0), limit) if math.isfinite(wait) else None
