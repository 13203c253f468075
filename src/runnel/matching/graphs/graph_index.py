"""Graph patterns as a condition family: the index that `patterns.contract` requires."""

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

_MAX_TRIPLES = 500
"""Maximum number of triples per item whose terms are counted."""


class GraphIndex:
    """The index of graph patterns."""

    undecided = TOO_MANY_STEPS

    def compute_layout(
        self, patterns: Sequence[ItemPattern], keys: Array, frequencies: Mapping[str, float] | None
    ) -> GraphLayout:
        """Build the arrays of patterns. Frequencies of terms determine the order of edges, the rarest first."""
        return GraphLayout.of(PatternTable.of(cast(Sequence[Graph], patterns)), frequencies, keys)

    def stored(self, arrays: Arrays, keys: int) -> GraphLayout | None:
        """Read and check the layout in the arrays of a plan part. Return None if the part has no graph patterns."""
        if not GraphLayout.is_stored(arrays):
            return None
        layout = GraphLayout.stored(arrays)
        check_layout(layout, keys)
        return layout

    def matcher(self, layout: GraphLayout, atom_keys: Array) -> GraphPart:
        """Return the matcher of a layout."""
        return GraphPart(layout, atom_keys)

    def holds(self, pattern: ItemPattern, columns: ItemColumns, row: int) -> bool:
        """Return whether the item in a row of a batch matches a pattern."""
        return graph_holds(cast(Graph, pattern), columns, row)

    def search(self, attributes: Attributes) -> GraphSearch:
        """Return a search for patterns in one item."""
        return GraphSearch(attributes)

    def words(self, values: Sequence[Value]) -> Iterable[str]:
        """Return the terms of the first triples of the graphs. They cannot be confused with words of texts."""
        triples = (triple for value in values if isinstance(value, RdfGraph) for triple in value.triples())
        return {term_word(term) for triple in islice(triples, _MAX_TRIPLES) for term in triple}


GRAPH_INDEX = GraphIndex()
