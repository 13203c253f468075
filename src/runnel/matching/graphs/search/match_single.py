"""One graph pattern on one item, for where the index cannot be asked: bounded, unlike the definition."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from runnel.algebra.nodes.graph_patterns import Graph, canonical
from runnel.algebra.semantics.bindings import GraphSearch
from runnel.algebra.semantics.graph_solutions import Solution
from runnel.errors import TooExpensiveError
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.item_graph import ItemGraph
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.find_solutions import solutions_of
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.graph_part import TOO_MANY_STEPS, GraphSolutions
from runnel.matching.graphs.search.publications import read_publications
from runnel.model.graph import GRAPH
from runnel.model.item import Attributes, Item, Value
from runnel.model.item_batch import ItemBatch


def graph_holds(graph: Graph, columns: ItemColumns, row: int) -> bool:
    """Whether a pattern holds of an item of a batch; TooCostly where that takes too many steps.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.algebra.nodes.graph_patterns import Edge
    >>> from runnel.model.graph import RdfGraph
    >>> from runnel.model.item import Item
    >>> item = Item("One", "1", {"graph": (RdfGraph.of([("<urn:a>", "<urn:year>", '"1"')]),)})
    >>> columns = ItemColumns(ItemBatch.of([item], {"One": 1}))
    >>> graph_holds(Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)), columns, 0)
    True
    """
    if not columns.positions(row, GRAPH):
        return False
    matcher = _matcher(canonical(graph))
    one = ItemColumns(ItemBatch(columns.batch.records.slice(row, 1)))
    found = matcher.match(read_publications(one, matcher.layout.terms))
    if not len(found.keys) and len(found.doubted_keys):
        raise TooExpensiveError(TOO_MANY_STEPS)
    return bool(len(found.keys))


class ItemSearch(GraphSearch):
    """Graph patterns on one item, decided by the search that matching uses, within its bounds."""

    def __init__(self, attributes: Attributes) -> None:
        super().__init__(attributes)
        self._columns = ItemColumns(ItemBatch.of([Item("item", "item", attributes)], {"item": 1}))
        self._graph = ItemGraph(attributes)

    def holds(self, graph: Graph) -> bool | None:
        """Whether a pattern holds; None where the search was given up."""
        try:
            return graph_holds(graph, self._columns, 0)
        except TooExpensiveError:
            return None

    def solutions(self, graph: Graph) -> Iterator[Solution]:
        """The solutions of a pattern as terms, at most as many as a match shows."""
        pattern = canonical(graph)
        layout = _matcher(pattern).layout
        publications = read_publications(self._columns, layout.terms)
        places = np.arange(len(publications.rows))
        found = solutions_of(layout, publications, places, np.zeros(len(places), dtype=np.int64))
        told = GraphSolutions(publications, layout, found, places)
        for place in places.tolist():
            for terms in told.terms(place):
                yield dict(zip(pattern.names, terms, strict=True))

    def rows(self, graph: Graph) -> list[dict[str, Value]] | None:
        """The solutions as plain values; None where there are too many to ask operators about."""
        return self._graph.rows(graph)


@lru_cache(maxsize=1024)
def _matcher(graph: Graph) -> GraphMatcher:
    return GraphMatcher(GraphLayout.of(PatternTable.of([graph])))
