"""Gates of distinct feeds in plans: ids of disjuncts, histories, claims, and gates in bases and deltas."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.unit.matching.gates.gated_worlds import (
    FIRST,
    START,
    batch_of,
)

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Compare
from runnel.algebra.nodes.gate_rules import LoggedItem, Stop
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union
from runnel.algebra.semantics.distinct import Distinct
from runnel.errors import CorruptDataError, RunnelError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta, compile_merged
from runnel.matching.gates.claims import Claims, GateKeeper
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.matching.gates.resolve_gates import resolve_gates
from runnel.model.match import Failure, Matches
from runnel.optimizer.optimize import optimize
from runnel.plan.gates import NO_GATE, Gate, GateTable, disjunct_id, query_of, visible
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.storage.file_storage import FileStorage

TITLE = Attribute("title")


def test_nested_distinct_feeds_have_few_disjuncts_and_ordered_gates(tmp_path: Path) -> None:
    definitions: dict[int, Node] = {}
    source = 1
    for level in range(40):
        left, right, top = 100 + 3 * level, 101 + 3 * level, 102 + 3 * level
        definitions[left] = Gated(Read(source), Distinct((TITLE,), timedelta(days=1)))
        definitions[right] = Gated(
            Filter(Read(source), Compare(Attribute("price"), "<", 9.0)), Distinct((TITLE,), timedelta(1))
        )
        definitions[top] = Union((Read(left), Read(right)))
        source = top
    logical = optimize([PlanQuery(feed) for feed in definitions], definitions)
    assert len(logical.gates.disjuncts) <= 6 * 40
    chain: dict[int, Node] = {FIRST: Gated(Read(1), Distinct((TITLE,), timedelta(1)))}
    chain |= {
        feed: Gated(Read(feed - 1), Distinct((TITLE,), timedelta(1))) for feed in range(FIRST + 1, FIRST + 2000)
    }
    gates = optimize([PlanQuery(FIRST + 1999)], chain).gates.gates()
    assert [gate.feed for gate in gates] == sorted(chain)


def test_plan_without_distinct_feeds_has_no_gate_arrays(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    manifest = compile_base(storage, "base", [PlanQuery(7)], {7: Read(1)})
    assert not [name for name in manifest.arrays if name.startswith(("disjuncts", "gates"))]
    keeper = GateKeeper(load(storage, PlanVersion(1, "base")))
    assert not keeper.is_needed


def test_history_changes_with_definition_and_start() -> None:
    def history(definitions: dict[int, Node], since: int = 0) -> bytes:
        gates = optimize([PlanQuery(9, since)], definitions).gates.gates()
        return next(gate.history for gate in gates if gate.feed == 9)

    view: Node = Filter(Read(1), Compare(Attribute("price"), "<", 9.0))
    day = timedelta(days=1)
    first = history({8: view, 9: Gated(Read(8), Distinct((TITLE,), day))})
    assert first == history({7: Read(1), 8: view, 9: Gated(Read(8), Distinct((TITLE,), day))})
    others = [
        history({8: Read(1), 9: Gated(Read(8), Distinct((TITLE,), day))}),
        history({8: view, 9: Gated(Read(8), Distinct((Attribute("link"),), day))}),
        history({8: view, 9: Gated(Read(8), Distinct((TITLE,), 2 * day))}),
        history({8: view, 9: Gated(Read(8), Distinct((TITLE,), day))}, since=5),
    ]
    assert len({first, *others}) == 5


def test_claims_survive_encoding_and_resolve_to_matches(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    definitions: dict[int, Node] = {9: Gated(Read(1), Distinct((TITLE,), timedelta(days=1))), 10: Read(9)}
    compile_base(storage, "base", [PlanQuery(9), PlanQuery(10)], definitions)
    plan = load(storage, PlanVersion(1, "base"))
    keeper, matcher = GateKeeper(plan), build_matcher(plan)
    items = batch_of(_three_items())
    kept, claims = keeper.take_out(items, matcher.match(items))
    assert kept.total == 0
    assert len(claims) == 6
    decoded = Claims.decode(claims.encode())
    assert decoded.rows.equals(claims.rows)
    assert decoded.gates == claims.gates
    resolved = resolve_gates(decoded.at_gates(), lambda keys: {})
    assert list(zip(*(column.tolist() for column in resolved.matches(decoded)), strict=True)) == [
        (1, 9),
        (1, 10),
        (3, 9),
        (3, 10),
    ]
    assert resolved.stopped == {(9, 2): Stop(1)}
    assert Claims.of([]).encode() == b""
    assert len(Claims.decode(b"")) == 0
    assert len(resolve_gates(Claims.of([]), lambda keys: {}).matches(Claims.of([]))[0]) == 0


@pytest.mark.parametrize("later", [{}, {9: Read(1)}, {9: Gated(Read(1), Distinct((TITLE,), timedelta(days=2)))}])
def test_disjuncts_of_removed_or_replaced_query_do_not_match(tmp_path: Path, later: dict[int, Node]) -> None:
    """A delta may remove or replace the last distinct feed of the base."""
    storage = FileStorage(tmp_path.as_uri())
    definitions: dict[int, Node] = {8: Read(1), 9: Gated(Read(1), Distinct((TITLE,), timedelta(days=1))), 10: Read(9)}
    compile_base(storage, "base", [PlanQuery(feed) for feed in definitions], definitions)
    compile_delta(storage, "delta", [PlanQuery(feed) for feed in later], later, [9, 10], "base")
    plan = load(storage, PlanVersion(2, "base", "delta"))
    matches = build_matcher(plan).match(batch_of(_three_items()))
    assert set(query_of(matches.queries).tolist()) == {8, *later}
    ordered_matches = OrderedMatcher(plan, build_matcher(plan)).match(batch_of(_three_items()))
    assert set(ordered_matches.queries.tolist()) == {8, *later}


def test_gate_is_removed_when_its_feed_is_redefined_to_read_a_gated_feed(tmp_path: Path) -> None:
    """The feed still has disjuncts: now as a reader of the gated feed."""
    storage = FileStorage(tmp_path.as_uri())
    by_id = Gated(Read(1), Distinct())
    before: dict[int, Node] = {9: by_id, 10: Gated(Read(1), Distinct((TITLE,)))}
    compile_base(storage, "base", [PlanQuery(9), PlanQuery(10)], before)
    compile_delta(storage, "delta", [PlanQuery(10)], {9: by_id, 10: Read(9)}, [10], "base")
    plan = load(storage, PlanVersion(2, "base", "delta"))
    compile_merged(storage, "merged", plan)
    for version in (plan, load(storage, PlanVersion(3, "merged"))):
        assert [gate.feed for gate in version.gates.gates()] == [9]
        matches = OrderedMatcher(version, build_matcher(version)).match(batch_of(_three_items()))
        assert [matches.row(row).tolist() for row in range(3)] == [[9, 10]] * 3


def test_ordered_matcher_removes_expired_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.matching.gates.ordered_matcher._MIN_STATES", 10)
    storage = FileStorage(tmp_path.as_uri())
    definitions: dict[int, Node] = {9: Gated(Read(1), Distinct((TITLE,), timedelta(hours=1)))}
    compile_base(storage, "base", [PlanQuery(9)], definitions)
    plan = load(storage, PlanVersion(1, "base"))
    matcher = OrderedMatcher(plan, build_matcher(plan))
    for day in range(50):
        moment = START + timedelta(days=day)
        item = LoggedItem(day + 1, moment, 1, str(day), {"title": (f"title {day}",)})
        assert matcher.match(batch_of([item])).total == 1
        duplicate = LoggedItem(day + 1000, moment + timedelta(minutes=5), 1, "x", {"title": (f"title {day}",)})
        assert matcher.match(batch_of([duplicate])).total == 0
    assert len(matcher._states) <= 11


def _three_items() -> list[LoggedItem]:
    return [LoggedItem(n, START, 1, str(n), {"title": (title,)}) for n, title in enumerate(("a", "A", "b"), 1)]


def test_failures_of_disjuncts_are_reported_once_per_query(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    compile_base(storage, "base", [PlanQuery(9)], {9: Gated(Read(1), Distinct((TITLE,), timedelta(days=1)))})
    keeper = GateKeeper(load(storage, PlanVersion(1, "base")))
    failures = [
        Failure(0, disjunct_id(9, 0), "broken"),
        Failure(0, disjunct_id(9, 1), "broken"),
        Failure(1, 4, "odd"),
    ]
    kept, _ = keeper.take_out(batch_of(_three_items()), Matches.of([[], [], []], failures))
    assert kept.failures == (Failure(0, 9, "broken"), Failure(1, 4, "odd"))


def test_disjunct_ids_encode_the_query_and_are_range_checked() -> None:
    ids = np.array([1, 1 << 40, disjunct_id(1, 0), disjunct_id(1 << 40, (1 << 20) - 1)])
    assert query_of(ids).tolist() == [1, 1 << 40, 1, 1 << 40]
    assert visible(ids).tolist() == [1, 1 << 40]
    for query, number, message in (
        (1, 1 << 20, "more than 1,048,576 disjuncts"),
        (1 << 41, 0, "outside the range"),
        (-1, 0, "outside the range"),
    ):
        with pytest.raises(RunnelError, match=message):
            disjunct_id(query, number)


def test_invalid_gates_and_cyclic_gates_are_rejected() -> None:
    gate = Gate(9, Distinct((TITLE,), timedelta(days=1)), 4, b"h" * 16, True, b"d" * 16)
    assert Gate.from_json(gate.to_json()) == gate
    changes: list[dict[str, object]] = [
        {"rule": ["distinct", 86_400.0]},
        {"history": "00"},
        {"definition": "00"},
        {"rule": ["distinct", 0, "title"]},
        {"rule": ["distinct", "long", "title"]},
        {"feed": None},
        {"rule": ["distinct", 86_400.0, 3]},
        {"rule": ["unheard", 86_400.0, "title"]},
        {"rule": []},
    ]
    for change in changes:
        with pytest.raises(CorruptDataError):
            Gate.from_json(gate.to_json() | change)
    with pytest.raises(CorruptDataError):
        Gate.from_json([])
    cycle = {disjunct_id(9, 0): 8, disjunct_id(8, 0): 9}
    with pytest.raises(CorruptDataError, match="cyclic dependency"):
        GateTable.of(cycle, [gate, replace(gate, feed=8)])
    assert GateTable.of({disjunct_id(9, 0): NO_GATE}, [gate]).gates() == [gate]
