"""Cut plans: together they match like the whole plan, and each contains exactly what its queries need."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.test_matchers import TINY, all_queries, expected, graph_worlds, tree_worlds
from tests.unit.matching.gates.gated_worlds import GatedWorld, gated_worlds
from tests.unit.matching.graphs import test_bind as bound
from tests.unit.matching.operators.decide import test_decider as operated
from tests.unit.matching.operators.decide.operator_worlds import OperatorWorld, operator_worlds
from tests.unit.optimizer.evaluate_draft import evaluate_logical
from tests.unit.optimizer.generated_worlds import GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.query import Gated, Node, Read
from runnel.algebra.semantics.distinct import Distinct
from runnel.arrays import Array, Texts
from runnel.errors import RunnelError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.matching.gates.claims import Claims, GateKeeper
from runnel.matching.gates.resolve_gates import resolve_gates
from runnel.model.gate_state import GateState
from runnel.model.item import Item
from runnel.optimizer.optimize import optimize
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.plan.gates import GateTable, disjunct_id, query_of, visible
from runnel.plan.logical_plan import EXACT, FormulaKind, LogicalPlan, PlanQuery
from runnel.plan.operator_table import OperatorDisjunct, OperatorTable, TermLiteral
from runnel.plan.pattern_bindings import NamedPattern, PatternBindings
from runnel.plan.store import Plan, PlanVersion, load
from runnel.plan.validate import validate
from runnel.scaleout.divide.cut_plan import cut_plan
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-cut-")
STORAGE = FileStorage(Path(_root.name).as_uri())
CASES = settings(max_examples=30, deadline=None, derandomize=True)
FEW = settings(max_examples=10, deadline=None, derandomize=True)
NO_TOMBSTONES = np.empty(0, dtype=np.int64)


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def parts_of(logical: LogicalPlan, data: st.DataObject) -> list[LogicalPlan]:
    """Cut a plan into random parts. A query and its disjuncts are in the same part."""
    owners = query_of(logical.query_ids)
    count = data.draw(st.integers(1, 4))
    dealt = {value: data.draw(st.integers(0, count - 1)) for value in np.unique(owners).tolist()}
    places = np.array([dealt[owner] for owner in owners.tolist()], dtype=np.int64)
    parts = [cut_plan(logical, places == part) for part in range(count)]
    for part, value in enumerate(parts):
        validate("part", value, NO_TOMBSTONES)
        assert value.query_ids.tolist() == logical.query_ids[places == part].tolist()
        assert value.query_since.tolist() == logical.query_since[places == part].tolist()
        assert value.costs == ()
        check_dense(value)
    return parts


def check_dense(part: LogicalPlan) -> None:
    """Check that everything in a part is used."""
    assert set(part.target_predicates.tolist()) == set(range(len(part.predicates)))
    assert set(part.target_scopes.tolist()) == set(range(len(part.scopes)))
    assert set(part.predicates.values.tolist()) == set(range(len(part.clauses)))
    assert all(part.targets.lists())
    kinds = part.formula_kinds[np.repeat(np.arange(len(part.formulas)), part.formulas.lengths)]
    roots = part.predicate_formulas[part.predicate_formulas != EXACT]
    inner = part.formulas.values[kinds > FormulaKind.LITERAL]
    assert {*roots.tolist(), *inner.tolist()} == set(range(len(part.formulas)))
    literals = np.concatenate([part.clauses.values, part.formulas.values[kinds == FormulaKind.LITERAL]])
    graphs = part.bound_patterns
    named = graphs.atoms[graphs.atoms >= 0]
    assert {*(literals >> 1).tolist(), *named.tolist()} == set(range(len(part.atoms)))
    assert set(graphs.names.tolist()) == set(range(len(graphs.name_texts)))
    assert set((-1 - graphs.atoms[graphs.atoms < 0]).tolist()) == set(range(len(graphs.wholes)))
    assert set((part.operators.literals.values >> 1).tolist()) == set(range(len(part.operators.terms)))


def same(logical_plan: LogicalPlan, other: LogicalPlan) -> bool:
    """Return whether two plans have the same arrays."""
    left, right = logical_plan.arrays(), other.arrays()
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and np.array_equal(left[name], right[name]) for name in left
    )


def everything(logical: LogicalPlan) -> Array:
    return np.ones(len(logical.query_ids), dtype=bool)


def loaded(logical: LogicalPlan) -> Plan:
    folder = f"part-{next(_folders)}"
    compile_logical(STORAGE, folder, logical)
    return load(STORAGE, PlanVersion(1, folder))


@CASES
@given(worlds(), st.sampled_from([None, TINY]), st.data())
def test_parts_together_match_like_the_whole_plan(
    world: GeneratedWorld, limits: OptimizerSettings | None, data: st.DataObject
) -> None:
    whole = optimize(all_queries(world, 2), world.definitions, settings=limits)
    parts = parts_of(whole, data)
    for feed, attributes in zip(world.batch.feeds.tolist(), world.batch.attributes(), strict=True):
        results = [value for part in parts for value in evaluate_logical(part, feed, attributes)]
        assert sorted(results) == sorted(evaluate_logical(whole, feed, attributes))


@CASES
@given(worlds(), st.sampled_from([None, TINY]))
def test_cut_with_all_queries_returns_the_same_plan(world: GeneratedWorld, limits: OptimizerSettings | None) -> None:
    whole = optimize(all_queries(world), world.definitions, settings=limits)
    once = cut_plan(whole, everything(whole))
    check_dense(once)
    assert same(cut_plan(once, everything(once)), once)
    # Parts that no query uses are dropped, and the rest is unchanged.
    assert once.targets.values.tolist() == whole.targets.values.tolist()
    used = np.unique(np.concatenate([whole.clauses.values, *_literals(whole)]) >> 1)
    assert set(once.atoms.texts()) <= {whole.atoms.text(value) for value in used.tolist()}
    assert not len(cut_plan(whole, ~everything(whole)).atoms)


def _literals(logical: LogicalPlan) -> Iterator[Array]:
    yield from (logical.formulas.row(value) for value in np.flatnonzero(logical.formula_kinds == 1).tolist())


@FEW
@given(st.one_of(worlds(), graph_worlds, tree_worlds), st.data())
def test_every_matcher_can_match_parts(world: GeneratedWorld, data: st.DataObject) -> None:
    queries = all_queries(world, 2)
    parts = parts_of(optimize(queries, world.definitions), data)
    matches = [build_matcher(loaded(part)).match(world.batch) for part in parts]
    arrays = [
        sorted(np.concatenate([match.row(row) for match in matches]).tolist()) for row in range(len(world.batch))
    ]
    assert arrays == expected(world.batch, queries, world.definitions)


@FEW
@given(gated_worlds(), st.data())
def test_gates_apply_to_readers_in_other_parts(world: GatedWorld, data: st.DataObject) -> None:
    # Some feeds are only read by others. They are not queries, but have disjuncts.
    feeds = data.draw(st.lists(st.sampled_from(sorted(world.since)), min_size=1, unique=True))
    chosen = replace(world, since={feed: world.since[feed] for feed in sorted(feeds)})
    whole = optimize([PlanQuery(*value) for value in chosen.since.items()], world.definitions)
    parts = parts_of(whole, data)
    known = {gate.feed: gate for gate in whole.gates.gates()}
    for part in parts:
        gates = {gate.feed: gate for gate in part.gates.gates()}
        needed = {*query_of(part.query_ids).tolist(), *part.gates.gate_feeds.tolist()} & known.keys()
        assert needed <= gates.keys()
        assert gates.items() <= known.items()
    plans = [loaded(part) for part in parts if len(part.query_ids)]
    got = _resolved(plans, chosen)
    # A feed that is only read by others counts items from the start.
    wanted = replace(world, since=chosen.since).expected()
    assert got == {sequence: results & chosen.since.keys() for sequence, results in wanted.items()}


def _resolved(plans: Sequence[Plan], world: GatedWorld) -> dict[int, set[int]]:
    """Return the matches after resolving the claims of all parts together."""
    workers = [(build_matcher(plan), GateKeeper(plan)) for plan in plans]
    seen: dict[bytes, GateState] = {}
    results: dict[int, set[int]] = {}
    for batch in world.batches():
        taken = [keeper.take_out(batch, matcher.match(batch)) for matcher, keeper in workers]
        sealed = [Claims.decode(claims.encode()) for _, claims in taken]
        gates = resolve_gates(Claims.of([entry.at_gates() for entry in sealed]), lambda keys: seen)
        seen.update((state.key, state) for state in gates.states)
        for row, sequence in enumerate(batch.sequences.tolist()):
            rows = [matches.row(row).tolist() for matches, _ in taken]
            results[sequence] = {element for value in rows for element in value}
        for claims in sealed:
            for sequence, query in zip(*(column.tolist() for column in gates.matches(claims)), strict=True):
                results[sequence].add(query)
    return results


@FEW
@given(operator_worlds((0, 3)), st.data())
def test_parts_contain_the_operators_of_their_queries(world: OperatorWorld, data: st.DataObject) -> None:
    queries = sorted(world.definitions)
    whole = optimize([PlanQuery(query) for query in queries], world.definitions)
    parts = parts_of(whole, data)
    disjuncts = [part.operators.disjuncts() for part in parts]
    assert {
        disjunct: element for value in disjuncts for disjunct, element in value.items()
    } == whole.operators.disjuncts()
    results = [operated.rows(operated.decided(loaded(part), world, "adaptive")[0]) for part in parts]
    together = [sorted(element for rows in results for element in rows[row]) for row in range(len(world.batch))]
    assert together == operated.expected(world, queries)


@FEW
@given(bound.worlds(), st.data())
def test_variables_of_graphs_are_bound_in_parts(
    world: tuple[dict[int, Node], tuple[Item, ...]], data: st.DataObject
) -> None:
    definitions, items = world
    batch, queries = bound.batch_of(items), sorted(definitions)
    parts = parts_of(optimize([PlanQuery(query) for query in queries], definitions), data)
    messages = [bound.told(loaded(part), batch, bound.Asked()) for part in parts]
    matches, bindings = bound.expected(definitions, queries, batch)
    assert [sorted(value for rows, _ in messages for value in rows[row]) for row in range(len(batch))] == matches
    assert {key: value for _, values in messages for key, value in values.items()} == bindings


def by_hand() -> LogicalPlan:
    """Return queries with gates, operators and graph patterns whose atoms are used only for bindings."""
    definitions: dict[int, Node] = {
        10: Gated(Read(1), Distinct((Attribute("title"),), timedelta(days=1))),
        11: Gated(Read(10), Distinct((Attribute("price"),), timedelta(days=1))),
        12: Read(11),
        13: Read(1),
    }
    plan = optimize([PlanQuery(definition) for definition in definitions], definitions)
    graphs = {
        12: [NamedPattern("g", ("p",)), NamedPattern("all")],
        13: [NamedPattern("h", ("q",)), NamedPattern("h", ("r",))],
    }
    disjuncts = {
        disjunct_id(12, 5): OperatorDisjunct(12, (TermLiteral("t", False, ("x",)), TermLiteral("u", True))),
        disjunct_id(13, 5): OperatorDisjunct(13, (TermLiteral("u"),)),
    }
    return replace(
        plan,
        atoms=Texts.of(["unused", "g", "h"]),
        bound_patterns=PatternBindings.of(graphs, {"g": 1, "h": 2}),
        operators=OperatorTable.of(disjuncts),
    )


def test_atoms_used_only_for_bindings_are_kept() -> None:
    whole = by_hand()
    last = cut_plan(whole, query_of(whole.query_ids) == 13)
    assert list(last.atoms.texts()) == ["h"]
    assert last.bound_patterns.patterns(last.atoms) == {13: [NamedPattern("h", ("q",)), NamedPattern("h", ("r",))]}
    assert last.operators.disjuncts() == {disjunct_id(13, 5): OperatorDisjunct(13, (TermLiteral("u"),))}
    assert list(last.operators.terms.texts()) == ["u"]
    assert last.gates.arrays() == {}
    reader = cut_plan(whole, query_of(whole.query_ids) == 12)
    assert list(reader.atoms.texts()) == ["g"]
    assert list(reader.bound_patterns.wholes.texts()) == ["all"]
    assert reader.operators.disjuncts()[disjunct_id(12, 5)].literals == (
        TermLiteral("t", False, ("x",)),
        TermLiteral("u", True),
    )
    # The disjunct of the reader passes the second gate, which depends on the first.
    assert [gate.feed for gate in reader.gates.gates()] == [10, 11]
    assert query_of(reader.gates.disjuncts).tolist() == [12]
    assert GateTable.stored(reader.gates.arrays()).gates() == reader.gates.gates()
    assert visible(reader.query_ids).tolist() == visible(whole.query_ids[query_of(whole.query_ids) == 12]).tolist()
    with pytest.raises(RunnelError, match="the mask has 2 entries"):
        cut_plan(whole, np.array([True, False]))
