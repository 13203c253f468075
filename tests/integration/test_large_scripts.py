"""Large scripts are compiled before their transaction: the result is the same, and other writers are not blocked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.services import PostgreSQL, postgresql

import runnel
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.logs import plan_versions
from runnel.catalog.store import schema
from runnel.engine import Engine
from runnel.engine.declare import commit_change, script
from runnel.engine.planning import plan_change
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError, DuplicateNameError, QuotaExceededError, StatementError, UnknownNameError
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_script
from runnel.language.syntax.statements import Parsed
from runnel.matching.compile.build_matcher import build_matcher
from runnel.plan.gates import visible
from runnel.plan.store import PlanVersion, load

__all__ = ["postgresql"]

COUNT = script.LARGE


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """A function that opens engines on one workspace, each with its own connections."""
    made: list[Engine] = []
    server: PostgreSQL | None = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    options: dict[str, Any] = {} if server is None else {"catalog": server.schema()}

    def open_one() -> Engine:
        made.append(runnel.connect(tmp_path / "root", **options))
        return made[-1]

    yield open_one
    for entry in made:
        entry.close()


def many(prefix: str, count: int = COUNT, source: str = "News") -> str:
    return "".join(
        f"create feed {prefix}{n} from {source} where title contains 'w{n % 50}' and n > {n};\n"
        f"subscribe to {prefix}{n} output log;\n"
        for n in range(count)
    )


def check(engine: Engine) -> set[str]:
    """Assert that the plan contains the live queries, and that no feed reads a missing feed."""
    with engine.workspace.catalog.read() as connection:
        live = {feed.id: feed.name for feed in feeds.live_feeds(connection)}
        since = feeds.since_of(connection)
        current = plan_versions.current_plan(connection)
        read = connection.execute(select(schema.reads)).all()
        held = subscriptions.live_subscriptions(connection)
    assert {row.feed for row in read} | {row.source for row in read} <= live.keys()
    assert {item.feed for item in held} <= live.keys()
    planned: dict[int, int] = {}
    if current is not None:
        plan = load(engine.workspace.storage, PlanVersion.of(current))
        for part in plan.parts:
            for query, start, gone in zip(
                visible(part.logical.query_ids).tolist(),
                part.logical.query_since.tolist(),
                plan.removed(part).tolist(),
                strict=False,
            ):
                if not gone:
                    planned[query] = start
        assert current.queries == len(planned)
    assert planned == since
    return set(live.values())


def during_compiling(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> list[str]:
    """Run an action during each compilation of a change. Return the results."""
    happened: list[str] = []
    compile_plan = plan_change.compile_plan
    waiting = list(actions)

    def compiled(*arguments: Any) -> Any:
        happened.append("compiled")
        if waiting:
            waiting.pop(0)()
        return compile_plan(*arguments)

    monkeypatch.setattr(commit_change, "compile_plan", compiled)
    return happened


def batched(script: list[Parsed], size: int) -> Iterator[list[Parsed]]:
    return (script[start : start + size] for start in range(0, len(script), size))


def content(engine: Engine) -> dict[str, list[Any]]:
    """Return all declarations, without times and secrets."""
    left_out = {"created", "ticket", "plan", "due", "expires", "value"}
    tables = [schema.feeds, schema.revisions, schema.reads, schema.subscriptions, schema.cursors, schema.tags]
    with engine.workspace.catalog.read() as connection:
        return {
            table.name: sorted(
                repr({name: value for name, value in row._mapping.items() if name not in left_out})
                for row in connection.execute(select(table))
            )
            for table in [*tables, schema.signing_keys]
        }


SCRIPT = """
register feed News; register feed Other; register feed 'https://wire.example/feed' as Wire every 1 hour;
create feed Rock tagged music, loud from News where title contains 'rock';
create feed Both from Rock | Other as $o where $o[n > 5] and category in ('a', 3, true);
create feed Unread from Both where title contains 'unread';
subscribe to Both output webhook 'https://hook.example/in' every 2 hours for 3 days;
subscribe to Other output rss 'out.xml'; subscribe to Rock output log from last 2 days;
subscribe to Wire output mail 'me@mail.example';
"""


def test_large_script_has_the_same_result_as_small_ones(tmp_path: Path) -> None:
    text = SCRIPT + many("Q") + "create feed Late from Q7 | Both where n = 1; subscribe to Late output log;"
    with runnel.connect(tmp_path / "one") as value, runnel.connect(tmp_path / "many") as other:
        together = value.execute(text)
        parts = batched(parse(text), 40)
        apart = [
            outcome for part in parts for outcome in other.execute(print_script(entry.statement for entry in part))
        ]
        assert [outcome.message for outcome in together] == [outcome.message for outcome in apart]
        assert content(value) == content(other)
        assert check(value) == check(other)
        secrets = [outcome.to_json().get("key") for outcome in together if "key" in outcome.to_json()]
        assert secrets
        items = [{"id": str(n), "title": f"w{n} rock", "n": n} for n in range(60)]
        results = []
        for engine in (value, other):
            engine.publish("News", items)
            with engine.workspace.catalog.read() as connection:
                current = plan_versions.current_plan(connection)
            assert current is not None
            plan = load(engine.workspace.storage, PlanVersion.of(current))
            (batch,) = engine.workspace.items.get(list(range(1, 61)))
            matches = build_matcher(plan).match(batch)
            results.append([sorted(matches.row(row).tolist()) for row in range(len(batch))])
        assert results[0] == results[1]
        assert any(results[0])


def test_other_writers_work_while_a_large_script_is_declared(
    opened: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = opened(), opened()
    engine.execute("register feed News;")
    happened = during_compiling(monkeypatch, lambda: other.publish("News", [{"id": "1"}, {"id": "2"}]))
    engine.execute(many("Q"))
    assert happened == ["compiled"]
    check(engine)
    with engine.workspace.catalog.read() as connection:
        assert set(feeds.since_of(connection).values()) == {2}, "a query counts after what was accepted before it"


def test_writer_is_never_blocked_for_long(opened: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, other = opened(), opened()
    engine.execute("register feed News;")
    enough, stop = threading.Event(), threading.Event()
    accepted: list[int] = []

    def write() -> None:
        number = 0
        while not stop.wait(0.003):
            number += 1
            accepted.append(other.publish("News", [{"id": str(number)}]).last_sequence or 0)
            if number >= 5:
                enough.set()

    during_compiling(monkeypatch, lambda: enough.wait(60))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        engine.execute(many("Q"))
    finally:
        stop.set()
        writer.join()
    assert enough.is_set(), "nobody could write before the script was declared"
    assert accepted == list(range(1, len(accepted) + 1))
    check(engine)


def test_concurrent_declarations_are_not_lost(opened: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, other = opened(), opened()
    engine.execute("register feed News;")
    happened = during_compiling(
        monkeypatch,
        lambda: other.execute("create feed Mine from News where n = 1; subscribe to Mine output log;"),
    )
    engine.execute(many("Q"))
    assert happened == ["compiled"] * 3, "prepared, declared by the other, prepared again"
    assert check(engine) == {"News", "Mine", *(f"Q{n}" for n in range(COUNT))}


@pytest.mark.parametrize(
    ("meanwhile", "error", "message"),
    [
        ("create feed Q7 from News;", DuplicateNameError, "a feed Q7 already exists"),
        ("drop feed News;", UnknownNameError, "there is no feed News"),
    ],
)
def test_script_invalidated_by_a_concurrent_change_is_refused_completely(
    opened: Callable[[], Engine],
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: str,
    error: type[StatementError],
    message: str,
) -> None:
    engine, other = opened(), opened()
    engine.execute("register feed News;")
    during_compiling(monkeypatch, lambda: other.execute(meanwhile))
    with pytest.raises(error, match=message):
        engine.execute(many("Q"))
    assert check(engine) == {"News", "Q7"} if "Q7" in meanwhile else check(engine) == set()
    with engine.workspace.catalog.read() as connection:
        assert not connection.execute(select(schema.subscriptions)).all()


def test_name_is_resolved_again_after_a_concurrent_change(
    opened: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = opened(), opened()
    engine.execute("register feed News;")
    during_compiling(monkeypatch, lambda: other.execute("drop feed News; register feed News;"))
    engine.execute(many("Q"))
    check(engine)


def test_large_script_takes_a_turn_after_conflicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with runnel.connect(tmp_path / "root") as engine, runnel.connect(tmp_path / "root") as other:
        engine.execute("register feed News;")
        declared: list[str] = []

        def declare() -> None:
            declared.append(f"More{len(declared)}")
            other.execute(f"register feed {declared[-1]};")

        happened = during_compiling(monkeypatch, declare, declare, declare)
        engine.execute(many("Q"))
        assert happened == ["compiled"] * 4
        assert check(engine) == {"News", "More0", "More1", "More2", *(f"Q{n}" for n in range(COUNT))}


def test_plan_deleted_during_the_script_is_not_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer plan was published while the script was prepared, so the older plan was deleted."""
    real, tries = plan_change.compile_plan, list[str]()

    def gone(root: Workspace, change: plan_change.PlanChange) -> plan_change.CompiledChange:
        tries.append("compiled")
        if len(tries) == 1:
            with runnel.connect(tmp_path / "root") as other:
                other.execute("create feed Other from News; subscribe to Other output log;")
            raise CorruptDataError("plans/1/manifest.json cannot be read")
        return real(root, change)

    with runnel.connect(tmp_path / "root") as engine:
        engine.execute("register feed News;")
        monkeypatch.setattr(commit_change, "compile_plan", gone)
        engine.execute(many("Q"))
        assert {"Other", "Q0", f"Q{COUNT - 1}"} <= check(engine)
        assert len(tries) == 3, "the first, the other client's, and the second"
        monkeypatch.setattr(commit_change, "compile_plan", lambda root, change: gone(root, change) and _raise())
        with pytest.raises(CorruptDataError):
            engine.execute(many("R"))


def _raise() -> plan_change.CompiledChange:
    raise CorruptDataError("plans/2/manifest.json cannot be read")


def test_error_in_a_large_script_is_the_same_as_in_a_small_one(opened: Callable[[], Engine]) -> None:
    engine = opened()
    engine.execute("register feed News;")
    before = content(engine)
    text = many("Q") + "create feed Bad from Nwes;"
    with pytest.raises(UnknownNameError) as refused:
        engine.execute(text)
    assert refused.value.span is not None
    assert (refused.value.span.line, refused.value.hint) == (2 * COUNT + 1, "did you mean News?")
    with pytest.raises(DuplicateNameError, match="a feed Q0 already exists"):
        engine.execute(many("Q") + "create feed Q0 from News;")
    with pytest.raises(DuplicateNameError, match="writes into"):
        engine.execute(many("Q") + "subscribe to Q0 output rss 'a.xml'; subscribe to Q1 output rss 'a.xml';")
    assert content(engine) == before
    engine.execute("create feed Next from News; subscribe to Next output log;")
    check(engine)


def test_large_script_respects_quotas(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", owner_queries=COUNT // 2) as engine:
        engine.execute("register feed News;")
        engine.owners.add("ada")
        with pytest.raises(QuotaExceededError):
            engine.acting_as("ada").execute(many("Q"))
        assert check(engine) == {"News"}


def test_large_script_with_replacements_is_one_transaction(opened: Callable[[], Engine]) -> None:
    engine = opened()
    engine.execute("register feed News; create feed Old from News; subscribe to Old output log;")
    engine.execute(
        many("Q")
        + "create or replace feed Q3 from Old where n = 9; drop feed Q4 cascade; pause feed Q5;"
        + "create feed After from Q3; subscribe to After output log; unsubscribe from Q6;"
    )
    names = check(engine)
    assert {"After", "Q3"} <= names
    assert "Q4" not in names


def test_concurrent_declarers_all_succeed(opened: Callable[[], Engine]) -> None:
    """Two clients declare large scripts while a third one creates and drops single feeds."""
    opened().execute("register feed News;")
    engines = [opened() for _ in range(3)]
    failed: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        return run

    def large(number: int) -> None:
        for turn in range(2):
            engines[number].execute(many(f"L{number}x{turn}x"))

    def small() -> None:
        for turn in range(12):
            engines[2].execute(f"create feed S{turn} from News where n = {turn}; subscribe to S{turn} output log;")
            if turn % 3 == 2:
                engines[2].execute(f"drop feed S{turn - 1} cascade;")

    threads = [threading.Thread(target=guarded(work)) for work in (lambda: large(0), lambda: large(1), small)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    names = check(engines[0])
    assert {f"L{value}x{turn}x{n}" for value in (0, 1) for turn in (0, 1) for n in range(COUNT)} <= names
    assert {name for name in names if name[0] == "S"} == {f"S{turn}" for turn in range(12) if turn % 3 != 1}
