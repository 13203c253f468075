"""The `PatternCover` of graph patterns: containment of patterns, and merging by common edges (see `contract`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import cast

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.arrays import Array
from runnel.errors import CorruptDataError
from runnel.model.graph import RdfGraph
from runnel.model.item import Value
from runnel.scaleout.containment.definition import contains
from runnel.scaleout.cover.containing_graphs import containing_pairs
from runnel.scaleout.cover.contract import MergedPatterns
from runnel.scaleout.cover.graph_mergers import GraphMergers, merge_by_edges, merge_by_publications


class GraphCover:
    """The cover of graph patterns."""

    copy_microseconds = 100.0
    """Measured with graphs of 90 triples."""

    def contains(self, wide: ItemPattern, narrow: ItemPattern) -> bool:
        """Return whether `wide` holds for every graph for which `narrow` does."""
        return contains(cast(Graph, wide), cast(Graph, narrow))

    def containing_pairs(
        self, patterns: Sequence[ItemPattern], counters: dict[str, int] | None
    ) -> tuple[Array, Array]:
        """Return positions of patterns, and of their ancestors in the containment trees."""
        return containing_pairs(cast(Sequence[Graph], patterns), counters)

    def merged(self, patterns: Sequence[ItemPattern], lower: int, samples: Sequence[Value]) -> MergedPatterns:
        """Merge patterns that match the same samples, and then those with common edges."""
        mergers = GraphMergers(cast(Sequence[Graph], patterns))
        graphs = [list(value.triples()) for value in samples if isinstance(value, RdfGraph)]
        counters = merge_by_publications(mergers, lower, graphs) if graphs else {}
        merge_by_edges(mergers, lower)
        return MergedPatterns(*mergers.texts(), counters)

    def features(self, text: str) -> Iterator[tuple[tuple[str, ...], bool]]:
        """Yield the edges. All variables count as equal, and an edge without variables is distinctive."""
        try:
            for edge in json.loads(text)[1]:
                nodes = tuple("?" if node.startswith("?") else node for node in edge)
                yield nodes, "?" not in nodes
        except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise CorruptDataError(f"not a graph pattern of a plan: {text[:200]}") from error


GRAPH_COVER = GraphCover()
