"""When to ask again: what a server and a document say about how long an answer stays fresh.

In: the headers of an answer, the head of a document, a clock in seconds since 1970. Out: seconds to wait. All of
it comes from outside, so every value is bounded and nonsense counts as nothing said.
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
    """Seconds for which an answer says that it stays fresh; 0 where it says nothing, or must not be kept.

    >>> fresh_for({"Cache-Control": "public, max-age=600", "Age": "100"}, 0.0)
    500.0
    >>> fresh_for({"Cache-Control": "no-store, max-age=600"}, 0.0)
    0.0
    """
    control = {name.lower(): value for name, value in _DIRECTIVE.findall(headers.get("Cache-Control", "")[:1000])}
    if "no-store" in control or "no-cache" in control:
        return 0.0
    if "max-age" in control:
        longest = whole_number(control["max-age"])
        return max(0.0, float((longest or 0) - (whole_number(headers.get("Age")) or 0)))
    end = parse_date(headers.get("Expires", ""))
    if end is None:
        return 0.0
    sent = parse_date(headers.get("Date", ""))
    return max(0.0, end.timestamp() - (now if sent is None else sent.timestamp()))


def next_wait(every: float, now: float, *, fresh: float = 0.0, head: DocumentHead | None = None) -> float:
    """Seconds until a feed is asked again: what was declared, or longer where its publisher asks for it.

    Never less than `every`, and never more than a day unless that was declared.

    >>> next_wait(600, 0.0, fresh=1800), next_wait(600, 0.0, fresh=1e9), next_wait(600, 0.0)
    (1800, 86400.0, 600)
    """
    head = head or DocumentHead()
    longest = max(every, DAY)
    wait = min(max(every, fresh, head.ttl), longest)
    if not head.skip_hours and not head.skip_days:
        return wait
    return min(max(_after_skipped(now + wait, head) - now, wait), longest)


def _after_skipped(moment: float, head: DocumentHead) -> float:
    """The first moment, at or after one, that lies in no hour or day to be skipped; bounded by a week."""
    when = datetime.fromtimestamp(moment, UTC)
    for _ in range(24 * 8):
        if when.hour not in head.skip_hours and when.weekday() not in head.skip_days:
            return when.timestamp()
        when = when.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return moment


def back_off(failures: int, first: float, limit: float, random: randomness.Random) -> float:
    """Seconds to wait after so many failures in a row: anywhere below a bound that doubles each time (full jitter).

    >>> back_off(3, 60, 86_400, randomness.Random(7)) < 240
    True
    """
    bound = min(limit, first * 2.0 ** min(max(failures - 1, 0), 60))
    return max(min(1.0, bound), random.uniform(0.0, bound))


def charset_of(headers: Mapping[str, str]) -> str | None:
    """The charset that a server names for its document.

    >>> charset_of({"Content-Type": 'text/xml; charset="ISO-8859-1"'})
    'ISO-8859-1'
    """
    found = _CHARSET.search(headers.get("Content-Type", "")[:200])
    return found[1] if found else None
