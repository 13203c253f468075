"""Polling end to end: statements, polls, pushes, matching and delivery, and a poller killed by SIGKILL."""

from __future__ import annotations

import hmac
import json
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from tests import catalog_rows
from tests.integration.in_process import InProcess, matched_ids, read_files
from tests.unit.sources.web_feeds.feed_server import FeedServer, Page, rss

import runnel
from runnel.catalog.declared import feeds
from runnel.catalog.polling import hubs, polls
from runnel.catalog.polling.hubs import HubState
from runnel.engine import Engine
from runnel.engine.run.health import Health
from runnel.sources.web_feeds.poller import Poller
from runnel.testing import FakeClock, MemorySink
from runnel.web.server import Server

LOOPBACK = ("127.0.0.1/32",)


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer().running() as running:
        yield running


@pytest.fixture
def web_engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "root", clock=clock, allowed_addresses=LOOPBACK) as opened:
        yield opened
    MemorySink.clear()


@pytest.fixture
def poller(web_engine: Engine) -> Iterator[Poller]:
    made = Poller(web_engine._acquirer)
    yield made
    made.close()


def test_published_items_are_delivered_once(
    web_engine: Engine, poller: Poller, server: FeedServer, clock: FakeClock
) -> None:
    server.pages["/rss"] = Page(rss("2", "1", title="rock"), tagged=True)
    server.pages["/quiet"] = Page(rss("q", title="folk"), tagged=True)
    web_engine.execute(
        f"""register feed '{server.url("/rss")}' as Events every 10 minutes;
        register feed '{server.url("/quiet")}' as Quiet;
        create feed Rock from (Events | Quiet) where title contains 'rock';
        subscribe to Rock output memory 'inbox';"""
    )
    run = InProcess(web_engine)
    assert poller.read(once=True).accepted == 3
    run.run()
    assert MemorySink.item_ids("inbox") == ["1", "2"]
    server.pages["/rss"] = Page(rss("3", "2", "1", title="rock"), tagged=True)
    for _ in range(3):
        clock.advance(timedelta(minutes=10))
        poller.read(once=True)
        run.run()
    run.close()
    assert MemorySink.item_ids("inbox") == ["1", "2", "3"]
    assert matched_ids(web_engine, "Rock") == ["1", "2", "3"]
    asked = server.paths()
    assert (asked.count("/rss"), asked.count("/quiet")) == (4, 2), "each in its own time"
    with web_engine.workspace.catalog.read() as connection:
        counts = polls.poll_counts(connection)
    assert (counts.requests, counts.unchanged) == (6, 3)


def test_folders_and_web_feeds_are_read_independently(
    web_engine: Engine, poller: Poller, server: FeedServer, tmp_path: Path
) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "a.xml").write_bytes(rss("file"))
    server.pages["/rss"] = Page(rss("web"))
    web_engine.execute(f"register feed '{drop}' as Files; register feed '{server.url('/rss')}' as Web;")
    assert read_files(web_engine).accepted == 1
    assert server.seen == []
    assert poller.read(once=True).accepted == 1
    assert web_engine.quarantine() == []


def test_stopped_feed_is_polled_again_after_resume(
    web_engine: Engine, poller: Poller, server: FeedServer, clock: FakeClock
) -> None:
    server.pages["/rss"] = Page(status=410)
    web_engine.execute(f"register feed '{server.url('/rss')}' as Events;")
    poller.read(once=True)
    server.pages["/rss"] = Page(rss("1"))
    clock.advance(timedelta(days=30))
    assert poller.read(once=True).accepted == 0
    assert "Events" in " ".join(web_engine.status().lines()), "a person can see that it stopped"
    web_engine.execute("resume feed Events;")
    assert poller.read(once=True).accepted == 1


def test_dropped_feed_is_not_polled(web_engine: Engine, poller: Poller, server: FeedServer, clock: FakeClock) -> None:
    server.pages["/rss"] = Page(rss("1"))
    web_engine.execute(f"register feed '{server.url('/rss')}' as Events;")
    poller.read(once=True)
    web_engine.execute("drop feed Events;")
    clock.advance(timedelta(days=1))
    poller.read(once=True)
    assert server.paths() == ["/rss"]


def test_hub_pushes_items_to_the_runners_server(tmp_path: Path, server: FeedServer) -> None:
    """Discovery, subscription request, verification, a signed push and a forged push, all over HTTP."""
    asked: list[dict[str, str]] = []

    async def hub(request: web.Request) -> web.Response:
        asked.append({name: values[0] for name, values in parse_qs(await request.text()).items()})
        return web.Response(status=202)

    server.handlers["/hub"] = hub
    links = f"<{server.url('/hub')}>; rel=hub, <{server.url('/rss')}>; rel=self"
    server.pages["/rss"] = Page(rss("1"), headers={"Link": links})
    public = "http://news.example"  # a reverse proxy would forward it to our server
    with runnel.connect(
        tmp_path / "root", listen="127.0.0.1:0", public_url=public, allowed_addresses=LOOPBACK
    ) as engine:
        engine.execute(f"register feed '{server.url('/rss')}' as Events; subscribe to Events output log;")
        poller = Poller(engine._acquirer)
        ours = Server(engine.workspace, engine.hubs())
        ours.start(_Healthy())
        try:
            poller.read(once=True)
            (form,) = asked
            callback = form["hub.callback"].replace(public, ours.address)
            query = f"hub.mode=subscribe&hub.topic={form['hub.topic']}&hub.challenge=c0ffee&hub.lease_seconds=86400"
            assert _call(f"{callback}?{query}") == (200, b"c0ffee")
            body = rss("2", "1")
            good = "sha256=" + hmac.new(form["hub.secret"].encode(), body, "sha256").hexdigest()
            assert _call(callback, body, good)[0] < 300
            assert _call(callback, rss("forged"), good)[0] < 300
            assert _call(f"{ours.address}/websub/nobody", body, good)[0] == 404
        finally:
            ours.close()
            poller.close()
        with engine.workspace.catalog.read() as connection:
            (row,) = hubs.hubs_of(connection).values()
            assert row.state is HubState.ACTIVE
            assert catalog_rows.hub_counts(connection) == {"pushes": 1, "refused": 1}
        run = InProcess(engine)
        run.match()
        run.close()
        assert matched_ids(engine, "Events") == ["1", "2"]


class _Healthy:
    def health(self) -> Health:
        return Health(live=True, ready=True)


def _call(url: str, body: bytes | None = None, signature: str = "") -> tuple[int, bytes]:
    headers = {"X-Hub-Signature": signature, "Content-Type": "application/rss+xml"} if body is not None else {}
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


_VICTIM = """
import sys
import runnel
from runnel.sources.web_feeds.poller import Poller
with runnel.connect(sys.argv[1], poll_seconds=1, allowed_addresses=("127.0.0.1/32",)) as engine:
    poller = Poller(engine._acquirer)
    print("polling", flush=True)
    while True:
        poller.read()
"""


@pytest.mark.crash
def test_a_poller_that_is_killed_loses_and_repeats_nothing(tmp_path: Path, server: FeedServer) -> None:
    names = [f"Feed{row}" for row in range(5)]
    published: dict[str, list[str]] = {name: ["0"] for name in names}
    for name in names:
        server.pages[f"/{name}"] = Page(rss("0"), tagged=True)
    folder = tmp_path / "root"
    with runnel.connect(folder, allowed_addresses=LOOPBACK) as engine:
        engine.execute("".join(f"register feed '{server.url(f'/{name}')}' as {name};" for name in names))
    dice = random.Random(7)
    for _ in range(3):
        victim = subprocess.Popen([sys.executable, "-c", _VICTIM, str(folder)], stdout=subprocess.PIPE)
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"polling\n"
            end = time.monotonic() + dice.uniform(0.5, 2.0)
            while time.monotonic() < end:
                name = dice.choice(names)
                published[name].append(str(len(published[name])))
                server.pages[f"/{name}"] = Page(rss(*reversed(published[name])), tagged=True)
                time.sleep(0.02)
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
    with runnel.connect(folder, allowed_addresses=LOOPBACK, clock=lambda: time.time() + 3600) as engine:
        poller = Poller(engine._acquirer)
        poller.read(once=True)
        poller.close()
        accepted: dict[str, list[str]] = {name: [] for name in names}
        with engine.workspace.catalog.read() as connection:
            known = feeds.feed_names(connection)
        for batch in engine.workspace.items.read(0, engine.workspace.items.last_sequence()):
            for item in batch.items(known):
                accepted[item.feed].append(item.id)
    assert accepted == published, json.dumps({"accepted": accepted, "published": published})
