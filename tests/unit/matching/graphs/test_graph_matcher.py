"""The indexed graph matcher agrees with the definition: matching patterns, solutions, and limits of the search."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.matching.graphs.generated_graphs import LITERALS, graphs, patterns

from runnel.algebra.graphs.edges import AllOf, Comparison, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import matches_graph, solve
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import RELATIONS, Variable
from runnel.algebra.semantics.bindings import ReferencePatternSearch
from runnel.errors import TooExpensiveError
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.check_layout import check_layout
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search import match_single
from runnel.matching.graphs.search.find_solutions import solutions_of
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.publications import Publications, read_publications
from runnel.matching.patterns.item_search import FamilySearch
from runnel.model.graph import RdfGraph
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch

CASES = settings(deadline=None, max_examples=100, derandomize=True)
ONE = Edge(Variable("p"), "<urn:q>", Variable("y"))


def integer(number: float) -> str:
    return f'"{number}"^^<{XSD}integer>'


def columns_of(results: list[RdfGraph]) -> ItemColumns:
    items = [Item("Pages", str(row), {"graph": (graph,)}) for row, graph in enumerate(results)]
    return ItemColumns(ItemBatch.of(items, {"Pages": 1}))


def layout_of(asked: list[Graph]) -> GraphLayout:
    layout = GraphLayout.of(PatternTable.of(asked))
    check_layout(layout, len(asked))
    return GraphLayout.stored(layout.arrays() | layout.seldom())


def held(layout: GraphLayout, publications: Publications) -> set[tuple[int, int]]:
    results = GraphMatcher(layout).match(publications)
    pairs = list(zip(results.places.tolist(), results.keys.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert not len(results.doubted_keys)
    return set(pairs)


def defined(asked: list[Graph], messages: list[RdfGraph]) -> set[tuple[int, int]]:
    return {
        (row, number)
        for row, graph in enumerate(messages)
        for number, pattern in enumerate(asked)
        if matches_graph(pattern, graph.triples())
    }


@CASES
@given(st.lists(patterns().map(Graph.canonical), min_size=1, max_size=8), st.lists(graphs, max_size=4))
def test_matching_patterns_agree_with_the_definition(asked: list[Graph], told: list[RdfGraph]) -> None:
    asked = list(dict.fromkeys(asked))
    layout = layout_of(asked)
    assert held(layout, read_publications(columns_of(told), layout.terms)) == defined(asked, told)


_limits = st.lists(
    st.tuples(st.sampled_from(["p", "y"]), st.sampled_from(RELATIONS), st.sampled_from(LITERALS)), max_size=3
)


@CASES
@given(st.lists(_limits, min_size=12, max_size=40), st.lists(graphs, min_size=1, max_size=3))
def test_many_patterns_of_one_shape_agree_with_the_definition(
    limits: list[list[tuple[str, str, str]]], told: list[RdfGraph]
) -> None:
    asked = []
    for several in limits:
        parts = tuple(Comparison(Variable(name), relation, term) for name, relation, term in several)  # type: ignore[arg-type]
        asked.append(Graph((ONE,), AllOf(parts) if len(parts) > 1 else parts[0] if parts else None).canonical())
    asked = list(dict.fromkeys(asked))
    layout = layout_of(asked)
    assert len(layout.table.shape_edges) == 1
    assert held(layout, read_publications(columns_of(told), layout.terms)) == defined(asked, told)


@CASES
@given(st.lists(patterns().map(Graph.canonical), min_size=1, max_size=4), graphs)
def test_solutions_agree_with_the_definition(asked: list[Graph], told: RdfGraph) -> None:
    layout = layout_of(asked)
    publications = read_publications(columns_of([told]), layout.terms)
    places = np.zeros(len(asked), dtype=np.int64)
    solutions = solutions_of(layout, publications, places, np.arange(len(asked)), most=10_000)
    assert solutions.is_whole.all()
    for pattern in range(len(asked)):
        wanted = Counter(tuple(sorted(entry.items())) for entry in solve(asked[layout.keys[pattern]], told.triples()))
        rows = solutions.rows(pattern).tolist()
        terms = [
            [layout.table.terms.text(n) if n < publications.plan_terms else publications.local_term(n) for n in row]
            for row in rows
        ]
        told_rows = [tuple(sorted((str(at), term) for at, term in enumerate(row, 1))) for row in terms]
        assert Counter(told_rows) == wanted


def test_intervals_are_found_without_checking_all_patterns() -> None:
    asked = [
        Graph(
            (ONE,),
            AllOf(
                (
                    Comparison(Variable("y"), ">=", integer(low)),
                    Comparison(Variable("y"), "<", integer(low + 5)),
                )
            ),
        ).canonical()
        for low in range(1000)
    ]
    layout = layout_of(asked)
    matcher = GraphMatcher(layout)
    graph = RdfGraph.of([("<urn:a>", "<urn:q>", integer(500))])
    results = matcher.match(read_publications(columns_of([graph]), layout.terms))
    assert sorted(results.keys.tolist()) == [496, 497, 498, 499, 500]
    assert matcher.counters.checks < 20


def test_variables_without_a_filter_are_searched_once() -> None:
    edges = ONE, Edge(Variable("p"), "<urn:r>", Variable("z"))
    asked = Graph(edges, Comparison(Variable("y"), "=", '"z"')).canonical()
    triples = [("<urn:a>", "<urn:r>", integer(number)) for number in range(100)]
    graph = RdfGraph.of([*triples, *(("<urn:a>", "<urn:q>", integer(number)) for number in range(20))])
    other = Graph(edges, Comparison(Variable("y"), "=", '"other"')).canonical()
    layout = layout_of([asked, other])
    matcher = GraphMatcher(layout)
    assert not len(matcher.match(read_publications(columns_of([graph]), layout.terms)).keys)
    assert matcher.counters.bindings <= 100


def hostile() -> tuple[Graph, RdfGraph]:
    """A pattern and a graph with very many ways between them, none of which the filter takes: IRIs have no order."""
    names = "abcdefgh"
    edges = [Edge(Variable(value), "<urn:p>", Variable(other)) for value, other in pairwise(names)]
    pattern = Graph(tuple(edges), Comparison(Variable("a"), "<", Variable("b"))).canonical()
    nodes = [f"<urn:{number}>" for number in range(20)]
    triples = [(node, "<urn:p>", other) for node in nodes for other in nodes]
    return pattern, RdfGraph.of([*triples, ("<urn:x>", "<urn:q>", "<urn:y>")])


def test_an_abandoned_search_leaves_only_its_own_patterns_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    hard, graph = hostile()
    easy = Graph((ONE,)).canonical()
    layout = layout_of([hard, easy])
    publications = read_publications(columns_of([graph]), layout.terms)
    results = GraphMatcher(layout, steps_of_shape=2_000).match(publications)
    assert results.keys.tolist() == [1]
    assert results.doubted_keys.tolist() == [0]
    none_left = GraphMatcher(layout, steps_of_graph=1).match(publications)
    assert {*none_left.keys.tolist(), *none_left.doubted_keys.tolist()} == {0, 1}
    monkeypatch.setattr(
        match_single, "_matcher", lambda graph: GraphMatcher(layout_of([graph]), steps_of_shape=2_000)
    )
    with pytest.raises(TooExpensiveError, match="too many steps"):
        match_single.graph_holds(hard, columns_of([graph]), 0)
    assert match_single.graph_holds(easy, columns_of([graph]), 0)


def test_large_graphs_are_searched_by_their_objects() -> None:
    triples = [(f"<urn:{number}>", "<urn:p>", f"<urn:o{number % 50}>") for number in range(1000)]
    asked = [
        Graph(
            (Edge(Variable("s"), "<urn:p>", "<urn:o7>"), Edge(Variable("s"), "<urn:p>", Variable("o")))
        ).canonical(),
        Graph((Edge("<urn:8>", "<urn:p>", Variable("o")), Edge(Variable("t"), "<urn:p>", Variable("o")))).canonical(),
    ]
    layout = layout_of(asked)
    graph = RdfGraph.of(triples)
    publications = read_publications(columns_of([graph]), layout.terms)
    assert held(layout, publications) == {(0, 0), (0, 1)}
    patterns_of = np.argsort(layout.keys)
    solutions = solutions_of(layout, publications, np.zeros(2, dtype=np.int64), patterns_of, steps=200)
    assert solutions.counts.tolist() == [20, 20]
    few = solutions_of(layout, publications, np.zeros(2, dtype=np.int64), patterns_of, most=3)
    assert (few.counts.tolist(), few.is_whole.tolist()) == ([3, 3], [False, False])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("graphs.index.keys", lambda array: array + 9),
        ("graphs.shape_edges.values", lambda array: array + 99),
        ("graphs.shape_edges.values", lambda array: array - 99),
        ("graphs.constraints.values", lambda array: array + 99),
        ("graphs.programs.values", lambda array: array + 99),
        ("graphs.index.slots", lambda array: array + 5),
        ("graphs.index.slots", lambda array: np.zeros_like(array)),
        ("graphs.buckets.values", lambda array: array + 5),
        ("graphs.index.depths", lambda array: array + 9),
        ("graphs.index.masks", lambda array: array[:3]),
        ("graphs.lists.shape_members", lambda array: array + 1),
        ("graphs.lists.members", lambda array: array + 50),
        ("graphs.lists.members", lambda array: np.full_like(array, 2**31 - 1)),
        ("graphs.programs.values", lambda array: np.where(array < 0, -(2**31), array).astype(np.int32)),
        ("graphs.lists.variables", lambda array: array + 7),
        ("graphs.lists.value_offsets", lambda array: array[:1]),
    ],
)
def test_damaged_arrays_are_refused(name: str, change: object) -> None:
    several = [Comparison(Variable("y"), ">", integer(number)) for number in range(12)]
    asked = [Graph((ONE,), value).canonical() for value in several]
    asked.append(Graph((ONE,), Comparison(Variable("y"), "!=", Variable("p"))).canonical())
    layout = layout_of(asked)
    arrays = layout.arrays() | layout.seldom()
    arrays[name] = change(arrays[name])  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"graphs"):
        check_layout(GraphLayout.stored(arrays), len(asked))


def test_the_rarest_edge_is_determined_from_a_sample() -> None:
    edges = (Edge(Variable("p"), "<urn:q>", Variable("y")), Edge(Variable("p"), "<urn:type>", "<urn:Page>"))
    asked = [Graph(edges).canonical()]
    pattern_table = PatternTable.of(asked)
    usual = GraphLayout.of(pattern_table)
    sampled = GraphLayout.of(pattern_table, {"<urn:type>": 1.0, "<urn:Page>": 1.0, "<urn:q>": 0.01})
    first = [entry.table.graph(0).edges[0].label for entry in (usual, sampled)]
    assert first == ["<urn:type>", "<urn:q>"]
    assert replace(sampled.table, shape_edges=usual.table.shape_edges).graph(0) == usual.table.graph(0)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(patterns(), graphs)
def test_the_search_in_one_item_agrees_with_the_definition(pattern: Graph, graph: RdfGraph) -> None:
    attributes = {"graph": (graph,)}
    search, wanted = FamilySearch(attributes), ReferencePatternSearch(attributes)
    assert search.holds(pattern) == wanted.holds(pattern)
    every = {tuple(sorted(solution.items())) for solution in wanted.solutions(pattern)}
    results = {tuple(sorted(solution.items())) for solution in search.solutions(pattern)}
    assert results == every if len(every) < 300 else len(results) == 300
    assert sorted(search.rows(pattern) or [], key=repr) == sorted(wanted.rows(pattern) or [], key=repr)
