"""A web server for feeds on loopback, in its own thread. Tests set its pages and inspect the recorded requests."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web
from tests import catalog_rows

from runnel.catalog.declared import feeds
from runnel.catalog.logs import quarantine
from runnel.catalog.logs.quarantine import Quarantined
from runnel.catalog.polling import polls
from runnel.catalog.polling.polls import PollCounts, PollState
from runnel.engine.workspace import create_workspace
from runnel.model.feed import FeedKind
from runnel.model.item import Item
from runnel.sources.acquire import Acquirer, Acquisition
from runnel.sources.web_feeds.poller import Poller
from runnel.testing import FakeClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Page:
    """The response at a path. If `tagged`, it has an ETag, and a request with that ETag gets 304."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    tagged: bool = False
    zipped: bool = False
    hangs: bool = False


class FeedServer:
    """An HTTP server on 127.0.0.1. `pages` may change at any time. `seen` contains the requests, oldest first."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.handlers: dict[str, Handler] = {}
        self.fallback: Handler | None = None
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def url(self, path: str) -> str:
        return f"{self.address}{path}"

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.path, {name.lower(): value for name, value in request.headers.items()}))
        if request.path in self.handlers:
            return await self.handlers[request.path](request)
        if self.fallback is not None and request.path not in self.pages:
            return await self.fallback(request)
        page = self.pages.get(request.path, Page(status=404))
        if page.hangs:
            await asyncio.sleep(60)
        headers = dict(page.headers)
        if page.tagged:
            headers["ETag"] = '"' + hashlib.sha256(page.body).hexdigest()[:16] + '"'
            if request.headers.get("If-None-Match") == headers["ETag"]:
                return web.Response(status=304, headers=headers)
        body = page.body
        if page.zipped:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body)
        return web.Response(body=body, status=page.status, headers=headers)

    async def _serve(self) -> tuple[web.AppRunner, int]:
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._respond)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert runner.addresses
        return runner, int(runner.addresses[0][1])

    @contextmanager
    def running(self) -> Iterator[FeedServer]:
        self._thread.start()
        runner, port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(60)
        self.address = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), self._loop).result(60)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def rss(*ids: str, title: str = "news", head: str = "", item: str = "") -> bytes:
    """Return an RSS document with these item ids, which should be given newest first."""
    items = "".join(f"<item><guid>{guid}</guid><title>{title} {guid}</title>{item}</item>" for guid in ids)
    return f"<rss version='2.0'><channel><title>t</title>{head}{items}</channel></rss>".encode()


class PollWorld:
    """A workspace with a fake clock, a poller, and a server to poll."""

    def __init__(self, folder: Path, server: FeedServer, **overrides: Any) -> None:
        self.clock = FakeClock()
        self.server = server
        settings = {"allowed_addresses": ("127.0.0.1/32",), "http_seconds": 60.0, "poll_seconds": 600.0} | overrides
        self.workspace = create_workspace(folder, clock=self.clock, **settings)
        self.acquirer = Acquirer(
            self.workspace.catalog,
            self.workspace.storage,
            self.workspace.items,
            self.workspace.folder,
            self.workspace.settings,
        )
        self.pollers: list[Poller] = []
        self.poller = self.new_poller()

    def new_poller(self) -> Poller:
        self.poller = Poller(self.acquirer, random=Random(7))
        self.pollers.append(self.poller)
        return self.poller

    def register(self, path: str, *, name: str = "", every: float | None = None, **more: Any) -> int:
        """Register a feed at a path of the server, or at an absolute URL."""
        address = path if "://" in path else self.server.url(path)
        feed_name = name or path.strip("/").title()
        with self.workspace.catalog.write() as connection:
            return catalog_rows.add_feed(
                connection,
                feed_name,
                FeedKind.SOURCE,
                f"register feed '{address}' as {feed_name};",
                address=address,
                every=None if every is None else timedelta(seconds=every),
                **more,
            )

    def poll(self, *, once: bool = True) -> Acquisition:
        return self.poller.read(once=once)

    def poll_after(self, seconds: float, *, once: bool = True) -> Acquisition:
        self.clock.advance(timedelta(seconds=seconds))
        return self.poll(once=once)

    def state(self, feed: int) -> PollState:
        with self.workspace.catalog.read() as connection:
            (state,) = polls.poll_states(connection, [feed])
        return state

    def seconds_until_due(self, feed: int) -> float:
        """Return the seconds until a feed is due."""
        return self.state(feed).due / 1e6 - self.clock()

    def counts(self) -> PollCounts:
        with self.workspace.catalog.read() as connection:
            return polls.poll_counts(connection)

    def accepted(self) -> list[Item]:
        """Return all items in the item log, oldest first."""
        last = self.workspace.items.last_sequence()
        with self.workspace.catalog.read() as connection:
            names = feeds.feed_names(connection)
        return [item for batch in self.workspace.items.read(0, last) for item in batch.items(names)]

    def ids(self) -> list[str]:
        return [item.id for item in self.accepted()]

    def quarantined(self) -> list[Quarantined]:
        with self.workspace.catalog.read() as connection:
            return quarantine.quarantined_rows(connection)

    def close(self) -> None:
        for poller in self.pollers:
            poller.close()
        self.workspace.close()
