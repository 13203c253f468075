"""One graph pattern on one item, for where the index cannot be asked: bounded, unlike the definition."""

from __future__ import annotations

from functools import lru_cache

from runnel.algebra.nodes.graph_patterns import Graph, canonical
from runnel.errors import TooExpensiveError
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.graph_part import TOO_MANY_STEPS
from runnel.matching.graphs.search.publications import read_publications
from runnel.model.graph import GRAPH
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


@lru_cache(maxsize=1024)
def _matcher(graph: Graph) -> GraphMatcher:
    return GraphMatcher(GraphLayout.of(PatternTable.of([graph])))
