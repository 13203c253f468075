"""Every predicate implies its root, according to the reference evaluator and to subsumption."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.optimizer.generated_worlds import GeneratedWorld
from tests.unit.scaleout.related_plans import (
    PRICE,
    TINY,
    all_worlds,
    asking,
    condition_of,
    laid_out,
    related_worlds,
    satisfied,
    word,
)

from runnel.algebra.graphs.edges import Comparison, Edge, comparisons
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.expressions import TRUE, And, Between, Compare, Expression, In, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import Rows
from runnel.optimizer.subsumption.subsumes import subsumes
from runnel.scaleout.containment.containment_index import ContainmentIndex
from runnel.scaleout.containment.definition import contains
from runnel.scaleout.cover import containing_graphs
from runnel.scaleout.cover.containing_graphs import ancestors, containing_pairs
from runnel.scaleout.cover.subsuming_kernels import NOBODY, follow
from runnel.scaleout.cover.subsuming_roots import SubsumingRoots, find_subsuming_roots, predicate_shares

CASES = settings(max_examples=50, deadline=None, derandomize=True)
ROCK, JAZZ, LIVE = word("rock"), word("jazz"), word("live")


def roots(*conditions: Expression, widest: float = 1.0) -> dict[int, int]:
    """Return for each condition, numbered from 0, the condition of its root."""
    plan = laid_out(asking(*conditions))
    subsuming = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors, widest=widest)
    predicates = {
        int(query): int(predicate)
        for predicate, queries in zip(plan.logical.target_predicates, plan.logical.targets.lists(), strict=True)
        for query in queries
    }
    asked = {predicate: query for query, predicate in sorted(predicates.items(), reverse=True)}
    return {query: asked[int(subsuming.roots[predicate])] for query, predicate in sorted(predicates.items())}


def subsuming_roots_of(world: GeneratedWorld, widest: float) -> tuple[SubsumingRoots, list[Expression]]:
    plan = laid_out(world.definitions, TINY if len(world.definitions) % 2 else None)
    subsuming = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors, widest=widest)
    return subsuming, [condition_of(plan.logical, number) for number in range(len(plan.logical.predicates))]


@CASES
@given(all_worlds)
def test_every_predicate_implies_its_root(world: GeneratedWorld) -> None:
    for widest in (0.5, 1.0):
        subsuming, conditions = subsuming_roots_of(world, widest)
        assert np.array_equal(subsuming.roots[subsuming.roots], subsuming.roots)
        for predicate, root in enumerate(subsuming.roots.tolist()):
            held = satisfied(conditions[predicate], world.items)
            assert held <= satisfied(conditions[root], world.items)


def _has_graph(condition: Expression) -> bool:
    return "Graph(" in repr(condition)


@CASES
@given(all_worlds)
def test_every_root_subsumes_its_predicates_by_definition(world: GeneratedWorld) -> None:
    subsuming, conditions = subsuming_roots_of(world, 1.0)
    for predicate, root in enumerate(subsuming.roots.tolist()):
        if not _has_graph(conditions[predicate]):
            assert subsumes(conditions[root], conditions[predicate])


@CASES
@given(related_worlds())
def test_roots_are_not_subsumed_by_others(world: GeneratedWorld) -> None:
    subsuming, conditions = subsuming_roots_of(world, 1.0)
    plain = [index for index, condition in enumerate(conditions) if not _has_graph(condition)]
    results = [value for value in plain if subsuming.roots[value] == value]
    for narrow in results:
        wider = [
            result for result in results if result != narrow and subsumes(conditions[result], conditions[narrow])
        ]
        assert not wider, (conditions[narrow], conditions[wider[0]])


def test_fewer_clauses_or_more_literals_are_more_general() -> None:
    assert roots(And((ROCK, JAZZ)), ROCK, Or((ROCK, LIVE)), LIVE) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert roots(And((ROCK, JAZZ)), LIVE) == {0: 0, 1: 1}
    assert roots(And((ROCK, Not(JAZZ))), Not(JAZZ)) == {0: 1, 1: 1}


def test_all_clauses_are_compared() -> None:
    # The masks of an entry cover its three rarest clauses. The fourth is compared in full.
    rare = tuple(word(text) for text in ("aaa", "bbb", "ccc"))
    others = [And((LIVE, word(f"other{number}"))) for number in range(4)]
    results = roots(And((*rare, LIVE)), And((*rare, JAZZ)), *others)
    assert results == {number: number for number in range(6)}


def test_phrases_ranges_and_lists_are_subsumed_by_what_they_imply() -> None:
    assert roots(word("rock", "live"), LIVE) == {0: 1, 1: 1}
    above, least, between = Compare(PRICE, ">", 5.0), Compare(PRICE, ">=", 5.0), Between(PRICE, 5.0, 9.0)
    assert roots(above, least, between) == {0: 1, 1: 1, 2: 1}
    assert roots(above, between) == {0: 0, 1: 1}  # between includes 5
    assert roots(In(PRICE, (6.0, 7.0)), Compare(PRICE, "=", 6.0), above) == {0: 2, 1: 2, 2: 2}
    assert roots(Not(least), Not(above)) == {0: 1, 1: 1}
    assert roots(Not(above), Compare(PRICE, "<=", 5.0)) == {0: 0, 1: 1}  # an item may have two prices


def test_graph_patterns_are_subsumed_by_those_that_contain_them() -> None:
    year = Edge(Variable("p"), "<urn:year>", Variable("y"))
    number = f'"2003"^^<{XSD}integer>'
    by = Edge(Variable("p"), "<urn:by>", "<urn:a>")
    wide, recent = Graph((year,)).canonical(), Graph((year,), Comparison(Variable("y"), ">", number)).canonical()
    both = Graph((year, by), Comparison(Variable("y"), ">", number)).canonical()
    other = Graph((by,)).canonical()
    assert list(comparisons(both.filter))
    assert roots(both, recent, wide) == {0: 2, 1: 2, 2: 2}
    assert roots(And((both, ROCK)), And((recent, ROCK)), And((wide, JAZZ))) == {0: 1, 1: 1, 2: 2}
    assert roots(other, recent) == {0: 0, 1: 1}
    assert roots(Not(wide), Not(recent)) == {0: 1, 1: 1}


def test_deep_containment_trees_include_their_root() -> None:
    bounds = [f'"{bound}"^^<{XSD}integer>' for bound in range(40)]
    year = (Edge("<urn:a>", "<urn:year>", Variable("y")),)
    graphs = [Graph(year, Comparison(Variable("y"), ">", bound)).canonical() for bound in bounds]
    narrow, wide = containing_pairs(graphs[::-1])
    assert set(narrow.tolist()) == set(range(39))
    assert {39} == {wide[narrow == number][-1] for number in range(39)}
    assert set(roots(*graphs).values()) == {0}
    parents = np.arange(-1, 39)  # a chain: ancestors in the middle are left out, but not the root
    narrow, wide = ancestors(parents, np.arange(40))
    assert wide[narrow == 39].tolist() == [*range(38, 27, -1), 0]


def test_predicate_of_nearly_all_items_is_no_root_of_others() -> None:
    asked: dict[int, Node] = {10: Read(1), 11: Filter(Read(1), ROCK), 12: Filter(Read(1), And((ROCK, Not(JAZZ))))}
    plan = laid_out(asked)
    everything = int(np.flatnonzero(plan.logical.predicates.lengths == 0)[0])
    narrow = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors).roots
    assert np.count_nonzero(narrow == everything) == 1
    assert np.all(find_subsuming_roots(plan.logical, plan.atoms, plan.anchors, widest=1.0).roots == everything)
    assert roots(Not(JAZZ), And((ROCK, Not(JAZZ))), widest=0.5) == {0: 0, 1: 1}


def test_inexact_predicates_are_compared_by_their_clauses() -> None:
    many = Or(tuple(And((word(f"a{n}"), word(f"b{n}"), Or((ROCK, word(f"c{n}"))))) for n in range(4)))
    plan = laid_out(asking(And((ROCK, many)), ROCK, And((ROCK, JAZZ, many))), TINY)
    assert plan.logical.counts["inexact_predicates"] >= 1
    subsuming = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors)
    conditions = [condition_of(plan.logical, number) for number in range(len(plan.logical.predicates))]
    assert all(subsumes(conditions[root], conditions[index]) for index, root in enumerate(subsuming.roots.tolist()))
    assert subsuming.counters["roots"] == 1


def test_counters_of_the_search() -> None:
    plan = laid_out(asking(ROCK, And((ROCK, JAZZ)), LIVE, Compare(PRICE, ">", 1.0)))
    subsuming = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors)
    assert subsuming.counters["predicates"] == 4
    assert subsuming.counters["roots"] == 3
    assert subsuming.counters["given_up"] == 0
    assert subsuming.counters["looked_at"] > 0


@pytest.mark.parametrize(
    ("parents", "found"),
    [
        ([NOBODY, 0, 1, 2], [0, 0, 0, 0]),
        ([1, 2, 3, 1], [1, 1, 1, 1]),  # a cycle, and a node that leads to it
        ([3, NOBODY, 1, 0], [0, 1, 1, 0]),
        ([], []),
    ],
)
def test_cycles_of_parents_have_one_root(parents: list[int], found: list[int]) -> None:
    assert follow(np.array(parents, dtype=np.int64)).tolist() == found


def test_comparison_of_long_clauses_is_limited() -> None:
    words = [word(f"word{number}") for number in range(200)]
    nearly = [Or(tuple(words[:at] + words[at + 1 :])) for at in range(150)]
    plan = laid_out(asking(*nearly))
    subsuming = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors, widest=1.0)
    assert subsuming.counters["given_up"] > 100
    assert subsuming.roots.tolist() == list(range(150))
    assert subsuming.counters["looked_at"] < 150 * 150
    # Within the limit, roots are found in long clauses, too.
    assert roots(Or(tuple(words)), *nearly[:20]) == dict.fromkeys(range(21), 0)
    assert roots(Or(tuple(words[:-1])), *(Or(tuple(words[at:])) for at in (1, 5, 9))) == {0: 0, 1: 1, 2: 1, 3: 1}


def test_literals_may_be_unsorted() -> None:
    words = [word(f"word{number}") for number in range(30)]
    plan = laid_out(asking(Or(tuple(words[:20])), Or(tuple(words)), words[7]))
    clauses = plan.logical.clauses
    turned = Rows.of(row[::-1] for row in clauses.lists())
    logical = replace(plan.logical, clauses=turned)
    expected = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors, widest=1.0).roots.tolist()
    assert len(set(expected)) == 1
    assert find_subsuming_roots(logical, plan.atoms, plan.anchors, widest=1.0).roots.tolist() == expected


def _chains(edges: int) -> list[Graph]:
    """Return chains of variables with all combinations of two labels on their edges."""
    nodes = [Variable(f"x{number}") for number in range(edges + 1)]
    return [
        Graph(tuple(Edge(nodes[place], f"<urn:p{way >> place & 1}>", nodes[place + 1]) for place in range(edges)))
        for way in range(2**edges)
    ]


def test_search_among_too_similar_patterns_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = _chains(6)
    wide = chains[:4] + _chains(2)
    counters: dict[str, int] = {}
    exact = set(zip(*(part.tolist() for part in containing_pairs(wide, counters)), strict=True))
    assert len(exact) >= 4
    assert counters == {"graphs_given_up": 0}
    monkeypatch.setattr(containing_graphs, "_EACH", 20)
    monkeypatch.setattr(containing_graphs, "_SPARE", 0)
    containing_pairs(chains, counters)
    assert counters["graphs_given_up"] > 32
    results = set(zip(*(part.tolist() for part in containing_pairs(wide, counters)), strict=True))
    assert all(contains(wide[two], wide[value]) for value, two in exact | results)
    assert counters["graphs_given_up"] > 0
    assert len(results) < len(exact)


def test_unused_work_is_available_to_later_patterns() -> None:
    chains = _chains(6)
    index = ContainmentIndex(each=10, spare=2_000)
    for number, graph in enumerate(chains):
        index.insert(number, graph)
    assert 0 < index.given_up < 64
    assert index.work < 2_000 + 64 * 10 + 200  # no pattern exceeds the limit by much
    free = ContainmentIndex()
    for number, graph in enumerate(chains):
        free.insert(number, graph)
    assert free.given_up == 0
    assert free.work > 4 * index.work
    assert set(free.roots()) <= set(index.roots())


def test_empty_plan_has_no_roots() -> None:
    plan = laid_out({})
    assert len(find_subsuming_roots(plan.logical, plan.atoms, plan.anchors).roots) == 0
    plan = laid_out(asking(TRUE))
    assert find_subsuming_roots(plan.logical, plan.atoms, plan.anchors).roots.tolist() == [0]


def test_shares_of_predicates_are_products() -> None:
    results = predicate_shares(Rows.of([[0, 1], [0, 2], []]), np.array([0.5, 0.25, 3.0]))
    assert results.tolist() == pytest.approx([0.125, 0.5, 1.0])
    unknown = predicate_shares(Rows.of([[0], [1], [0, 2]]), np.array([0.5, np.nan, 0.25]))
    assert unknown.tolist() == pytest.approx([0.5, 1.0, 0.125])
