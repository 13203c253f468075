"""The graphs of a batch in arrays agree with the reference: triples, sorts and keys of terms, and order of texts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.graphs.edges import Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import XSD, Sort, known_term
from runnel.arrays import Array
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.matching.graphs.search.publications import Publications, read_publications
from runnel.model.graph import RdfGraph, escape_text
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch

TYPES = ("integer", "decimal", "double", "float", "boolean", "dateTime", "date", "string2", "int")
NUMERALS = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9).map(str),
    st.sampled_from(["", "-", "+7", "-0", ".5", "5.", "007", "1e3", "INF", "true", "2026-11-15", "1.2.3", "١٢"]),
)
TEXTS = st.text(alphabet='ab"\\\n\r éΩ東😀', max_size=4)
LITERALS = st.one_of(
    TEXTS.map(lambda text: f'"{escape_text(text)}"'),
    st.tuples(TEXTS, st.sampled_from(["en", "de-at"])).map(lambda pair: f'"{escape_text(pair[0])}"@{pair[1]}'),
    st.tuples(NUMERALS, st.sampled_from(TYPES)).map(lambda pair: f'"{pair[0]}"^^<{XSD}{pair[1]}>'),
)
NODES = st.sampled_from(["<urn:a>", "<urn:b>", "<urn:a-rather-long-name/with/parts>", "_:x", "_:y"])
LABELS = st.sampled_from(["<urn:p>", "<urn:q>", "<urn:r>"])
TRIPLES = st.tuples(NODES, LABELS, st.one_of(NODES, LITERALS))
GRAPHS = st.lists(TRIPLES, max_size=12).map(RdfGraph.of)


def columns_of(graphs: list[RdfGraph | None]) -> ItemColumns:
    items = [
        Item("Pages", str(row), {"title": ("no graph",), **({} if graph is None else {"graph": (graph,)})})
        for row, graph in enumerate(graphs)
    ]
    return ItemColumns(ItemBatch.of(items, {"Pages": 1}))


def index_of(terms: list[str]) -> tuple[list[str], TermIndex]:
    table = PatternTable.of([Graph((Edge("<urn:a>", "<urn:p>", term),)) for term in terms])
    return list(table.terms.texts()), TermIndex.of(table)


def told(publications: Publications, plan: list[str], number: int) -> str:
    return plan[number] if number < publications.plan_terms else publications.local_term(number)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.one_of(st.none(), GRAPHS.filter(bool)), max_size=5), st.lists(LITERALS, max_size=6))
def test_triples_sorts_and_keys_agree_with_the_reference(graphs: list[RdfGraph | None], terms: list[str]) -> None:
    plan, index = index_of(terms)
    publications = read_publications(columns_of(graphs), index)
    assert publications.rows.tolist() == [row for row, graph in enumerate(graphs) if graph]
    texts: dict[int, str] = {}
    for position, row in enumerate(publications.rows.tolist()):
        first, last = publications.offsets[position : position + 2].tolist()
        triples = list(zip(*(node[first:last].tolist() for node in _nodes(publications)), strict=True))
        assert triples == sorted(triples, key=lambda triple: (triple[1], triple[0], triple[2]))
        graph = graphs[row]
        assert graph is not None
        named = {tuple(told(publications, plan, number) for number in triple) for triple in triples}
        assert named == set(graph.triples())
        assert len(triples) == len(named)
        texts |= {number: told(publications, plan, number) for triple in triples for number in triple}
    assert len(set(texts.values())) == len(texts), "every term has one number"
    for number, text in texts.items():
        assert (number < publications.plan_terms) == (text in plan)
        stands_for = known_term(text)
        assert publications.sorts[number] == stands_for.sort
        if not isinstance(stands_for.key, str):
            key = float(publications.keys[number])
            assert key == stands_for.key or (math.isnan(key) and math.isnan(stands_for.key))
            assert math.copysign(1.0, key) == math.copysign(1.0, stands_for.key)
        elif stands_for.sort == Sort.TEXT:
            _check_ranks(publications, plan, number, stands_for.key)


def _nodes(publications: Publications) -> tuple[Array, Array, Array]:
    return publications.subjects, publications.labels, publications.objects


def _check_ranks(publications: Publications, plan: list[str], number: int, text: str) -> None:
    for other, term in enumerate(plan):
        if known_term(term).sort == Sort.TEXT:
            key = str(known_term(term).key)
            rank, its = int(publications.ranks[number]), int(publications.ranks[other])
            assert (rank < its, rank == its) == (text < key, text == key)


def test_large_graphs_are_sorted() -> None:
    graph = RdfGraph.of([(f"<urn:s{number % 7}>", f"<urn:p{number % 3}>", f'"{number}"') for number in range(500)])
    plan, index = index_of(['"7"'])
    publications = read_publications(columns_of([graph]), index)
    triples = list(
        zip(publications.labels.tolist(), publications.subjects.tolist(), publications.objects.tolist(), strict=True)
    )
    assert len(triples) == 500
    assert triples == sorted(triples)
    assert plan.index('"7"') in publications.objects.tolist()


@pytest.mark.parametrize("text", ["<urn:a>\n", "<urn:a> <urn:p> <urn:b>\n", "x y z .", " <urn:p> <urn:b> .\n", "\n"])
def test_text_that_is_not_a_graph_is_refused(text: str) -> None:
    _, index = index_of([])
    with pytest.raises(ValueError, match="canonical N-Triples"):
        read_publications(columns_of([RdfGraph(text)]), index)
