"""Covers: every predicate implies its condition, for any limit of the number of conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.optimizer.generated_worlds import GeneratedWorld
from tests.unit.scaleout.related_plans import (
    PRICE,
    LaidOutPlan,
    all_worlds,
    asking,
    atom_of,
    clause_expression,
    condition_of,
    conjunction,
    laid_out,
    satisfied,
    word,
)

from runnel.algebra.graphs.edges import Comparison, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.expressions import And, Compare, Expression, Not, Or
from runnel.model.graph import RdfGraph, Triple
from runnel.scaleout.containment.definition import contains
from runnel.scaleout.cover.cover_predicates import Cover, cover_predicates
from runnel.scaleout.cover.graph_mergers import GraphMergers, merge_by_edges
from runnel.scaleout.cover.subsuming_roots import find_subsuming_roots

ROCK, JAZZ, LIVE = word("rock"), word("jazz"), word("live")


def cover_of(plan: LaidOutPlan, most: int | None = None, publications: list[list[Triple]] | None = None) -> Cover:
    kin = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors)
    samples = {"graph": [RdfGraph.of(publication) for publication in publications or ()]}
    return cover_predicates(plan.logical, plan.atoms, plan.anchors, kin, most=most, samples=samples)


def conditions_of(plan: LaidOutPlan, cover: Cover) -> list[Expression]:
    """Return the conditions of a cover, including added clauses, as expressions."""
    clauses = len(plan.logical.clauses)
    return [
        conjunction(
            [
                clause_expression(plan.logical, value) if value < clauses else atom_of(cover.added[value - clauses])
                for value in row
            ]
        )
        for row in cover.conditions.lists()
    ]


def by_query(plan: LaidOutPlan, cover: Cover) -> list[Expression]:
    """Return the condition of every query by its ID. Each query has one predicate."""
    conditions = conditions_of(plan, cover)
    pairs = [
        (query, conditions[int(cover.of_predicates[predicate])])
        for predicate, queries in zip(plan.logical.target_predicates, plan.logical.targets.lists(), strict=True)
        for query in queries
    ]
    return [condition for _, condition in sorted(pairs, key=lambda pair: pair[0])]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(all_worlds, st.one_of(st.none(), st.integers(0, 12)))
def test_every_predicate_implies_its_condition(world: GeneratedWorld, most: int | None) -> None:
    plan = laid_out(world.definitions)
    cover = cover_of(plan, most)
    conditions = conditions_of(plan, cover)
    assert len(cover.shares) == len(cover.merged) == len(conditions) == cover.counters["conditions"]
    assert np.all((cover.shares >= 0.0) & (cover.shares <= 1.0))
    assert len(cover.keyed) == len(plan.logical.clauses) + len(cover.added)
    for predicate, condition in enumerate(cover.of_predicates.tolist()):
        held = satisfied(condition_of(plan.logical, predicate), world.items)
        assert held <= satisfied(conditions[condition], world.items)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(all_worlds)
def test_without_a_limit_the_conditions_are_the_roots(world: GeneratedWorld) -> None:
    plan = laid_out(world.definitions)
    cover = cover_of(plan)
    rows = list(plan.logical.predicates.lists())
    results = list(cover.conditions.lists())
    assert not np.any(cover.merged)
    assert len({tuple(row) for row in results}) == len(results)
    for predicate, condition in enumerate(cover.of_predicates.tolist()):
        assert results[condition] == sorted(rows[int(cover.subsuming_roots.roots[predicate])])
    assert cover.counters["mergers"] == cover.counters["above_most"] == cover.counters["false_per_million"] == 0


def test_filters_with_the_same_anchor_are_merged_to_their_common_clauses() -> None:
    rare, long = word("extraordinarily"), word("incomprehensibly")
    plan = laid_out(
        asking(
            And((rare, ROCK, JAZZ)),
            And((rare, ROCK, LIVE)),
            And((long, ROCK)),
            And((long, LIVE)),
            And((JAZZ, LIVE, word("a"))),
        )
    )
    apart = cover_of(plan)
    assert apart.counters["conditions"] == 5
    cover = cover_of(plan, 4)
    results = by_query(plan, cover)
    # The first two have two words in common, so merging them lets the fewest additional items through.
    assert {results[0], results[1]} <= {And((rare, ROCK)), And((ROCK, rare))}
    assert results[0] == results[1]
    assert results[2] != results[3]
    assert cover.counters["mergers"] == 1
    assert cover.merged[cover.of_predicates].sum() == 2
    assert cover.counters["false_per_million"] > 0
    fewer = cover_of(plan, 3)
    assert by_query(plan, fewer)[2:4] == [long, long]
    assert fewer.counters["conditions"] == 3
    assert fewer.counters["above_most"] == 0


def test_conditions_that_cannot_be_merged_are_reduced_to_one_clause_and_counted() -> None:
    plan = laid_out(asking(*(And((word(f"word{number}"), ROCK)) for number in range(6)), Compare(PRICE, ">", 1.0)))
    cover = cover_of(plan, 2)
    assert by_query(plan, cover)[:2] == [word("word0"), word("word1")]
    assert cover.counters["conditions"] == 7
    assert cover.counters["above_most"] == 5
    assert cover.counters["one_clause"] >= 6
    assert cover.counters["mergers"] == cover.counters["one_clause"] - 1


def test_keyed_clauses_are_those_that_keys_decide() -> None:
    plan = laid_out(asking(ROCK, Or((JAZZ, LIVE)), word("big", "show"), Compare(PRICE, ">", 1.0), Not(ROCK)))
    cover = cover_of(plan)
    keyed = {
        repr(clause_expression(plan.logical, clause)): bool(cover.keyed[clause])
        for clause in range(len(plan.logical.clauses))
    }
    assert keyed.pop(repr(ROCK))
    assert sorted(keyed.values()) == [False, False, False, True]


def number(value: int) -> str:
    return f'"{value}"^^<{XSD}integer>'


def pattern(place: str, bound: int, *more: Edge) -> Graph:
    """Return a graph pattern for a place, from a year on."""
    edges = (Edge(Variable("p"), "<urn:at>", place), Edge(Variable("p"), "<urn:year>", Variable("y")), *more)
    return Graph(edges, Comparison(Variable("y"), "=", number(bound))).canonical()


def test_graph_patterns_are_merged_by_their_edges() -> None:
    same = [pattern("<urn:paris>", bound) for bound in range(3)]
    other = pattern("<urn:paris>", 9, Edge(Variable("p"), "<urn:by>", "<urn:ann>"))
    far = pattern("<urn:oslo>", 1)
    plan = laid_out(asking(*same, other, far))
    assert cover_of(plan).counters["conditions"] == 5
    cover = cover_of(plan, 3)
    results = by_query(plan, cover)
    assert results[0] == results[1] == results[2] == Graph(same[0].edges).canonical()
    assert results[3:] == [other, far]
    assert cover.counters["added_clauses"] == cover.counters["mergers"] == 1
    fewer = by_query(plan, cover_of(plan, 2))
    assert len(set(map(repr, fewer))) == 2
    assert all(
        isinstance(value, Graph) and contains(value, own)
        for value, own in zip(fewer[:4], [*same, other], strict=True)
    )
    assert fewer[4] == far


def test_merged_graph_patterns_keep_common_other_clauses() -> None:
    graphs = [pattern("<urn:paris>", bound) for bound in range(2)]
    plan = laid_out(asking(And((graphs[0], ROCK, JAZZ)), And((graphs[1], ROCK, LIVE))))
    results = by_query(plan, cover_of(plan, 1))
    assert results[0] == results[1]
    assert isinstance(results[0], And)
    assert set(map(repr, results[0].parts)) == {repr(ROCK), repr(Graph(graphs[0].edges).canonical())}


def test_sampled_publications_decide_which_patterns_are_merged() -> None:
    patterns = [pattern("<urn:paris>", bound) for bound in range(4)] + [pattern("<urn:oslo>", 1)]
    plan = laid_out(asking(*patterns))
    paris: list[Triple] = [("<urn:x>", "<urn:at>", "<urn:paris>"), ("<urn:x>", "<urn:year>", number(2))]
    missed: list[Triple] = [("<urn:x>", "<urn:at>", "<urn:paris>"), ("<urn:x>", "<urn:year>", number(77))]
    cover = cover_of(plan, 2, [paris, paris, missed])
    results = by_query(plan, cover)
    assert len(set(map(repr, results))) == 2
    assert results[4] == patterns[4]
    assert all(
        isinstance(result, Graph) and contains(result, own) for result, own in zip(results, patterns, strict=True)
    )
    assert cover.counters["publications"] == 3
    assert cover.counters["mergers_held"] == 3
    assert cover.counters["false_positives"] == 1


def test_merger_of_mergers_covers_all_their_patterns() -> None:
    edges = [Edge("<urn:a>", f"<urn:{name}>", "<urn:b>") for name in "pqrstuv"]
    graphs = [Graph(tuple(edges[:size])) for size in range(2, 8)]
    mergers = GraphMergers(graphs)
    merge_by_edges(mergers, 1)
    texts, numbers = mergers.texts()
    assert numbers.tolist() == [0] * len(graphs)
    merger = atom_of(texts[0])
    assert isinstance(merger, Graph)
    assert all(contains(merger, graph) for graph in graphs)


@pytest.mark.parametrize("most", [None, 1])
def test_empty_plan_has_no_conditions(most: int | None) -> None:
    cover = cover_of(laid_out({}), most)
    assert len(cover.conditions) == len(cover.of_predicates) == cover.counters["conditions"] == 0
