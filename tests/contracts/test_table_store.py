"""The rows of tables as of every sequence, on every catalog and storage: compared with a replay and with DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.catalog_rows import add_feed
from tests.log_upkeep import collect_garbage

from runnel.catalog.declared import tables
from runnel.catalog.logs import item_segments, table_files
from runnel.catalog.logs.table_files import FileKind
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.engine.workspace_identity import claim_new
from runnel.errors import CorruptDataError, FencedError, NotFoundError
from runnel.logs.items.item_log import Accepted, ItemLog
from runnel.logs.tables import rewrite_tables
from runnel.logs.tables.rewrite_tables import RewriteRule, rewrite_steps
from runnel.logs.tables.table_store import Row, TableStore, TableView
from runnel.model.feed import FeedKind
from runnel.model.item import Item, Value, attributes_of
from runnel.model.table import DELETED, Column, ColumnType, RowChange, TableSchema, change_of, deletion_of
from runnel.storage.checksums import take_damaged
from runnel.storage.file_storage import Storage, open_storage
from runnel.testing import FakeClock

SCHEMA = TableSchema(
    (
        Column("name", ColumnType.TEXT, is_key=True),
        Column("n", ColumnType.NUMBER, is_key=True),
        Column("price", ColumnType.NUMBER),
        Column("note", ColumnType.TEXT),
        Column("at", ColumnType.DATE),
        Column("is_open", ColumnType.BOOLEAN),
    )
)
BY_NAME = TableSchema(tuple(replace(column, is_key=column.name == "name") for column in SCHEMA.columns))
"""The same columns with one text as key."""

Values = dict[str, Value]
_ALWAYS = RewriteRule(tail_rows=0)


@dataclass
class Kit:
    """A table in a new workspace, and what it should contain: its rows after every change, by sequence."""

    catalog: Catalog
    storage: Storage
    schema: TableSchema = SCHEMA
    replay: dict[int, dict[str, Values]] = field(default_factory=lambda: {0: {}})

    def __post_init__(self) -> None:
        claim_new(self.catalog, self.storage)
        self.items = ItemLog(self.catalog, self.storage)
        self.store = TableStore(self.catalog, self.storage, self.items)
        with self.catalog.write() as connection:
            self.feed = add_feed(connection, "T", FeedKind.TABLE, "register table T")
            tables.add_table(connection, self.feed, self.schema, 0)

    @property
    def table(self) -> tables.Table:
        return self.store.files(self.feed).table

    def change(self, *changes: RowChange) -> Accepted:
        """Accept changes, and replay those that should be accepted."""
        rows = dict(self.replay[max(self.replay)])
        sequence = self.items.last_sequence()
        for change in changes:
            values = {name: several[0] for name, several in change.item.attributes.items()}
            if change.is_deletion and change.item.id in rows:
                del rows[change.item.id]
            elif not change.is_deletion and rows.get(change.item.id) != values:
                rows[change.item.id] = values
            else:
                continue
            sequence += 1
            self.replay[sequence] = dict(rows)
        return self.items.change_rows(self.feed, changes)

    def rewrite(self, rule: RewriteRule = _ALWAYS) -> int:
        with self.catalog.write() as connection:
            lease = leases.acquire(connection, 60)
        try:
            return sum(rewrite_steps(self.catalog, self.storage, self.store, rule, epoch=lease.epoch))
        finally:
            with self.catalog.write() as connection:
                leases.release(connection, lease)

    def check(self) -> None:
        """Assert that the rows as of every sequence are those of the replay, with old and with new caches."""
        expected: dict[str, Values] = {}
        fresh = TableStore(self.catalog, self.storage, self.items)
        for sequence in range(self.items.last_sequence() + 1):
            expected = self.replay.get(sequence, expected)
            assert rows_of(self.store.view(self.feed, sequence)) == expected, sequence
            assert rows_of(fresh.view(self.feed, sequence)) == expected, sequence
        assert self.table.rows == len(expected)


def rows_of(view: TableView) -> dict[str, Values]:
    rows = list(view)
    assert len(rows) == len(view) == len({row.id for row in rows})
    assert all(row.sequence <= view.sequence for row in rows)
    return {row.id: row.values for row in rows}


def upsert(name: str, n: float = 1.0, *, schema: TableSchema = SCHEMA, **values: Any) -> RowChange:
    given = {"name": name, "n": n, **values}
    return change_of("T", schema, {column: (value,) for column, value in given.items() if value is not None})


def deletion(name: str, n: float = 1.0, replaces: int | None = None) -> RowChange:
    return deletion_of("T", SCHEMA, (name, n), replaces)


@pytest.fixture(params=["file", "full+file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    options = f"?flag={tmp_path / 'full'}" if request.param == "full+file" else ""
    return open_storage(f"{request.param}://{tmp_path / 'files'}{options}")


@pytest.fixture
def kit(catalog: Catalog, storage: Storage) -> Kit:
    return Kit(catalog, storage)


names = st.sampled_from(["a", "b", "é", 'a"b'])
numbers = st.sampled_from([0.0, -1.5, 2.0])
moments = st.sampled_from([datetime(2026, 11, 18, tzinfo=UTC), datetime(1969, 7, 20, 20, 17, 40, 250_000, UTC)])
offers = st.fixed_dictionaries(
    {"name": names, "n": numbers},
    optional={"price": numbers, "note": names, "at": moments, "is_open": st.booleans(), DELETED: st.just(True)},
)
"""The values of a row, or of a deletion."""

Step = list[Values] | str
steps = st.lists(st.lists(offers, min_size=1, max_size=6) | st.sampled_from(["rewrite", "other"]), max_size=12)


def offered(schema: TableSchema, values: Values) -> RowChange:
    """Return the change with these values."""
    if DELETED in values:
        return deletion_of("T", schema, [values[column.name] for column in schema.key])
    return change_of("T", schema, {name: (value,) for name, value in values.items()})


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schema=st.sampled_from([SCHEMA, BY_NAME]), history=steps)
def test_rows_as_of_every_sequence_equal_the_replay(
    make_kit: Callable[[TableSchema], Kit], schema: TableSchema, history: Sequence[Step]
) -> None:
    kit = make_kit(schema)
    for number, step in enumerate(history):
        match step:
            case "rewrite":
                kit.rewrite()
            case "other":
                kit.items.accept(kit.feed + 1, [Item("Other", str(number), attributes_of({"name": "a"}))])
            case several:
                assert not isinstance(several, str)
                kit.change(*(offered(schema, values) for values in several))
    kit.check()
    kit.rewrite()
    kit.check()
    assert kit.table.tail == 0
    assert final_rows_of_duckdb(schema, history) == {row.id: row.values for row in kit.store.view(kit.feed)}


def final_rows_of_duckdb(schema: TableSchema, history: Sequence[Step]) -> dict[str, Values]:
    """Compute the final rows with SQL: the last change of each key, unless it is a deletion."""
    connection = duckdb.connect()
    connection.execute("create table changes (i int, name text, n double, d boolean)")
    written = [values for step in history if not isinstance(step, str) for values in step]
    for number, values in enumerate(written):
        row = [number, values["name"], values["n"], DELETED in values]
        connection.execute("insert into changes values (?, ?, ?, ?)", row)
    key = ", ".join(column.name for column in schema.key)
    found = connection.execute(
        f"select i from changes qualify row_number() over (partition by {key} order by i desc) = 1 and not d"
    ).fetchall()
    return {offered(schema, written[number]).item.id: written[number] for (number,) in found}


@pytest.fixture
def make_kit(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[TableSchema], Kit]]:
    """Return a function that creates a kit in a new folder, for each example of hypothesis."""
    opened: list[Catalog] = []

    def make(schema: TableSchema) -> Kit:
        folder = tmp_path_factory.mktemp("table")
        catalog = Catalog(f"sqlite:///{folder / 'catalog.sqlite'}")
        catalog.migrate()
        opened.append(catalog)
        return Kit(catalog, open_storage(folder.as_uri()), schema)

    yield make
    for catalog in opened:
        catalog.close()


def test_changes_and_rewriting_on_every_catalog(kit: Kit) -> None:
    kit.change(upsert("a", price=1.0), upsert("b", price=2.0, note="x"), upsert("c"))
    kit.check()
    assert kit.rewrite() == 1
    kit.change(upsert("a", price=5.0), deletion("b"), upsert("d", is_open=False))
    kit.check()
    assert kit.rewrite() == 1
    assert kit.rewrite() == 0, "nothing changed since"
    kit.change(deletion("a"), upsert("b", note="again"))
    kit.check()
    assert kit.table == tables.Table(kit.feed, SCHEMA, 0, 8, rows=3, changes=8, tail=2)
    files = table_files_of(kit)
    assert [(file.kind, file.from_sequence, file.to_sequence, file.rows) for file in files] == [
        (FileKind.HISTORY, 0, 3, 0),
        (FileKind.BASE, 3, 6, 3),
        (FileKind.HISTORY, 3, 6, 2),
    ]


def table_files_of(kit: Kit) -> list[table_files.TableFile]:
    with kit.catalog.read() as connection:
        return table_files.live_files(connection, kit.feed)


def test_unchanged_rows_and_deletions_of_unknown_rows_log_nothing(kit: Kit) -> None:
    assert kit.change(upsert("a", price=1.0), deletion("b")) == Accepted(1, 1, 1, unchanged=1)
    assert kit.change(upsert("a", price=1.0), deletion("b")) == Accepted(unchanged=2)
    assert kit.change(deletion("a"), deletion("a")) == Accepted(2, 2, 1, unchanged=1)
    assert kit.change(upsert("a", price=1.0)) == Accepted(3, 3, 1)
    (row,) = kit.store.view(kit.feed)
    assert (row.id, row.version, row.values) == ('["a",1]', 3, {"name": "a", "n": 1.0, "price": 1.0})


def test_deletion_of_one_version_spares_a_newer_one(kit: Kit) -> None:
    kit.change(upsert("a", price=1.0))
    (row,) = kit.store.view(kit.feed)
    kit.change(upsert("a", price=2.0))
    assert kit.items.change_rows(kit.feed, [deletion("a", replaces=row.sequence)]).accepted == 0
    assert kit.items.change_rows(kit.feed, [deletion("b", replaces=row.sequence)]).accepted == 0
    assert kit.items.change_rows(kit.feed, [deletion("a", replaces=2)]).accepted == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ColumnType.NUMBER, [-2.5, -1.0, 0.0, 1.0, 3e10]),
        (ColumnType.TEXT, ["", "10", "9", "a", "aé"]),
        (ColumnType.DATE, [datetime(1960, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
        (ColumnType.BOOLEAN, [False, True]),
    ],
)
def test_late_changes_are_skipped_and_counted(
    catalog: Catalog, tmp_path: Path, kind: ColumnType, values: list[Value]
) -> None:
    columns = (Column("k", ColumnType.TEXT, is_key=True), Column("at", kind), Column("x", ColumnType.NUMBER))
    schema = TableSchema(columns, ordered_by="at")
    kit = Kit(catalog, open_storage((tmp_path / "files").as_uri()), schema)

    def at(value: Value, x: float) -> RowChange:
        return change_of("T", schema, {"k": ("a",), "at": (value,), "x": (x,)})

    for number, value in enumerate(values):
        assert kit.items.change_rows(kit.feed, [at(value, float(number))]).accepted == 1
    late = [at(value, 99.0) for value in values[:-1]]
    assert kit.items.change_rows(kit.feed, late) == Accepted(late=len(late))
    assert kit.items.change_rows(kit.feed, [at(values[-1], 7.0)]).accepted == 1, "equal values are not late"
    kit.items.change_rows(kit.feed, [deletion_of("T", schema, ("a",))])
    assert kit.items.change_rows(kit.feed, late).late == len(late), "a deletion does not forget the order"
    assert kit.table.late == 2 * len(late)
    assert len(kit.store.view(kit.feed)) == 0


def test_late_changes_within_one_call_are_skipped(catalog: Catalog, tmp_path: Path) -> None:
    schema = TableSchema((Column("k", ColumnType.TEXT, True), Column("at", ColumnType.NUMBER)), ordered_by="at")
    kit = Kit(catalog, open_storage((tmp_path / "files").as_uri()), schema)
    offered = [change_of("T", schema, {"k": ("a",), "at": (float(at),)}) for at in (3, 1, 4)]
    assert kit.items.change_rows(kit.feed, offered) == Accepted(1, 2, 2, late=1)


def test_added_columns_have_no_values_in_old_files(kit: Kit) -> None:
    kit.change(upsert("a"), upsert("b"))
    kit.rewrite()
    kit.change(deletion("b"))
    wider = TableSchema((*SCHEMA.columns, Column("rating", ColumnType.NUMBER)))
    with kit.catalog.write() as connection:
        tables.set_schema(connection, kit.feed, wider)
    change = change_of("T", wider, {"name": ("c",), "n": (1.0,), "rating": (4.5,)})
    kit.items.change_rows(kit.feed, [change])
    expected: dict[str, Values] = {
        '["a",1]': {"name": "a", "n": 1.0},
        '["c",1]': {"name": "c", "n": 1.0, "rating": 4.5},
    }
    assert rows_of(kit.store.view(kit.feed)) == expected
    kit.rewrite()
    assert rows_of(kit.store.view(kit.feed)) == expected
    assert rows_of(kit.store.view(kit.feed, 2)) == {row: {"name": row[2], "n": 1.0} for row in ('["a",1]', '["b",1]')}


def test_a_table_is_rewritten_at_a_quarter_of_its_rows(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite_tables, "MIN_TAIL", 4)
    rule = RewriteRule(tail_rows=1_000)
    kit.change(*(upsert(str(number)) for number in range(4)))
    assert kit.rewrite(rule) == 0
    kit.change(*(upsert(str(number)) for number in range(4, 40)))
    assert kit.rewrite(rule) == 1
    kit.change(*(upsert(str(number), price=1.0) for number in range(10)))
    assert kit.rewrite(rule) == 0, "a quarter of 40 rows"
    assert kit.rewrite(RewriteRule(tail_rows=9)) == 1, "the setting table_tail_rows forces it"
    kit.change(upsert("0", price=2.0))
    assert kit.rewrite(RewriteRule(1_000, kept_after=kit.items.last_sequence())) == 1, "its base is too old"


def test_items_are_kept_from_the_oldest_base_on(kit: Kit) -> None:
    def needed(upto: int) -> int:
        with kit.catalog.read() as connection:
            return table_files.needed_after(connection, upto)

    assert needed(100) == 100, "a table without changes needs nothing"
    kit.change(upsert("a"), upsert("b"))
    assert needed(100) == 0
    kit.rewrite()
    assert needed(100) == 100
    kit.change(upsert("c"))
    assert needed(100) == 2
    assert needed(1) == 1


def test_rows_that_are_no_longer_kept_are_refused(kit: Kit) -> None:
    for name in "abc":
        kit.change(upsert(name))
        kit.rewrite()
    with kit.catalog.write() as connection:
        assert table_files.retire_histories(connection, 1) == 1
    assert len(kit.store.view(kit.feed, 1)) == 1
    with pytest.raises(NotFoundError, match="as of sequence 0 are not kept"):
        kit.store.view(kit.feed, 0)


def test_a_runner_that_lost_its_lease_rewrites_nothing(kit: Kit) -> None:
    kit.change(upsert("a"))
    with kit.catalog.write() as connection:
        epoch = leases.acquire(connection, 60).epoch
    with pytest.raises(FencedError):
        list(rewrite_steps(kit.catalog, kit.storage, kit.store, _ALWAYS, epoch=epoch - 1))
    assert table_files_of(kit) == []
    kit.check()


def test_a_base_that_another_process_wrote_meanwhile_stays(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.change(upsert("a"), upsert("b"))
    files = kit.store.files(kit.feed)
    kit.rewrite()
    with kit.catalog.write() as connection:
        lease = leases.acquire(connection, 60)
    written = rewrite_tables.rewrite_table(kit.catalog, kit.storage, kit.store, files, epoch=lease.epoch)
    assert not written
    assert kit.table.tail == 0
    kit.check()


def test_files_of_an_interrupted_rewrite_are_garbage(kit: Kit, tmp_path: Path) -> None:
    kit.change(upsert("a"))
    kit.rewrite()
    kit.change(upsert("b"))
    kit.rewrite()
    orphan = kit.storage.local("tables") / "stray.arrow"
    orphan.write_bytes(b"left behind")
    before = {file.path for file in table_files_of(kit)}
    collect_garbage(kit.catalog, kit.storage, older_than=0)
    assert not orphan.exists()
    left = {file.path for file in kit.storage.files("tables")}
    assert left == before, "the retired base is gone, live files stay"
    kit.check()


def test_a_dropped_table_is_refused_and_its_files_are_deleted(kit: Kit) -> None:
    kit.change(upsert("a"))
    kit.rewrite()
    with kit.catalog.write() as connection:
        tables.forget_table(connection, kit.feed)
    with pytest.raises(NotFoundError, match="was dropped"):
        kit.store.view(kit.feed)
    collect_garbage(kit.catalog, kit.storage, older_than=0)
    assert list(kit.storage.files("tables")) == []


def damage(kit: Kit, kind: FileKind) -> table_files.TableFile:
    """Overwrite the newest file of a kind, and return it."""
    file = [file for file in table_files_of(kit) if file.kind is kind][-1]
    local = kit.storage.local(file.path)
    content = bytearray(local.read_bytes())
    content[len(content) // 2] ^= 0xFF
    local.write_bytes(content)
    with pytest.raises(CorruptDataError):
        TableStore(kit.catalog, kit.storage, kit.items).view(kit.feed, 0 if kind is FileKind.HISTORY else None)
    assert take_damaged(kit.storage) == [file.path]
    return file


@pytest.mark.parametrize("keeps_earlier_base", [True, False])
def test_a_damaged_base_is_computed_again(kit: Kit, keeps_earlier_base: bool) -> None:
    kit.change(upsert("a", price=1.0), upsert("b"))
    kit.rewrite()
    kit.change(deletion("b"), upsert("c"))
    kit.rewrite()
    kit.change(upsert("d"))
    if not keeps_earlier_base:
        collect_garbage(kit.catalog, kit.storage, older_than=0)
    damaged = damage(kit, FileKind.BASE)
    assert rebuild(kit, damaged) is not None
    kit.check()


def rebuild(kit: Kit, damaged: table_files.TableFile) -> table_files.TableFile | None:
    with kit.catalog.write() as connection:
        epoch = leases.acquire(connection, 60).epoch
    return rewrite_tables.rebuild_base(kit.catalog, kit.storage, kit.store, damaged, epoch=epoch)


def test_a_damaged_base_without_the_earlier_changes_is_not_replaced(kit: Kit) -> None:
    kit.change(upsert("a"), upsert("b"))
    kit.rewrite()
    kit.change(upsert("c"))
    damaged = damage(kit, FileKind.BASE)
    with kit.catalog.write() as connection:
        item_segments.retain_items(connection, 1 << 62, 2)
    assert rebuild(kit, damaged) is None
    assert damaged in table_files_of(kit)


def test_rows_whose_changes_were_lost_can_be_published_again(kit: Kit) -> None:
    kit.change(upsert("a", price=1.0))
    kit.rewrite()
    kit.change(upsert("a", price=2.0))
    with kit.catalog.write() as connection:
        (segment,) = [each for each in item_segments.segments_between(connection, 1, 2) if each.first_sequence == 2]
        item_segments.lose_segment(connection, segment, 2)
    assert kit.items.change_rows(kit.feed, [upsert("a", price=2.0)]).accepted == 1
    assert [row.values["price"] for row in kit.store.view(kit.feed)] == [2.0]
    assert kit.items.change_rows(kit.feed, [deletion("a")]).accepted == 1


def test_old_rows_are_found_by_the_time_of_their_last_change(
    timed: Catalog, tmp_path: Path, clock: FakeClock
) -> None:
    kit = Kit(timed, open_storage((tmp_path / "files").as_uri()))
    kit.change(upsert("a"), upsert("b"))
    kit.rewrite()
    clock.advance(timedelta(hours=2))
    kit.change(upsert("b", price=1.0))
    (row,) = kit.store.view(kit.feed).in_key_order().parts(1).__next__()
    moment = datetime.fromtimestamp(clock() - 3600, UTC)
    old = kit.store.changed_before(kit.feed, moment)
    assert old is not None
    assert [found.id for found in old] == [row.id] == ['["a",1]']
    kit.change(deletion("a"))
    assert kit.store.changed_before(kit.feed, moment) is None
    clock.advance(timedelta(hours=2))
    later = kit.store.changed_before(kit.feed, datetime.fromtimestamp(clock() - 3600, UTC))
    assert later is not None
    assert [found.id for found in later] == ['["b",1]']


def test_rows_are_sorted_by_key(kit: Kit) -> None:
    kit.change(upsert("b"), upsert("a", 2.0), upsert("a", -1.0))
    rows: list[Row] = list(kit.store.view(kit.feed).in_key_order())
    assert [(row.values["name"], row.values["n"]) for row in rows] == [("a", -1.0), ("a", 2.0), ("b", 1.0)]


def test_expired_rows_stay_known_and_deleted_ones_are_forgotten(
    timed: Catalog, tmp_path: Path, clock: FakeClock
) -> None:
    kit = Kit(timed, open_storage((tmp_path / "files").as_uri()))
    kit.change(upsert("a"), upsert("b"), deletion("b"))
    clock.advance(timedelta(days=3))
    kit.change(upsert("c"))
    with kit.catalog.write() as connection:
        day = int(clock() * 1e6) // item_segments.DAY
        expired = item_segments.expired_seen(connection, day, 10)
        assert len(expired) == item_segments.forget_seen(connection, expired, day) == 1
    assert kit.items.change_rows(kit.feed, [deletion("a"), deletion("b")]) == Accepted(5, 5, 1, unchanged=1)
