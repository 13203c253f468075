"""Limits on the messages that owners send to one recipient per hour.

In: the number of messages that are ready for a recipient. Out: how many of them may be sent now, and when the next
one may. The counts of the last hour are in memory, since only the runner sends. A new runner reads from the ledger
how many were sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from runnel.bounded_cache import BoundedCache

Recipient = tuple[int, str, str]
"""An owner, a kind of sink, and one of its recipients."""

HOUR = 3_600_000_000
_MOST_RECIPIENTS = 100_000


class MessagePacer:
    """Counts messages by recipient over the last hour. Times are microseconds since 1970."""

    def __init__(self, sent_before: Callable[[Recipient, int, int], list[int]]) -> None:
        """`sent_before` gives the times of a recipient's newest messages since a time, at most a number of them."""
        self._sent_before = sent_before
        self._sent = BoundedCache[Recipient, list[int]](_MOST_RECIPIENTS)

    def take(self, recipient: Recipient, wanted: int, limit: int, moment: int) -> tuple[int, int]:
        """Take up to `wanted` of what the limit leaves now; gives how many, and when the next one may be sent."""
        times = self._times(recipient, limit, moment)
        granted = max(0, min(wanted, limit - len(times)))
        times += [moment] * granted
        following = moment if len(times) < limit else times[len(times) - limit] + HOUR
        return granted, following

    def _times(self, recipient: Recipient, limit: int, moment: int) -> list[int]:
        times = self._sent.get(recipient)
        if times is None:
            times = sorted(self._sent_before(recipient, moment - HOUR, limit))
            self._sent.put(recipient, times)  # The ledger has the times of recipients that are evicted.
        del times[: bisect_right(times, moment - HOUR)]
        return times
