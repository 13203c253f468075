"""Rate limits for open feeds: items per minute, by feed and by client address."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable, Hashable, Sequence

from runnel.bounded_cache import BoundedCache

_MINUTE = 60.0
_MAX_KEYS = 50_000
"""Maximum number of keys. The least recently used key is dropped first."""


class RateLimiter:
    """A token bucket per key, which holds the tokens of one minute and is refilled steadily. It is thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets = BoundedCache[Hashable, tuple[float, float]](_MAX_KEYS)

    def take(self, key: Hashable, count: int, per_minute: int) -> float:
        """Take `count` tokens and return 0. If there are not enough, take none and return the seconds to wait.

        >>> limiter = RateLimiter(clock=lambda: 0.0)
        >>> limiter.take("a", 3, per_minute=4), limiter.take("a", 2, per_minute=4), limiter.take("b", 2, per_minute=4)
        (0.0, 15.0, 0.0)
        """
        with self._lock:
            moment = self._clock()
            tokens, updated = self._buckets.get(key) or (float(per_minute), moment)
            tokens = min(float(per_minute), tokens + (moment - updated) * per_minute / _MINUTE)
            wait = 0.0
            if count <= tokens:
                tokens -= count
            else:
                wait = (min(count, per_minute) - tokens) * _MINUTE / per_minute
            self._buckets.put(key, (tokens, moment))
            return wait


def client_key(address: str, forwarded: str, trusted: Sequence[str]) -> str:
    """Return the client of a request: an IPv4 address, or the 64-bit IPv6 network of one subscriber.

    Behind a trusted proxy, it is the last address that the proxy reports.

    >>> client_key("2001:db8::1:2", "", ()), client_key("10.0.0.1", "1.2.3.4, 5.6.7.8", ["10.0.0.0/8"])
    ('2001:db8::/64', '5.6.7.8')
    """
    if forwarded and _is_in(address, trusted):
        address = _without_port(forwarded.rpartition(",")[2].strip())
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _without_port(address: str) -> str:
    """Remove the port, which some proxies report and which differs for each connection.

    >>> _without_port("192.0.2.1:5060"), _without_port("[2001:db8::1]:5060"), _without_port("2001:db8::1")
    ('192.0.2.1', '2001:db8::1', '2001:db8::1')
    """
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _is_in(address: str, networks: Sequence[str]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in ipaddress.ip_network(network, strict=False) for network in networks)
