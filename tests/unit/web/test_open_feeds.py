"""Publishing into open feeds over HTTP: real requests to a real server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.unit.web.test_server import Asked, Run

from runnel.catalog.access.owners import Quotas
from runnel.engine import Engine, connect
from runnel.errors import InputError, StatementSyntaxError
from runnel.web import rate_limits, routes_publish
from runnel.web.rate_limits import RateLimiter, client_key
from runnel.web.routes_publish import read_items
from runnel.web.server import Server


@dataclass
class Strangers:
    """People without a token, in front of a server whose limits have a clock that stands still."""

    engine: Engine
    address: str
    now: list[float] = field(default_factory=lambda: [0.0])

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any], dict[str, str]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=20)
        try:
            connection.request("POST", path, data, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            values = {name.lower(): value for name, value in response.getheaders()}
            return response.status, json.loads(response.read()), values
        finally:
            connection.close()

    def accepted(self) -> list[tuple[str, str]]:
        names = {row["id"]: row["name"] for row in self.engine.show("feeds").to_json()["feeds"]}
        last = self.engine.workspace.items.last_sequence()
        return [
            (item.feed, item.id) for batch in self.engine.workspace.items.read(0, last) for item in batch.items(names)
        ]


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Strangers]:
    now = [0.0]
    monkeypatch.setattr(routes_publish, "RateLimiter", lambda: RateLimiter(clock=lambda: now[0]))
    limits = {"open_body_bytes": 2000, "open_client_items_per_minute": 6, "trusted_proxies": ("127.0.0.1",)}
    with connect(tmp_path / "root", **limits) as engine:  # type: ignore[arg-type]
        engine.execute("register feed Box open; register feed Closed; register feed Few open to 3 items per minute;")
        server = Server(engine.workspace, Asked(), "127.0.0.1:0")
        server.start(Run())
        try:
            yield Strangers(engine, server.address, now)
        finally:
            server.close()


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"id": "1", "title": "rock"}, 1),
        ([{"id": "1"}, {"id": "2"}], 2),
        (b'{"id": "1"}\n\n{"id": "2"}\n{"id": "3"}', 3),
        (b'\xef\xbb\xbf{"id": "1"}\r\n', 1),
        ('{"id": "1", "title": "a\u2028b\u0085c"}\n{"id": "2"}\n'.encode(), 2),
    ],
)
def test_open_feed_accepts_items_without_a_token(strangers: Strangers, body: Any, count: int) -> None:
    status, messages, _ = strangers.post("/feeds/Box/items", body)
    assert (status, messages) == (202, {"accepted": count, "known": 0})
    assert strangers.accepted() == [("Box", str(number)) for number in range(1, count + 1)]
    status, messages, _ = strangers.post("/feeds/Box/items", body)
    assert (status, messages) == (202, {"accepted": 0, "known": count})


def test_closed_and_unknown_feeds_give_the_same_response(strangers: Strangers) -> None:
    strangers.engine.execute("create feed View from Box; register feed Held open; pause feed Held;")
    strangers.engine.owners.add("ann")
    strangers.engine.acting_as("ann").execute("register feed Mine open; register feed Secret;")
    paths = ["/feeds/Closed/items", "/feeds/Nothing/items", "/feeds/View/items", "/feeds/Held/items"]
    paths += ["/feeds/Mine/items", "/owners/ann/feeds/Secret/items", "/owners/ann/feeds/Box/items"]
    paths += ["/owners/nobody/feeds/Mine/items"]
    answers = []
    for number, path in enumerate(paths):
        answers.append(strangers.post(path, {"id": "1"}, X_Forwarded_For=f"192.0.2.{number}"))
    assert {status for status, _, _ in answers} == {404}
    assert len({json.dumps(messages) for _, messages, _ in answers}) == 1
    assert strangers.accepted() == []
    status, _, _ = strangers.post("/owners/ann/feeds/Mine/items", {"id": "1"}, X_Forwarded_For="192.0.2.99")
    assert status == 202


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"not json", 400, "line 1: this is not JSON"),
        (b'{"id": "1"}\n{"id": ', 400, "line 2: this is not JSON"),
        (b"[1]", 400, "item 1: an item must be a JSON object"),
        (b"", 400, "the request has no items"),
        (b"\xff", 400, "byte 1 is not UTF-8"),
        (b'{"id": "1", "n": NaN}', 400, "line 1: this is not JSON"),
        (b'[{"id": "1"}, {"id": {"a": 1}}]', 400, "item 2: the id must be a text or a number"),
        (b"[" * 1999, 400, "not JSON"),
        ([{"id": str(n)} for n in range(7)], 400, "a request may have at most 6 items, this one has 7"),
        (b" " * 2001, 413, "a request may have at most 2,000 bytes"),
    ],
)
def test_invalid_request_returns_json_error_and_accepts_nothing(
    strangers: Strangers, body: Any, status: int, message: str
) -> None:
    results, document, headers = strangers.post("/feeds/Box/items", body)
    assert (results, headers["content-type"]) == (status, "application/json")
    assert message in document["error"]
    assert strangers.accepted() == []


def test_items_per_minute_are_limited_per_client_and_per_feed(strangers: Strangers) -> None:
    def send(feed: str, first: int, count: int, client: str) -> tuple[int, str, str | None]:
        items = [{"id": str(number)} for number in range(first, first + count)]
        status, messages, headers = strangers.post(
            f"/feeds/{feed}/items", items, X_Forwarded_For=f"6.6.6.6, {client}"
        )
        return status, messages.get("error", ""), headers.get("retry-after")

    assert send("Box", 0, 5, "192.0.2.1")[0] == 202
    status, error, wait = send("Box", 5, 3, "192.0.2.1")
    assert (status, error, wait) == (429, "this address may publish 6 items per minute", "20")
    assert send("Box", 5, 3, "192.0.2.2")[0] == 202, "another address is another client"
    assert send("Few", 0, 3, "192.0.2.3")[0] == 202
    status, error, wait = send("Few", 3, 1, "192.0.2.4")
    assert (status, error, wait) == (429, "this feed takes 3 items per minute", "20")
    strangers.now[0] += 60
    assert send("Few", 3, 1, "192.0.2.4")[0] == 202
    assert send("Box", 5, 3, "192.0.2.1")[0] == 202


def test_published_bytes_count_against_the_owners_quota(strangers: Strangers) -> None:
    strangers.engine.owners.add("ann")
    strangers.engine.acting_as("ann").execute("register feed Mine open;")
    strangers.engine.owners.quota("ann", Quotas(bytes=10))
    path = "/owners/ann/feeds/Mine/items"
    status, document, _ = strangers.post(path, {"id": "1", "title": "more than ten bytes"})
    assert (status, document["error"]) == (403, "the quota of this feed is used up")


def test_client_key_ignores_forged_forwarded_addresses() -> None:
    assert client_key("192.0.2.1", "6.6.6.6", ()) == "192.0.2.1", "no proxy is trusted"
    assert client_key("10.0.0.1", "6.6.6.6, 192.0.2.9", ["10.0.0.0/8"]) == "192.0.2.9"
    assert client_key("2001:db8::1", "", ()) == client_key("2001:db8::2:3", "", ())
    assert client_key("::ffff:192.0.2.1", "", ()) == "192.0.2.1"


def test_open_clause_is_part_of_the_canonical_statement(strangers: Strangers) -> None:
    shown = {row["name"]: row for row in strangers.engine.show("feeds").to_json()["feeds"]}
    assert (shown["Box"]["open"], shown["Closed"]["open"]) == (True, False)
    assert shown["Few"]["statement"] == "register feed Few open to 3 items per minute;"
    with pytest.raises(StatementSyntaxError, match="only feeds without an address can be open"):
        strangers.engine.execute("register feed 'https://a.example/' as A open;")
    with pytest.raises(StatementSyntaxError, match="at least one item"):
        strangers.engine.execute("register feed A open to 0 items per minute;")


def _send_raw(address: str, *forwarded: str) -> int:
    """Publish an item with several headers of the same name, as behind a proxy that adds one of its own."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    try:
        body = b'{"id": "1"}'
        connection.putrequest("POST", "/feeds/Box/items")
        connection.putheader("Content-Length", str(len(body)))
        for value in forwarded:
            connection.putheader("X-Forwarded-For", value)
        connection.endheaders(body)
        return connection.getresponse().status
    finally:
        connection.close()


def test_forwarded_header_of_an_untrusted_client_is_ignored(strangers: Strangers) -> None:
    statuses = [_send_raw(strangers.address, f"198.51.100.{number}", "192.0.2.1") for number in range(7)]
    assert statuses == [202] * 6 + [429]


def test_client_key_does_not_depend_on_the_port(strangers: Strangers) -> None:
    statuses = [_send_raw(strangers.address, f"192.0.2.1:{5000 + number}") for number in range(7)]
    assert statuses == [202] * 6 + [429]


def test_forwarded_header_counts_only_from_trusted_proxies(tmp_path: Path) -> None:
    with connect(tmp_path / "root", open_client_items_per_minute=2) as engine:
        engine.execute("register feed Box open;")
        server = Server(engine.workspace, Asked(), "127.0.0.1:0")
        server.start(Run())
        try:
            statuses = [_send_raw(server.address, f"198.51.100.{number}") for number in range(3)]
        finally:
            server.close()
    assert statuses == [202, 202, 429]


@pytest.fixture
def two_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limiters that are made from now on remember two keys."""
    monkeypatch.setattr(rate_limits, "_MAX_KEYS", 2)


@pytest.mark.usefixtures("two_kept")  # before the limiters of `strangers` are made
def test_limit_of_a_feed_survives_many_client_addresses(strangers: Strangers) -> None:
    items = [{"id": str(number)} for number in range(3)]
    assert strangers.post("/feeds/Few/items", items, X_Forwarded_For="192.0.2.1")[0] == 202
    for number in range(2, 6):
        assert strangers.post("/feeds/Nothing/items", {"id": "1"}, X_Forwarded_For=f"192.0.2.{number}")[0] == 404
    assert strangers.post("/feeds/Few/items", {"id": "4"}, X_Forwarded_For="192.0.2.6")[0] == 429


def test_lines_beyond_the_limit_are_counted_and_not_parsed() -> None:
    assert len(read_items(b'{"id": 1}\n{"id": 2}', 2)) == 2
    with pytest.raises(InputError, match="at most 2 items, this one has 3"):
        read_items(b'{"id": 1}\n{"id": 2}\nnot JSON', 2)
    with pytest.raises(InputError, match="at most 2 items, this one has 3"):
        read_items(b"[{}, {}, {}]", 2)
