"""Failures of the catalog's database: errors are clear and contain no password, and no data is lost."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests import catalog_rows
from tests.services import PostgreSQL

from runnel.catalog.declared import feeds
from runnel.catalog.logs import quarantine
from runnel.catalog.logs.quarantine import Quarantined
from runnel.catalog.store import connection as opening
from runnel.catalog.store import sequencer
from runnel.catalog.store.connection import Catalog, is_shared, without_password
from runnel.catalog.store.migrations import HISTORY
from runnel.engine.workspace import create_workspace, open_workspace
from runnel.errors import CatalogUnavailableError, RunnelError, StorageFullError, WorkspaceError
from runnel.model.feed import FeedKind


@pytest.fixture
def on_server(postgresql: PostgreSQL) -> Iterator[Catalog]:
    """A new catalog on PostgreSQL."""
    made = Catalog(postgresql.database())
    made.migrate()
    yield made
    made.close()


def _all_texts(error: BaseException) -> str:
    """Return all texts of an error and its causes that could be printed."""
    return "".join(traceback.format_exception(error)) + repr(error)


def _names(catalog: Catalog) -> list[str]:
    with catalog.read() as connection:
        return feeds.live_names(connection)


def _declare(catalog: Catalog, name: str) -> None:
    with catalog.write() as connection:
        catalog_rows.add_feed(connection, name, FeedKind.SOURCE, f"register feed {name};")


def _migrate(catalog: Catalog, versions: list[int]) -> None:
    versions.append(catalog.migrate())


def _cut_off(postgresql: PostgreSQL) -> None:
    postgresql.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'runnel'")


def test_waiting_for_another_writer_times_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_BUSY_SECONDS", 0.2)
    catalog = Catalog(url)
    catalog.migrate()
    with catalog.write(), pytest.raises(CatalogUnavailableError, match="busy"), catalog.write():
        pass
    with catalog.write(), catalog.read() as reader:
        assert sequencer.last_sequence(reader) == 0, "readers do not wait for writers"
    _declare(catalog, "A")
    assert _names(catalog) == ["A"]
    catalog.close()


def test_several_processes_can_create_a_catalog_concurrently(url: str) -> None:
    catalogs = [Catalog(url) for _ in range(4)]
    versions: list[int] = []
    threads = [threading.Thread(target=_migrate, args=(catalog, versions)) for catalog in catalogs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for catalog in catalogs:
        catalog.close()
    assert versions == [HISTORY.version] * 4


def test_interrupted_transaction_is_rolled_back(on_server: Catalog, postgresql: PostgreSQL) -> None:
    def declare() -> None:
        with on_server.write() as connection:
            catalog_rows.add_feed(connection, "A", FeedKind.SOURCE, "register feed A;")
            _cut_off(postgresql)
            catalog_rows.add_feed(connection, "B", FeedKind.SOURCE, "register feed B;")

    with pytest.raises(CatalogUnavailableError, match="lost the connection"):
        declare()
    assert _names(on_server) == [], "the next transaction finds a new connection by itself"
    _declare(on_server, "A")
    _cut_off(postgresql)
    assert _names(on_server) == ["A"], "a connection that died in the pool is not noticed at all"


def test_interrupted_commit_raises_an_error(on_server: Catalog, postgresql: PostgreSQL) -> None:
    def declare() -> None:
        with on_server.write() as connection:
            catalog_rows.add_feed(connection, "A", FeedKind.SOURCE, "register feed A;")
            _cut_off(postgresql)

    with pytest.raises(CatalogUnavailableError):
        declare()
    assert _names(on_server) == []


def test_endless_statement_times_out(postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_STATEMENT_SECONDS", 0.0)
    monkeypatch.setattr(opening, "_BUSY_SECONDS", 0.2)
    catalog = Catalog(postgresql.database())
    with pytest.raises(CatalogUnavailableError, match="busy"), catalog.read() as connection:
        connection.execute(text("select pg_sleep(30)"))
    catalog.close()


def test_hanging_writer_does_not_block_others(on_server: Catalog) -> None:
    other = Catalog(on_server.url)

    def hang() -> None:
        with on_server.write() as connection:
            catalog_rows.add_feed(connection, "Late", FeedKind.SOURCE, "register feed Late;")
            # Shortened last: on a busy machine the statements before it may be further apart than this.
            connection.execute(text("set local idle_in_transaction_session_timeout = '200ms'"))
            _declare(other, "A")  # waits until the server has cut the first one off
            catalog_rows.add_feed(connection, "Later", FeedKind.SOURCE, "register feed Later;")

    with pytest.raises(CatalogUnavailableError):
        hang()
    assert _names(other) == ["A"]
    other.close()


def test_every_session_limits_idle_transactions(postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_IDLE_SECONDS", 1234.0)
    catalog = Catalog(postgresql.database())
    for opened in (catalog.write, catalog.read):
        with opened() as connection:
            assert connection.execute(text("show idle_in_transaction_session_timeout")).scalar_one() == "1234s"
    catalog.close()


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("53100", StorageFullError, "no disk space"),
        ("53300", CatalogUnavailableError, "is overloaded"),
        ("40P01", CatalogUnavailableError, "busy"),
        ("57P03", CatalogUnavailableError, "lost the connection"),
        ("42501", WorkspaceError, "cannot be accessed"),
        ("XX001", RunnelError, "cannot be read"),
    ],
)
def test_every_server_error_has_a_message(
    on_server: Catalog, code: str, error: type[RunnelError], words: str
) -> None:
    raising = f"do $$ begin raise exception 'some reason' using errcode = '{code}'; end $$"
    with pytest.raises(error, match=words) as raised, on_server.write() as connection:
        connection.execute(text(raising))
    assert raised.value.hint


def test_exhausted_connection_pool_is_reported_after_waiting(
    postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_POOL_SIZE", 1)
    monkeypatch.setattr(opening, "_POOL_EXTRA", 0)
    monkeypatch.setattr(opening, "_BUSY_SECONDS", 0.2)
    catalog = Catalog(postgresql.database())
    with catalog.read(), pytest.raises(CatalogUnavailableError, match="busy"), catalog.read():
        pass
    catalog.close()


def test_errors_do_not_contain_the_password(postgresql: PostgreSQL) -> None:
    url = postgresql.database()
    right = postgresql.url("postgres").split("runnel:", 1)[1].split("@", 1)[0]
    secret = "hunter2hunter2"
    wrong = [
        (url.replace(right, secret), "cannot be accessed"),
        (url.replace(right, secret).replace(f":{postgresql.port}", ":1"), "cannot connect to"),
        (f"postgresql://u:{secret}@{secret}@127.0.0.1/db", "at most one @"),
        (f"postgresql://u:{secret}@127.0.0.1:{secret}/db", "is not valid"),
        (f"postgresql:/u:{secret}@127.0.0.1", "is not valid"),
        (f"oracle://u:{secret}@127.0.0.1/db", "is not supported for catalogs"),
        (url.replace(right, secret).replace("/root_", "/no_such_root_"), "cannot be accessed"),
    ]
    for given_url, words in wrong:
        with pytest.raises(WorkspaceError, match=words) as raised:
            Catalog(given_url).migrate()
        assert secret not in _all_texts(raised.value), given_url
        assert raised.value.hint


def test_workspace_and_settings_do_not_contain_the_password(postgresql: PostgreSQL, tmp_path: Path) -> None:
    url = postgresql.database()
    root = create_workspace(tmp_path / "root", catalog=url)
    for value in (repr(root), repr(root.settings), str(root.settings), root.catalog.shown):
        assert postgresql.password not in value
        assert "p%40ss" not in value
    written = (root.folder / "runnel.toml").read_text()
    assert f'catalog = "{without_password(url)}"' in written
    assert "p%40ss" not in written
    root.close()


def test_workspace_stores_the_url_of_its_catalog(postgresql: PostgreSQL, tmp_path: Path) -> None:
    url = postgresql.database()
    create_workspace(tmp_path / "root", catalog=url).close()
    with pytest.raises(WorkspaceError, match="cannot be accessed"):
        open_workspace(tmp_path / "root")
    assert not (tmp_path / "root" / "catalog.sqlite").exists()
    again = open_workspace(tmp_path / "root", catalog=url)
    _declare(again.catalog, "A")
    with pytest.raises(WorkspaceError, match="belongs to another workspace"):
        create_workspace(tmp_path / "other", catalog=url)
    again.close()


def test_cluster_is_refused_with_a_sqlite_catalog(tmp_path: Path) -> None:
    create_workspace(tmp_path / "root").close()
    with pytest.raises(WorkspaceError, match="needs a PostgreSQL catalog") as raised:
        open_workspace(tmp_path / "root", master="spark://cluster.example:7077")
    assert "postgresql://" in str(raised.value.hint)


def test_database_without_utf8_is_refused(postgresql: PostgreSQL) -> None:
    url = postgresql.database("encoding 'LATIN1' template template0")
    with pytest.raises(WorkspaceError, match="must be UTF-8"):
        Catalog(url).migrate()


def test_workspaces_can_share_a_database_in_separate_schemas(postgresql: PostgreSQL) -> None:
    url = postgresql.database()
    for name in ("one", "two"):
        postgresql.execute(f"create schema {name}", url.rsplit("/", 1)[1])
    entry, other = (Catalog(f"{url}?options=-csearch_path%3D{name}") for name in ("one", "two"))
    entry.migrate()
    other.migrate()
    _declare(entry, "A")
    with entry.write():
        _declare(other, "B")  # one writer for each root, not for all of them
    assert (_names(entry), _names(other)) == (["A"], ["B"])
    missing = Catalog(f"{url}?options=-csearch_path%3Dnowhere")
    with pytest.raises(WorkspaceError, match="schema"):
        missing.migrate()
    for catalog in (entry, other, missing):
        catalog.close()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_can_be_quarantined(catalog: Catalog, said: str) -> None:
    with catalog.write() as connection:
        quarantine.add_quarantined(connection, Quarantined("item", said, said + "\x00end"))
        [kept] = quarantine.quarantined_rows(connection, limit=1)
    nul = "\x00" if catalog.url.startswith("sqlite") else "\ufffd"
    assert kept.place == said.replace("\x00", nul)
    assert kept.reason == said.replace("\x00", nul) + nul + "end"


def test_catalogs_that_other_hosts_can_share() -> None:
    assert not is_shared("sqlite:///x.sqlite")
    assert is_shared("postgresql://h/d")
    with pytest.raises(WorkspaceError):
        is_shared("mysql://h/d")
