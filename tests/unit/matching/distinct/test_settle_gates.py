"""Distinct feeds in plans: whatever is base, delta or merged, answers are those of the reference evaluator."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.matching.distinct.distinct_worlds import (
    FIRST,
    SOURCES,
    START,
    DistinctWorld,
    batch_of,
    distinct_worlds,
    nodes,
    readers_of,
)

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Compare
from runnel.algebra.nodes.query import Distinct, Filter, Node, Read, Union
from runnel.algebra.semantics.evaluate_log import LoggedItem
from runnel.errors import CorruptDataError, RunnelError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta, compile_merged
from runnel.matching.distinct.claims import Claims, GateKeeper
from runnel.matching.distinct.settle_gates import OrderedMatcher, settle_gates
from runnel.model.match import Failure, Matches
from runnel.optimizer.optimize import optimize
from runnel.plan.gates import NO_GATE, Gate, GateTable, disjunct_id, query_of, visible
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

TITLE = Attribute("title")


def answers(plan: Plan, world: DistinctWorld) -> dict[int, set[int]]:
    matcher = OrderedMatcher(plan, build_matcher(plan))
    found: dict[int, set[int]] = {}
    for batch in world.batches():
        matches = matcher.match(batch)
        for row, sequence in enumerate(batch.sequences.tolist()):
            ids = matches.row(row).tolist()
            assert ids == sorted(set(ids))
            found[sequence] = set(ids)
    return found


def queries(world: DistinctWorld, feeds: set[int] | None = None) -> list[PlanQuery]:
    return [PlanQuery(feed, since) for feed, since in world.since.items() if feeds is None or feed in feeds]


@given(distinct_worlds())
@settings(deadline=None, max_examples=40)
def test_a_base_answers_as_the_evaluator_does(world: DistinctWorld) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", queries(world), world.definitions)
        assert answers(load(storage, PlanVersion(1, "base")), world) == world.expected()


@given(distinct_worlds(), st.data())
@settings(deadline=None, max_examples=30)
def test_a_delta_and_what_is_merged_from_it_answer_alike(world: DistinctWorld, data: st.DataObject) -> None:
    """The base has some of the feeds, one of them with another definition; the delta has the rest and its readers."""
    feeds = sorted(world.definitions)
    in_base = set(feeds[: data.draw(st.integers(1, len(feeds)))])
    changed = data.draw(st.sampled_from(sorted(in_base)))
    before = dict(world.definitions)
    before[changed] = data.draw(nodes([*SOURCES, *(one for one in feeds if one < changed)]))
    redefined = readers_of(changed, world.definitions) if before[changed] != world.definitions[changed] else set()
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", queries(world, in_base), before)
        added = (set(feeds) - in_base) | redefined
        compile_delta(storage, "delta", queries(world, added), world.definitions, redefined & in_base, "base")
        plan = load(storage, PlanVersion(1, "base", "delta"))
        expected = world.expected()
        assert answers(plan, world) == expected
        compile_merged(storage, "merged", plan)
        merged = load(storage, PlanVersion(2, "merged"))
        assert answers(merged, world) == expected
        assert visible(merged.base.logical.query_ids).tolist() == feeds


@given(distinct_worlds())
@settings(deadline=None, max_examples=20)
def test_a_feed_compiled_alone_has_its_gates_and_shows_itself_only(world: DistinctWorld) -> None:
    last = max(world.definitions)
    alone = DistinctWorld(world.definitions, {last: 0}, world.items, world.cuts)
    with tempfile.TemporaryDirectory() as folder:
        storage = FileStorage(Path(folder).as_uri())
        compile_base(storage, "base", queries(alone), world.definitions)
        assert answers(load(storage, PlanVersion(1, "base")), alone) == alone.expected()


def test_diamonds_and_chains_of_distinct_feeds_do_not_explode(tmp_path: Path) -> None:
    definitions: dict[int, Node] = {}
    below = 1
    for level in range(40):
        left, right, top = 100 + 3 * level, 101 + 3 * level, 102 + 3 * level
        definitions[left] = Distinct(Read(below), (TITLE,), timedelta(days=1))
        definitions[right] = Distinct(
            Filter(Read(below), Compare(Attribute("price"), "<", 9.0)), (TITLE,), timedelta(1)
        )
        definitions[top] = Union((Read(left), Read(right)))
        below = top
    logical = optimize([PlanQuery(one) for one in definitions], definitions)
    assert len(logical.gates.way_ids) <= 6 * 40
    chain: dict[int, Node] = {FIRST: Distinct(Read(1), (TITLE,), timedelta(1))}
    chain |= {feed: Distinct(Read(feed - 1), (TITLE,), timedelta(1)) for feed in range(FIRST + 1, FIRST + 2000)}
    gates = optimize([PlanQuery(FIRST + 1999)], chain).gates.gates()
    assert [gate.feed for gate in gates] == sorted(chain)


def test_a_plan_without_distinct_feeds_has_nothing_of_it(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    manifest = compile_base(storage, "base", [PlanQuery(7)], {7: Read(1)})
    assert not [name for name in manifest.arrays if name.startswith(("ways", "gates"))]
    keeper = GateKeeper(load(storage, PlanVersion(1, "base")))
    assert not keeper.is_needed


def test_another_definition_is_another_history() -> None:
    def history(definitions: dict[int, Node], since: int = 0) -> bytes:
        gates = optimize([PlanQuery(9, since)], definitions).gates.gates()
        return next(gate.history for gate in gates if gate.feed == 9)

    view: Node = Filter(Read(1), Compare(Attribute("price"), "<", 9.0))
    day = timedelta(days=1)
    first = history({8: view, 9: Distinct(Read(8), (TITLE,), day)})
    assert first == history({7: Read(1), 8: view, 9: Distinct(Read(8), (TITLE,), day)})
    others = [
        history({8: Read(1), 9: Distinct(Read(8), (TITLE,), day)}),
        history({8: view, 9: Distinct(Read(8), (Attribute("link"),), day)}),
        history({8: view, 9: Distinct(Read(8), (TITLE,), 2 * day)}),
        history({8: view, 9: Distinct(Read(8), (TITLE,), day)}, since=5),
    ]
    assert len({first, *others}) == 5


def test_claims_travel_as_bytes(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    definitions: dict[int, Node] = {9: Distinct(Read(1), (TITLE,), timedelta(days=1)), 10: Read(9)}
    compile_base(storage, "base", [PlanQuery(9), PlanQuery(10)], definitions)
    plan = load(storage, PlanVersion(1, "base"))
    keeper, matcher = GateKeeper(plan), build_matcher(plan)
    items = batch_of(_three())
    kept, claims = keeper.take_out(items, matcher.match(items))
    assert kept.total == 0
    assert len(claims) == 6
    opened = Claims.opened(claims.sealed())
    assert opened.rows.equals(claims.rows)
    assert opened.gates == claims.gates
    settled = settle_gates(opened.at_gates(), lambda keys: {})
    assert list(zip(*(column.tolist() for column in settled.matches(opened)), strict=True)) == [
        (1, 9),
        (1, 10),
        (3, 9),
        (3, 10),
    ]
    assert settled.stopped == {(9, 2): 1}
    assert Claims.of([]).sealed() == b""
    assert len(Claims.opened(b"")) == 0
    assert len(settle_gates(Claims.of([]), lambda keys: {}).matches(Claims.of([]))[0]) == 0


@pytest.mark.parametrize("later", [{}, {9: Read(1)}, {9: Distinct(Read(1), (TITLE,), timedelta(days=2))}])
def test_the_ways_of_a_query_end_with_it(tmp_path: Path, later: dict[int, Node]) -> None:
    """A delta may take away or replace the last distinct feed: nothing of it is matched any more."""
    storage = FileStorage(tmp_path.as_uri())
    definitions: dict[int, Node] = {8: Read(1), 9: Distinct(Read(1), (TITLE,), timedelta(days=1)), 10: Read(9)}
    compile_base(storage, "base", [PlanQuery(one) for one in definitions], definitions)
    compile_delta(storage, "delta", [PlanQuery(one) for one in later], later, [9, 10], "base")
    plan = load(storage, PlanVersion(2, "base", "delta"))
    found = build_matcher(plan).match(batch_of(_three()))
    assert set(query_of(found.queries).tolist()) == {8, *later}
    shown = OrderedMatcher(plan, build_matcher(plan)).match(batch_of(_three()))
    assert set(shown.queries.tolist()) == {8, *later}


def test_keys_that_count_no_more_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.matching.distinct.settle_gates._ENOUGH", 10)
    storage = FileStorage(tmp_path.as_uri())
    definitions: dict[int, Node] = {9: Distinct(Read(1), (TITLE,), timedelta(hours=1))}
    compile_base(storage, "base", [PlanQuery(9)], definitions)
    plan = load(storage, PlanVersion(1, "base"))
    matcher = OrderedMatcher(plan, build_matcher(plan))
    for day in range(50):
        moment = START + timedelta(days=day)
        logged = LoggedItem(day + 1, moment, 1, str(day), {"title": (f"title {day}",)})
        assert matcher.match(batch_of([logged])).total == 1
        again = LoggedItem(day + 1000, moment + timedelta(minutes=5), 1, "x", {"title": (f"title {day}",)})
        assert matcher.match(batch_of([again])).total == 0
    assert len(matcher._seen) <= 11


def _three() -> list[LoggedItem]:
    return [LoggedItem(n, START, 1, str(n), {"title": (title,)}) for n, title in enumerate(("a", "A", "b"), 1)]


def test_a_failing_way_is_a_failure_of_its_query(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    compile_base(storage, "base", [PlanQuery(9)], {9: Distinct(Read(1), (TITLE,), timedelta(days=1))})
    keeper = GateKeeper(load(storage, PlanVersion(1, "base")))
    failures = [
        Failure(0, disjunct_id(9, 0), "broken"),
        Failure(0, disjunct_id(9, 1), "broken"),
        Failure(1, 4, "odd"),
    ]
    kept, _ = keeper.take_out(batch_of(_three()), Matches.of([[], [], []], failures))
    assert kept.failures == (Failure(0, 9, "broken"), Failure(1, 4, "odd"))


def test_ways_have_numbers_of_their_own() -> None:
    ids = np.array([1, 1 << 40, disjunct_id(1, 0), disjunct_id(1 << 40, (1 << 20) - 1)])
    assert query_of(ids).tolist() == [1, 1 << 40, 1, 1 << 40]
    assert visible(ids).tolist() == [1, 1 << 40]
    for query, place in ((1, 1 << 20), (1 << 41, 0), (-1, 0)):
        with pytest.raises(RunnelError):
            disjunct_id(query, place)


def test_a_damaged_gate_is_refused() -> None:
    gate = Gate(9, (TITLE,), timedelta(days=1), 4, b"h" * 16)
    assert Gate.from_json(gate.to_json()) == gate
    changes: list[dict[str, object]] = [
        {"by": []},
        {"history": "00"},
        {"within": 0},
        {"within": "long"},
        {"feed": None},
        {"by": 3},
    ]
    for change in changes:
        with pytest.raises(CorruptDataError):
            Gate.from_json(gate.to_json() | change)
    with pytest.raises(CorruptDataError):
        Gate.from_json([])
    circle = {disjunct_id(9, 0): 8, disjunct_id(8, 0): 9}
    with pytest.raises(CorruptDataError, match="lead to themselves"):
        GateTable.of(circle, [gate, Gate(8, (TITLE,), timedelta(days=1), 4, b"h" * 16)])
    assert GateTable.of({disjunct_id(9, 0): NO_GATE}, [gate]).gates() == [gate]
