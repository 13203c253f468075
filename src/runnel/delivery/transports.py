"""Transports: how messages that are sent concurrently get to their sinks.

In: a subscription's kind, target and stylesheet. Out: the queue in which it waits, and a coroutine that hands a
delivery over. A remote sink's route is opened once and kept; a local one runs in a thread, where it may block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from runnel.catalog.delivery.ledger import DueMessage
from runnel.delivery.shape_messages import MessageShaper
from runnel.errors import DeliveryError
from runnel.settings import Settings
from runnel.sinks.contract import ConfirmationRequest, Delivery, LocalSink, RemoteSink, Route
from runnel.sinks.registry import find_sink, open_sink

if TYPE_CHECKING:
    from runnel.net.http_client import HttpClient

_THREADS = 8

HandOver = Callable[[Delivery], Awaitable[str]]


class Transports:
    """The routes to all endpoints; used inside one running loop, until it is closed."""

    def __init__(self, shaper: MessageShaper, settings: Settings) -> None:
        self._shaper = shaper
        self._settings = settings
        self._threads: ThreadPoolExecutor | None = None
        self._client: HttpClient | None = None
        self._routes: dict[str, Route] = {}
        self._sheets: dict[str, asyncio.Lock] = {}

    def host(self, due: DueMessage) -> str | None:
        """The queue in which a due message waits; None if the runner itself hands it over.

        Messages with a stylesheet have a queue too, because applying it can take long.
        """
        sink = find_sink(due.kind)
        if sink is None:
            return None  # the attempt reports that the sink is not installed
        try:
            host = sink.host(due.target or "")
        except Exception:
            host = due.target  # the route reports what is wrong with the target
        if host is not None:
            return f"{due.kind} {host}"
        return None if due.sheet is None else f"sheet {due.sheet}"

    def is_remote(self, kind: str) -> bool:
        """Whether outputs of a kind have hosts, which may be silent; a folder that cannot be written is none."""
        return isinstance(find_sink(kind), RemoteSink)

    async def open(self, delivery: Delivery) -> tuple[Delivery, HandOver, float | None]:
        """The delivery in its shape, the function that hands it over, and how many seconds that may take.

        A local sink has no such bound: its thread could not be stopped, and would write during the next attempt.
        """
        sheet = delivery.subscription.sheet
        if sheet is not None:
            # One at a time for a sheet: a slow one may not take all threads.
            async with self._sheets.setdefault(sheet, asyncio.Lock()):
                loop = asyncio.get_running_loop()
                delivery = await loop.run_in_executor(self._pool(), self._shaper.shape, delivery)
        sink = open_sink(delivery.subscription.kind)
        if isinstance(sink, RemoteSink):
            return delivery, (await self._route(sink)).deliver, self._settings.send_seconds * sink.patience
        if isinstance(sink, LocalSink):
            return delivery, self._in_thread(sink), None
        raise DeliveryError(f"the output {sink.kind!r} cannot take messages")

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Send a request to confirm; whether the recipient agreed in its answer."""
        sink = open_sink(request.subscription.kind)
        if not isinstance(sink, RemoteSink):
            raise DeliveryError(f"the output {request.subscription.kind!r} has no recipients")
        route = await self._route(sink)
        seconds = self._settings.send_seconds * sink.patience
        try:
            async with asyncio.timeout(seconds):
                return await route.confirm(request)
        except TimeoutError as error:
            raise DeliveryError(f"the endpoint did not answer within {seconds:g} seconds") from error

    async def close(self) -> None:
        """Close routes, the HTTP client, and threads."""
        for route in self._routes.values():
            await route.close()
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
        if self._threads is not None:
            self._threads.shutdown()
        self._routes, self._client, self._threads = {}, None, None
        self._sheets.clear()

    def _in_thread(self, sink: LocalSink) -> HandOver:
        async def deliver(delivery: Delivery) -> str:
            return await asyncio.get_running_loop().run_in_executor(self._pool(), sink.deliver, delivery)

        return deliver

    async def _route(self, sink: RemoteSink) -> Route:
        if sink.kind not in self._routes:
            if self._client is None:
                from runnel.net.http_client import http_client_of

                self._client = http_client_of(self._settings)
                await self._client.__aenter__()
            self._routes[sink.kind] = sink.connect(self._settings, self._client)
        return self._routes[sink.kind]

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "runnel-send-work")
        return self._threads
