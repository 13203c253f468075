"""Versions of a catalog: new, older, newer, and of a development version, on every supported database."""

from __future__ import annotations

import pytest
from sqlalchemy import BigInteger, Column, Identity, Index, Integer, LargeBinary, MetaData, Table, Text, inspect, text
from tests import catalog_rows

from runnel.catalog.store import migrations, schema
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.migrations import HISTORY, History, Step
from runnel.errors import NewerWorkspaceError, WorkspaceError
from runnel.model.feed import FeedKind

_TABLES = (
    "create table notes (id {identity}, content {bytes} not null)",
    "alter table feeds add column color text",
    "alter table feeds add column rank bigint not null default 0",
    "create index feeds_rank on feeds (rank)",
)
_ROWS = ("update feeds set rank = 7 where name = 'A'", "insert into counters (name, value) values ('ranked', 1)")


def next_history() -> History:
    """Version 2: one more table, two more columns, one more index, and changed rows."""
    metadata = MetaData()
    for table in schema.metadata.sorted_tables:
        table.to_metadata(metadata)
    key = Column("id", BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True)
    Table("notes", metadata, key, Column("content", LargeBinary, nullable=False), sqlite_autoincrement=True)
    changed = metadata.tables["feeds"]
    rank = Column("rank", BigInteger, nullable=False, server_default=text("0"))
    changed.append_column(Column("color", Text))
    changed.append_column(rank)
    Index("feeds_rank", rank)
    return History(metadata, (Step(HISTORY.fingerprint, _TABLES, _ROWS),))


def _shape(catalog: Catalog) -> dict[str, object]:
    """Return all columns and indexes of a catalog."""
    with catalog.read() as connection:
        inspector = inspect(connection)
        return {
            name: (
                [
                    (column["name"], str(column["type"]).lower(), column["nullable"])
                    for column in inspector.get_columns(name)
                ],
                sorted(
                    str((index["name"], index["column_names"], index["unique"]))
                    for index in inspector.get_indexes(name)
                ),
                inspector.get_pk_constraint(name)["constrained_columns"],
            )
            for name in inspector.get_table_names()
        }


def _declare(catalog: Catalog, *names: str) -> None:
    with catalog.write() as connection:
        for name in names:
            catalog_rows.add_feed(connection, name, FeedKind.SOURCE, f"register feed {name};")


def test_new_catalog_has_the_current_tables_and_version(url: str) -> None:
    catalog = Catalog(url)
    assert catalog.version() == 0
    assert catalog.migrate() == catalog.version() == HISTORY.version
    with catalog.read() as connection:
        inspector = inspect(connection)
        assert set(inspector.get_table_names()) == {*schema.metadata.tables, migrations.VERSION_TABLE}
        for table in schema.metadata.sorted_tables:
            columns = {column["name"]: column["nullable"] for column in inspector.get_columns(table.name)}
            assert columns == {column.name: column.nullable for column in table.columns}, table.name
            assert {
                index["name"] for index in inspector.get_indexes(table.name) if not index.get("duplicates_constraint")
            } == {index.name for index in table.indexes}
    catalog.close()


def test_an_older_catalog_is_upgraded_to_the_tables_of_a_new_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(url)
    catalog.migrate()
    _declare(catalog, "A", "B")
    history = next_history()
    monkeypatch.setattr(migrations, "HISTORY", history)
    assert catalog.version() == 1
    assert catalog.migrate() == catalog.version() == 2
    with catalog.write() as connection:
        ranks = connection.execute(text("select name, rank, color from feeds order by name")).all()
        assert [tuple(row) for row in ranks] == [("A", 7, None), ("B", 0, None)]
        values = connection.execute(text("select value from counters where name = 'ranked'")).scalars().all()
        assert values == [1], "the rows were changed once"
        content = {"content": b"\x00\xff"}
        connection.execute(text("insert into notes (content) values (:content)"), content)
        assert connection.execute(text("select id from notes")).scalar_one() == 1
    upgraded = _shape(catalog)
    with catalog.write() as connection:
        history.metadata.drop_all(connection)
        connection.execute(text(f"drop table {migrations.VERSION_TABLE}"))
    assert catalog.migrate() == 2, "created at once"
    assert _shape(catalog) == upgraded
    catalog.close()


def test_failed_step_leaves_the_previous_version(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(catalog, "A")
    history = next_history()
    broken = Step(HISTORY.fingerprint, (*_TABLES, "this is not SQL"), _ROWS)
    before = _shape(catalog)
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "HISTORY", History(history.metadata, (broken,)))
        with pytest.raises(Exception, match="syntax error"):
            catalog.migrate()
    assert _shape(catalog) == before
    assert catalog.migrate() == 1
    monkeypatch.setattr(migrations, "HISTORY", history)
    assert catalog.migrate() == 2


def test_several_steps_are_applied_in_order(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    second = next_history()
    metadata = MetaData()
    for table in second.metadata.sorted_tables:
        table.to_metadata(metadata)
    metadata.tables["notes"].append_column(Column("title", Text))
    last = Step(second.fingerprint, ("alter table notes add column title text",))
    monkeypatch.setattr(migrations, "HISTORY", History(metadata, (*second.steps, last)))
    assert catalog.migrate() == 3
    assert catalog.migrate() == 3


def test_a_newer_catalog_is_refused(catalog: Catalog) -> None:
    with catalog.write() as connection:
        connection.execute(text(f"update {migrations.VERSION_TABLE} set version = {HISTORY.version + 1}"))
    with pytest.raises(NewerWorkspaceError, match="supports versions up to 1"):
        catalog.migrate()


def _keep_only_the_old_version_table(catalog: Catalog, version: int) -> None:
    with catalog.write() as connection:
        connection.execute(text(f"drop table {migrations.VERSION_TABLE}"))
        connection.execute(text(f"create table {migrations.DEVELOPMENT_VERSION_TABLE} (version integer not null)"))
        connection.execute(text(f"insert into {migrations.DEVELOPMENT_VERSION_TABLE} values ({version})"))


@pytest.mark.parametrize("version", [1, 18])
@pytest.mark.parametrize("is_upgraded", [False, True])
def test_a_catalog_from_before_the_first_release_is_refused_unchanged(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, version: int, is_upgraded: bool
) -> None:
    _declare(catalog, "A")
    _keep_only_the_old_version_table(catalog, version)
    before = _shape(catalog)
    if is_upgraded:
        monkeypatch.setattr(migrations, "HISTORY", next_history())
    with pytest.raises(WorkspaceError, match="development version") as caught:
        catalog.migrate()
    assert "create a new workspace" in str(caught.value.hint)
    assert _shape(catalog) == before


def test_tables_that_changed_between_two_releases_are_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = next_history()
    monkeypatch.setattr(migrations, "HISTORY", History(history.metadata))
    assert migrations.HISTORY.version == 1, "the version stays the same until a release"
    with pytest.raises(WorkspaceError, match="development version"):
        catalog.migrate()
    other = Step("tables that were never released", _TABLES, _ROWS)
    monkeypatch.setattr(migrations, "HISTORY", History(history.metadata, (other,)))
    with pytest.raises(WorkspaceError, match="development version"):
        catalog.migrate()
