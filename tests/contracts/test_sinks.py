"""The contract of sinks, tested with every installed sink and with plug-ins that have other traits."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.services import refusing_port
from tests.unit.sinks.mail.smtp_server import Post, serving

from runnel.entry_points import plugin_names
from runnel.errors import DeliveryError, InputError, StorageFullError
from runnel.model.item import Item, Value
from runnel.model.subscription import Subscription
from runnel.net.http_client import http_client_of
from runnel.settings import Settings
from runnel.sinks import registry
from runnel.sinks.contract import ConfirmingSink, DeliveredItem, Delivery, LocalSink, RemoteSink, Sink
from runnel.sinks.registry import installed_sinks, open_sink
from runnel.testing import MemorySink

SENT = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
KINDS = [sink.kind for sink in installed_sinks()]
every_sink = pytest.mark.parametrize("kind", KINDS)
HOSTILE = "<b>&\"'</item>]]>\x01\r\nBcc: you@mail.example \u202e"


def item(identifier: str, sequence: int, version: int = 1, **attributes: Value) -> Item:
    named = {name: (value,) for name, value in {"title": f"Title {identifier}", **attributes}.items()}
    return Item("News", identifier, named, version, sequence, SENT)


@dataclass
class Endpoint:
    """The target of a sink, and the ids of the items that arrived there."""

    sink: Sink
    target: str | None
    settings: Settings
    folder: Path
    ids: Callable[[], list[str]]
    broken: str | None = None
    """A target that takes nothing."""
    accept: Callable[..., str] | None = None

    def deliver(self, *items: Item, key: str = "1f-1-1", target: str | None = None) -> str:
        delivery = Delivery(
            key=key,
            subscription=Subscription(1, 2, self.sink.kind, target or self.target, 0, SENT),
            feed_name="Rock",
            feed_title="Rock",
            items=[DeliveredItem(value, "The News") for value in items],
            sent=SENT,
            out=self.folder / "out",
            signing_keys=(b"k" * 32,) if self.sink.is_signed else (),
            accept=self.accept,
        )
        if isinstance(self.sink, LocalSink):
            return self.sink.deliver(delivery)
        assert isinstance(self.sink, RemoteSink)
        return asyncio.run(_send(self.sink, self.settings, delivery))


async def _send(sink: RemoteSink, settings: Settings, delivery: Delivery) -> str:
    async with http_client_of(settings) as client:
        route = sink.connect(settings, client)
        try:
            return await route.deliver(delivery)
        finally:
            await route.close()


@pytest.fixture
def endpoint(kind: str, tmp_path: Path) -> Iterator[Endpoint]:
    """A new endpoint for a kind of sink."""
    with ENDPOINTS[kind](open_sink(kind), tmp_path) as made:
        yield made


@contextmanager
def _file(sink: Sink, folder: Path) -> Iterator[Endpoint]:
    def ids() -> list[str]:
        path = folder / "out" / "news" / "rock"
        text = path.read_text("utf-8") if path.exists() else ""
        return [name for name in ("a", "b", "c") if f"Title {name}" in text]

    (folder / "out").mkdir()
    (folder / "out" / "folder").mkdir()
    yield Endpoint(sink, "news/rock", Settings.load(folder), folder, ids, broken="folder")


@contextmanager
def _log(sink: Sink, folder: Path) -> Iterator[Endpoint]:
    yield Endpoint(sink, None, Settings.load(folder), folder, list)


@contextmanager
def _memory(sink: Sink, folder: Path) -> Iterator[Endpoint]:
    MemorySink.clear()
    MemorySink.fail("down", "it is down")
    yield Endpoint(sink, "inbox", Settings.load(folder), folder, lambda: MemorySink.item_ids("inbox"), broken="down")
    MemorySink.clear()


@contextmanager
def _feed(sink: Sink, folder: Path) -> Iterator[Endpoint]:
    accepted: dict[str, None] = {}

    def accept(feed: int, data: bytes, name: str, bound: object) -> str:
        if feed != 7:
            raise InputError("there is no such feed")
        accepted.update({text: None for text in ("a", "b", "c") if f"Title {text}".encode() in data})
        return f"{len(accepted)} items"

    yield Endpoint(sink, "7", Settings.load(folder), folder, lambda: list(accepted), broken="8", accept=accept)


@contextmanager
def _mail(sink: Sink, folder: Path) -> Iterator[Endpoint]:
    post = Post(refuse={"nobody@mail.example": "550 no such person"})

    def ids() -> list[str]:
        keyed = {str(mail["Message-ID"]): mail for mail in post.mails()}  # a mail program shows one of a kind
        bodies = [mail.get_body(("plain",)) for mail in keyed.values()]
        texts = [part.get_content() for part in bodies if part is not None]
        return [name for text in texts for name in ("a", "b", "c") if f"Title {name}" in text]

    with serving(post) as port:
        chosen = Settings.load(
            folder, smtp_host="127.0.0.1", smtp_port=port, smtp_security="none", mail_from="R <r@muse.example>"
        )
        yield Endpoint(sink, "me@mail.example", chosen, folder, ids, broken="nobody@mail.example")


@contextmanager
def _webhook(sink: Sink, folder: Path) -> Iterator[Endpoint]:
    taken: dict[str, list[str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken[self.headers["webhook-id"]] = [value["id"] for value in body["data"]["items"]]
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with refusing_port() as closed:
            yield Endpoint(
                sink,
                f"http://127.0.0.1:{server.server_port}/hook",
                Settings.load(folder, allowed_addresses=("127.0.0.1",)),
                folder,
                lambda: [value for ids in taken.values() for value in ids],
                broken=f"http://127.0.0.1:{closed}/hook",
            )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


ENDPOINTS: dict[str, Any] = {
    **dict.fromkeys(("rss", "atom", "json", "jsonl"), _file),
    "log": _log,
    "memory": _memory,
    "feed": _feed,
    "mail": _mail,
    "webhook": _webhook,
}


def test_every_installed_sink_is_in_this_suite() -> None:
    assert sorted(ENDPOINTS) == sorted(plugin_names(registry.GROUP)) == KINDS


# --- declarations --------------------------------------------------------------------------------------------------


@every_sink
def test_a_sink_has_the_name_of_its_entry_point_and_keeps_no_state(kind: str) -> None:
    sink = open_sink(kind)
    assert sink.kind == kind
    assert vars(sink) == {}
    assert isinstance(sink, LocalSink) is not isinstance(sink, RemoteSink)


@every_sink
def test_a_canonical_target_stays_the_same(kind: str, endpoint: Endpoint) -> None:
    if endpoint.sink.kind == "feed":
        return  # nobody subscribes to it: see the next test
    canonical = endpoint.sink.validate_target(endpoint.target, endpoint.folder)
    assert endpoint.sink.validate_target(canonical, endpoint.folder) == canonical


@every_sink
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    target=st.none() | st.text(max_size=60) | st.sampled_from(["", " ", "\0", "a\nb", "../x", "//", "@", "http://"])
)
def test_any_target_is_accepted_or_refused_with_a_message(kind: str, target: str | None, tmp_path: Path) -> None:
    sink = open_sink(kind)
    try:
        canonical = sink.validate_target(target, tmp_path)
    except InputError:
        return
    assert sink.validate_target(canonical, tmp_path) == canonical
    assert sink.host(canonical or "") is None or isinstance(sink.host(canonical or ""), str)


@every_sink
def test_owners_may_use_only_confirming_sinks(kind: str, endpoint: Endpoint) -> None:
    sink, target = endpoint.sink, endpoint.target or ""
    assert not sink.is_for_owners or isinstance(sink, ConfirmingSink) or not isinstance(sink, RemoteSink)
    if isinstance(sink, ConfirmingSink):
        assert sink.is_for_owners
        assert sink.recipient(target)
        assert sink.refuser(target)
        assert "@" not in sink.domain(target)
        assert sink.messages_per_hour(endpoint.settings) > 0


# --- messages ------------------------------------------------------------------------------------------------------


@every_sink
def test_items_arrive_in_order_and_the_outcome_is_one_line(kind: str, endpoint: Endpoint) -> None:
    outcomes = [endpoint.deliver(item("a", 1), item("b", 2)), endpoint.deliver(item("c", 3), key="1f-1-2")]
    assert all(outcome and "\n" not in outcome for outcome in outcomes)
    assert endpoint.ids() == (["a", "b", "c"] if endpoint.sink.sends_messages else [])


@every_sink
def test_repeated_delivery_changes_nothing(kind: str, endpoint: Endpoint) -> None:
    message = item("a", 1), item("b", 2)
    for _ in range(3):
        endpoint.deliver(*message)
    assert endpoint.ids() == (["a", "b"] if endpoint.sink.sends_messages else [])


@every_sink
def test_failing_endpoint_raises_a_delivery_error(kind: str, endpoint: Endpoint) -> None:
    if not endpoint.sink.sends_messages:
        return
    assert endpoint.broken is not None
    with pytest.raises((DeliveryError, StorageFullError)):
        endpoint.deliver(item("a", 1), target=endpoint.broken)
    assert endpoint.ids() == []


@every_sink
def test_any_text_in_an_item_can_be_delivered(kind: str, endpoint: Endpoint) -> None:
    hostile = item("a", 1, title=HOSTILE, description=HOSTILE, link="javascript:alert(1)", author="\ud800")
    endpoint.deliver(replace(hostile, id=HOSTILE), item("b", 2), key="1f-1-9")
    assert "b" in endpoint.ids() or not endpoint.sink.sends_messages


@every_sink
def test_message_without_items_is_delivered(kind: str, endpoint: Endpoint) -> None:
    assert endpoint.deliver()
    assert endpoint.ids() == []


# --- plug-ins that break the rules ---------------------------------------------------------------------------------


class Shout(RemoteSink):
    """A plug-in that is open to owners, but whose recipients cannot confirm."""

    kind = "shout"
    is_for_owners = True

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        return target

    def host(self, target: str) -> str:
        return target

    def connect(self, settings: Settings, client: object) -> Any:
        raise NotImplementedError


class Renamed(MemorySink):
    """A plug-in whose kind differs from the name of its entry point."""

    kind = "other"


class Unfinished(LocalSink):
    """A plug-in without its methods."""

    kind = "unfinished"


class Nameless(LocalSink):
    """A plug-in that does not set `kind`."""

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        return target

    def deliver(self, delivery: Delivery) -> str:
        return "delivered"


class Bare(Sink):
    """A plug-in that is neither a LocalSink nor a RemoteSink."""

    kind = "bare"

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        return target


class Failing(Nameless):
    """A plug-in whose constructor fails."""

    kind = "failing"

    def __init__(self) -> None:
        raise KeyError("HOME")


@pytest.mark.parametrize(
    ("name", "plugin", "rule"),
    [
        ("shout", Shout, "cannot confirm"),
        ("renamed", Renamed, "must equal the name of its entry point"),
        ("unfinished", Unfinished, "abstract.*must implement all methods"),
        ("nameless", Nameless, r"does not set kind \(set kind = 'nameless' in the class"),
        ("bare", Bare, "is not a LocalSink or RemoteSink .*derive .* from LocalSink or RemoteSink"),
        ("failing", Failing, "cannot be created: KeyError: 'HOME'"),
    ],
)
def test_a_plug_in_that_breaks_the_contract_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, name: str, plugin: type[Sink], rule: str
) -> None:
    from importlib.metadata import EntryPoint

    entry = EntryPoint(name, f"{__name__}:{plugin.__name__}", registry.GROUP)
    monkeypatch.setattr(registry, "find_entry", lambda group, kind: entry)
    monkeypatch.setattr(registry, "OPENED", {})
    with pytest.raises(InputError, match=rule):
        registry.open_sink(name)
    assert registry.find_sink(name) is None


def test_plug_in_cannot_replace_a_built_in_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint, EntryPoints

    from runnel import entry_points as plugins

    taken = EntryPoint("webhook", "a_plug_in.sinks:Webhook", registry.GROUP)
    ours = EntryPoint("webhook", "runnel.sinks.webhook:WebhookSink", registry.GROUP)
    for order in ([taken, ours], [ours, taken]):
        monkeypatch.setattr(plugins, "entry_points", lambda group, order=order: EntryPoints(order))
        assert plugins.find_entry(registry.GROUP, "webhook") == ours
