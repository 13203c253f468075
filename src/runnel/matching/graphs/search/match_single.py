"""One graph pattern on one item, for where the index cannot be asked: bounded, unlike the definition."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import cast

import numpy as np

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.item_patterns import ItemPattern, Solution
from runnel.errors import TooExpensiveError
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.item_graph import ItemGraph
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.find_solutions import solutions_of
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.graph_part import GraphSolutions
from runnel.matching.graphs.search.publications import read_publications
from runnel.matching.patterns.contract import FoundSolutions
from runnel.model.graph import GRAPH
from runnel.model.item import Attributes, Item
from runnel.model.item_batch import ItemBatch

TOO_MANY_STEPS = "the item's graph has too many ways to compare it with a graph pattern of this query"
"""Why a query stays undecided where a search was abandoned."""


def graph_holds(graph: Graph, columns: ItemColumns, row: int) -> bool:
    """Whether a pattern holds of an item of a batch; TooExpensiveError where that takes too many steps.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.algebra.graphs.edges import Edge
    >>> from runnel.model.graph import RdfGraph
    >>> from runnel.model.item import Item
    >>> item = Item("One", "1", {"graph": (RdfGraph.of([("<urn:a>", "<urn:year>", '"1"')]),)})
    >>> columns = ItemColumns(ItemBatch.of([item], {"One": 1}))
    >>> graph_holds(Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)), columns, 0)
    True
    """
    if not columns.positions(row, GRAPH):
        return False
    matcher = _matcher(graph.canonical())
    one = ItemColumns(ItemBatch(columns.batch.records.slice(row, 1)))
    found = matcher.match(read_publications(one, matcher.layout.terms))
    if not len(found.keys) and len(found.doubted_keys):
        raise TooExpensiveError(TOO_MANY_STEPS)
    return bool(len(found.keys))


class GraphSearch:
    """Graph patterns on one item, decided by the search that matching uses, within its limits."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._graph = ItemGraph(attributes)

    @cached_property
    def _columns(self) -> ItemColumns:
        return ItemColumns(ItemBatch.of([Item("item", "item", self._attributes)], {"item": 1}))

    def holds(self, pattern: ItemPattern) -> bool | None:
        """Whether a pattern holds; None where the search was abandoned."""
        try:
            return graph_holds(cast(Graph, pattern), self._columns, 0)
        except TooExpensiveError:
            return None

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """The solutions of a pattern as terms, at most as many as a match shows."""
        graph = cast(Graph, pattern).canonical()
        layout = _matcher(graph).layout
        publications = read_publications(self._columns, layout.terms)
        places = np.arange(len(publications.rows))
        found = solutions_of(layout, publications, places, np.zeros(len(places), dtype=np.int64))
        told = GraphSolutions(publications, layout, found, places)
        for place in places.tolist():
            for terms in told.terms(place):
                yield dict(zip(graph.names, terms, strict=True))

    def found(self, pattern: ItemPattern) -> FoundSolutions:
        """The solutions of a pattern, as many as the limits allow."""
        return self._graph.found(cast(Graph, pattern))


@lru_cache(maxsize=1024)
def _matcher(graph: Graph) -> GraphMatcher:
    return GraphMatcher(GraphLayout.of(PatternTable.of([graph])))
