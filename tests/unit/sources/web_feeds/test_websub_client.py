"""WebSub with a real hub on loopback, which verifies subscriptions and pushes signed content."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import catalog_rows
from tests.unit.sources.web_feeds.feed_server import FeedServer, Page, PollWorld, rss

from runnel.catalog.access import owners
from runnel.catalog.declared import feeds
from runnel.catalog.polling import hubs
from runnel.catalog.polling.hubs import HubRow, HubState
from runnel.errors import BacklogError, InputError, StorageFullError
from runnel.logs.items.item_log import ItemLog
from runnel.model.feed import ADMIN
from runnel.net.http_client import HttpResponse
from runnel.sources import document_child
from runnel.sources.document_child import DocumentSource, read_document
from runnel.sources.documents.document_head import NO_HEAD, DocumentHead
from runnel.sources.web_feeds.hub_links import HubOffer, offer_of
from runnel.sources.web_feeds.websub_client import WebSubClient

HUB_HEAD = '<atom:link xmlns:atom="http://www.w3.org/2005/Atom" rel="{}" href="{}"/>'


class Hub:
    """A hub that accepts requests, calls back to verify them, and signs pushes."""

    def __init__(self, server: FeedServer) -> None:
        self.server = server
        self.requests: list[dict[str, str]] = []
        self.verified: list[int] = []
        self.lease = "86400"
        self.status = 202
        self.topic_claimed: str | None = None
        self.verifies = True
        server.handlers["/hub"] = self.accept

    async def accept(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        self.requests.append(form)
        if self.verifies:
            await self.call_back(form)
        return web.Response(status=self.status)

    async def call_back(self, form: dict[str, str]) -> None:
        params = {
            "hub.mode": form["hub.mode"],
            "hub.topic": self.topic_claimed or form["hub.topic"],
            "hub.challenge": "c0ffee",
            "hub.lease_seconds": self.lease,
        }
        async with (
            aiohttp.ClientSession() as session,
            session.get(form["hub.callback"], params=params) as response,
        ):
            echoed = response.status == 200 and await response.text() == "c0ffee"
        self.verified.append(200 if echoed else response.status)

    @property
    def callback(self) -> str:
        return urlsplit(self.requests[-1]["hub.callback"]).path.rpartition("/")[2]

    def signed(self, body: bytes, method: str = "sha256") -> dict[str, str]:
        secret = self.requests[-1]["hub.secret"].encode()
        return {"x-hub-signature": f"{method}={hmac.new(secret, body, method).hexdigest()}"}


class World(PollWorld):
    """A poll world with a hub and the callback URL for hubs."""

    def __init__(self, folder: Path, server: FeedServer, **overrides: Any) -> None:
        super().__init__(folder, server, public_url=server.url("/public"), **overrides)
        self.hub = Hub(server)
        self.subscriber = WebSubClient(self.acquirer)

        async def call(request: web.Request) -> web.Response:
            params = dict(request.query.items())
            challenge = self.subscriber.verify(request.path.rpartition("/")[2], params)
            return web.Response(status=404) if challenge is None else web.Response(text=challenge)

        self.server.fallback = call
        topic = server.url("/topic")
        self.page = rss("1", head=HUB_HEAD.format("hub", server.url("/hub")) + HUB_HEAD.format("self", topic))
        server.pages["/a"] = Page(self.page)

    def row(self, feed: int) -> HubRow:
        with self.workspace.catalog.read() as connection:
            return hubs.hubs_of(connection, [feed])[feed]

    def counted(self) -> dict[str, int]:
        with self.workspace.catalog.read() as connection:
            return catalog_rows.hub_counts(connection)


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer().running() as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, server: FeedServer) -> Iterator[World]:
    world = World(tmp_path / "workspace", server)
    yield world
    world.close()


@pytest.fixture
def feed(world: World) -> int:
    """Register a feed and subscribe to its hub, which verifies the subscription."""
    feed = world.register("/a")
    world.poll()
    assert world.row(feed).state is HubState.ACTIVE
    return feed


def test_hub_gets_a_subscription_request_and_verifies_it(world: World, feed: int, server: FeedServer) -> None:
    (request,) = world.hub.requests
    assert request["hub.mode"] == "subscribe"
    assert request["hub.topic"] == server.url("/topic")
    assert request["hub.callback"].startswith(server.url("/public/websub/"))
    assert len(world.hub.callback) >= 40
    assert len(request["hub.secret"]) >= 32
    assert world.hub.verified == [200]
    assert world.row(feed).lease_until == int((world.clock() + 86_400) * 1e6)


def test_pushed_feed_is_polled_at_most_daily(world: World, feed: int, server: FeedServer) -> None:
    world.poll_after(600)
    assert server.paths().count("/a") == 2
    assert world.seconds_until_due(feed) == 86_400 - 600, "until the lease ends, at most a day"
    world.poll_after(7200)
    assert server.paths().count("/a") == 2
    assert len(world.hub.requests) == 1, "the subscription is not requested again"


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha384", "sha512"])
def test_signed_push_is_accepted(world: World, feed: int, method: str) -> None:
    body = rss("3", "2", "1")
    result = world.subscriber.receive(world.hub.callback, world.hub.signed(body, method), body)
    assert result is not None
    assert (result.accepted, result.unchanged) == (2, 1)
    assert world.subscriber.receive(world.hub.callback, world.hub.signed(body), body).accepted == 0  # type: ignore[union-attr]
    assert world.ids() == ["1", "2", "3"]
    assert world.counted() == {"pushes": 2, "refused": 0}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-hub-signature": ""},
        {"x-hub-signature": "sha256="},
        {"x-hub-signature": "sha256=" + "0" * 64},
        {"x-hub-signature": "md5=" + "0" * 32},
        {"x-hub-signature": "sha256=é\ud800"},
        {"x-hub-signature": hmac.new(b"guessed", rss("2"), "sha256").hexdigest()},
    ],
)
def test_push_with_wrong_signature_is_ignored_and_counted(world: World, feed: int, headers: dict[str, str]) -> None:
    result = world.subscriber.receive(world.hub.callback, headers, rss("2"))
    assert result is not None, "the sender is not informed"
    assert result.accepted == 0
    assert world.ids() == ["1"]
    assert world.counted() == {"pushes": 0, "refused": 1}


def test_signature_of_other_content_is_wrong(world: World, feed: int) -> None:
    world.subscriber.receive(world.hub.callback, world.hub.signed(rss("2")), rss("3"))
    assert world.ids() == ["1"]


def test_unknown_callback_is_rejected(world: World, feed: int) -> None:
    body = rss("2")
    for name in ("elsewhere", "", "a\0b", "\ud800", "x" * 10_000, "'; drop table hubs; --"):
        assert world.subscriber.receive(name, world.hub.signed(body), body) is None
        assert world.subscriber.verify(name, {"hub.mode": "subscribe", "hub.challenge": "x"}) is None
    params = {"hub.mode": "subscribe", "hub.topic": world.row(feed).topic, "hub.challenge": "x"}
    assert world.subscriber.verify("elsewhere", params) is None


def test_broken_push_is_quarantined_once(world: World, feed: int) -> None:
    body = b"<!DOCTYPE a [<!ENTITY a 'a'>]><rss/>"
    for expected in (1, 0):
        result = world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
        assert result is not None
        assert result.quarantined == expected
    assert len(world.quarantined()) == 1


def test_push_is_rejected_above_the_lag_limit(tmp_path: Path, server: FeedServer) -> None:
    world = World(tmp_path / "workspace", server, lag_limit=1)
    world.register("/a")
    world.poll()
    body = rss("2")
    with pytest.raises(BacklogError):
        world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
    world.close()


@pytest.mark.parametrize(
    "change",
    [
        {"hub.topic": "https://evil.example/"},
        {"hub.topic": ""},
        {"hub.mode": "unsubscribe"},
        {"hub.mode": "publish"},
        {"hub.mode": ""},
        {"hub.challenge": ""},
        {"hub.challenge": "x" * 5000},
    ],
)
def test_only_requested_subscriptions_are_verified(
    tmp_path: Path, server: FeedServer, change: dict[str, str]
) -> None:
    world = World(tmp_path / "workspace", server)
    world.hub.verifies = False
    feed = world.register("/a")
    world.poll()
    assert world.row(feed).state is HubState.PENDING
    good = {
        "hub.mode": "subscribe",
        "hub.topic": server.url("/topic"),
        "hub.challenge": "c",
        "hub.lease_seconds": "9",
    }
    assert world.subscriber.verify(world.hub.callback, good | change) is None
    assert world.row(feed).state is HubState.PENDING
    body = rss("2")
    assert world.subscriber.receive(world.hub.callback, world.hub.signed(body), body) is None, "not verified yet"
    assert world.subscriber.verify(world.hub.callback, good) == "c"
    assert world.row(feed).state is HubState.ACTIVE
    world.close()


def test_late_verification_is_rejected(world: World, feed: int) -> None:
    params = {"hub.mode": "subscribe", "hub.topic": world.row(feed).topic, "hub.challenge": "c"}
    assert world.subscriber.verify(world.hub.callback, params) == "c", (
        "a hub that did not get our response verifies again"
    )
    before = world.row(feed).lease_until
    world.clock.advance(timedelta(hours=3))
    assert world.subscriber.verify(world.hub.callback, params) is None
    assert world.row(feed).lease_until == before


@pytest.mark.parametrize(("lease", "seconds"), [("1", 300), ("999999999999", 864_000), ("99999999999", 7_776_000)])
def test_leases_are_limited(tmp_path: Path, server: FeedServer, lease: str, seconds: int) -> None:
    world = World(tmp_path / "workspace", server)
    world.hub.lease = lease
    feed = world.register("/a")
    world.poll()
    assert world.row(feed).lease_until == int((world.clock() + seconds) * 1e6)
    world.close()


def test_lease_is_renewed_with_the_same_callback_before_it_ends(world: World, feed: int) -> None:
    first = world.hub.callback
    world.poll_after(12 * 3600)
    assert len(world.hub.requests) == 1
    world.poll_after(5 * 3600)
    assert len(world.hub.requests) == 2
    assert world.hub.callback == first
    assert world.hub.requests[0]["hub.secret"] == world.hub.requests[1]["hub.secret"]
    row = world.row(feed)
    assert (row.state, row.lease_until) == (HubState.ACTIVE, int((world.clock() + 86_400) * 1e6))


def test_pushes_are_accepted_until_the_lease_ends_if_renewal_fails(world: World, feed: int) -> None:
    world.hub.verifies, world.hub.status = False, 500
    world.poll_after(17 * 3600)
    row = world.row(feed)
    assert row.state is HubState.RENEWING
    assert row.problem == "the hub responded with status 500"
    body = rss("2")
    assert world.subscriber.receive(world.hub.callback, world.hub.signed(body), body).accepted == 1  # type: ignore[union-attr]
    world.poll_after(8 * 3600)
    assert world.seconds_until_due(feed) == 600, "without a lease, the feed is polled as usual"


@pytest.mark.parametrize(("seconds", "is_accepted"), [(86_399, True), (86_400, False), (86_401, False)])
def test_push_after_the_lease_is_rejected(world: World, feed: int, seconds: int, is_accepted: bool) -> None:
    """There is no poll in between that would renew the lease or detect its end."""
    world.clock.advance(timedelta(seconds=seconds))
    body = rss("2")
    assert world.row(feed).state is HubState.ACTIVE
    assert world.subscriber.expects(world.hub.callback) is is_accepted
    result = world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
    assert (result is not None and result.accepted == 1) is is_accepted


def test_polling_continues_if_the_hub_rejects_the_subscription(tmp_path: Path, server: FeedServer) -> None:
    world = World(tmp_path / "workspace", server)
    world.hub.verifies, world.hub.status = False, 400
    feed = world.register("/a")
    world.poll()
    assert world.row(feed).state is HubState.FAILED
    assert world.seconds_until_due(feed) == 600
    world.poll_after(600)
    assert len(world.hub.requests) == 1
    world.poll_after(86_400)
    assert len(world.hub.requests) == 2, "once a day"
    world.close()


def test_denial_is_accepted_only_for_the_right_topic(world: World, feed: int) -> None:
    topic = world.row(feed).topic
    wrong = {"hub.mode": "denied", "hub.topic": "https://other.example/", "hub.reason": "no\0"}
    assert world.subscriber.verify(world.hub.callback, wrong) is None
    assert world.row(feed).state is HubState.ACTIVE
    assert world.subscriber.verify(world.hub.callback, wrong | {"hub.topic": topic}) == ""
    row = world.row(feed)
    assert (row.state, row.problem) == (HubState.DENIED, "the hub denied the subscription: no\ufffd")
    body = rss("2")
    assert world.subscriber.receive(world.hub.callback, world.hub.signed(body), body) is None


def test_dropped_feed_is_unsubscribed(world: World, feed: int) -> None:
    callback = world.hub.callback
    body = rss("2")
    push = world.hub.signed(body)
    with world.workspace.catalog.write() as connection:
        feeds.drop_feed(connection, feed)
    world.poll_after(120)
    assert [form["hub.mode"] for form in world.hub.requests] == ["subscribe", "unsubscribe"]
    assert world.hub.verified == [200, 200]
    with world.workspace.catalog.read() as connection:
        assert hubs.hubs_of(connection) == {}
    assert world.subscriber.receive(callback, push, body) is None


def test_hub_of_a_dropped_feed_is_removed_without_confirmation(world: World, feed: int) -> None:
    with world.workspace.catalog.write() as connection:
        feeds.drop_feed(connection, feed)
    world.hub.verifies = False
    world.poll_after(120)
    world.poll_after(7200)
    with world.workspace.catalog.read() as connection:
        assert hubs.hubs_of(connection) == {}


def test_paused_feed_ignores_pushes(world: World, feed: int) -> None:
    with world.workspace.catalog.write() as connection:
        known = feeds.feed_by_id(connection, feed)
        assert known is not None
        feeds.pause_feed(connection, known, True)
    body = rss("2")
    result = world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
    assert result is not None
    assert result.accepted == 0


def test_new_hub_replaces_the_previous_one(world: World, feed: int, server: FeedServer) -> None:
    first = world.hub.callback
    server.handlers["/hub2"] = world.hub.accept
    server.pages["/a"] = Page(world.page.replace(b"/hub", b"/hub2"))
    world.poll_after(86_400)
    assert world.row(feed).hub == server.url("/hub2")
    assert world.hub.callback != first
    body = rss("2")
    assert world.subscriber.receive(first, world.hub.signed(body), body) is None


def test_redirect_of_a_hub_is_followed(tmp_path: Path, server: FeedServer) -> None:
    world = World(tmp_path / "workspace", server)
    server.pages["/old-hub"] = Page(status=308, headers={"Location": "/hub"})
    server.pages["/a"] = Page(world.page.replace(b"/hub", b"/old-hub"))
    feed = world.register("/a")
    world.poll()
    assert world.row(feed).state is HubState.ACTIVE
    world.close()


def test_hub_at_a_private_address_is_not_contacted(tmp_path: Path, server: FeedServer) -> None:
    world = World(tmp_path / "workspace", server)
    server.pages["/a"] = Page(world.page.replace(server.url("/hub").encode(), b"http://10.0.0.1/hub"))
    feed = world.register("/a")
    assert world.poll().accepted == 1
    row = world.row(feed)
    assert row.state is HubState.FAILED
    assert "10.0.0.1" in (row.problem or "")
    world.close()


def test_no_hub_is_contacted_without_a_public_url(tmp_path: Path, server: FeedServer) -> None:
    world = PollWorld(tmp_path / "workspace", server)
    server.pages["/a"] = Page(rss("1"), headers={"Link": f'<{server.url("/hub")}>; rel="hub", <x>; rel="self"'})
    world.register("/a")
    world.poll()
    assert server.paths() == ["/a"]
    world.close()


# --- hub links --------------------------------------------------------------------------------------------------


def _response(url: str = "https://muse.example/rss", **headers: str) -> HttpResponse:
    return HttpResponse(200, headers, b"", url)


@pytest.mark.parametrize(
    ("link", "head", "offer"),
    [
        ("", "", None),
        ('<https://hub.example/>; rel="hub"', "", None),
        ("<https://hub.example/>; rel=hub, </self>; rel=self", "", ("https://hub.example/", "https://muse.example/self")),
        ('</h>; rel="x HUB", <s>; rel="self"', "", ("https://muse.example/h", "https://muse.example/s")),
        ("", "<link rel='hub' href='https://hub.example'/><link rel='self' href='s'/>",
         ("https://hub.example/", "https://muse.example/s")),
        ("<https://hub.example/>; rel=hub", "<link rel='self' href='s'/><link rel='hub' href='https://b.example'/>",
         ("https://hub.example/", "https://muse.example/s")),
        ("<http://hub.example/>; rel=hub, <s>; rel=self", "", None),
        ("<javascript:alert(1)>; rel=hub, <s>; rel=self", "", None),
        ("<https://me:pw@hub.example/>; rel=hub, <s>; rel=self", "", None),
        ("<ftp://hub.example/>; rel=hub, <s>; rel=self", "", None),
    ],
)  # fmt: skip
def test_hub_and_topic_are_found_in_headers_and_document(link: str, head: str, offer: tuple[str, str] | None) -> None:
    actual = offer_of(_response(Link=link), head_of(rss(head=head)))
    assert actual == (None if offer is None else HubOffer(*offer))


def test_push_that_cannot_be_stored_is_not_counted(world: World, feed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageFullError("no space left")

    def used() -> int:
        with world.workspace.catalog.read() as connection:
            return owners.usage_of(connection, ADMIN).bytes

    body, before = rss("2"), used()
    with monkeypatch.context() as patched:
        patched.setattr(ItemLog, "accept", full)
        for _ in range(2):
            with pytest.raises(StorageFullError):
                world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
    assert used() == before
    acquired = world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
    assert acquired is not None
    assert (acquired.accepted, used()) == (1, before + len(body))


def test_push_is_read_in_the_sandbox(world: World, feed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a document was decoded outside the sandbox")

    monkeypatch.setattr(document_child, "decode", fail)
    body = rss("2")
    acquired = world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
    assert acquired is not None
    assert acquired.accepted == 1


def _json_feed(**more: Any) -> bytes:
    version = "https://jsonfeed.org/version/1.1"
    return json.dumps({"version": version, "title": "t", "items": [{"id": "1"}], **more}).encode()


def test_json_feed_is_subscribed_at_the_hub_that_it_names(world: World, server: FeedServer) -> None:
    hubs_ = [{"type": "rssCloud", "url": server.url("/cloud")}, {"type": "WebSub", "url": server.url("/hub")}]
    server.pages["/json"] = Page(_json_feed(hubs=hubs_, feed_url=server.url("/topic.json")))
    feed = world.register("/json")
    world.poll()
    row = world.row(feed)
    assert (row.state, row.hub, row.topic) == (HubState.ACTIVE, server.url("/hub"), server.url("/topic.json"))
    body = _json_feed(items=[{"id": "1"}, {"id": "2"}])
    pushed = world.subscriber.receive(world.hub.callback, world.hub.signed(body), body)
    assert pushed is not None
    assert (pushed.accepted, world.ids()) == (1, ["1", "2"])


def head_of(document: bytes) -> DocumentHead:
    try:
        return read_document(document, DocumentSource("feed", "F")).head
    except InputError:
        return NO_HEAD


HUB = {"type": "WebSub", "url": "https://hub.example/"}


@pytest.mark.parametrize(
    ("document", "offer"),
    [
        (_json_feed(hubs=[HUB], feed_url="/t"), ("https://hub.example/", "https://muse.example/t")),
        (b"\xef\xbb\xbf" + _json_feed(hubs=[HUB], feed_url="/t"), ("https://hub.example/", "https://muse.example/t")),
        (_json_feed(hubs=[HUB]), None),
        (_json_feed(feed_url="/t"), None),
        (_json_feed(hubs=HUB, feed_url="/t"), None),
        (_json_feed(hubs=[7, {"type": "WebSub"}, {"type": "WebSub", "url": 7}], feed_url="/t"), None),
        (_json_feed(hubs=[{"type": "WebSub", "url": "http://hub.example/"}], feed_url="/t"), None),
        (_json_feed(hubs=[HUB], feed_url="/t", version="1"), None),
        (_json_feed(hubs=[HUB], feed_url="/t")[:-1], None),
        (b'{"hubs":' + b"[" * 100_000, None),
        (b'["hubs"]', None),
    ],
)
def test_hub_and_topic_are_found_in_a_json_feed(document: bytes, offer: tuple[str, str] | None) -> None:
    actual = offer_of(_response(), head_of(document))
    assert actual == (None if offer is None else HubOffer(*offer))


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=100) | st.text('<>;,="relhub selfx:/', max_size=100), st.binary(max_size=100))
def test_search_for_a_hub_accepts_any_header_and_document(link: str, document: bytes) -> None:
    offer = offer_of(_response(Link=link), head_of(document))
    assert offer is None or offer.hub.startswith("https://")


def test_search_for_a_hub_is_fast_for_long_headers() -> None:
    assert offer_of(_response(Link='<a>;"' * 20_000), NO_HEAD) is None
    assert offer_of(_response(Link="<" * 100_000), NO_HEAD) is None
    assert offer_of(_response(Link="<a>; rel" * 20_000), NO_HEAD) is None
