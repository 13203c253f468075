"""Rate limits of polling, in total and per host.

In: the time, and the results of requests. Out: how many polls may start now, and which hosts are paused. The state is
kept between poll rounds, so that frequent rounds cannot exceed the limits.
"""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

_BURST_SECONDS = 10.0
_FAILURES_BEFORE_PAUSE = 2


class RequestBudget:
    """A token bucket that limits requests per minute. At most ten seconds' worth of requests accumulate."""

    def __init__(self, per_minute: int) -> None:
        self._rate = per_minute / 60.0
        self._capacity = max(1.0, self._rate * _BURST_SECONDS)
        self._tokens = self._capacity
        self._last: float | None = None

    def available(self, now: float) -> int:
        """Return how many requests may be made at time `now` (seconds since 1970).

        >>> budget = RequestBudget(60)
        >>> budget.available(0.0), budget.available(1e6)
        (10, 10)
        >>> budget.spend(10)
        >>> budget.available(1e6), budget.available(1e6 + 3)
        (0, 3)
        """
        if self._last is not None:
            # If the clock was set back, no tokens are added or removed.
            self._tokens = min(self._capacity, self._tokens + max(0.0, now - self._last) * self._rate)
        self._last = now
        return int(self._tokens + 1e-9)

    def spend(self, count: int = 1) -> None:
        """Remove the tokens of `count` requests."""
        self._tokens = max(0.0, self._tokens - count)


class HostPace:
    """Limits concurrent polls per host, and pauses hosts that do not respond or that ask for it."""

    def __init__(self, max_concurrent: int, pause_seconds: float) -> None:
        self._max_concurrent = max_concurrent
        self._pause_seconds = pause_seconds
        self._polling: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._paused_until: dict[str, float] = {}

    def has_room(self, address: str) -> bool:
        """Return whether another poll of the host may start."""
        return self._polling[host_of(address)] < self._max_concurrent

    def is_paused(self, address: str, now: float) -> bool:
        """Return whether the host is paused at time `now`."""
        host = host_of(address)
        until = self._paused_until.get(host)
        if until is None:
            return False
        if now < until and until - now <= 86_400.0:
            return True
        self._paused_until.pop(host, None)  # the pause is over, or the clock was set back
        return False

    def begin(self, address: str) -> None:
        """Count the start of a poll."""
        self._polling[host_of(address)] += 1

    def end(self, address: str) -> None:
        """Count the end of a poll."""
        host = host_of(address)
        self._polling[host] -= 1
        if self._polling[host] <= 0:
            del self._polling[host]

    def record_response(self, address: str) -> None:
        """Reset the failures of a host that responded, even with an error status."""
        self._failures.pop(host_of(address), None)

    def record_failure(self, address: str, now: float) -> None:
        """Count a failure to respond. After two in a row, pause the host, so that no other feeds wait for it."""
        host = host_of(address)
        self._failures[host] += 1
        if self._failures[host] >= _FAILURES_BEFORE_PAUSE:
            self.pause(address, now, self._pause_seconds)

    def pause(self, address: str, now: float, seconds: float) -> None:
        """Start no polls of a host for `seconds`."""
        self._paused_until[host_of(address)] = now + seconds


def host_of(address: str) -> str:
    """Return the host and port of a URL, in lower case.

    >>> host_of("https://Muse.example/rss"), host_of("http://muse.example:8080/")
    ('muse.example', 'muse.example:8080')
    """
    try:
        return urlsplit(address).netloc.rpartition("@")[2].lower()
    except ValueError:
        return address
