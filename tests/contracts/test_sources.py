"""The contract of sources, tested with the built-in sources and with the example of a plug-in."""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.sources.web_feeds.feed_server import FeedServer, Page

import runnel
from runnel.engine import Engine
from runnel.errors import InputError, StatementError
from runnel.logs.items.item_log import Accepted
from runnel.model.feed import Feed
from runnel.settings import Settings
from runnel.sources import registry
from runnel.sources.acquire import Acquirer
from runnel.sources.contract import Source, SourceReader
from runnel.sources.feed_reader import FeedReader
from runnel.sources.registry import has_period, installed_sources, source_of
from runnel.testing import FakeClock

EXAMPLE = Path(__file__).parents[2] / "examples" / "plug-in-source" / "src" / "runnel_mbox" / "__init__.py"
Read = Callable[..., list[int]]
"""Read all feeds a number of times, hours apart; gives how many items were accepted each time."""

Items = dict[str, str]
"""The ids of items with their titles, oldest first."""


def example() -> ModuleType:
    """Import the module of the example, as if it were installed."""
    if "runnel_mbox" not in sys.modules:
        spec = importlib.util.spec_from_file_location("runnel_mbox", EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        sys.modules["runnel_mbox"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["runnel_mbox"])
    return sys.modules["runnel_mbox"]


class Place(ABC):
    """A location outside of Runnel from which a source reads feeds."""

    @abstractmethod
    def address(self, name: str) -> str:
        """The address of a feed."""

    @abstractmethod
    def put(self, name: str, items: Items) -> None:
        """Put these items there. They replace earlier ones."""

    @abstractmethod
    def spoil(self, name: str) -> None:
        """Put content there that cannot be read."""


class Folder(Place):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def address(self, name: str) -> str:
        (self.folder / name).mkdir(exist_ok=True)
        return str(self.folder / name)

    def put(self, name: str, items: Items) -> None:
        entries = [f"<item><guid>{key}</guid><title>{title}</title></item>" for key, title in items.items()]
        document = f"<rss version='2.0'><channel><title>t</title>{''.join(reversed(entries))}</channel></rss>"
        (self.folder / name / "items.rss").write_text(document)

    def spoil(self, name: str) -> None:
        (self.folder / name / "items.rss").write_text("<rss><channel><item>")


class Web(Place):
    def __init__(self, server: FeedServer) -> None:
        self.server = server

    def address(self, name: str) -> str:
        return self.server.url(f"/{name}")

    def put(self, name: str, items: Items) -> None:
        entries = [f"<item><guid>{key}</guid><title>{title}</title></item>" for key, title in items.items()]
        document = f"<rss version='2.0'><channel><title>t</title>{''.join(reversed(entries))}</channel></rss>"
        self.server.pages[f"/{name}"] = Page(document.encode())

    def spoil(self, name: str) -> None:
        self.server.pages[f"/{name}"] = Page(b"<rss><channel><item>")


class Mailbox(Place):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def address(self, name: str) -> str:
        return f"mbox://{self.folder / name}"

    def put(self, name: str, items: Items) -> None:
        mails = [
            f"From ann Sun Nov 15 09:30:00 2026\nMessage-ID: {key}\nSubject: {title}\n\nhello\n\n"
            for key, title in items.items()
        ]
        (self.folder / name).write_text("".join(mails))

    def spoil(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def server() -> Iterator[FeedServer]:
    with FeedServer().running() as made:
        yield made


@pytest.fixture(params=["files", "web", "mbox"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    sources = {**installed_sources(), "mbox": example().Mailboxes()}
    monkeypatch.setattr(registry, "installed_sources", lambda: sources)
    return str(request.param)


@pytest.fixture
def source(kind: str) -> Source:
    return registry.installed_sources()[kind]


@pytest.fixture
def place(kind: str, tmp_path: Path, server: FeedServer) -> Place:
    return {"files": Folder(tmp_path), "web": Web(server), "mbox": Mailbox(tmp_path)}[kind]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(kind: str, tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    chosen: dict[str, Any] = {"allowed_addresses": ("127.0.0.1/32",), "poll_seconds": 600.0, "lag_limit": 4}
    with runnel.connect(tmp_path / "root", clock=clock, **chosen) as made:
        yield made


@pytest.fixture
def reader(source: Source, engine: Engine) -> Iterator[SourceReader]:
    made = source.open(engine._acquirer)
    yield made
    made.close()


@pytest.fixture
def read(reader: SourceReader, clock: FakeClock) -> Read:
    def read(times: int = 1) -> list[int]:
        results = []
        for _ in range(times):
            clock.advance(timedelta(hours=2))
            results.append(reader.read(once=True).accepted)
        return results

    return read


def register(engine: Engine, place: Place, name: str = "Wire") -> None:
    engine.execute(f"register feed '{place.address(name)}' as {name};")


def test_every_installed_source_is_in_this_suite() -> None:
    assert sorted(installed_sources()) == ["files", "web"]
    assert all(isinstance(value, Source) for value in installed_sources().values())


def test_schemes_are_in_lower_case_and_belong_to_one_source(kind: str) -> None:
    schemes = [scheme for value in registry.installed_sources().values() for scheme in value.schemes]
    assert len(schemes) == len(set(schemes))
    assert all(scheme == scheme.lower() for scheme in schemes)


def test_source_is_found_by_the_scheme_of_an_address(source: Source, place: Place, tmp_path: Path) -> None:
    address = place.address("Wire")
    assert registry.source_of(address) is source
    assert registry.has_period(address) is source.has_period
    source.check_address(address, tmp_path, Settings.load(tmp_path, allowed_addresses=("127.0.0.1/32",)))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rest=st.text(max_size=40) | st.sampled_from(["", "[", "[x/", "@", "host", "%00", "/\ud800"]))
def test_any_address_is_accepted_or_refused_with_a_message(source: Source, tmp_path: Path, rest: str) -> None:
    for scheme in source.schemes:
        address = f"{scheme}://{rest}" if scheme else rest
        try:
            registry.source_of(address).check_address(address, tmp_path, Settings.load(tmp_path))
        except InputError:
            continue


def test_source_declares_owner_access_and_periods(source: Source, place: Place, engine: Engine) -> None:
    statement = f"register feed '{place.address('Wire')}' as Wire every 1 hour;"
    if source.has_period:
        engine.execute(statement)
    else:
        with pytest.raises(StatementError, match="cannot have `every`"):
            engine.execute(statement)
    engine.owners.add("ann")
    statement = f"register feed '{place.address('Mine')}' as Mine;"
    if source.is_for_owners:
        engine.acting_as("ann").execute(statement)
    else:
        with pytest.raises(StatementError, match="only the admin can register this kind"):
            engine.acting_as("ann").execute(statement)


def test_items_are_accepted_once_and_again_after_an_edit(place: Place, engine: Engine, read: Read) -> None:
    register(engine, place)
    place.put("Wire", {"a": "one", "b": "two"})
    assert read(3) == [2, 0, 0]
    place.put("Wire", {"a": "one", "b": "two, edited"})
    assert read(2) == [1, 0]
    place.put("Wire", {"a": "one", "b": "two, edited", "c": "three"})
    assert read() == [1]


def test_unchanged_document_is_not_read_again(
    place: Place, engine: Engine, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, documents = engine._acquirer.accept_adapted, list[str]()

    def counted(feed: Feed, *rest: Any, **named: Any) -> Accepted:
        documents.append(feed.name)
        return accept(feed, *rest, **named)

    monkeypatch.setattr(engine._acquirer, "accept_adapted", counted)
    register(engine, place)
    place.put("Wire", {"a": "one"})
    read(3)
    assert documents == ["Wire"]


def test_new_reader_skips_documents_that_were_already_read(
    source: Source, place: Place, engine: Engine, read: Read
) -> None:
    register(engine, place)
    place.put("Wire", {"a": "one"})
    assert read() == [1]
    again = source.open(engine._acquirer)
    try:
        assert again.read(once=True).accepted == 0
    finally:
        again.close()


def test_unreadable_feed_is_reported_once_and_does_not_affect_others(
    place: Place, engine: Engine, read: Read
) -> None:
    register(engine, place, "Broken")
    register(engine, place, "Wire")
    place.spoil("Broken")
    place.put("Wire", {"a": "one"})
    assert read(3) == [1, 0, 0]
    assert len(engine.show("quarantine").lines) == 1
    place.put("Broken", {"b": "two"})
    assert read() == [1]


def test_paused_and_dropped_feeds_are_not_read(place: Place, engine: Engine, read: Read) -> None:
    register(engine, place)
    register(engine, place, "Gone")
    place.put("Wire", {"a": "one"})
    place.put("Gone", {"b": "two"})
    engine.execute("pause feed Wire; drop feed Gone;")
    assert read() == [0]
    engine.execute("resume feed Wire;")
    assert read() == [1]


def test_nothing_is_read_while_too_many_items_wait(place: Place, engine: Engine, read: Read) -> None:
    register(engine, place)
    place.put("Wire", {str(number): "one" for number in range(5)})
    assert read() == [5]
    place.put("Wire", {"more": "one"})
    assert read() == [0]


def test_a_reader_can_be_closed_before_it_reads_and_twice(source: Source, engine: Engine) -> None:
    made = source.open(engine._acquirer)
    made.close()
    made.close()
    assert made.name
    assert made.pause > 0
    assert made.has_period is source.has_period


class Clumsy(Source):
    """A plug-in that raises an unexpected exception for an address instead of InputError."""

    schemes = frozenset({"csv"})

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        raise PermissionError(13, "Permission denied", "/srv/secret/rows.csv")

    def open(self, acquirer: Acquirer) -> SourceReader:
        raise NotImplementedError


def test_a_source_that_fails_on_an_address_refuses_the_statement(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"csv": Clumsy(), **registry.installed_sources()}
    monkeypatch.setattr(registry, "installed_sources", lambda: sources)
    with pytest.raises(StatementError, match="failed to check this address: PermissionError") as refused:
        engine.execute("register feed Wire; register feed 'csv:///rows.csv' as Rows;")
    assert refused.value.hint == "Clumsy.check_address must return or raise InputError"
    assert "secret" not in str(refused.value)
    assert refused.value.span is not None


@pytest.mark.parametrize("kind", ["mbox"], indirect=True)
@pytest.mark.parametrize(
    ("documents", "reason", "traces"),
    [
        (lambda feed: Path("/none/secret").read_bytes(), "FileNotFoundError: No such file or directory", 0),
        (lambda feed: b"caf\xe9".decode(), "UnicodeDecodeError", 1),
        (lambda feed: [("rows.jsonl", '{"id": "a"}')], "TypeError", 1),
        (lambda feed: None, "TypeError", 1),
    ],
)
def test_any_exception_of_a_reader_is_reported_once(
    place: Place,
    engine: Engine,
    reader: FeedReader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    documents: Callable[[Feed], Any],
    reason: str,
    traces: int,
) -> None:
    register(engine, place)
    place.put("Wire", {"a": "one"})
    with monkeypatch.context() as patch:
        patch.setattr(reader, "documents", documents)
        assert [reader.read().quarantined for _ in range(3)] == [1, 0, 0]
    assert caplog.text.count("Traceback") == traces * 2, "the error and its cause"
    (shown,) = engine.execute("show quarantine;")
    text = "\n".join((shown.message, *shown.lines))
    assert reason in text
    assert "secret" not in text
    assert reader.read().accepted == 1


class NoReader(Source):
    """A plug-in whose `open` does not return a reader."""

    schemes = frozenset({"csv"})

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        return

    def open(self, acquirer: Acquirer) -> SourceReader:
        return object()  # type: ignore[return-value]


class Failing(NoReader):
    """A plug-in that cannot be opened."""

    def open(self, acquirer: Acquirer) -> SourceReader:
        raise KeyError("HOME")


@pytest.mark.parametrize(("plugin", "reason"), [(NoReader, "not a SourceReader"), (Failing, "KeyError: 'HOME'")])
def test_source_that_cannot_be_opened_does_not_affect_others(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    plugin: type[Source],
    reason: str,
) -> None:
    sources = {"csv": plugin(), **registry.installed_sources()}
    monkeypatch.setattr(registry, "installed_sources", lambda: sources)
    readers = engine._parts().readers
    assert len(readers) == len(sources) - 1
    assert "cannot open the source 'csv'" in caplog.text
    assert reason in caplog.text


class Periodic(NoReader):
    """A plug-in whose feeds have periods, with a reader that does not set `has_period`."""

    has_period = True

    class Reader(FeedReader):
        """A reader without documents."""

        def documents(self, feed: Feed) -> list[tuple[str, bytes]]:
            """Return no documents."""
            return []

    def open(self, acquirer: Acquirer) -> FeedReader:
        return self.Reader(self, acquirer, "csv")


def test_a_feed_reader_has_the_period_of_its_source(engine: Engine) -> None:
    assert Periodic().open(engine._acquirer).has_period
    assert not Periodic.Reader(NoReader(), engine._acquirer, "csv").has_period


def test_unknown_scheme_is_refused_with_a_list_of_known_schemes() -> None:
    with pytest.raises(
        InputError, match=r"no source handles the scheme 'gopher' \(give a path, or a URL that begins with file://"
    ):
        source_of("gopher://muse.example")
    assert not has_period("gopher://muse.example")


class Schemeless(Source):
    """A plug-in that does not declare its schemes."""

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        return

    def open(self, acquirer: Acquirer) -> SourceReader:
        raise KeyError("HOME")


class OneText(Schemeless):
    """A plug-in whose `schemes` is a text, which is a collection of letters."""

    schemes = "csv"  # type: ignore[assignment]


class UpperCase(Schemeless):
    schemes = frozenset({"CSV"})


class WithSlashes(Schemeless):
    schemes = frozenset({"csv://"})


class Empty(Schemeless):
    schemes = frozenset()


class Greedy(Schemeless):
    """A plug-in that uses the schemes of the built-in source for web feeds."""

    schemes = frozenset({"csv", "https"})


@pytest.mark.parametrize(
    ("plugin", "rule"),
    [
        (Schemeless, "does not declare its schemes"),
        (OneText, "does not declare its schemes"),
        (UpperCase, "does not declare its schemes"),
        (WithSlashes, "does not declare its schemes"),
        (Empty, "does not declare its schemes"),
        (Greedy, "declares the scheme 'https', which belongs to the source 'web'"),
    ],
)
def test_plug_in_without_own_schemes_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, plugin: type[Source], rule: str
) -> None:
    entries = {
        "csv": EntryPoint("csv", f"{__name__}:{plugin.__name__}", registry.GROUP),
        "web": EntryPoint("web", "runnel.sources.web_feeds.poller:WebFeeds", registry.GROUP),
    }
    monkeypatch.setattr(registry, "plugin_names", lambda group: sorted(entries))
    monkeypatch.setattr(registry, "find_entry", lambda group, name: entries[name])
    registry.installed_sources.cache_clear()
    try:
        assert list(installed_sources()) == ["web"]
        with pytest.raises(InputError, match="no source handles the scheme 'csv'"):
            source_of("csv:///rows.csv")
        assert not has_period("csv:///rows.csv")
    finally:
        registry.installed_sources.cache_clear()
    assert rule in caplog.text


def test_plug_in_that_cannot_be_loaded_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {
        "files": EntryPoint("files", "runnel.sources.drop_folder_source:DropFolders", registry.GROUP),
        "gone": EntryPoint("gone", "no.such.module:Source", registry.GROUP),
        "odd": EntryPoint("odd", "builtins:object", registry.GROUP),
    }
    monkeypatch.setattr(registry, "plugin_names", lambda group: sorted(entries))
    monkeypatch.setattr(registry, "find_entry", lambda group, name: entries[name])
    registry.installed_sources.cache_clear()
    try:
        assert list(installed_sources()) == ["files"]
    finally:
        registry.installed_sources.cache_clear()
    assert "'gone' cannot be loaded" in caplog.text
    assert "'odd' is not a Source" in caplog.text
