"""A root as the first Runnel left it, opened by this one: everything is there, and goes on, in either database.

`first_root.tar.xz` is such a root, with a SQLite catalog at step 1: items archived, matched, delivered and waiting.
"""

from __future__ import annotations

import sqlite3
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.crash.harness import item as newer_item
from tests.crash.harness import verify
from tests.integration.in_process import InProcess

import runnel
from runnel.catalog.access import consents
from runnel.catalog.delivery import ledger
from runnel.catalog.store import connection as opening
from runnel.catalog.store import migrations
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.migrations import MIGRATIONS
from runnel.catalog.store.sealed_secrets import read_fingerprint
from runnel.sinks.contract import ConfirmingSink
from runnel.sinks.registry import open_sink
from runnel.testing import FakeClock

_FIRST_ROOT = Path(__file__).with_name("first_root.tar.xz")


def item(number: int) -> dict[str, object]:
    """An item as those of the first root are: they tell no story yet."""
    return {name: value for name, value in newer_item(number).items() if name not in ("story", "graph")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The first root, unpacked."""
    folder = tmp_path / "root"
    with tarfile.open(_FIRST_ROOT) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its catalog at step 1: the file itself, or the same rows in PostgreSQL."""
    if url.startswith("sqlite"):
        return f"sqlite:///{folder / 'catalog.sqlite'}"
    with monkeypatch.context() as first:
        first.setattr(opening, "MIGRATIONS", MIGRATIONS[:1])
        first.setattr(migrations, "MIGRATIONS", MIGRATIONS[:1])
        catalog = Catalog(url)
        assert catalog.migrate() == 1
    _copy(folder / "catalog.sqlite", catalog)
    catalog.close()
    (folder / "catalog.sqlite").unlink()
    return url


def _copy(file: Path, catalog: Catalog) -> None:
    source = sqlite3.connect(file)
    source.row_factory = sqlite3.Row
    tables = [row["name"] for row in source.execute("select name from sqlite_master where type = 'table'")]
    with catalog.write() as connection:
        for table in (one for one in tables if not one.startswith("sqlite_")):
            connection.execute(text(f"delete from {table}"))
            rows = [dict(row) for row in source.execute(f"select * from {table}")]
            if rows:
                names = list(rows[0])
                values = ", ".join(f":{name}" for name in names)
                connection.execute(text(f"insert into {table} ({', '.join(names)}) values ({values})"), rows)
        for row in source.execute("select name, seq from sqlite_sequence"):
            column = "version" if row["name"] == "plans" else "id"
            connection.execute(
                text("select setval(pg_get_serial_sequence(:table, :column), :last)"),
                {"table": row["name"], "column": column, "last": row["seq"]},
            )
    source.close()


def test_a_root_of_the_first_runnel_goes_on(folder: Path, catalog_url: str) -> None:
    clock = FakeClock(datetime(2026, 11, 2, 12, tzinfo=UTC))
    with runnel.open(folder, catalog=catalog_url, clock=clock, create=False) as engine:
        assert engine.root.catalog.version() == len(MIGRATIONS)
        with engine.root.catalog.read() as connection:
            assert read_fingerprint(connection) == engine.root.key.read().fingerprint
        before = engine.status()
        assert (before.sources, before.virtual_feeds, before.subscriptions) == (2, 5, 7)
        assert (before.accepted, before.matched, before.put_aside) == (45, 40, 1)
        assert before.messages == {"done": 11}
        rock = [one.item.id for one in engine.matches("Rock")]
        assert rock, "what matched before is still there"
        assert engine.publish("Wire", [item(number) for number in range(20)]).accepted == 0, "and still known"

        run = InProcess(engine)
        run.run()
        verify(engine, 45)
        engine.publish("Other", [item(number) for number in range(45, 60)])
        engine.execute("create feed Fresh from Wire where volume > 3; subscribe to Fresh output log;")
        engine.publish("Wire", [item(number) for number in range(60, 75)])
        clock.advance(timedelta(hours=1))
        run.run()
        verify(engine, 75)
        assert [one.item.id for one in engine.matches("Rock")][: len(rock)] == rock
        assert {one.item.id for one in engine.matches("Fresh")} <= {str(number) for number in range(60, 75)}
        assert len((folder / "out" / "quiet.jsonl").read_text().splitlines()) == sum(
            1 for _ in engine.matches("Quiet")
        ), "the digest got all, once"


def test_a_migration_that_fails_halfway_leaves_the_step_before(
    folder: Path, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*MIGRATIONS[:1], (*MIGRATIONS[1], "this is not SQL"))
    with monkeypatch.context() as one:
        one.setattr(opening, "MIGRATIONS", broken)
        one.setattr(migrations, "MIGRATIONS", broken)
        with pytest.raises(Exception, match="syntax error"):
            runnel.open(folder, catalog=catalog_url, create=False)
    catalog = Catalog(catalog_url)
    assert catalog.version() == 1
    assert catalog.migrate() == len(MIGRATIONS)
    catalog.close()


def _catalog_before_consents(url: str, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog in which owners subscribed when no target had to confirm."""
    before = next(
        step for step, texts in enumerate(MIGRATIONS) if any("create table consents" in one for one in texts)
    )
    with monkeypatch.context() as earlier:
        earlier.setattr(opening, "MIGRATIONS", MIGRATIONS[:before])
        earlier.setattr(migrations, "MIGRATIONS", MIGRATIONS[:before])
        catalog = Catalog(url)
        assert catalog.migrate() == before
    targets = [
        (1, 1, "mail", "admin@mail.example", None),
        (2, 2, "mail", "Took.It+a@mail.example", None),
        (3, 2, "mail", "Took.It+a@mail.example", None),
        (4, 2, "mail", "New.One+a+b@mail.example", None),
        (5, 2, "webhook", "https://took.example:8443/hook?x=//", None),
        (6, 2, "webhook", "http://new.example/", None),
        (7, 3, "mail", "Took.It+a@mail.example", None),
        (8, 2, "log", None, None),
        (9, 2, "mail", "ended@mail.example", 5),
    ]
    with catalog.write() as connection:
        connection.execute(text("insert into cursors (subscription, sequence) values (0, 40), (6, 7)"))
        for number, owner, kind, target, ended in targets:
            connection.execute(
                text(
                    "insert into subscriptions (id, feed, kind, target, since, paused, created, owner, ended)"
                    " values (:id, 1, :kind, :target, 10, 0, 0, :owner, :ended)"
                ),
                {"id": number, "kind": kind, "target": target, "owner": owner, "ended": ended},
            )
        connection.execute(
            text(
                "insert into messages (subscription, number, first_sequence, last_sequence, items, key, digest, plan,"
                " state, attempts, created, finished, not_before)"
                " values (3, 1, 1, 1, 1, 'a', '', 1, 'done', 1, 0, 1, 0),"
                " (4, 1, 1, 1, 1, 'b', '', 1, 'dead', 1, 0, 1, 0)"
            )
        )
        connection.execute(text("insert into receipts values (5, 1, 1, 0, 1, 1, 0, 1)"))
    return catalog


def test_targets_that_took_messages_before_are_confirmed_and_others_are_asked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _catalog_before_consents(url, monkeypatch)
    assert catalog.migrate() == len(MIGRATIONS)
    with catalog.read() as connection:
        found = consents.consents_by_key(connection)
        assert {key: (one.recipient, one.state.value) for key, one in found.items()} == {
            (2, "mail", "Took.It+a@mail.example"): ("tookit@mail.example", "confirmed"),
            (2, "mail", "New.One+a+b@mail.example"): ("newone@mail.example", "pending"),
            (2, "webhook", "https://took.example:8443/hook?x=//"): ("took.example:8443", "confirmed"),
            (2, "webhook", "http://new.example/"): ("new.example", "pending"),
            (3, "mail", "Took.It+a@mail.example"): ("tookit@mail.example", "pending"),
        }
        for (_, kind, target), one in found.items():
            sink = open_sink(kind)
            assert isinstance(sink, ConfirmingSink)
            assert one.recipient == sink.recipient(target), "as the sinks say it"
        assert consents.unconfirmed_among(connection, range(1, 10)) == {4, 6, 7}
        assert {one.target for one, _ in consents.due_consents(connection, 10)} == {
            "New.One+a+b@mail.example",
            "http://new.example/",
            "Took.It+a@mail.example",
        }
        assert ledger.cursors(connection) == {0: 40, 4: 40, 6: 7, 7: 40}, "what waits stays where it is"
    catalog.close()
