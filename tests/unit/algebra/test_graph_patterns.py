"""Canonical forms and stored forms of graph patterns, which do not change the meaning."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_graphs import graphs, patterns, typed

from runnel.algebra.graphs.edges import AllOf, Comparison, Edge, comparisons, renamed_filter, renamed_node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import solve
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.item_patterns import encode_pattern
from runnel.model.graph import RdfGraph

A, B, C = (Variable(name) for name in "abc")


def renamed(graph: Graph, names: dict[str, str]) -> Graph:
    edges = tuple(Edge(*(renamed_node(node, names) for node in edge.nodes)) for edge in graph.edges)
    return Graph(edges, None if graph.filter is None else renamed_filter(graph.filter, names))


def counted(graph: Graph, triples: RdfGraph) -> Counter[frozenset[tuple[str, str]]]:
    return Counter(frozenset(entry.items()) for entry in solve(graph, triples.triples()))


@settings(deadline=None, max_examples=150)
@given(patterns(), graphs)
def test_canonical_pattern_has_the_same_solutions(pattern: Graph, graph: RdfGraph) -> None:
    value = pattern.canonical()
    assert counted(value.as_written(), graph) == counted(
        Graph(tuple(dict.fromkeys(pattern.edges)), pattern.filter), graph
    )
    assert value.canonical() == value
    assert sorted(value.names) == sorted(pattern.variables())


@settings(deadline=None, max_examples=200)
@given(patterns(), st.permutations(["x", "y", "z", "_:k"]), st.randoms(use_true_random=False))
def test_canonical_form_ignores_names_and_order_if_edges_have_different_terms(
    pattern: Graph, others: list[str], random: st.DataObject
) -> None:
    """Edges that differ only in their variables may be numbered in either order, so their forms may differ."""
    looks = [tuple(node if isinstance(node, str) else "?" for node in edge.nodes) for edge in set(pattern.edges)]
    if len(set(looks)) < len(looks):
        return
    edges = list(pattern.edges)
    random.shuffle(edges)  # type: ignore[attr-defined]
    names = dict(zip(["x", "y", "z", "_:k"], others, strict=True))
    assert renamed(Graph(tuple(edges), pattern.filter), names).canonical() == pattern.canonical()


@settings(deadline=None, max_examples=200)
@given(patterns())
def test_encoded_pattern_is_decoded_to_the_same_pattern(pattern: Graph) -> None:
    for value in (pattern, pattern.canonical()):
        assert decode_expression(encode_pattern(value)) == value


def test_different_spellings_of_a_pattern_have_the_same_canonical_form() -> None:
    year, recent = Edge(B, "<urn:year>", C), Comparison(C, ">", typed(2003, "integer"))
    graph = Graph((Edge(A, "<urn:project>", B), year), AllOf((recent, AllOf((recent,)))))
    other = Graph((Edge(A, "<urn:year>", B), Edge(C, "<urn:project>", A), Edge(C, "<urn:project>", A)))
    other = Graph(other.edges, Comparison(B, ">", typed(2003, "integer")))
    assert graph.canonical() == other.canonical()
    assert graph.canonical().names == ("a", "b", "c")
    assert other.canonical().names == ("c", "a", "b")
    assert [item.relation for item in comparisons(graph.canonical().filter)] == [">"]


def test_patterns_with_different_meanings_have_different_canonical_forms() -> None:
    label = "<urn:p>"
    path = Graph((Edge(A, label, B), Edge(B, label, C)))
    fork = Graph((Edge(A, label, B), Edge(A, label, C)))
    loop = Graph((Edge(A, label, A),))
    assert len({entry.canonical() for entry in (path, fork, loop)}) == 3
