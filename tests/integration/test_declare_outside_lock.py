"""Declarations are compiled without the catalog's write lock, so other writers are not blocked."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.services import PostgreSQL, postgresql

import runnel
from runnel.catalog.declared import feeds
from runnel.catalog.declared.changes import changes
from runnel.catalog.logs import plan_versions
from runnel.catalog.store import connection as catalog_connection
from runnel.catalog.store.connection import Catalog
from runnel.engine import Engine
from runnel.engine.declare import commit_change
from runnel.engine.declare.end_expired import end_expired
from runnel.engine.planning import plan_change
from runnel.engine.workspace import Workspace
from runnel.errors import CatalogUnavailableError, CyclicFeedsError, StatementError
from runnel.plan import store
from runnel.plan.store import PlanVersion, forget_parts, load
from runnel.testing import FakeClock

__all__ = ["postgresql"]

_PUBLISH = """
import sys, runnel
with runnel.connect(sys.argv[1], create=False, catalog=sys.argv[2]) as engine:
    print(engine.publish("News", [{"id": sys.argv[3]}]).last_sequence)
"""

_BEFORE = """
register feed News; register feed Other;
create feed Rock from News where title contains 'rock'; subscribe to Rock output log;
create feed View from Rock where n > 1; subscribe to View output log;
create feed Jazz from News where title contains 'jazz'; subscribe to Jazz output log;
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    server: PostgreSQL | None = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    with runnel.connect(tmp_path / "root", catalog="" if server is None else server.schema()) as opened:
        opened.execute(_BEFORE)
        yield opened


def while_compiling(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> list[object]:
    """Run one action before each compilation of a change. Return the results of the actions."""
    returned: list[object] = []
    waiting = list(actions)
    real = plan_change.compile_plan

    def compiled(*arguments: Any) -> Any:
        if waiting:
            returned.append(waiting.pop(0)())
        return real(*arguments)

    monkeypatch.setattr(commit_change, "compile_plan", compiled)
    return returned


def publish_elsewhere(engine: Engine, item: str) -> int:
    """Publish in another process, and wait until its transaction is committed."""
    arguments = [sys.executable, "-c", _PUBLISH, str(engine.workspace.folder), engine.workspace.catalog.url, item]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=50, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(
    "statement",
    [
        "create feed New from News where n = 1; subscribe to New output log;",
        "create or replace feed Rock from News where title contains 'pop';",
        "create or replace feed Rock from Other where n = 2; create feed X from Rock; subscribe to X output log;",
        "pause feed Rock;",
        "register prefix ex as 'urn:ex:'; create feed G from News where graph { ?a ex:p ?b };"
        " subscribe to G output log;",
        "drop feed View cascade; create feed View from Jazz where n < 3; subscribe to View output log;",
    ],
)
def test_another_process_publishes_while_a_statement_is_compiled(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    sequences = while_compiling(monkeypatch, lambda: publish_elsewhere(engine, "1"))
    engine.execute(statement)
    assert sequences == [1], "compiled once, and the publisher's transaction was committed before that was over"
    assert_plan_is_current(engine)


def test_expired_subscriptions_are_removed_outside_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    with (
        runnel.connect(tmp_path / "root", clock=clock) as engine,
        runnel.connect(tmp_path / "root", clock=clock) as other,
    ):
        engine.execute(_BEFORE + "create feed Soon from News; subscribe to Soon output log for 1 day;")
        clock.advance(timedelta(days=2))
        # More than 256 queries that go are not named but compiled.
        monkeypatch.setattr(plan_change, "_MAX_NAMED_REMOVALS", 0)
        sequences = while_compiling(monkeypatch, lambda: other.publish("News", [{"id": "1"}]).last_sequence)
        assert end_expired(engine.workspace) == 1
        assert sequences == [1]
        assert_plan_is_current(engine)


def test_distinct_feed_starts_after_items_published_during_its_compilation(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequences = while_compiling(monkeypatch, lambda: publish_elsewhere(engine, "1"))
    engine.execute("create feed Once from Rock distinct by title; subscribe to Once output log;")
    assert sequences == [1], "compiled once, though the log has grown"
    with engine.workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        once = feeds.feed_by_name(connection, "Once")
        since = feeds.since_of(connection)
    assert current is not None
    assert once is not None
    assert since[once.id] == 1
    plan = load(engine.workspace.storage, PlanVersion.of(current))
    (gate,) = plan.gates.gates()
    assert (gate.feed, gate.since) == (once.id, 1)
    # Compiling the same again, without haste, gives the same gate: what it remembers stays valid.
    engine.execute("create feed Later from News where n = 77; subscribe to Later output log;")
    with engine.workspace.catalog.read() as connection:
        newer = plan_versions.current_plan(connection)
    assert newer is not None
    assert load(engine.workspace.storage, PlanVersion.of(newer)).gates.gates() == [gate]


def test_plan_deleted_before_publication_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_EARLY_BYTES", 0)
    real, collected = plan_change.compile_plan, list[str]()

    def compiled(root: Workspace, change: plan_change.PlanChange) -> plan_change.CompiledChange:
        draft = real(root, change)
        if draft.part is not None and not collected:
            collected.append(draft.part.folder)
            for file in list(root.storage.files(draft.part.folder)):
                root.storage.move(file.path, f"trash/{file.path}")
        return draft

    with runnel.connect(tmp_path / "root") as engine:
        monkeypatch.setattr(commit_change, "compile_plan", compiled)
        engine.execute(_BEFORE)
        assert collected
        forget_parts()
        assert_plan_is_current(engine)


def test_expired_subscription_with_open_messages_does_not_conflict_with_declarers(tmp_path: Path) -> None:
    clock = FakeClock()
    with runnel.connect(tmp_path / "root", clock=clock) as engine:
        engine.execute(_BEFORE + "create feed Soon from News; subscribe to Soon output jsonl 'soon.jsonl' for 1 day;")
        engine.publish("News", [{"id": "1"}])
        clock.advance(timedelta(days=2))
        with engine.workspace.catalog.read() as connection:
            before = changes(connection)
        assert end_expired(engine.workspace) == 0
        with engine.workspace.catalog.read() as connection:
            assert changes(connection) == before


def test_waiting_declarers_do_not_exhaust_the_connection_pool(
    postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_connection, "_BUSY_SECONDS", 5.0)
    catalog = Catalog(postgresql.schema())
    catalog.migrate()
    turns: list[int] = []

    def take_turn(number: int) -> None:
        with catalog.declaring(), catalog.write():
            turns.append(number)

    threads = [threading.Thread(target=take_turn, args=(number,)) for number in range(30)]
    try:
        with catalog.declaring():
            for thread in threads:
                thread.start()
            time.sleep(0.5)  # until they wait
            assert turns == []
            with catalog.write():
                pass
        for thread in threads:
            thread.join(60)
        assert sorted(turns) == list(range(30))
    finally:
        catalog.close()


def test_declarer_takes_a_turn_after_three_conflicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other declarers then wait for it; publishers do not."""
    with runnel.connect(tmp_path / "root") as engine, runnel.connect(tmp_path / "root") as other:
        engine.execute(_BEFORE)
        waiting, declared = threading.Event(), threading.Event()
        real = other.workspace.catalog.declaring

        def declaring() -> Any:
            waiting.set()
            return real()

        def declare_late() -> None:
            other.execute("create feed Late from News where n = 5; subscribe to Late output log;")
            declared.set()

        late = threading.Thread(target=declare_late)

        def overtake(number: int) -> Callable[[], object]:
            return lambda: other.execute(f"register feed More{number};")

        def start_late() -> tuple[int | None, bool]:
            monkeypatch.setattr(other.workspace.catalog, "declaring", declaring)
            late.start()
            assert waiting.wait(60), "the other declarer has compiled, and waits for its turn to commit"
            published = other.publish("News", [{"id": "1"}]).last_sequence
            return published, declared.is_set()

        happened = while_compiling(
            monkeypatch, *(overtake(number) for number in range(commit_change.OPTIMISTIC)), start_late
        )
        engine.execute("create feed Early from News where n = 6; subscribe to Early output log;")
        late.join(60)
        assert happened[-1] == (1, False)
        assert declared.is_set()
        assert_plan_is_current(engine)


def test_declarer_with_endless_conflicts_fails_without_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runnel.connect(tmp_path / "root") as engine:
        engine.execute(_BEFORE)
        before = engine.show("feeds").to_json()
        monkeypatch.setattr(commit_change, "_MAX_ATTEMPTS", 4)

        def publish_plan() -> None:
            with engine.workspace.catalog.write() as connection:
                current = plan_versions.current_plan(connection)
                assert current is not None
                plan_versions.publish_plan(connection, current.base, current.delta, current.queries)

        while_compiling(monkeypatch, *(publish_plan for _ in range(4)))
        with pytest.raises(CatalogUnavailableError, match="the plan was changed by others"):
            engine.execute("create or replace feed Rock from News where n = 6;")
        assert engine.show("feeds").to_json() == before
        engine.execute("create or replace feed Rock from News where n = 6;")


def test_a_cycle_is_found_without_reading_every_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with runnel.connect(tmp_path / "root") as engine:
        engine.execute(_BEFORE)
        read: list[set[int]] = []
        real = feeds.own_definitions

        def own_definitions(connection: Any, value: Any, **options: Any) -> Any:
            read.append(set(value))
            return real(connection, value, **options)

        monkeypatch.setattr(feeds, "definitions", None)
        monkeypatch.setattr(feeds, "own_definitions", own_definitions)
        with pytest.raises(CyclicFeedsError, match="Rock would read itself: it reads View, which reads Rock"):
            engine.execute("create or replace feed Rock from View where n = 1;")
        with engine.workspace.catalog.read() as connection:
            jazz = feeds.feed_by_name(connection, "Jazz")
        assert jazz is not None
        assert all(jazz.id not in value for value in read)


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        (
            "News where " + " and ".join(f"n > {n}" for n in range(40)),
            "a query can have at most 20 conditions and feeds, this one has 41",
            "owner_query_conditions",
        ),
        (
            f"News where n in ({', '.join(map(str, range(60)))})",
            "a query can have at most 50 constants, this one has 60",
            "owner_query_constants",
        ),
    ],
)
def test_size_of_an_owners_query_is_limited(tmp_path: Path, query: str, message: str, hint: str) -> None:
    limits: dict[str, Any] = {"owner_query_conditions": 20, "owner_query_constants": 50}
    with runnel.connect(tmp_path / "root", **limits) as engine:
        engine.execute("register feed News;")
        engine.owners.add("ada")
        statement = f"create feed Large from {query};"
        with pytest.raises(StatementError, match=message) as refused:
            engine.acting_as("ada").execute(statement)
        assert hint in (refused.value.hint or "")
        assert refused.value.span is not None
        engine.execute(statement)  # the admin has no such limit


def test_size_of_an_owners_script_is_limited(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", owner_script_conditions=30) as engine:
        engine.execute("register feed News;")
        engine.owners.add("ada")
        script = "".join(f"create feed Q{n} from News where n in (1, 2, 3);\n" for n in range(7))
        with pytest.raises(StatementError, match="more than 30 conditions and constants in all") as refused:
            engine.acting_as("ada").execute(script)
        assert refused.value.span is not None
        assert refused.value.span.line == 7
        assert [row["name"] for row in engine.acting_as("ada").show("feeds").to_json()["feeds"]] == ["News"]


def test_number_of_changes_in_an_owners_script_is_limited(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", owner_script_changes=2) as engine:
        engine.execute("register feed News;")
        engine.owners.add("ada")
        ada = engine.acting_as("ada")
        ada.execute("".join(f"create feed Q{n} from News;" for n in range(5)))
        script = "create or replace feed Q0 from News where n = 1;\ndrop feed Q1;\npause feed Q2;\n"
        with pytest.raises(StatementError, match="a script can contain at most 2 declarations that") as refused:
            ada.execute(script)
        assert refused.value.span is not None
        assert refused.value.span.line == 3
        ada.execute(script.rpartition("pause")[0])
        engine.execute("register feed A; register feed B; register feed C; drop feed A; drop feed B; drop feed C;")


def assert_plan_is_current(engine: Engine) -> None:
    """Assert that the plan contains the live queries, with the same start sequences."""
    with engine.workspace.catalog.read() as connection:
        since = feeds.since_of(connection)
        current = plan_versions.current_plan(connection)
    assert current is not None
    plan = load(engine.workspace.storage, PlanVersion.of(current))
    planned: dict[int, int] = {}
    for part in plan.parts:
        rows = zip(
            part.queries.query_ids.tolist(), part.queries.query_since.tolist(), plan.removed(part), strict=True
        )
        planned |= {query: start for query, start, gone in rows if not gone and query < 1 << 61}
    assert planned == since
    assert current.queries == len(planned)


def test_a_large_query_is_not_compiled_again_with_every_later_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runnel.connect(tmp_path / "root") as engine:
        engine.execute(_BEFORE)
        words = " or ".join(f"title contains 'word{n}'" for n in range(200))
        monkeypatch.setattr(plan_change, "_DELTA_BYTES", 20_000)
        engine.execute(f"create feed Large from News where {words}; subscribe to Large output log;")
        compiled: list[int] = []
        real = plan_change.compile_plan

        def compile_plan(root: Any, change: plan_change.PlanChange) -> Any:
            compiled.append(len(change.queries))
            return real(root, change)

        monkeypatch.setattr(commit_change, "compile_plan", compile_plan)
        for number in range(3):
            engine.execute(f"create feed S{number} from News where n = {number}; subscribe to S{number} output log;")
        assert compiled == [2, 1, 2], "the second merges the large query into the base"
        assert_plan_is_current(engine)
