"""Polling, measured: from web servers to accepted items. Prints one JSON line per figure.

    python benchmarks/acquire.py [--feeds 1000] [--items 20] [--delay 0.1] [--seed 7]

A server in another process serves that many feeds and delays each response, as web servers do. All feeds are polled
four times: first documents, unchanged documents (304), unchanged documents of a server without ETags, and documents
with a few new items. The naive baseline is a loop that requests one feed after another (urllib), without and with
ETags, and passes the documents to the same decoder and log. Counters come from the server and the catalog. Times are
measured in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aiohttp import web
from sqlalchemy import event
from sqlalchemy.engine import Engine as Database
from tests import catalog_rows

from runnel.catalog.polling import polls
from runnel.catalog.polling.polls import DuePoll
from runnel.engine.workspace import Workspace, create_workspace
from runnel.model.feed import FeedKind
from runnel.sources.acquire import Acquirer
from runnel.sources.web_feeds.poller import Poller
from runnel.testing import FakeClock

_NAIVE_FEEDS = 100
_PERIOD = timedelta(hours=1)
_WORDS = [
    "river",
    "stone",
    "concert",
    "harbour",
    "minister",
    "festival",
    "market",
    "storm",
    "record",
    "island",
    "signal",
    "garden",
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feeds", type=int, default=1000)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--delay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with _server(options) as server, tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        say("setting", feeds=options.feeds, items_per_document=options.items, delay_seconds=options.delay)
        _poller(server, Path(folder) / "poller", options.feeds)
        _naive(server, Path(folder) / "naive", min(options.feeds, _NAIVE_FEEDS))


def say(figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": "acquire", "figure": figure, **rounded}), flush=True)


# --- the two ways -------------------------------------------------------------------------------------------------


def _poller(server: Server, folder: Path, count: int) -> None:
    clock = FakeClock()
    root, acquirer = _root(folder, server, count, clock)
    poller = Poller(acquirer, random=random.Random(7))
    for figure, edition, tagged in _TURNS:
        server.serve(edition, tagged)
        clock.advance(_PERIOD)
        _measure(f"poller_{figure}", server, count, lambda: poller.read(once=True).accepted)
    poller.close()
    with root.catalog.read() as connection:
        counts = polls.poll_counts(connection)
    say("poller_catalog", requests=counts.requests, unchanged=counts.unchanged, failing=counts.failing)
    root.close()


def _naive(server: Server, folder: Path, count: int) -> None:
    """Poll one feed after another: request, read, write."""
    root, acquirer = _root(folder, server, count, FakeClock())
    with root.catalog.write() as connection:
        polls.adopt(connection)
        declared = polls.due_polls(connection)
    tags: dict[int, str] = {}
    for figure, edition, tagged in _TURNS:
        server.serve(edition, tagged)
        _measure(f"naive_{figure}", server, count, lambda: sum(_ask(acquirer, value, tags) for value in declared))
    root.close()


_TURNS = (("first", 0, True), ("unchanged_304", 0, True), ("unchanged_200", 0, False), ("two_new_items", 1, True))


def _ask(acquirer: Acquirer, poll: DuePoll, tags: dict[int, str]) -> int:
    feed = poll.feed
    headers = {"If-None-Match": tags[feed.id]} if feed.id in tags else {}
    request = urllib.request.Request(feed.address or "", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            body, tag = answer.read(), answer.headers.get("ETag")
    except urllib.error.HTTPError as error:
        if error.code != 304:
            raise
        return 0
    accepted, _ = acquirer.take_document(feed, body, feed.name)
    if tag:
        tags[feed.id] = tag
    return accepted.accepted


def _measure(figure: str, server: Server, count: int, work: Callable[[], int]) -> None:
    before = server.counted()
    with _transactions() as transactions:
        started, processor = time.perf_counter(), time.process_time()
        accepted = work()
        seconds, processor = time.perf_counter() - started, time.process_time() - processor
    after = server.counted()
    say(
        figure,
        feeds=count,
        seconds=seconds,
        feeds_per_second=count / seconds,
        cpu_seconds=processor,
        items_accepted=accepted,
        items_read=after["items"] - before["items"],
        items_read_per_second=(after["items"] - before["items"]) / seconds,
        requests=after["requests"] - before["requests"],
        bytes=after["bytes"] - before["bytes"],
        write_transactions=transactions[0],
    )


def _root(folder: Path, server: Server, count: int, clock: FakeClock) -> tuple[Workspace, Acquirer]:
    root = create_workspace(
        folder,
        clock=clock,
        allowed_addresses=("127.0.0.1/32",),
        poll_seconds=_PERIOD.total_seconds(),
        poll_concurrency=64,
        poll_host_concurrency=64,
    )
    with root.catalog.write() as connection:
        for row in range(count):
            catalog_rows.add_feed(
                connection, f"Feed{row}", FeedKind.SOURCE, "benchmark", address=f"{server.address}/feed/{row}"
            )
    return root, Acquirer(root.catalog, root.storage, root.items, root.folder, root.settings)


@contextmanager
def _transactions() -> Iterator[list[int]]:
    """Counts the transactions that write."""
    counted = [0]

    def count(*value: Any) -> None:
        counted[0] += str(value[2]).startswith("begin immediate")

    event.listen(Database, "before_cursor_execute", count)
    try:
        yield counted
    finally:
        event.remove(Database, "before_cursor_execute", count)


# --- the server, in another process -------------------------------------------------------------------------------


class Server:
    """The server as this process sees it."""

    def __init__(self, port: int, line: Connection) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._line = line

    def serve(self, edition: int, tagged: bool) -> None:
        """Choose the documents to serve from now on, and whether to send ETags."""
        self._line.send((edition, tagged))
        self._line.recv()

    def counted(self) -> dict[str, int]:
        """Return the counters of the responses so far."""
        self._line.send(None)
        numbers: dict[str, int] = self._line.recv()
        return numbers


@contextmanager
def _server(options: argparse.Namespace) -> Iterator[Server]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(there, options.items, options.delay, options.seed), daemon=True
    )
    process.start()
    try:
        yield Server(here.recv(), here)
    finally:
        process.terminate()
        process.join()


class _Site:
    def __init__(self, items: int, delay: float, seed: int) -> None:
        self.items, self.delay, self.seed = items, delay, seed
        self.edition, self.tagged = 0, True
        self.counted = {"requests": 0, "bytes": 0, "items": 0}
        self._documents: dict[tuple[int, int], bytes] = {}

    async def answer(self, request: web.Request) -> web.Response:
        feed = int(request.match_info["feed"])
        await asyncio.sleep(self.delay)
        self.counted["requests"] += 1
        headers = {"ETag": f'"{self.edition}"'} if self.tagged else {}
        if self.tagged and request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        body = self._documents.setdefault((feed, self.edition), self._document(feed))
        self.counted["bytes"] += len(body)
        self.counted["items"] += self.items
        return web.Response(body=body, headers=headers, content_type="application/rss+xml")

    def _document(self, feed: int) -> bytes:
        newest = self.items + 2 * self.edition
        items = "".join(self._item(feed, number) for number in range(newest, newest - self.items, -1))
        return f"<rss version='2.0'><channel><title>Feed {feed}</title>{items}</channel></rss>".encode()

    def _item(self, feed: int, number: int) -> str:
        dice = random.Random(self.seed * 1_000_003 + feed * 1009 + number)
        title = " ".join(dice.choices(_WORDS, k=6))
        text = " ".join(dice.choices(_WORDS, k=60))
        return (
            f"<item><guid>urn:{feed}:{number}</guid><title>{title}</title><link>https://a.example/{number}</link>"
            f"<description>&lt;p&gt;{text}&lt;/p&gt;</description><category>{dice.choice(_WORDS)}</category></item>"
        )


def _serve(line: Connection, items: int, delay: float, seed: int) -> None:
    asyncio.run(_serving(line, _Site(items, delay, seed)))


async def _serving(line: Connection, site: _Site) -> None:
    application = web.Application()
    application.router.add_get("/feed/{feed}", site.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    line.send(runner.addresses[0][1])
    while True:
        messages = await asyncio.to_thread(line.recv)
        if messages is not None:
            site.edition, site.tagged = messages
        line.send(dict(site.counted))


if __name__ == "__main__":
    main()
