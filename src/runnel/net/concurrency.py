"""Limits on concurrent requests, in total and per host.

A slow host delays only requests to the same host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _HostLimit:
    free: asyncio.Semaphore
    users: int = 0


class ConcurrencyLimits:
    """At most `concurrency` requests in total, and `host_concurrency` per host (0: no limit)."""

    def __init__(self, concurrency: int, host_concurrency: int) -> None:
        self._all = asyncio.Semaphore(concurrency)
        self._host_concurrency = host_concurrency
        self._host_limits: dict[str, _HostLimit] = {}

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait until a request to the host may start.

        Wait for the host's limit before the total limit, so that a request that waits for its host does not block
        requests to other hosts.
        """
        if not self._host_concurrency:
            async with self._all:
                yield
            return
        host_limit = self._host_limits.setdefault(host, _HostLimit(asyncio.Semaphore(self._host_concurrency)))
        host_limit.users += 1
        try:
            async with host_limit.free, self._all:
                yield
        finally:
            host_limit.users -= 1
            if not host_limit.users:
                del self._host_limits[host]
