"""Who goes next: limits on exchanges under way, in all and for one host.

In: the host of an exchange. Out: a turn, when there is one. A slow host holds up only those who wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _Gate:
    free: asyncio.Semaphore
    users: int = 0


class ConcurrencyLimits:
    """`concurrency` turns in all, `host_concurrency` for one host (0: no limit)."""

    def __init__(self, concurrency: int, host_concurrency: int) -> None:
        self._all = asyncio.Semaphore(concurrency)
        self._host_concurrency = host_concurrency
        self._gates: dict[str, _Gate] = {}

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait for a turn of the host, and only then for one of all: nobody holds a turn while waiting for a host."""
        if not self._host_concurrency:
            async with self._all:
                yield
            return
        gate = self._gates.setdefault(host, _Gate(asyncio.Semaphore(self._host_concurrency)))
        gate.users += 1
        try:
            async with gate.free, self._all:
                yield
        finally:
            gate.users -= 1
            if not gate.users:
                del self._gates[host]
