"""Transports: open the connections of sinks for messages that are sent concurrently.

In: a subscription's kind, target and stylesheet. Out: the name of the queue in which it waits, and a coroutine that
delivers a message to the sink. The route of a remote sink is opened once and reused. A local sink runs in a thread,
because it may block.
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

_MAX_THREADS = 8

Deliver = Callable[[Delivery], Awaitable[str]]


class Transports:
    """The routes to all endpoints. Used in one event loop, and closed before that loop ends."""

    def __init__(self, shaper: MessageShaper, settings: Settings) -> None:
        self._shaper = shaper
        self._settings = settings
        self._executor: ThreadPoolExecutor | None = None
        self._client: HttpClient | None = None
        self._routes: dict[str, Route] = {}
        self._stylesheet_locks: dict[str, asyncio.Lock] = {}

    def host(self, due: DueMessage) -> str | None:
        """Return the name of the queue in which a due message waits, or None if the runner's own thread delivers it.

        A message with a stylesheet always has a queue, because applying the stylesheet may take long.
        """
        sink = find_sink(due.kind)
        if sink is None:
            return None  # the attempt fails with the message that the sink is not installed
        try:
            host = sink.host(due.target or "")
        except Exception:
            host = due.target  # the attempt fails with a message about the invalid target
        if host is not None:
            return f"{due.kind} {host}"
        return None if due.sheet is None else f"sheet {due.sheet}"

    def is_remote(self, kind: str) -> bool:
        """Return whether sinks of this kind send to hosts, which may fail to respond."""
        return isinstance(find_sink(kind), RemoteSink)

    async def open(self, delivery: Delivery) -> tuple[Delivery, Deliver, float | None]:
        """Apply the stylesheet. Return the new delivery, a coroutine function that delivers it, and a time limit.

        The limit is in seconds. A local sink has none, because its thread cannot be stopped: it would still be
        writing during the next attempt.
        """
        path = delivery.subscription.sheet
        if path is not None:
            # Apply each stylesheet to one message at a time, so that a slow stylesheet cannot occupy all threads.
            async with self._stylesheet_locks.setdefault(path, asyncio.Lock()):
                loop = asyncio.get_running_loop()
                delivery = await loop.run_in_executor(self._open_executor(), self._shaper.shape, delivery)
        sink = open_sink(delivery.subscription.kind)
        if isinstance(sink, RemoteSink):
            return delivery, (await self._route(sink)).deliver, self._settings.send_seconds * sink.patience
        if isinstance(sink, LocalSink):
            return delivery, self._deliver_in_thread(sink), None
        raise DeliveryError(f"the output {sink.kind!r} cannot deliver messages")

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Send a confirmation request. Return whether the endpoint confirmed in its response."""
        sink = open_sink(request.subscription.kind)
        if not isinstance(sink, RemoteSink):
            raise DeliveryError(f"the output {request.subscription.kind!r} cannot send confirmation requests")
        route = await self._route(sink)
        seconds = self._settings.send_seconds * sink.patience
        try:
            async with asyncio.timeout(seconds):
                return await route.confirm(request)
        except TimeoutError as error:
            raise DeliveryError(f"the endpoint did not respond within {seconds:g} seconds") from error

    async def close(self) -> None:
        """Close all routes, the HTTP client and the threads."""
        for route in self._routes.values():
            await route.close()
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
        if self._executor is not None:
            self._executor.shutdown()
        self._routes, self._client, self._executor = {}, None, None
        self._stylesheet_locks.clear()

    def _deliver_in_thread(self, sink: LocalSink) -> Deliver:
        async def deliver(delivery: Delivery) -> str:
            return await asyncio.get_running_loop().run_in_executor(self._open_executor(), sink.deliver, delivery)

        return deliver

    async def _route(self, sink: RemoteSink) -> Route:
        if sink.kind not in self._routes:
            if self._client is None:
                from runnel.net.http_client import http_client_of

                self._client = http_client_of(self._settings)
                await self._client.__aenter__()
            self._routes[sink.kind] = sink.connect(self._settings, self._client)
        return self._routes[sink.kind]

    def _open_executor(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_MAX_THREADS, "runnel-send-work")
        return self._executor
