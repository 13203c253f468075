"""Computes the wait until the next poll from HTTP caching headers, hints in the document, and earlier failures.

In: the headers of a response, the head of a document, and the time in seconds since 1970. Out: seconds to wait. The
values come from outside, so they are limited, and invalid values are ignored.
"""

from __future__ import annotations

import random as randomness
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from runnel.sources.documents.dates import parse_date
from runnel.sources.documents.document_head import DAY, DocumentHead, whole_number

_DIRECTIVE = re.compile(r'([a-z-]+)\s*(?:=\s*"?([^",\s]*)"?)?', re.IGNORECASE)
_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([A-Za-z0-9][A-Za-z0-9_.:-]{0,39})""", re.IGNORECASE)


def fresh_for(headers: Mapping[str, str], now: float) -> float:
    """Return for how many seconds a response is fresh, or 0 if it does not say or must not be cached.

    >>> fresh_for({"Cache-Control": "public, max-age=600", "Age": "100"}, 0.0)
    500.0
    >>> fresh_for({"Cache-Control": "no-store, max-age=600"}, 0.0)
    0.0
    """
    control = {name.lower(): value for name, value in _DIRECTIVE.findall(headers.get("Cache-Control", "")[:1000])}
    if "no-store" in control or "no-cache" in control:
        return 0.0
    if "max-age" in control:
        max_age = whole_number(control["max-age"])
        return max(0.0, float((max_age or 0) - (whole_number(headers.get("Age")) or 0)))
    expires = parse_date(headers.get("Expires", ""))
    if expires is None:
        return 0.0
    sent = parse_date(headers.get("Date", ""))
    return max(0.0, expires.timestamp() - (now if sent is None else sent.timestamp()))


def next_wait(every: float, now: float, *, fresh: float = 0.0, head: DocumentHead | None = None) -> float:
    """Return the seconds until the next poll: the declared period, or longer if the publisher asks for it.

    The result is at least `every`, and at most a day unless `every` is longer.

    >>> next_wait(600, 0.0, fresh=1800), next_wait(600, 0.0, fresh=1e9), next_wait(600, 0.0)
    (1800, 86400.0, 600)
    """
    head = head or DocumentHead()
    max_wait = max(every, DAY)
    wait = min(max(every, fresh, head.ttl), max_wait)
    if not head.skip_hours and not head.skip_days:
        return wait
    return min(max(_after_skipped(now + wait, head) - now, wait), max_wait)


def _after_skipped(moment: float, head: DocumentHead) -> float:
    """Return the first time at or after `moment` that is not in a skipped hour or day.

    Return `moment` if there is none within eight days.
    """
    candidate = datetime.fromtimestamp(moment, UTC)
    for _ in range(24 * 8):
        if candidate.hour not in head.skip_hours and candidate.weekday() not in head.skip_days:
            return candidate.timestamp()
        candidate = candidate.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return moment


def back_off(failures: int, first: float, limit: float, random: randomness.Random) -> float:
    """Return the seconds to wait after `failures` consecutive failures: exponential backoff with full jitter.

    >>> back_off(3, 60, 86_400, randomness.Random(7)) < 240
    True
    """
    bound = min(limit, first * 2.0 ** min(max(failures - 1, 0), 60))
    return max(min(1.0, bound), random.uniform(0.0, bound))


def charset_of(headers: Mapping[str, str]) -> str | None:
    """Return the charset in the Content-Type header, or None.

    >>> charset_of({"Content-Type": 'text/xml; charset="ISO-8859-1"'})
    'ISO-8859-1'
    """
    match = _CHARSET.search(headers.get("Content-Type", "")[:200])
    return match[1] if match else None
