"""Costs of queries: more for frequent conditions, once for shared work, and together for expensive operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.matching.gates.gated_worlds import GatedWorld, gated_worlds
from tests.unit.matching.operators.decide.operator_worlds import OperatorWorld, operator_worlds

from runnel.algebra.graphs.edges import Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Constraint, Literally, Variable
from runnel.algebra.nodes.expressions import And, Contains, Expression, RegularExpression
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.arrays import Array, Texts
from runnel.errors import CorruptDataError
from runnel.matching.compile.expected_work import EACH_EVALUATION
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
from runnel.optimizer.optimize import optimize
from runnel.plan.gates import query_of
from runnel.plan.logical_plan import LogicalPlan, PlanQuery
from runnel.scaleout.cover.graph_cover import GRAPH_COVER
from runnel.scaleout.divide.assign_queries import assign_queries, weigh_assignment
from runnel.scaleout.divide.weigh_queries import COPY, EMIT, ENTRY, Weights, weigh_queries
from runnel.scaleout.planning.stream_knowledge import StreamKnowledge

GENERATED = settings(deadline=None, derandomize=True, max_examples=25)
SHARES = {"rock": 0.2, "jazz": 0.2, "opera": 0.01, "lute": 0.001, "all": 0.9}
TITLE = Attribute("title")


def _weights(
    definitions: Mapping[int, Node],
    *,
    matches: Array | None = None,
    milliseconds: Mapping[str, float] | None = None,
    known: StreamKnowledge | None = None,
) -> Weights:
    logical = optimize([PlanQuery(query) for query in definitions], definitions)
    return _weighed(logical, matches if known is None else known.matches(logical.query_ids), milliseconds)


def _weighed(
    logical: LogicalPlan, matches: Array | None = None, milliseconds: Mapping[str, float] | None = None
) -> Weights:
    """Return weights for a router whose conditions are the anchors of the predicates."""
    atoms = compute_atom_layout(logical, SHARES)
    anchors = choose_anchors(logical, atoms)
    clauses, conditions = np.unique(anchors.clauses, return_inverse=True)
    shares = np.minimum(1.0, np.append(anchors.clause_shares, 1.0)[clauses])  # -1: checked for all items
    return weigh_queries(
        logical, atoms, anchors, conditions, shares, matches=matches, operator_milliseconds=milliseconds
    )


def _asks(*words: str, source: int = 1) -> Node:
    conditions: tuple[Expression, ...] = tuple(Contains(TITLE, (word,)) for word in words)
    return Filter(Read(source), conditions[0] if len(words) == 1 else And(conditions))


def test_more_frequent_conditions_cost_more() -> None:
    weights = _weights({10: _asks("lute"), 11: _asks("opera"), 12: _asks("all")})
    assert weights.owners.tolist() == [10, 11, 12]
    assert np.all(np.diff(weights.microseconds) > 0)
    assert weights.own.tolist() == pytest.approx([EMIT * share for share in (0.001, 0.01, 0.9)])
    assert weights.shared_microseconds.max() == pytest.approx(ENTRY / 256)  # a block of items scans the entry once
    assert np.all(weights.bytes > 50)


def test_measured_matches_replace_estimates() -> None:
    definitions = {10: _asks("lute"), 11: _asks("opera")}
    weights = _weights(definitions, matches=np.array([np.nan, 0.75]))
    assert weights.own.tolist() == pytest.approx([EMIT * 0.001, EMIT * 0.75])


def test_equal_queries_share_their_target() -> None:
    alone, shared = _weights({10: _asks("opera")}), _weights({10: _asks("opera"), 11: _asks("opera")})
    assert shared.shared_microseconds.tolist() == alone.shared_microseconds.tolist()
    assert shared.microseconds[0] < alone.microseconds[0]
    assert shared.groups.tolist() == [0, 0]
    apart = weigh_assignment(shared, np.array([0, 1]), 2)
    together = weigh_assignment(shared, np.array([0, 0]), 2)
    assert apart.weighed.copies == pytest.approx(2 * together.weighed.copies)


def test_group_consists_of_a_condition_and_its_sources() -> None:
    weights = _weights(
        {
            10: _asks("opera", "rock"),
            11: _asks("opera", "jazz"),
            12: _asks("lute"),
            13: _asks("opera", source=2),
            14: Union((_asks("opera"), _asks("lute", source=2))),
        }
    )
    groups = weights.groups.tolist()
    assert groups[0] == groups[1] == groups[4]  # the target that most items satisfy decides
    assert len({groups[0], groups[2], groups[3]}) == 3
    assert weights.group_count == 3
    line = weights.groups[np.argsort(weights.order)]
    assert np.count_nonzero(np.diff(line)) == 2  # every group is one run of the order
    assert weights.shared.row(4).size == 2
    only = weigh_assignment(weights, np.array([1, 1, 1, 1, 0]), 2)
    assert only.shares[0] == pytest.approx((0.01 + 0.001) / 2)


def test_an_item_of_another_source_costs_a_query_nothing() -> None:
    weights = _weights({10: _asks("opera")})
    of_two = _weights({10: _asks("opera"), 11: _asks("opera", source=2)})
    assert of_two.own[0] == pytest.approx(weights.own[0] / 2)
    assert of_two.root_shares.tolist() == [0.01, 0.01]  # as a fraction of the items of their source


def test_conditions_that_need_the_evaluator_are_expensive() -> None:
    slow = Filter(Read(1), And((Contains(TITLE, ("opera",)), RegularExpression(TITLE, "op.*a"))))
    weights = _weights({10: slow, 11: _asks("opera", "rock")})
    assert weights.microseconds[0] > 100 * weights.microseconds[1]
    assert weights.microseconds[0] == pytest.approx(0.01 * EACH_EVALUATION, rel=0.5)


def _calls(operator: str, word: str, most: float) -> Node:
    """Return a query that calls an operator for items with a word."""
    call = Call(operator, (Literally("i"), Variable("x")), 1, (1,))
    return Filter(Read(1), And((Contains(TITLE, (word,)), call, Constraint(Variable("x"), "<", Literally(most)))))


def test_queries_with_the_same_expensive_question_are_one_group() -> None:
    words = ("rock", "jazz", "opera", "lute")
    definitions: dict[int, Node] = {10 + index: _calls("count", word, index) for index, word in enumerate(words)}
    definitions |= {20 + index: _asks(word) for index, word in enumerate(words)}
    expensive = _weights(definitions, milliseconds={"count": 40.0})
    assert len(set(expensive.groups[:4].tolist())) == 1
    assert expensive.group_count == 5
    # The same question, with any comparisons, is evaluated for all items that pass the filters of one of the queries.
    asked = 1 - 0.8 * 0.8 * 0.99 * 0.999
    assert expensive.shared_microseconds[-1] == pytest.approx(40_000 * asked)
    assert expensive.microseconds[:4].sum() == pytest.approx(40_000 * asked, rel=0.01)
    partitions = assign_queries(expensive, 2, "grouped")
    assert len(set(partitions[:4].tolist())) == 1  # although it exceeds a fair share: each part would repeat the call
    assert np.all(expensive.marked_groups[:4] < 0)
    assert np.all(expensive.marked_groups[4:] >= 0)
    spread = weigh_assignment(expensive, np.arange(8) % 2, 2)
    assert weigh_assignment(expensive, partitions, 2).weighed.microseconds < 0.6 * spread.weighed.microseconds
    # Few of the items match in the end, but the operator is called for all that pass the filters.
    measured = StreamKnowledge(matched=(np.array(sorted(definitions)), np.full(8, 0.01)))
    again = _weights(definitions, milliseconds={"count": 40.0}, known=measured)
    assert again.shared_microseconds[-1] == pytest.approx(40_000 * asked)
    assert np.array_equal(again.marked_groups, expensive.marked_groups)
    cheap = _weights(definitions, milliseconds={"count": 1e-7})
    assert cheap.group_count == 4
    assert len(np.unique(cheap.units)) == 8


def test_invalid_operator_term_is_rejected() -> None:
    definitions = {10: _calls("count", "rock", 3.0)}
    logical = optimize([PlanQuery(10)], definitions)
    for text in ("[", '["constraint", "<", ["?", "x"], ["?", "y"]]', '["term"]'):
        broken = replace(logical, operators=replace(logical.operators, terms=Texts.of([text])))
        with pytest.raises(CorruptDataError, match="not a term"):
            _weighed(broken)
    astray = replace(logical, operators=replace(logical.operators, disjunct_ids=np.array([12])))
    with pytest.raises(CorruptDataError, match="none of its queries"):
        _weighed(astray)


def _pattern(*edges: tuple[str, str, str]) -> Node:
    made = tuple(
        Edge(*(Variable(node[1:]) if node.startswith("?") else f"<http://a.example/{node}>" for node in edge))
        for edge in edges
    )
    return Filter(Read(1), Graph(made).canonical())


def test_graph_patterns_with_a_common_edge_are_adjacent() -> None:
    weights = _weights(
        {
            10: _pattern(("a", "p", "?x"), ("?x", "q", "b")),
            11: _pattern(("c", "p", "?x"), ("?x", "q", "d")),
            12: _pattern(("a", "p", "?y"), ("?y", "r", "e")),
            13: _pattern(("c", "p", "?z"), ("?z", "r", "f")),
        }
    )
    assert weights.copy == GRAPH_COVER.copy_microseconds
    assert abs(int(weights.order[0]) - int(weights.order[2])) == 1
    assert abs(int(weights.order[1]) - int(weights.order[3])) == 1
    mixed = _weights({10: _pattern(("a", "p", "?x")), 11: _asks("rock")})
    assert mixed.copy == COPY + GRAPH_COVER.copy_microseconds


@GENERATED
@given(operator_worlds())
def test_any_plan_with_operators_can_be_weighed(world: OperatorWorld) -> None:
    _check(optimize([PlanQuery(query) for query in world.definitions], world.definitions))


@GENERATED
@given(gated_worlds())
def test_any_plan_with_gates_can_be_weighed(world: GatedWorld) -> None:
    _check(optimize([PlanQuery(query) for query in world.definitions], world.definitions))


def _check(logical: LogicalPlan) -> None:
    weights = _weighed(logical)
    assert np.array_equal(weights.owners, np.unique(query_of(logical.query_ids)))
    assert sorted(weights.order.tolist()) == list(range(len(weights)))
    assert np.all(weights.microseconds >= weights.own)
    assert np.all(np.isfinite(weights.microseconds))
    assert np.all(weights.bytes > 0)
    line = weights.groups[np.argsort(weights.order)]
    assert np.count_nonzero(np.diff(line)) == max(0, weights.group_count - 1)
    whole = weigh_assignment(weights, np.zeros(len(weights), dtype=np.int64), 1)
    assert whole.microseconds.sum() == pytest.approx(weights.microseconds.sum() + whole.shares[0] * weights.copy)
    assert 0.0 <= whole.weighed.copies <= 1.0
