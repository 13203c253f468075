"""One contract for all matchers of graph patterns: the same pairs as the definition, on generated cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.algebra.graphs.edges import AllOf, AnyOf, Comparison, Complement, Edge, GraphFilter
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import RELATIONS, Variable
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.matching.graphs.search.publications import Publications, read_publications
from runnel.model.graph import RdfGraph
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.papers.graphs.contract import Counters, GraphContender
from runnel.papers.graphs.registry import CONTENDERS

RESOURCES = ("<urn:a>", "<urn:b>", "<urn:c>", "<urn:p>")
BLANKS = ("_:one", "_:two")
LABELS = ("<urn:p>", "<urn:q>", "<urn:a>")
LITERALS = (
    '"rock"',
    '"jazz"',
    '"a \\"quoted\\" text"',
    '"rock"@en',
    '"rock"@fr',
    *(f'"{number}"^^<{XSD}integer>' for number in ("1", "2", "02", "7")),
    f'"2.0"^^<{XSD}decimal>',
    f'"NaN"^^<{XSD}double>',
    f'"-INF"^^<{XSD}double>',
    f'"true"^^<{XSD}boolean>',
    f'"2024-03-01T10:00:00Z"^^<{XSD}dateTime>',
    f'"2024-03-01T12:00:00+02:00"^^<{XSD}dateTime>',
    f'"2024-03-01"^^<{XSD}date>',
    '"x"^^<urn:other>',
    f'"many"^^<{XSD}integer>',
)
VARIABLES = tuple(Variable(name) for name in ("x", "y", "z", "_:w"))

triples = st.tuples(
    st.sampled_from((*RESOURCES, *BLANKS)), st.sampled_from(LABELS), st.sampled_from((*RESOURCES, *BLANKS, *LITERALS))
)
graphs = st.builds(RdfGraph.of, st.lists(triples, max_size=12))
subjects = st.sampled_from((*RESOURCES, *VARIABLES, *VARIABLES))
labels = st.sampled_from((*LABELS, *LABELS, *VARIABLES))
objects = st.sampled_from((*RESOURCES, *LITERALS, *VARIABLES, *VARIABLES, *VARIABLES))
edges = st.builds(Edge, subjects, labels, objects)


@st.composite
def patterns(draw: st.DrawFn) -> Graph:
    """A pattern of one to four edges, and a filter over its variables: often plain constraints, sometimes more."""
    laid = tuple(draw(st.lists(edges, min_size=1, max_size=4)))
    names = [Variable(name) for name in Graph(laid).variables() if not name.startswith("_:")]
    if not names or draw(st.integers(0, 3)) == 0:
        return Graph(laid).canonical()
    terms = st.sampled_from((*LITERALS, *LITERALS, *RESOURCES))
    plain = st.builds(Comparison, st.sampled_from(names), st.sampled_from(RELATIONS), terms)
    turned = st.builds(Comparison, terms, st.sampled_from(RELATIONS), st.sampled_from(names))
    crossed = st.builds(Comparison, st.sampled_from(names), st.sampled_from(RELATIONS), st.sampled_from(names))
    any_comparison = plain | turned | crossed
    parts: st.SearchStrategy[GraphFilter] = (
        any_comparison
        | st.builds(Complement, any_comparison)
        | st.builds(AnyOf, st.tuples(any_comparison, any_comparison))
        | st.builds(Complement, st.builds(AllOf, st.tuples(any_comparison, any_comparison)))
    )
    simple = st.lists(plain, min_size=1, max_size=3)
    several: st.SearchStrategy[list[GraphFilter]] = st.lists(parts, min_size=1, max_size=3)
    chosen: Sequence[GraphFilter] = draw(simple) if draw(st.booleans()) else draw(several)
    return Graph(laid, chosen[0] if len(chosen) == 1 else AllOf(tuple(chosen))).canonical()


def read(results: Sequence[RdfGraph], terms: TermIndex) -> Publications:
    """The graphs as a batch of items, with one that has none between."""
    items = [Item("Pages", str(number), {"graph": (graph,)}) for number, graph in enumerate(results)]
    items.insert(len(items) // 2, Item("Pages", "none", {"title": ("no graph here",)}))
    return read_publications(ItemColumns(ItemBatch.of(items, {"Pages": 1})), terms)


Make = Callable[[PatternTable, TermIndex], GraphContender]
matchers = pytest.mark.parametrize("make", CONTENDERS.values(), ids=CONTENDERS.keys())


@matchers
@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(asked=st.lists(patterns(), min_size=1, max_size=12), found=st.lists(graphs, max_size=5))
def test_every_matcher_finds_what_the_definition_says(make: Make, asked: list[Graph], found: list[RdfGraph]) -> None:
    table = PatternTable.of(asked)
    terms = TermIndex.of(table)
    matcher = make(table, terms)
    for _ in range(2):  # what is kept between batches must not show
        places, matched = matcher.match(read(found, terms))
        wanted = [
            (index, pattern)
            for index, graph in enumerate(found)
            for pattern, value in enumerate(asked)
            if matches_graph(value, list(graph.triples()))
        ]
        assert list(zip(places.tolist(), matched.tolist(), strict=True)) == wanted
    assert matcher.counters.matches == 2 * len(wanted)
    assert matcher.size > 0


@matchers
def test_every_term_is_compared_with_every_other_as_defined(make: Make) -> None:
    """One constraint each: all relations, all sorts of terms on both sides."""
    terms = (*RESOURCES[:2], *LITERALS)
    edge = Edge("<urn:a>", "<urn:p>", Variable("y"))
    asked = [
        Graph((edge,), Comparison(Variable("y"), relation, term)).canonical()
        for relation in RELATIONS
        for term in terms
    ]
    results = [RdfGraph.of([("<urn:a>", "<urn:p>", term)]) for term in terms]
    table = PatternTable.of(asked)
    index = TermIndex.of(table)
    places, numbers = make(table, index).match(read(results, index))
    wanted = [
        (position, number)
        for position, graph in enumerate(results)
        for number, pattern in enumerate(asked)
        if matches_graph(pattern, graph.triples())
    ]
    assert list(zip(places.tolist(), numbers.tolist(), strict=True)) == wanted


def many(count: int) -> list[Graph]:
    """Patterns of one structure that differ by their bound, half of them from above."""
    year = Edge(Variable("p"), "<urn:year>", Variable("y"))
    kind = Edge(Variable("p"), "<urn:kind>", "<urn:project>")
    return [
        Graph(
            (year, kind), Comparison(Variable("y"), "<" if bound % 2 else ">", f'"{bound}"^^<{XSD}integer>')
        ).canonical()
        for bound in range(count)
    ]


def project(year: int) -> RdfGraph:
    number = f'"{year}"^^<{XSD}integer>'
    return RdfGraph.of([("<urn:a>", "<urn:kind>", "<urn:project>"), ("<urn:a>", "<urn:year>", number)])


def counted(name: str, asked: list[Graph], results: list[RdfGraph]) -> Counters:
    table = PatternTable.of(asked)
    terms = TermIndex.of(table)
    matcher = CONTENDERS[name](table, terms)
    matcher.match(read(results, terms))
    return matcher.counters


def test_constraint_tables_keep_patterns_from_the_join() -> None:
    asked, results = many(200), [project(1), project(198)]
    with_tables, without = counted("union_graph", asked, results), counted("joined", asked, results)
    assert with_tables.matches == without.matches == counted("scan", asked, results).matches
    assert without.joined == 2 * 200
    assert with_tables.joined == with_tables.matches < 220


def test_a_pattern_with_one_of_its_edges_is_not_joined() -> None:
    """As printed, the paper's match joins whatever has an edge: here nothing is laid that lacks one."""
    results = [RdfGraph.of([("<urn:a>", "<urn:year>", f'"5"^^<{XSD}integer>')])]
    for name in ("union_graph", "joined"):
        counters = counted(name, many(10), results)
        assert counters.candidates > 0
        assert counters.joined == counters.matches == 0


@matchers
def test_more_edges_than_bits_are_all_required(make: Make) -> None:
    chain = [Edge(Variable(f"v{step % 30}"), f"<urn:{step}>", f"<urn:end{step}>") for step in range(70)]
    asked = [Graph(tuple(chain)).canonical()]
    whole = [(f"<urn:s{step % 30}>", f"<urn:{step}>", f"<urn:end{step}>") for step in range(70)]
    table = PatternTable.of(asked)
    terms = TermIndex.of(table)
    publications = read(
        [RdfGraph.of(whole), *(RdfGraph.of(whole[:at] + whole[at + 1 :]) for at in (0, 3, 66))], terms
    )
    places, matched = make(table, terms).match(publications)
    assert (places.tolist(), matched.tolist()) == ([0], [0])


@matchers
def test_no_publications_and_no_patterns(make: Make) -> None:
    table = PatternTable.of([])
    terms = TermIndex.of(table)
    places, matched = make(table, terms).match(read([project(3)], terms))
    assert len(places) == len(matched) == 0
    assert places.dtype == matched.dtype == np.int64
