"""Ways: how messages that are sent side by side get to their sinks.

In: a subscription's kind, target and stylesheet. Out: the host in whose line it waits, and a coroutine that hands a
delivery over. A remote sink's route is opened once and kept; a local one runs in a thread, where it may block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from runnel.catalog.declared.subscriptions import INTERNAL
from runnel.catalog.delivery.ledger import DueMessage
from runnel.delivery.shape_messages import MessageShaper
from runnel.errors import DeliveryError, InputError
from runnel.settings import Settings
from runnel.sinks.contract import ConfirmationRequest, ConfirmingRoute, Delivery, RemoteSink, Route, Sink

if TYPE_CHECKING:
    from runnel.net.http_client import HttpClient

_THREADS = 8

HandOver = Callable[[Delivery], Awaitable[str]]
OpenSink = Callable[[str], Sink | RemoteSink]


class Transports:
    """The ways to all endpoints; used inside one running loop, until it is closed."""

    def __init__(self, open_sink: OpenSink, shaper: MessageShaper, settings: Settings) -> None:
        self._open_sink = open_sink
        self._shaper = shaper
        self._settings = settings
        self._threads: ThreadPoolExecutor | None = None
        self._door: HttpClient | None = None
        self._routes: dict[str, Route] = {}
        self._sheets: dict[str, asyncio.Lock] = {}

    def host(self, due: DueMessage) -> str | None:
        """The line in which what is due waits; None if it is for a local sink, handed over in turn.

        What must wait for a stylesheet has a line as well: it may take its time.
        """
        sink = self._open_sink(due.kind)
        if isinstance(sink, RemoteSink):
            try:
                return f"{due.kind} {sink.host(due.target or '')}"
            except Exception:
                return f"{due.kind} {due.target}"  # what is wrong with the target the route will tell
        if due.kind == INTERNAL:
            return f"feed {due.target}"
        return None if due.sheet is None else f"sheet {due.sheet}"

    def is_remote(self, kind: str) -> bool:
        """Whether outputs of a kind have hosts, which may be silent; a folder that cannot be written is none."""
        try:
            return isinstance(self._open_sink(kind), RemoteSink)
        except InputError:
            return False  # it is not installed any more

    async def open(self, delivery: Delivery) -> tuple[Delivery, HandOver, float | None]:
        """The delivery in its shape, the way it goes, and how long that may take.

        A local sink has no such bound: its thread could not be stopped, and would write beside the next attempt.
        """
        sheet = delivery.subscription.sheet
        if sheet is not None:
            # One at a time for a sheet: a slow one may not take all threads.
            async with self._sheets.setdefault(sheet, asyncio.Lock()):
                loop = asyncio.get_running_loop()
                delivery = await loop.run_in_executor(self._pool(), self._shaper.shape, delivery)
        sink = self._open_sink(delivery.subscription.kind)
        if isinstance(sink, RemoteSink):
            seconds = self._settings.send_seconds * getattr(sink, "patience", 1.0)
            return delivery, (await self._route(sink)).deliver, seconds
        return delivery, self._in_thread(sink), None

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Send a request to confirm; whether the recipient agreed in its answer."""
        sink = self._open_sink(request.subscription.kind)
        if not isinstance(sink, RemoteSink):
            raise DeliveryError(f"the output {request.subscription.kind!r} has no recipients")
        route = await self._route(sink)
        if not isinstance(route, ConfirmingRoute):
            raise DeliveryError(f"the output {request.subscription.kind!r} cannot ask for a confirmation")
        seconds = self._settings.send_seconds * getattr(sink, "patience", 1.0)
        try:
            async with asyncio.timeout(seconds):
                return await route.confirm(request)
        except TimeoutError as error:
            raise DeliveryError(f"the endpoint did not answer within {seconds:g} seconds") from error

    async def close(self) -> None:
        """Let go of routes, of the door, and of threads."""
        for route in self._routes.values():
            await route.close()
        if self._door is not None:
            await self._door.__aexit__(None, None, None)
        if self._threads is not None:
            self._threads.shutdown()
        self._routes, self._door, self._threads = {}, None, None
        self._sheets.clear()

    def _in_thread(self, sink: Sink) -> HandOver:
        async def deliver(delivery: Delivery) -> str:
            return await asyncio.get_running_loop().run_in_executor(self._pool(), sink.deliver, delivery)

        return deliver

    async def _route(self, sink: RemoteSink) -> Route:
        if sink.kind not in self._routes:
            if self._door is None:
                from runnel.net.http_client import http_client_of

                door = http_client_of(self._settings)
                self._door = door
                await door.__aenter__()
            self._routes[sink.kind] = sink.connect(self._settings, self._door)
        return self._routes[sink.kind]

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "runnel-send-work")
        return self._threads
