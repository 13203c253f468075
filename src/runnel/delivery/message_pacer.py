"""Limits on the messages that owners send to one recipient per hour.

In: the number of messages that are ready for a recipient. Out: how many of them may be sent now, and when the next
message may be sent. The send times of the last hour are kept in memory, because only the runner sends. A new runner
reads them from the ledger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from runnel.bounded_cache import BoundedCache

Recipient = tuple[int, str, str]
"""The number of an owner, a kind of sink, and the key of a recipient (see `ConfirmingSink.recipient`)."""

HOUR = 3_600_000_000
_MAX_RECIPIENTS = 100_000


class MessagePacer:
    """Counts messages by recipient over the last hour. Times are microseconds since 1970."""

    def __init__(self, sent_before: Callable[[Recipient, int, int], list[int]]) -> None:
        """`sent_before(recipient, since, limit)` returns the times of the newest messages, at most `limit`."""
        self._sent_before = sent_before
        self._sent = BoundedCache[Recipient, list[int]](_MAX_RECIPIENTS)

    def take(self, recipient: Recipient, wanted: int, limit: int, moment: int) -> tuple[int, int]:
        """Reserve up to `wanted` messages within the limit. Return how many are granted, and the time of the next."""
        times = self._times(recipient, limit, moment)
        granted = max(0, min(wanted, limit - len(times)))
        times += [moment] * granted
        next_time = moment if len(times) < limit else times[len(times) - limit] + HOUR
        return granted, next_time

    def _times(self, recipient: Recipient, limit: int, moment: int) -> list[int]:
        times = self._sent.get(recipient)
        if times is None:
            times = sorted(self._sent_before(recipient, moment - HOUR, limit))
            self._sent.put(recipient, times)  # The times of an evicted recipient are read again from the ledger.
        del times[: bisect_right(times, moment - HOUR)]
        return times
