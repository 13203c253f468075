"""The pace of polling: how many requests there may be, in all and to one host.

In: the clock, and what came of requests. Out: how many polls may start now, and which hosts are left alone. Both
outlive a round, so that rounds in quick succession are not a way around them.
"""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

_BURST_SECONDS = 10.0
_PATIENCE = 2


class RequestBudget:
    """Requests per minute as a token bucket: tokens drip in steadily, and at most ten seconds' worth are saved up."""

    def __init__(self, per_minute: int) -> None:
        self._rate = per_minute / 60.0
        self._capacity = max(1.0, self._rate * _BURST_SECONDS)
        self._tokens = self._capacity
        self._last: float | None = None

    def available(self, now: float) -> int:
        """How many requests may be made at a moment (seconds since 1970).

        >>> budget = RequestBudget(60)
        >>> budget.available(0.0), budget.available(1e6)
        (10, 10)
        >>> budget.spend(10)
        >>> budget.available(1e6), budget.available(1e6 + 3)
        (0, 3)
        """
        if self._last is not None:
            # A clock that was set back gives nothing, and takes nothing away.
            self._tokens = min(self._capacity, self._tokens + max(0.0, now - self._last) * self._rate)
        self._last = now
        return int(self._tokens + 1e-9)

    def spend(self, count: int = 1) -> None:
        """Use some of it up."""
        self._tokens = max(0.0, self._tokens - count)


class HostPace:
    """How many polls of each host are under way, and which hosts rest because they did not answer."""

    def __init__(self, at_once: int, rest_seconds: float) -> None:
        self._at_once = at_once
        self._rest_seconds = rest_seconds
        self._busy: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._until: dict[str, float] = {}

    def has_room(self, address: str) -> bool:
        """Whether one more poll of the address's host may start."""
        return self._busy[host_of(address)] < self._at_once

    def rests(self, address: str, now: float) -> bool:
        """Whether the address's host is left alone for now."""
        host = host_of(address)
        until = self._until.get(host)
        if until is None:
            return False
        if now < until and until - now <= 86_400.0:
            return True
        self._until.pop(host, None)  # also where the clock was set back
        return False

    def begin(self, address: str) -> None:
        """A poll starts."""
        self._busy[host_of(address)] += 1

    def end(self, address: str) -> None:
        """A poll is over."""
        host = host_of(address)
        self._busy[host] -= 1
        if self._busy[host] <= 0:
            del self._busy[host]

    def answered(self, address: str) -> None:
        """The host answered, whatever it said."""
        self._silent.pop(host_of(address), None)

    def silent(self, address: str, now: float) -> None:
        """The host did not answer; after two in a row it rests, so that its other feeds do not wait for it too."""
        host = host_of(address)
        self._silent[host] += 1
        if self._silent[host] >= _PATIENCE:
            self.rest(address, now, self._rest_seconds)

    def rest(self, address: str, now: float, seconds: float) -> None:
        """Leave a host alone for some time."""
        self._until[host_of(address)] = now + seconds


def host_of(address: str) -> str:
    """The host and port of a web address, as a key.

    >>> host_of("https://Muse.example/rss"), host_of("http://muse.example:8080/")
    ('muse.example', 'muse.example:8080')
    """
    try:
        return urlsplit(address).netloc.rpartition("@")[2].lower()
    except ValueError:
        return address
