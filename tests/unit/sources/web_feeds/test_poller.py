"""Polling of a real web server: items, recorded problems and the time of the next poll for each kind of response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import select
from tests.services import refusing_port
from tests.unit.sources.web_feeds.feed_server import FeedServer, Page, PollWorld, rss

from runnel.catalog.access import owners
from runnel.catalog.access.owners import Quotas
from runnel.catalog.declared import feeds
from runnel.catalog.polling import hubs, polls
from runnel.catalog.store import schema
from runnel.errors import CatalogUnavailableError, RunnelError, StorageFullError
from runnel.logs.items.item_log import Accepted, ItemLog
from runnel.model.feed import Feed
from runnel.model.item import Item
from runnel.sources import document_child
from runnel.sources.acquire import Acquisition
from runnel.sources.web_feeds.poller import Poller


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer().running() as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, server: FeedServer) -> Iterator[PollWorld]:
    world = PollWorld(tmp_path / "workspace", server)
    yield world
    world.close()


# --- fetching ---------------------------------------------------------------------------------------------------


def test_items_are_accepted_once_and_later_only_new_ones(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(rss("2", "1"))
    feed = world.register("/a")
    assert world.poll().accepted == 2
    assert world.ids() == ["1", "2"], "oldest first"
    server.pages["/a"] = Page(rss("3", "2", "1"))
    assert world.poll_after(600).accepted == 1
    assert world.ids() == ["1", "2", "3"]
    state = world.state(feed)
    assert (state.status, state.requests, state.unchanged, state.problem) == (200, 2, 0, None)


def test_feed_is_polled_only_after_its_period(world: PollWorld, server: FeedServer) -> None:
    server.pages |= {"/a": Page(rss("1")), "/b": Page(rss("1"))}
    world.register("/a", every=60)
    world.register("/b")  # every ten minutes, by the settings
    world.poll()
    world.poll()
    assert sorted(server.paths()) == ["/a", "/b"]
    world.poll_after(60)
    assert sorted(server.paths()) == ["/a", "/a", "/b"]
    world.poll_after(541)
    assert sorted(server.paths()) == ["/a", "/a", "/a", "/b", "/b"]


def test_etag_is_sent_and_304_keeps_the_document(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(rss("1"), tagged=True)
    feed = world.register("/a")
    world.poll()
    tag = world.state(feed).etag
    assert tag
    assert "if-none-match" not in server.seen[0][1]
    assert world.poll_after(600).accepted == 0
    assert server.seen[1][1]["if-none-match"] == tag
    state = world.state(feed)
    assert (state.status, state.unchanged, state.etag) == (304, 1, tag)
    server.pages["/a"] = Page(rss("2", "1"), tagged=True)
    assert world.poll_after(600).accepted == 1
    assert world.counts().requests == 3
    assert world.counts().unchanged == 1


def test_last_modified_is_sent_back(world: PollWorld, server: FeedServer) -> None:
    date = "Thu, 01 Jan 2026 00:00:00 GMT"
    server.pages["/a"] = Page(rss("1"), headers={"Last-Modified": date})
    world.register("/a")
    world.poll()
    world.poll_after(600)
    assert server.seen[1][1]["if-modified-since"] == date


def test_document_with_known_digest_is_not_parsed(
    world: PollWorld, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages["/a"] = Page(rss("1"))
    feed = world.register("/a")
    world.poll()
    monkeypatch.setattr(world.acquirer, "read_document", lambda *_, **__: pytest.fail("it was read again"))
    world.poll_after(600)
    assert (world.state(feed).status, world.state(feed).unchanged) == (200, 1)


def test_compressed_document_is_read(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(rss("1"), zipped=True)
    world.register("/a")
    assert world.poll().accepted == 1


def test_charset_from_content_type_header_is_used(world: PollWorld, server: FeedServer) -> None:
    body = rss("1", title="caf\u00e9").decode().encode("iso-8859-1")
    server.pages["/a"] = Page(body, headers={"Content-Type": "application/rss+xml; charset=iso-8859-1"})
    world.register("/a")
    world.poll()
    assert world.accepted()[0].first("title") == "café 1"


def test_relative_links_are_resolved_against_the_final_url(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(status=302, headers={"Location": "/deep/feed.xml"})
    server.pages["/deep/feed.xml"] = Page(rss("1", item="<link>one.html</link>"))
    feed = world.register("/a")
    world.poll()
    assert world.accepted()[0].first("link") == server.url("/deep/one.html")
    assert world.state(feed).address == server.url("/a"), "a temporary redirect does not change the address"


def test_first_poll_accepts_only_the_newest_items(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, first_fetch_items=2)
    server.pages["/a"] = Page(rss(*map(str, range(9, 0, -1))))
    world.register("/a")
    assert world.poll().accepted == 2
    server.pages["/a"] = Page(rss(*map(str, range(20, 0, -1))))
    assert world.poll_after(600).accepted == 11
    assert sorted(map(int, world.ids())) == list(range(8, 21))
    world.close()


def test_duplicate_ids_and_strange_dates_do_not_affect_other_items(world: PollWorld, server: FeedServer) -> None:
    dates = ["Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 2099 23:59:59 GMT", "someday"]
    items = "".join(
        f"<item><guid>{row}</guid><pubDate>{date}</pubDate></item>" for row, date in enumerate([*dates, dates[0]])
    )
    twice = "<item><guid>0</guid><title>again</title></item>"
    body = f"<rss><channel><title>t</title>{items}{twice}</channel></rss>".encode()
    server.pages["/a"] = Page(body)
    feed = world.register("/a")
    result = world.poll()
    assert (result.accepted, result.quarantined) == (4, 1)
    assert world.seconds_until_due(feed) == 600, "dates of items do not affect the next poll"
    server.pages["/a"] = Page(body.replace(b"<title>t<", b"<title>u<"))
    assert world.poll_after(600).quarantined == 0, "the same entry is rejected again, but quarantined once"
    assert len(world.quarantined()) == 1


def test_ids_that_always_change_count_as_saturation(world: PollWorld, server: FeedServer) -> None:
    feed = world.register("/a")
    for turn in range(3):
        server.pages["/a"] = Page(rss(f"{turn}-2", f"{turn}-1"))
        assert world.poll_after(600).accepted == 2
    assert world.state(feed).memory.saturated == 2
    assert world.counts().saturated == 2


def test_feed_that_was_empty_is_not_saturated(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(rss())
    feed = world.register("/a")
    world.poll()
    server.pages["/a"] = Page(rss("2", "1"))
    assert world.poll_after(600).accepted == 2
    assert world.state(feed).memory.saturated == 0


def test_a_hundred_thousand_items_are_read(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, first_fetch_items=0)
    server.pages["/a"] = Page(b"<rss><channel><title>t</title></channel></rss>")
    world.register("/a")
    world.poll()
    items = b"".join(b"<item><guid>%d</guid></item>" % row for row in range(100_000))
    server.pages["/a"] = Page(b"<rss><channel><title>t</title>" + items + b"</channel></rss>")
    assert world.poll_after(600).accepted == 100_000
    world.close()


def test_large_documents_are_read_and_quarantined_like_small_ones(world: PollWorld, server: FeedServer) -> None:
    padding = "<description>" + "x" * 50_000 + "</description>"
    server.pages["/deep/a"] = Page(rss("2", "1", item=f"<link>one.html</link>{padding}"))
    server.pages["/b"] = Page(b"<!DOCTYPE rss [<!ENTITY a 'b'>]><rss>" + b" " * 50_000 + b"&a;</rss>")
    world.register("/deep/a", name="Large")
    broken = world.register("/b")
    result = world.poll()
    assert (result.accepted, result.quarantined) == (2, 1)
    assert world.accepted()[0].first("link") == server.url("/deep/one.html")
    assert "must not contain declarations" in (world.state(broken).problem or "")
    assert world.poll_after(600) == Acquisition()


def test_small_document_is_also_read_in_the_sandbox(
    world: PollWorld, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a document was decoded outside the sandbox")

    monkeypatch.setattr(document_child, "decode", fail)
    monkeypatch.setattr(document_child, "read_head", fail)
    server.pages["/a"] = Page(rss("1"))
    world.register("/a")
    assert world.poll().accepted == 1


# --- requested waits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "head", "wait"),
    [
        ({"Cache-Control": "max-age=3600"}, "", 3600),
        ({"Cache-Control": "max-age=5"}, "", 600),
        ({"Cache-Control": "max-age=99999999"}, "", 86_400),
        ({"Cache-Control": "no-store, max-age=3600"}, "", 600),
        ({}, "<ttl>120</ttl>", 7200),
        ({}, "<skipHours><hour>0</hour><hour>1</hour></skipHours>", 7200),
    ],
)
def test_publisher_can_ask_for_a_longer_wait(
    world: PollWorld, server: FeedServer, headers: dict[str, str], head: str, wait: float
) -> None:
    server.pages["/a"] = Page(rss("1", head=head), headers=headers)
    feed = world.register("/a")
    world.poll()
    assert world.seconds_until_due(feed) == wait


def test_requested_wait_still_applies_after_304(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(rss("1", head="<ttl>120</ttl>"), tagged=True)
    feed = world.register("/a")
    world.poll()
    world.poll_after(7200)
    assert world.state(feed).status == 304
    assert world.seconds_until_due(feed) == 7200


# --- redirects -----------------------------------------------------------------------------------------------------


def test_permanent_redirect_changes_the_polled_address(world: PollWorld, server: FeedServer) -> None:
    server.pages["/old"] = Page(status=301, headers={"Location": "/older"})
    server.pages["/older"] = Page(status=308, headers={"Location": "/new"})
    server.pages["/new"] = Page(rss("1"), tagged=True)
    feed = world.register("/old")
    world.poll()
    assert world.state(feed).address == server.url("/new")
    world.poll_after(600)
    assert server.paths() == ["/old", "/older", "/new", "/new"]
    assert world.state(feed).status == 304, "the ETag belongs to the new address"
    with world.workspace.catalog.read() as connection:
        declared = feeds.feed_by_id(connection, feed)
    assert declared is not None
    assert declared.address == server.url("/old"), "the declaration does not change"


@pytest.mark.parametrize("wrong", [Page(status=500), Page(b"<html><body>log in</body></html>"), Page(status=410)])
def test_declared_address_is_polled_again_after_failures_of_a_redirect(
    world: PollWorld, server: FeedServer, wrong: Page
) -> None:
    server.pages["/a"] = Page(status=301, headers={"Location": "/portal"})
    server.pages["/portal"] = Page(rss("1"))
    feed = world.register("/a")
    world.poll()
    assert world.state(feed).address == server.url("/portal")
    server.pages["/portal"] = wrong
    server.pages["/a"] = Page(rss("2"))
    for _ in range(3):
        world.poll_after(86_400)
    assert world.state(feed).address == server.url("/a")
    assert world.poll_after(86_400).accepted == 1
    assert world.state(feed).problem is None


def test_redirect_to_a_private_address_is_rejected_and_reported(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(status=301, headers={"Location": "http://10.0.0.1/secret"})
    server.pages["/b"] = Page(rss("1"))
    feed = world.register("/a")
    world.register("/b")
    assert world.poll().accepted == 1
    state = world.state(feed)
    assert state.problem
    assert "10.0.0.1" in state.problem
    assert state.address == server.url("/a")


# --- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"), [(401, "login"), (403, "denied"), (404, "no document"), (500, "failed"), (204, "204")]
)
def test_failures_are_described_and_retried_with_backoff(
    world: PollWorld, server: FeedServer, status: int, words: str
) -> None:
    server.pages["/a"] = Page(status=status)
    feed = world.register("/a")
    waits = []
    for _ in range(14):
        world.poll()
        waits.append(world.seconds_until_due(feed))
        world.clock.advance(timedelta(seconds=86_400))
    state = world.state(feed)
    assert (state.status, state.failures) == (status, 14)
    assert words in (state.problem or "")
    bounds = [min(60 * 2.0**turn, 86_400.0) for turn in range(14)]
    assert all(0 < wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert len({round(wait) for wait in waits}) > 10, "the waits are random"
    assert max(waits) > 3600
    server.pages["/a"] = Page(rss("1"))
    assert world.poll().accepted == 1
    state = world.state(feed)
    assert (state.problem, state.failures, state.memory.since) == (None, 0, None)


def test_failing_feeds_are_listed_with_start_of_failures_and_next_poll(world: PollWorld, server: FeedServer) -> None:
    started = int(world.clock() * 1e6)
    feed = world.register("/missing", name="Missing")
    world.poll()
    world.poll_after(3600)
    with world.workspace.catalog.read() as connection:
        (failing,) = polls.failing(connection)
    assert (failing.feed, failing.name, failing.failures, failing.since) == (feed, "Missing", 2, started)
    assert failing.next_try == world.state(feed).due
    assert world.counts().failing == 1


@pytest.mark.parametrize(("given", "wait"), [("7200", 7200.0), ("Thu, 01 Jan 2026 03:00:00 GMT", 10_800.0)])
def test_retry_after_is_honored(world: PollWorld, server: FeedServer, given: str, wait: float) -> None:
    server.pages["/a"] = Page(status=503, headers={"Retry-After": given})
    feed = world.register("/a")
    world.poll()
    assert world.seconds_until_due(feed) == wait


def test_retry_after_is_limited(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(status=503, headers={"Retry-After": "999999999"})
    feed = world.register("/a")
    world.poll()
    assert world.seconds_until_due(feed) == world.workspace.settings.poll_retry_limit_seconds


def test_status_429_pauses_the_whole_host(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, poll_host_concurrency=1)
    server.pages |= {"/a": Page(status=429, headers={"Retry-After": "900"}), "/b": Page(rss("1"))}
    world.register("/a")
    world.poll()
    world.register("/b")
    assert world.poll().accepted == 0
    assert server.paths() == ["/a"]
    assert world.poll_after(901).accepted == 1
    world.close()


def test_gone_feed_is_not_polled_until_it_is_resumed(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(status=410)
    feed = world.register("/a")
    world.poll()
    state = world.state(feed)
    assert (state.stopped, state.status) == ("gone", 410)
    assert "resume feed A" in (state.problem or "")
    assert world.counts().stopped == 1
    server.pages["/a"] = Page(rss("1"))
    assert world.poll_after(864_000).accepted == 0
    assert len(server.seen) == 1
    with world.workspace.catalog.write() as connection:
        known = feeds.feed_by_id(connection, feed)
        assert known is not None
        feeds.pause_feed(connection, known, False)  # what `resume feed` does
    assert world.poll().accepted == 1
    assert world.state(feed).stopped is None
    assert world.state(feed).problem is None


def test_304_to_a_first_request_is_a_failure(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(status=304)
    feed = world.register("/a")
    world.poll()
    assert "304 Not Modified" in (world.state(feed).problem or "")


def test_refused_connection_is_a_failure(world: PollWorld) -> None:
    feed = world.register("http://127.0.0.1:9/", name="Nobody")  # the client rejects port 9
    with refusing_port() as port:
        closed = world.register(f"http://127.0.0.1:{port}/none", name="Closed")
        world.poll()
    assert world.state(feed).failures == world.state(closed).failures == 1
    assert world.counts().failing == 2


# --- documents that cannot be read ----------------------------------------------------------------------------------


def test_broken_document_is_quarantined_once(world: PollWorld, server: FeedServer) -> None:
    bomb = b"<!DOCTYPE rss [<!ENTITY a 'b'>]><rss><channel>&a;</channel></rss>"
    server.pages["/a"] = Page(bomb, tagged=True)
    server.pages["/b"] = Page(rss("1"))
    feed = world.register("/a")
    world.register("/b")
    result = world.poll()
    assert (result.accepted, result.quarantined) == (1, 1)
    for _ in range(3):
        assert world.poll_after(600).quarantined == 0
    (row,) = world.quarantined()
    assert row.path is not None
    assert world.workspace.storage.read(row.path) == bomb
    assert "must not contain declarations" in (world.state(feed).problem or "")
    assert world.counts().failing == 1
    server.pages["/a"] = Page(b"<rss><channel>", tagged=True)
    server.pages["/a"] = Page(b"not a feed at all", tagged=True)
    assert world.poll_after(600).quarantined == 1
    server.pages["/a"] = Page(bomb, tagged=True)
    assert world.poll_after(600).quarantined == 0, "this document was quarantined before"
    server.pages["/a"] = Page(rss("2"), tagged=True)
    assert world.poll_after(600).accepted == 1
    assert world.state(feed).problem is None


def test_304_for_a_broken_document_is_still_a_failure(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(rss("1"), tagged=True)
    feed = world.register("/a")
    world.poll()
    server.pages["/a"] = Page(b"rubbish", tagged=True)
    world.poll_after(600)
    problem = world.state(feed).problem
    assert problem
    world.poll_after(600)
    assert (world.state(feed).status, world.state(feed).problem) == (304, problem)


def test_too_large_document_is_a_failure(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, max_document_bytes=10_000)
    server.pages["/a"] = Page(b"<rss>" + b" " * 20_000_000, zipped=True)
    feed = world.register("/a")
    world.poll()
    assert world.state(feed).problem
    assert world.ids() == []
    world.close()


def test_error_while_reading_affects_only_its_feed(
    world: PollWorld, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages |= {"/a": Page(rss("1")), "/b": Page(rss("2"))}
    bad = world.register("/a")
    world.register("/b")
    read = world.acquirer.read_document

    def fail(feed: Feed, *given: Any, **more: Any) -> Any:
        if feed.id == bad:
            raise ZeroDivisionError
        return read(feed, *given, **more)

    monkeypatch.setattr(world.acquirer, "read_document", fail)
    assert world.poll().accepted == 1
    assert "ZeroDivisionError" in (world.state(bad).problem or "")


# --- rate limits -------------------------------------------------------------------------------------------------


def test_request_budget_applies_across_rounds(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, poll_budget=60, poll_host_concurrency=50, poll_concurrency=50)
    for row in range(30):
        server.pages[f"/{row}"] = Page(rss(str(row)))
        world.register(f"/{row}", name=f"Feed{row}")
    world.poll(once=False)
    assert len(server.seen) == 10, "ten seconds' worth of requests may be sent at once"
    world.poll(once=False)
    assert len(server.seen) == 10
    world.poll_after(3, once=False)
    assert len(server.seen) == 13
    world.poll_after(3600, once=False)
    assert len(server.seen) == 23, "unused requests accumulate only up to a limit"
    world.close()


def test_bounded_run_polls_all_due_feeds(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, poll_budget=1, poll_concurrency=4)
    for row in range(40):
        server.pages[f"/{row}"] = Page(rss(str(row)))
        world.register(f"/{row}", name=f"Feed{row}")
    assert world.poll(once=True).accepted == 40
    assert world.poll(once=True).accepted == 0
    world.close()


def test_bounded_run_polls_all_due_feeds_even_if_parsing_is_slow(
    tmp_path: Path, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PollWorld(tmp_path / "workspace", server, poll_concurrency=4, poll_host_concurrency=4)
    read = world.acquirer.read_document
    pauses = iter([1.5])  # while the first document is parsed, so many responses arrive that polling pauses

    def slowly(*given: Any, **more: Any) -> Any:
        time.sleep(next(pauses, 0.0))
        return read(*given, **more)

    async def later(request: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return web.Response(body=rss(request.path))

    monkeypatch.setattr(world.acquirer, "read_document", slowly)
    server.pages["/0"] = Page(rss("0"))
    for row in range(40):
        server.handlers |= {f"/{row}": later} if row else {}
        world.register(f"/{row}", name=f"Feed{row}")
    assert world.poll(once=True).accepted == 40
    world.close()


def test_concurrent_polls_are_limited(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, poll_concurrency=8, poll_host_concurrency=3)
    concurrent, highest = 0, 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal concurrent, highest
        concurrent += 1
        highest = max(highest, concurrent)
        await asyncio.sleep(0.02)
        concurrent -= 1
        return web.Response(body=rss(request.path))

    for row in range(12):
        server.handlers[f"/{row}"] = slow
        world.register(f"/{row}", name=f"Feed{row}")
    assert world.poll().accepted == 12
    assert highest == 3
    world.close()


def test_most_urgent_feeds_are_polled_first(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, poll_budget=1, poll_host_concurrency=1)
    server.pages["/quiet"] = Page(rss("1"))
    quiet, busy = world.register("/quiet"), world.register("/busy")
    for turn in range(12):
        server.pages["/busy"] = Page(rss(*(f"{turn}-{row}" for row in range(20))))
        world.poll_after(600)  # a bounded run, which polls both
    server.seen.clear()
    world.poll_after(6000, once=False)
    assert server.paths() == ["/busy"], "there is one token, and this feed would lose more items"
    assert world.state(quiet).requests == 12
    assert world.state(busy).requests == 13
    world.close()


def test_hanging_host_does_not_delay_others(tmp_path: Path, server: FeedServer) -> None:
    with FeedServer().running() as slow:
        world = PollWorld(tmp_path / "workspace", server, http_seconds=30.0)
        slow.pages["/h"] = Page(hangs=True)
        hanging = world.register(slow.url("/h"), name="Hanging")
        server.pages["/a"] = Page(rss("1"))
        world.register("/a", every=60)
        assert world.poll(once=False).accepted == 1
        for turn in range(2, 5):
            server.pages["/a"] = Page(rss(str(turn)))
            assert world.poll_after(60, once=False).accepted == 1
        assert len(slow.seen) == 1, "the request is still open, and not repeated"
        assert world.state(hanging).checked is None
        world.close()


def test_host_that_does_not_respond_is_paused(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, poll_host_concurrency=1)
    with refusing_port() as port:
        for row in range(6):
            world.register(f"http://127.0.0.1:{port}/{row}", name=f"Dead{row}")
        world.poll()
        assert world.counts().requests == 2, "after two failures in a row, the host is paused"
        world.poll_after(61)
        assert world.counts().requests == 3, "one more failure pauses it again"
    world.close()


def test_nothing_is_polled_above_the_lag_limit(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server, lag_limit=1)
    server.pages["/a"] = Page(rss("1"))
    world.register("/a")
    assert world.poll().accepted == 1
    server.seen.clear()
    assert world.poll_after(600).accepted == 0
    assert server.seen == []
    world.close()


# --- errors and concurrent changes -------------------------------------------------------------------------------


def test_crash_between_accepting_and_recording_repeats_the_poll_without_loss(
    world: PollWorld, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages["/a"] = Page(rss("2", "1"), tagged=True)
    feed = world.register("/a")

    def crash(self: Poller) -> None:
        raise KeyError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(Poller, "_record", crash)
        with pytest.raises(KeyError):
            world.poll()
    assert world.ids() == ["1", "2"]
    assert world.state(feed).checked is None
    world.new_poller()  # the process after the crash
    assert world.poll().accepted == 0
    assert world.ids() == ["1", "2"], "nothing is lost or duplicated"
    assert "if-none-match" not in server.seen[-1][1]
    assert world.state(feed).etag


def test_fetched_documents_are_kept_while_the_storage_is_full(
    world: PollWorld, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages |= {"/a": Page(rss("1")), "/b": Page(rss("2"))}
    world.register("/a")
    world.register("/b")

    def full(*_: object, **__: object) -> None:
        raise StorageFullError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(ItemLog, "accept", full)
        for _ in range(3):
            with pytest.raises(StorageFullError):
                world.poll()
    assert sorted(server.paths()) == ["/a", "/b"]
    assert world.poll().accepted == 2
    assert sorted(server.paths()) == ["/a", "/b"]


@pytest.mark.parametrize(
    "error", [StorageFullError("no space left"), CatalogUnavailableError("the server went away")]
)
def test_outcomes_of_other_feeds_are_kept_if_one_cannot_be_stored(
    tmp_path: Path, server: FeedServer, monkeypatch: pytest.MonkeyPatch, error: RunnelError
) -> None:
    monkeypatch.setattr(
        "runnel.sources.web_feeds.poller._GATHER_SECONDS", 5.0
    )  # so that all responses are handled together
    world = PollWorld(tmp_path / "workspace", server, public_url=server.url("/public"), poll_host_concurrency=3)

    async def late(request: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        return web.Response(body=rss("2"))

    server.handlers["/full"] = late
    hub, self_ = (
        f'<atom:link xmlns:atom="http://www.w3.org/2005/Atom" rel="{relation}" href="{server.url(path)}"/>'
        for relation, path in (("hub", "/hub"), ("self", "/a"))
    )
    server.pages |= {
        "/a": Page(rss("1", head=hub + self_)),
        "/busy": Page(status=429, headers={"Retry-After": "3000"}),
        "/hub": Page(status=202),
    }
    offering, _, _ = (world.register(path) for path in ("/a", "/busy", "/full"))
    accept = ItemLog.accept

    def fails(log: ItemLog, feed: int, items: Sequence[Item], **more: Any) -> Accepted:
        if [item.id for item in items] == ["2"]:
            raise error
        return accept(log, feed, items, **more)

    with monkeypatch.context() as patched:
        patched.setattr(ItemLog, "accept", fails)
        for _ in range(2):
            with pytest.raises(type(error)):
                world.poll()
    acquired = world.poll()
    assert (acquired.accepted, sorted(world.ids())) == (2, ["1", "2"]), (
        "items accepted in failed rounds are also counted"
    )
    assert "/hub" in server.paths()
    with world.workspace.catalog.read() as connection:
        assert hubs.hubs_of(connection, [offering])[offering].hub == server.url("/hub")
    world.register("/other")
    world.poll_after(600)
    assert "/other" not in server.paths(), "their host asked for a pause"
    world.close()


def test_bytes_of_a_document_that_could_not_be_stored_are_counted_once(
    world: PollWorld, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages["/a"] = Page(rss("1"))
    with world.workspace.catalog.write() as connection:
        ann = owners.add_owner(connection, "ann")
    world.register("/a", owner=ann.id)

    def full(*_: object, **__: object) -> None:
        raise StorageFullError("no space left")

    def used() -> int:
        with world.workspace.catalog.read() as connection:
            return owners.usage_of(connection, ann.id).bytes

    with monkeypatch.context() as patched:
        patched.setattr(ItemLog, "accept", full)
        for _ in range(3):
            with pytest.raises(StorageFullError):
                world.poll()
    assert used() == len(rss("1"))
    assert world.poll().accepted == 1
    assert used() == len(rss("1"))
    server.pages["/a"] = Page(rss("2"))
    world.poll_after(600)
    assert used() == 2 * len(rss("1")), "the next document is counted as usual"


def test_hub_that_could_not_be_recorded_is_requested_in_the_next_round(
    tmp_path: Path, server: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PollWorld(tmp_path / "workspace", server, public_url=server.url("/public"))
    links = {"Link": f'<{server.url("/hub")}>; rel="hub", <{server.url("/a")}>; rel="self"'}
    server.pages |= {"/a": Page(rss("1"), headers=links), "/hub": Page(status=202)}
    world.register("/a")

    def full(*_: object) -> None:
        raise StorageFullError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(hubs, "put_hub", full)
        world.poll()
    assert server.paths() == ["/a"]
    world.poll()
    assert server.paths() == ["/a", "/hub"]
    world.close()


def test_feed_dropped_or_paused_during_a_poll_accepts_nothing(world: PollWorld, server: FeedServer) -> None:
    dropped, paused = world.register("/a"), world.register("/b")

    async def act(request: web.Request) -> web.Response:
        with world.workspace.catalog.write() as connection:
            if request.path == "/a":
                feeds.drop_feed(connection, dropped)
            else:
                known = feeds.feed_by_id(connection, paused)
                assert known is not None
                feeds.pause_feed(connection, known, True)
        return web.Response(body=rss(request.path))

    server.handlers |= {"/a": act, "/b": act}
    assert world.poll().accepted == 0
    assert world.poll_after(86_400).accepted == 0
    assert sorted(server.paths()) == ["/a", "/b"]
    with world.workspace.catalog.read() as connection:
        assert [state.feed for state in polls.poll_states(connection)] == [paused]


def test_bytes_are_counted_and_quotas_are_enforced(world: PollWorld, server: FeedServer) -> None:
    server.pages |= {"/a": Page(rss("1")), "/b": Page(rss("2"))}
    with world.workspace.catalog.write() as connection:
        owner = owners.add_owner(connection, "ann")
        owners.set_quotas(connection, owner, Quotas(bytes=len(rss("1")) + 5))
    own = world.register("/a", owner=owner.id)
    shared = world.register("/b")
    assert world.poll().accepted == 2
    with world.workspace.catalog.read() as connection:
        rows = connection.execute(select(schema.feeds.c.id, schema.feeds.c.bytes))
        counted = {row.id: row.bytes for row in rows}
    assert counted == {own: len(rss("1")), shared: len(rss("2"))}
    server.pages["/a"] = Page(rss("3", "1"))
    assert world.poll_after(600).accepted == 0
    assert "bytes" in (world.state(own).problem or "")


def test_feeds_of_a_disabled_owner_are_not_polled(world: PollWorld, server: FeedServer) -> None:
    server.pages["/a"] = Page(rss("1"))
    with world.workspace.catalog.write() as connection:
        owner = owners.add_owner(connection, "ann")
        owners.disable_owner(connection, owner, True)
    world.register("/a", owner=owner.id)
    assert world.poll().accepted == 0
    assert server.seen == []


def test_feeds_stay_due_if_the_poller_closes_during_a_request(world: PollWorld, server: FeedServer) -> None:
    server.pages["/h"] = Page(hangs=True)
    feed = world.register("/h")
    world.poll(once=False)
    world.poller.close()
    assert world.state(feed).checked is None
    world.new_poller()
    server.pages["/h"] = Page(rss("1"))
    assert world.poll().accepted == 1
