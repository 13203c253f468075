"""The reference semantics of graph patterns, compared with SPARQL queries to an RDF store, and single cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from tests.unit.algebra.generated_graphs import VALUES, graphs, known_of, patterns, solved_by_store, store_of, typed

from runnel.algebra.graphs import graph_solutions
from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import graph_bindings, matches_graph, solve, truth_of
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.expressions import Not
from runnel.algebra.semantics.evaluate import holds
from runnel.errors import TooExpensiveError
from runnel.model.graph import RdfGraph, read_ntriples

PAGE, YEAR, NAME = Variable("page"), Variable("year"), Variable("name")
TRUE = Comparison("<urn:a>", "=", "<urn:a>")
FALSE = Comparison("<urn:a>", "=", "<urn:b>")
ERROR = Comparison("<urn:a>", "<", "<urn:b>")


def counted(solutions: Iterable[Mapping[str, str]]) -> Counter[frozenset[tuple[str, str]]]:
    return Counter(frozenset(solution.items()) for solution in solutions)


@settings(deadline=None, max_examples=400)
@given(patterns(), graphs)
def test_solutions_equal_those_of_an_rdf_store(pattern: Graph, graph: RdfGraph) -> None:
    expected = solved_by_store(pattern, store_of(graph.triples()))
    assert counted(map(known_of, solve(pattern, graph.triples()))) == counted(expected)
    assert matches_graph(pattern, graph.triples()) is bool(expected)
    assert holds(pattern, {"graph": (graph,)} if graph else {}) is bool(expected)


def test_rdf_store_does_not_change_the_test_values() -> None:
    """Otherwise, the comparison above would compare different spellings of the same value."""
    triples = {("<urn:a>", "<urn:p>", value) for value in VALUES}
    everything = Graph((Edge(Variable("s"), Variable("p"), Variable("o")),))
    kept = {(entry["s"], entry["p"], entry["o"]) for entry in solved_by_store(everything, store_of(triples))}
    assert kept == triples


PROJECTS = read_ntriples(
    """
    <urn:page:1> <urn:project> <urn:filter> .
    <urn:page:2> <urn:project> <urn:other> .
    <urn:filter> <urn:year> "2004"^^<http://www.w3.org/2001/XMLSchema#integer> .
    <urn:other>  <urn:year> "1999"^^<http://www.w3.org/2001/XMLSchema#integer> .
    <urn:filter> <urn:led_by> _:someone .
    _:someone    <urn:name> "Ann"@en .
    _:someone    <urn:name> "Anne"@fr .
    <urn:filter> <urn:cites> <urn:filter> .
    """
)


def test_shared_variables_join_edges_and_filters_select_solutions() -> None:
    project = Variable("p")
    edges = (Edge(PAGE, "<urn:project>", project), Edge(project, "<urn:year>", YEAR))
    recent = Graph(edges, Comparison(YEAR, ">", typed(2003, "integer")))
    assert graph_bindings(recent, PROJECTS.triples()) == [{"page": "urn:page:1", "p": "urn:filter", "year": 2004.0}]
    assert len(list(solve(Graph(edges), PROJECTS.triples()))) == 2


def test_two_variables_may_have_the_same_value() -> None:
    variable, other = Variable("one"), Variable("other")
    assert matches_graph(Graph((Edge(variable, "<urn:cites>", variable),)), PROJECTS.triples())
    assert matches_graph(Graph((Edge(variable, "<urn:cites>", other),)), PROJECTS.triples())
    assert not matches_graph(Graph((Edge(variable, "<urn:year>", variable),)), PROJECTS.triples())


def test_label_variable_can_be_shared_with_other_positions() -> None:
    label = Variable("label")
    both = Graph((Edge("<urn:page:1>", label, Variable("x")), Edge("<urn:page:2>", label, Variable("y"))))
    assert [entry["label"] for entry in solve(both, PROJECTS.triples())] == ["<urn:project>"]
    as_subject = Graph((Edge(Variable("s"), label, Variable("o")), Edge(label, Variable("q"), Variable("r"))))
    assert not matches_graph(as_subject, PROJECTS.triples())


def test_blank_node_of_a_pattern_is_a_variable_without_binding() -> None:
    led = Graph((Edge("<urn:filter>", "<urn:led_by>", Variable("_:x")), Edge(Variable("_:x"), "<urn:name>", NAME)))
    assert graph_bindings(led, PROJECTS.triples()) == [{"name": "Ann"}, {"name": "Anne"}]


def test_edges_compare_terms_and_filters_compare_values() -> None:
    graph = read_ntriples('<urn:a> <urn:p> "01"^^<http://www.w3.org/2001/XMLSchema#integer> .')
    value = typed(1, "integer")
    assert not matches_graph(Graph((Edge("<urn:a>", "<urn:p>", value),)), graph.triples())
    by_value = Graph((Edge("<urn:a>", "<urn:p>", Variable("x")),), Comparison(Variable("x"), "=", value))
    assert matches_graph(by_value, graph.triples())


@pytest.mark.parametrize(
    ("part", "truth"),
    [
        (TRUE, True),
        (FALSE, False),
        (ERROR, None),
        (Complement(TRUE), False),
        (Complement(ERROR), None),
        (Certain(ERROR), False),
        (Certain(FALSE), False),
        (Complement(Certain(ERROR)), True),
        (Certain(TRUE), True),
        (AllOf((TRUE, ERROR)), None),
        (AllOf((ERROR, FALSE)), False),
        (AnyOf((ERROR, TRUE)), True),
        (AnyOf((FALSE, ERROR)), None),
        (Complement(AllOf((ERROR, FALSE))), True),
        (AnyOf((Complement(ERROR), ERROR)), None),
    ],
)
def test_error_in_a_filter_is_unknown(
    part: Comparison | AllOf | AnyOf | Complement | Certain, truth: bool | None
) -> None:
    assert truth_of(part, {}) is truth
    assert matches_graph(Graph((Edge(PAGE, "<urn:project>", Variable("p")),), part), PROJECTS.triples()) is (
        truth is True
    )


def test_not_outside_a_pattern_is_the_complement_but_not_inside_a_filter() -> None:
    """An item without a graph, or with an error in the filter, satisfies only `not graph { … }`."""
    name = Graph((Edge(PAGE, "<urn:name>", NAME),), Comparison(NAME, "<", '"B"'))
    inside = Graph(name.edges, Complement(Comparison(NAME, "<", '"B"')))
    for attributes in ({}, {"graph": (PROJECTS,)}, {"graph": ("no graph but a text",)}):
        assert not holds(name, attributes)
        assert not holds(inside, attributes)
        assert holds(Not(name), attributes)


def test_expensive_pattern_raises_an_error_after_limited_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_solutions, "MAX_ATTEMPTS", 10_000)
    triples = [(f"<urn:{number}>", "<urn:p>", f"<urn:{number + 1}>") for number in range(200)]
    apart = tuple(Edge(Variable(f"s{index}"), "<urn:p>", Variable(f"o{index}")) for index in range(4))
    never = Comparison(Variable("s0"), "=", Variable("o0"))
    with pytest.raises(TooExpensiveError, match="too many possible matches") as caught:
        matches_graph(Graph(apart, never), triples)
    assert caught.value.hint
    chain = tuple(Edge(Variable(f"n{index}"), "<urn:p>", Variable(f"n{index + 1}")) for index in range(40))
    assert len(list(solve(Graph(chain), triples))) == 161
