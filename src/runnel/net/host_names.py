"""Host names to addresses, in threads of its own.

In: a name. Out: its addresses, unjudged (the socket's check judges them). Name servers may take half a minute to say
nothing; asked in the event loop's shared threads, a few dead names would hold up everybody else's work.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS = 32


class HostResolver(AbstractResolver):
    """A resolver over the system's own, with a bounded number of threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host; OSError where it has none."""
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port, family)
        return [
            ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=0)
            for kind, _, protocol, _, address in found
            if kind in (socket.AF_INET, socket.AF_INET6)
        ]

    async def close(self) -> None:
        """Let go of the threads; a look-up under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[tuple[Any, ...]]:
    return [*socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)]
