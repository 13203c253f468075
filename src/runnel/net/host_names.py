"""DNS lookups in a bounded thread pool.

In: a host name. Out: its addresses, unchecked: the client checks an address when it connects. A lookup may block for
half a minute. In the event loop's default thread pool, a few dead names would delay all other work.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS = 32


class HostResolver(AbstractResolver):
    """A resolver that calls the system's resolver in a bounded number of threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raise OSError if it has none."""
        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port, family)
        return [
            ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=0)
            for kind, _, protocol, _, address in addresses
            if kind in (socket.AF_INET, socket.AF_INET6)
        ]

    async def close(self) -> None:
        """Release the threads. A lookup in progress ends on its own."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[tuple[Any, ...]]:
    return [*socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)]
