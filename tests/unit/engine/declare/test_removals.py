"""Removing queries writes no file: version rows list removed queries, and every version keeps its matches."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log_upkeep import collect_garbage

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.store import schema
from runnel.engine import Engine, connect
from runnel.engine.planning import plan_change
from runnel.errors import CorruptDataError, NotFoundError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_merged
from runnel.matching.explain.explain_query import explain_query
from runnel.matching.gates.claims import GateKeeper
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

WORDS = ("rock", "jazz", "pop")
FEEDS = ("Rock", "Jazz", "Pop", "Once", "OnceRock", "Mixed")
DECLARED = """register feed News;
create feed Rock from News where title contains 'rock';
create feed Jazz from News where title contains 'jazz';
create feed Pop from News where title contains 'pop' or n > 3;
create feed Once from News distinct by title within 3 days where n < 9;
create feed OnceRock from Once where title contains 'rock';
create feed Mixed from Once | Jazz where n > 1;"""

Answers = list[list[int]]


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Lower the limits of deltas and named removals, and skip fsync, which these tests do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        patch.setattr(plan_change, "_MIN_DELTA_QUERIES", 4)
        patch.setattr(plan_change, "_MAX_NAMED_REMOVALS", 2)
        yield


def news(source: int) -> ItemBatch:
    """Return items with repeated values, for `distinct`."""
    items = [
        Item("News", str(n), {"title": (f"{WORDS[n % 3]} {WORDS[n * 2 % 5 % 3]}",), "n": (float(n % 7),)})
        for n in range(24)
    ]
    return ItemBatch.of(items, {"News": source}, first_sequence=1_000)


def answers(plan: Plan, batch: ItemBatch) -> Answers:
    matches = OrderedMatcher(plan, build_matcher(plan)).match(batch)
    return [matches.row(row).tolist() for row in range(len(batch))]


@dataclass
class Life:
    """A workspace, its subscriptions, and the matches of every version of its plan."""

    engine: Engine
    subscribed: set[str] = field(default_factory=set)
    told: dict[PlanVersion, Answers] = field(default_factory=dict)

    def current(self) -> plan_versions.PlanRow | None:
        with self.engine.workspace.catalog.read() as connection:
            return plan_versions.current_plan(connection)

    def batch(self) -> ItemBatch:
        with self.engine.workspace.catalog.read() as connection:
            source = feeds.feed_by_name(connection, "News")
        assert source is not None
        return news(source.id)

    def toggle(self, names: tuple[str, ...]) -> None:
        off = [name for name in names if name in self.subscribed]
        on = [name for name in names if name not in self.subscribed]
        self.subscribed = (self.subscribed - set(off)) | set(on)
        messages = [f"unsubscribe from {name};" for name in off] + [f"subscribe to {name} output log;" for name in on]
        self.engine.execute(" ".join(messages))

    def replace(self, word: str) -> None:
        self.engine.execute(f"create or replace feed Rock from News where title contains '{word}';")

    def merge(self) -> None:
        """Compile the same queries into one new base, like recompilation does."""
        row, storage = self.current(), self.engine.workspace.storage
        if row is None:
            return
        folder = f"plans/{uuid.uuid4().hex}"
        compile_merged(storage, folder, load(storage, PlanVersion.of(row)))
        with self.engine.workspace.catalog.write() as connection:
            plan_versions.publish_plan(connection, folder, None, row.queries)

    def verify(self) -> None:
        """Check that the current version matches like a newly compiled plan."""
        row = self.current()
        with self.engine.workspace.catalog.read() as connection:
            live, definitions = feeds.since_of(connection), feeds.definitions(connection)
        if row is None:
            assert not live
            return
        assert row.queries == len(live)
        plan = load(self.engine.workspace.storage, PlanVersion.of(row))
        results = answers(plan, self.batch())
        with tempfile.TemporaryDirectory() as folder:
            storage = FileStorage(Path(folder).as_uri())
            compile_base(storage, "rebuilt", [PlanQuery(query, since) for query, since in live.items()], definitions)
            rebuilt = load(storage, PlanVersion(0, "rebuilt"))
            assert results == answers(rebuilt, self.batch())
            assert GateKeeper(plan).is_needed == GateKeeper(rebuilt).is_needed
        self.told[PlanVersion.of(row)] = results


changes = st.one_of(
    st.tuples(st.just("toggle"), st.lists(st.sampled_from(FEEDS), min_size=1, max_size=4, unique=True).map(tuple)),
    st.tuples(st.just("toggle"), st.sampled_from(FEEDS).map(lambda name: (name,))),
    st.tuples(st.just("replace"), st.sampled_from(WORDS)),
    st.tuples(st.just("merge"), st.none()),
)


@given(st.lists(changes, min_size=2, max_size=10))
@settings(deadline=None, max_examples=8)
def test_plan_after_any_changes_matches_like_a_newly_compiled_plan(series: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder, connect(Path(folder, "workspace")) as engine:
        life = Life(engine)
        engine.execute(DECLARED)
        life.toggle(FEEDS)
        life.verify()
        for change, messages in series:
            match change, messages:
                case "toggle", tuple():
                    life.toggle(messages)
                case "replace", str():
                    life.replace(messages)
                case _:
                    life.merge()
            life.verify()
        # A batch that is run again uses the version that it was begun with, whatever came since.
        collect_garbage(engine.workspace.catalog, engine.workspace.storage, older_than=-1)
        for version, results in life.told.items():
            with engine.workspace.catalog.read() as connection:
                row = plan_versions.plan_by_version(connection, version.version)
            assert row is not None
            assert PlanVersion.of(row) == version
            assert answers(load(engine.workspace.storage, version), life.batch()) == results


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    with connect(tmp_path / "workspace") as engine:
        engine.execute(DECLARED)
        results = Life(engine)
        results.toggle(FEEDS)
        yield results


def files(life: Life) -> set[str]:
    return {file.path for file in life.engine.workspace.storage.files("plans")}


def test_removals_write_no_file_until_there_are_too_many(life: Life) -> None:
    first, written = life.current(), files(life)
    assert first is not None
    life.toggle(("Rock",))
    life.toggle(("Pop",))
    second = life.current()
    assert second is not None
    assert files(life) == written
    assert (second.base, second.delta, second.version) == (first.base, first.delta, first.version + 2)
    assert len(second.removed) == 2
    assert second.queries == first.queries - 2
    life.toggle(("OnceRock",))
    third = life.current()
    assert third is not None
    assert third.removed == ()
    assert third.delta is not None
    assert third.base == first.base
    life.verify()


def test_removing_a_query_of_the_delta_writes_no_file(life: Life) -> None:
    life.engine.execute("create feed Late from News where n > 5; subscribe to Late output log;")
    added, written = life.current(), files(life)
    assert added is not None
    assert added.delta is not None
    life.engine.execute("unsubscribe from Late;")
    assert files(life) == written
    life.verify()
    removed = life.current()
    assert removed is not None
    assert (removed.delta, len(removed.removed), removed.queries) == (added.delta, 1, added.queries - 1)
    life.engine.execute("subscribe to Late output log;")
    again = life.current()
    assert again is not None
    assert (again.removed, again.queries) == ((), added.queries)
    life.verify()


def test_garbage_collection_keeps_exactly_the_referenced_plan_files(life: Life) -> None:
    workspace = life.engine.workspace
    life.toggle(("Rock",))
    workspace.storage.write("plans/orphan/manifest.json", b"{}")
    collect_garbage(workspace.catalog, workspace.storage, older_than=-1)
    assert "plans/orphan/manifest.json" not in files(life)
    row = life.current()
    assert row is not None
    assert {path.rsplit("/", 1)[0] for path in files(life)} == {row.base}
    with workspace.catalog.read() as connection:
        assert plan_versions.plan_folders(connection, since=match_segments.last_plan(connection)) == {row.base}
    life.verify()


def test_version_row_with_invalid_removals_is_refused_as_damaged(life: Life) -> None:
    life.toggle(("Rock",))
    with life.engine.workspace.catalog.write() as connection:
        connection.execute(schema.plans.update().values(removed="7,rock"))
    with life.engine.workspace.catalog.read() as connection, pytest.raises(CorruptDataError, match="rock"):
        plan_versions.current_plan(connection)


def test_removed_query_cannot_be_explained(life: Life) -> None:
    def plan() -> Plan:
        row = life.current()
        assert row is not None
        return load(life.engine.workspace.storage, PlanVersion.of(row))

    with life.engine.workspace.catalog.read() as connection:
        rock = feeds.feed_by_name(connection, "Rock")
    assert rock is not None
    assert explain_query(rock.id, plan()).part == "base"
    life.toggle(("Rock",))
    with pytest.raises(NotFoundError, match="is not in the plan"):
        explain_query(rock.id, plan())
