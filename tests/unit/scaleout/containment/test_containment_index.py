"""Containment: the definition agrees with matching, the kernels agree with the definition, and trees are valid."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from tests.unit.scaleout.containment.test_contain_cases import (
    CONSTANTS,
    IRIS,
    draw_narrower,
    draw_pattern,
    draw_publication,
    seeds,
)

from runnel.algebra.graphs.edges import AllOf, Comparison, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.algebra.graphs.rdf_terms import XSD, compare_terms
from runnel.algebra.nodes.calls import RELATIONS, Relation, Variable
from runnel.scaleout.containment.compare_demands import YES
from runnel.scaleout.containment.containment_index import ContainmentIndex
from runnel.scaleout.containment.definition import contains, demands_of, implies
from runnel.scaleout.containment.homomorphism import MAX_TRIED_EDGES, STEPS_EXHAUSTED, find_homomorphism
from runnel.scaleout.containment.pattern_store import PatternStore

YEAR = Edge(Variable("p"), "<urn:year>", Variable("y"))
BY_ANN = Edge(Variable("p"), "<urn:by>", "<urn:ann>")
TERMS = [*dict.fromkeys(CONSTANTS), "_:k", *IRIS, '"zz"@fr', '"9"^^<urn:unknown>', f'"0.5"^^<{XSD}double>', '"a a"']


def number(value: object) -> str:
    return f'"{value}"^^<{XSD}integer>'


def year(relation: Relation, value: object) -> Graph:
    return Graph((YEAR,), Comparison(Variable("y"), relation, number(value)))


def test_implication_of_demands_is_sound() -> None:
    demands = [(relation, term) for relation in RELATIONS for term in dict.fromkeys(CONSTANTS)]
    results = 0
    for given_one in demands:
        meeting = [term for term in TERMS if compare_terms(term, *given_one)]
        for asked in demands:
            if implies(given_one, asked):
                results += 1
                assert all(compare_terms(term, *asked) for term in meeting), (given_one, asked)
    assert results > len(demands)


@pytest.mark.parametrize(
    ("given_one", "asked", "expected"),
    [
        ((">", number(3)), (">", number(2)), True),
        ((">", number(3)), (">=", number(3)), True),
        ((">=", number(3)), (">", number(3)), False),
        ((">=", number(4)), (">", number(3)), True),
        (("<", number(3)), ("!=", number(3)), True),
        (("<=", number(3)), ("!=", number(3)), False),
        (("<", number(3)), ("!=", '"a"'), True),
        (("<", number(3)), ("!=", "<urn:a>"), True),
        (("<", number(3)), ("!=", '"a"^^<urn:unknown>'), False),
        (("!=", '"a"^^<urn:unknown>'), ("!=", number(1)), True),
        (("!=", number(1)), ("!=", number(2)), False),
        (("!=", number(1)), ("!=", f'"1.0"^^<{XSD}decimal>'), True),
        (("=", number(1)), ("<", number(2)), True),
        (("<", '"b"'), ("<", '"b é"'), True),
        (("<", '"b"'), ("<", number(3)), False),
    ],
)
def test_implication_depends_on_sorts_and_intervals(
    given_one: tuple[Relation, str], asked: tuple[Relation, str], expected: bool
) -> None:
    assert implies(given_one, asked) is expected


def test_two_demands_together_imply_a_third() -> None:
    between = AllOf((Comparison(Variable("y"), ">=", number(3)), Comparison(Variable("y"), "<=", number(3))))
    assert contains(year("=", 3), Graph((YEAR,), between))
    assert ("=", number(3)) in demands_of(between).of_variables["y"]


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (year(">", 2), year(">", 3), True),
        (year(">", 3), year(">", 2), False),
        (Graph((YEAR,)), Graph((YEAR, BY_ANN)), True),
        (Graph((YEAR, BY_ANN)), Graph((YEAR,)), False),
        (year(">", 2), Graph((Edge("<urn:k>", "<urn:year>", number(5)),)), True),
        (year(">", 5), Graph((Edge("<urn:k>", "<urn:year>", number(5)),)), False),
        # Variables stay consistent, which the paper's rule for nodes does not require.
        (Graph((YEAR, BY_ANN)), Graph((YEAR, Edge(Variable("q"), "<urn:by>", "<urn:ann>"))), False),
        (Graph((YEAR, Edge(Variable("q"), "<urn:by>", "<urn:ann>"))), Graph((YEAR, BY_ANN)), True),
        (Graph((Edge(Variable("p"), "<urn:year>", Variable("p")),)), Graph((YEAR,)), False),
        (Graph((Edge(Variable("p"), Variable("l"), Variable("o")),)), Graph((BY_ANN,)), True),
    ],
)
def test_containment_of_patterns(wide: Graph, narrow: Graph, expected: bool) -> None:
    assert contains(wide, narrow) is expected
    assert kernel_contains(wide, narrow) is expected


def kernel_contains(wide: Graph, narrow: Graph) -> bool:
    store = PatternStore()
    first, second = store.add(wide), store.add(narrow)
    return laid_into(store, first, second)


def laid_into(store: PatternStore, wide: int, narrow: int) -> bool:
    begin, count = store.held.places[narrow, :2].tolist()
    return bool(
        find_homomorphism(store.held, wide, store.held.edges, begin, begin + count, narrow, MAX_TRIED_EDGES) == YES
    )


@settings(max_examples=150, deadline=None)
@given(seeds())
def test_container_holds_wherever_a_contained_pattern_holds(chance: random.Random) -> None:
    wide = draw_pattern(chance)
    narrow = draw_narrower(chance, wide) if chance.random() < 0.7 else draw_pattern(chance)
    if contains(wide, narrow):
        for _ in range(15):
            publication = draw_publication(chance)
            if matches_graph(narrow, publication):
                assert matches_graph(wide, publication)


@settings(max_examples=150, deadline=None)
@given(seeds())
def test_kernel_agrees_with_the_definition(chance: random.Random) -> None:
    patterns = [draw_pattern(chance) for _ in range(4)]
    patterns += [draw_narrower(chance, pattern) for pattern in patterns]
    store = PatternStore()
    numbers = [store.add(pattern) for pattern in patterns]
    for first, wide in zip(numbers, patterns, strict=True):
        for second, narrow in zip(numbers, patterns, strict=True):
            assert laid_into(store, first, second) is contains(wide, narrow), (wide, narrow)


@settings(max_examples=100, deadline=None)
@given(seeds())
def test_store_returns_equivalent_patterns(chance: random.Random) -> None:
    store = PatternStore()
    for _ in range(4):
        pattern = draw_pattern(chance)
        graph = store.graph(store.add(pattern))
        assert contains(graph, pattern)
        assert contains(pattern, graph)
        assert len(graph.edges) == len(pattern.edges)


def check_trees(index: ContainmentIndex, patterns: dict[int, Graph], most: int = 10_000) -> None:
    """Check that every pattern is in one tree, below a pattern that contains it. Check at most `most` pairs."""
    roots = index.roots()
    below = [value for root in roots for value in index.below(root)]
    merged = [subscription for merger in index.mergers() for subscription in index.subscriptions_below(merger)]
    assert sorted([*roots, *below, *merged]) == sorted(patterns)
    assert index.root_count == len(roots) + len(index.mergers())
    pairs = [(root, value) for root in roots for value in index.below(root)]
    assert all(contains(patterns[root], patterns[value]) for root, value in pairs[:: 1 + len(pairs) // most])


def test_trees_stay_valid_after_insertions_and_removals() -> None:
    index = ContainmentIndex()
    for value in (5, 3, 4, 9):
        index.insert(value, year(">", value))
    assert index.roots() == [3]
    index.insert(1, Graph((YEAR,)))
    assert (index.roots(), index.below(1), index.below(3), index.below(5)) == ([1], [3, 4, 5, 9], [4, 5, 9], [])
    index.remove(3)
    assert (index.roots(), index.below(1)) == ([1], [4, 5, 9])
    index.remove(1)
    assert index.roots() == [4]
    assert index.below(4) == [5, 9]
    with pytest.raises(KeyError):
        index.remove(1)
    with pytest.raises(ValueError, match="already in the index"):
        index.insert(4, Graph((YEAR,)))
    with pytest.raises(ValueError, match="without edges"):
        index.insert(20, Graph(()))


def test_pattern_of_variables_finds_all_contained_patterns() -> None:
    index = ContainmentIndex()
    index.insert(1, year(">", 2))
    index.insert(2, Graph((BY_ANN,)))
    index.insert(3, Graph((Edge(Variable("s"), Variable("l"), Variable("o")),)))
    assert (index.roots(), index.below(3)) == ([3], [1, 2])
    index.insert(4, Graph((BY_ANN, YEAR)))
    assert index.below(3) == [1, 2, 4]


def test_roots_do_not_contain_one_another_and_removal_is_complete() -> None:
    # With some seeds, one pattern of variables alone is drawn and contains all others.
    chance = random.Random(13)
    index = ContainmentIndex()
    patterns: dict[int, Graph] = {}
    for step in range(260):
        if patterns and chance.random() < 0.4:
            gone = chance.choice(list(patterns))
            index.remove(gone)
            del patterns[gone]
        else:
            patterns[step] = (
                draw_narrower(chance, chance.choice(list(patterns.values())))
                if patterns and chance.random() < 0.5
                else draw_pattern(chance)
            )
            index.insert(step, patterns[step])
    check_trees(index, patterns)
    roots = index.roots()
    assert 5 < len(roots) < len(patterns)
    assert not any(contains(patterns[value], patterns[other]) for value in roots for other in roots if value != other)


def test_arrays_are_reused_after_removals() -> None:
    index = ContainmentIndex()
    sizes = []
    for turn in range(4):
        for value in range(1200):
            subject = f"<urn:turn{turn}/{value}>"
            index.insert(
                value, Graph((Edge(subject, "<urn:year>", Variable("y")), Edge(subject, "<urn:by>", "<urn:a>")))
            )
        assert index.root_count == 1200
        for value in range(1200):
            index.remove(value)
        sizes.append(index.size)
    assert index.root_count == len(index) == 0
    assert sizes[-1] <= 2 * sizes[1]


def test_search_for_a_hostile_pattern_ends_without_containment() -> None:
    """Containment is as hard as graph coloring: here a complete graph of ten nodes with nine colors."""
    names = [f"<urn:{value}>" for value in range(9)]
    dense = Graph(tuple(Edge(name, "<urn:p>", other) for name in names for other in names if name != other))
    nodes = [Variable(f"v{value}") for value in range(10)]
    clique = Graph(tuple(Edge(node, "<urn:p>", other) for node in nodes for other in nodes if node != other))
    store = PatternStore()
    first, second = store.add(clique), store.add(dense)
    begin, count = store.held.places[second, :2].tolist()
    assert (
        find_homomorphism(store.held, first, store.held.edges, begin, begin + count, second, MAX_TRIED_EDGES)
        == STEPS_EXHAUSTED
    )
    index = ContainmentIndex()
    index.insert(1, clique)
    index.insert(2, dense)
    assert index.roots() == [1, 2]
