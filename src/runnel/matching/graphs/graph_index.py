"""Graph patterns as a condition family: what matching asks of them, in one place (see `patterns.contract`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import cast

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.arrays import Array, Arrays
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.check_layout import check_layout
from runnel.matching.graphs.patterns.edge_orders import term_word
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.graph_part import GraphPart
from runnel.matching.graphs.search.match_single import TOO_MANY_STEPS, GraphSearch, graph_holds
from runnel.model.graph import RdfGraph
from runnel.model.item import Attributes, Value

_MOST_TRIPLES = 500
"""Triples of an item whose terms are counted."""


class GraphIndex:
    """The index of graph patterns."""

    undecided = TOO_MANY_STEPS

    def lay_out(
        self, patterns: Sequence[ItemPattern], keys: Array, frequencies: Mapping[str, float] | None
    ) -> GraphLayout:
        """The patterns in arrays, ordered by the rarity of their edges."""
        return GraphLayout.of(PatternTable.of(cast(Sequence[Graph], patterns)), frequencies, keys)

    def stored(self, arrays: Arrays, keys: int) -> GraphLayout | None:
        """The layout among the arrays of a plan part, checked."""
        if not GraphLayout.is_stored(arrays):
            return None
        found = GraphLayout.stored(arrays)
        check_layout(found, keys)
        return found

    def matcher(self, layout: GraphLayout, atom_keys: Array) -> GraphPart:
        """A layout at work."""
        return GraphPart(layout, atom_keys)

    def holds(self, pattern: ItemPattern, columns: ItemColumns, row: int) -> bool:
        """Whether a pattern holds of one item of a batch."""
        return graph_holds(cast(Graph, pattern), columns, row)

    def search(self, attributes: Attributes) -> GraphSearch:
        """A search on one item."""
        return GraphSearch(attributes)

    def words(self, values: Sequence[Value]) -> Iterable[str]:
        """The terms of the graphs, which are no words of any text."""
        triples = (triple for value in values if isinstance(value, RdfGraph) for triple in value.triples())
        return {term_word(term) for triple in islice(triples, _MOST_TRIPLES) for term in triple}


GRAPH_INDEX = GraphIndex()
