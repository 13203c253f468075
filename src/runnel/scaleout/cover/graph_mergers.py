"""Merge graph patterns (§4.3): replace several patterns by a more general one that each of them implies.

If publications are known, patterns that match the same summaries of publications are replaced by their common edges,
as in the paper. If there are no publications, or too many patterns remain, patterns are replaced by sub-patterns:
first by all edges without the filter, then by fewer and fewer of the rarest edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.arrays import Array
from runnel.model.graph import Triple
from runnel.scaleout.containment.root_index import Counters, RootIndex
from runnel.scaleout.cover.containing_graphs import common_edges, graph_text, sub_pattern

ALL_EDGES = 64
EDGES = (ALL_EDGES, 4, 2, 1)
"""The sizes of the sub-patterns that are tried one after the other."""


class GraphMergers:
    """Patterns, each of which stands for itself or is a member of a merger.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> one, two = Edge("<urn:a>", "<urn:p>", "<urn:b>"), Edge("<urn:a>", "<urn:q>", "<urn:c>")
    >>> mergers = GraphMergers([Graph((one, two)), Graph((one,))])
    >>> merge_by_edges(mergers, 1)
    >>> len(mergers), mergers.texts()[1].tolist()
    (1, [0, 0])

    `groups` has for every pattern its own number, or that of its merger. Mergers are numbered after the patterns.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = list(graphs)
        self.groups: Array = np.arange(len(self.graphs))
        self._mergers: dict[int, Graph] = {}

    def __len__(self) -> int:
        return len(np.unique(self.groups))

    def representatives(self) -> dict[int, Graph]:
        """Return the patterns and mergers that are in use, by their numbers in `groups`."""
        return {
            number: self.graphs[number] if number < len(self.graphs) else self._mergers[number]
            for number in np.unique(self.groups).tolist()
        }

    @property
    def next(self) -> int:
        """The number of the next merger."""
        return len(self.graphs) + len(self._mergers)

    def replace(self, replacements: dict[int, int], mergers: dict[int, Graph]) -> None:
        """Add mergers, numbered from `next` on, and replace patterns and mergers by them."""
        self._mergers |= mergers
        new_numbers = np.arange(self.next)
        new_numbers[list(replacements)] = list(replacements.values())
        self.groups = new_numbers[self.groups]

    def texts(self) -> tuple[tuple[str, ...], Array]:
        """Return the stored forms of the mergers in use, and by pattern the index of its merger, or -1."""
        texts: dict[str, int] = {}
        numbers = np.full(self.next, -1, dtype=np.int64)
        for number, graph in self.representatives().items():
            if number >= len(self.graphs):
                numbers[number] = texts.setdefault(graph_text(graph), len(texts))
        return tuple(texts), numbers[self.groups]


def merge_by_edges(mergers: GraphMergers, lower: int) -> None:
    """Merge patterns with the same sub-pattern, trying smaller and smaller ones, until `lower` are left."""
    for edges in EDGES:
        representatives = mergers.representatives()
        excess = len(representatives) - lower
        if excess <= 0:
            return
        shared = common_edges(representatives.values())
        groups: dict[Graph, list[int]] = {}
        for number, graph in representatives.items():
            groups.setdefault(sub_pattern(graph, edges, shared), []).append(number)
        replacements: dict[int, int] = {}
        new_mergers: dict[int, Graph] = {}
        for pattern, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0])):
            if excess <= 0 or len(members) < 2:
                break
            number = mergers.next + len(new_mergers)
            new_mergers[number] = pattern
            replacements |= dict.fromkeys(members, number)
            excess -= len(members) - 1
        mergers.replace(replacements, new_mergers)


def merge_by_publications(
    mergers: GraphMergers, lower: int, publications: Sequence[Sequence[Triple]]
) -> dict[str, int]:
    """Merge patterns that match the same publications and have common edges. Return counters."""
    index = RootIndex()
    for number, graph in enumerate(mergers.graphs):
        if graph.edges:
            index.subscribe(number, graph)
    below = len(index) - index.root_count
    for publication in publications:
        index.observe(publication)
    index.merge(max(1, lower - below))
    new_mergers: dict[int, Graph] = {}
    replacements: dict[int, int] = {}
    for merger in index.index.mergers():
        number = mergers.next + len(new_mergers)
        new_mergers[number] = index.index.store.graph(merger)
        replacements |= dict.fromkeys(index.index.subscriptions_below(merger), number)
    mergers.replace(replacements, new_mergers)
    index.counters = Counters()
    for publication in publications:
        index.match(publication)
    counters = index.counters
    return {
        "publications": counters.publications,
        "mergers_held": counters.mergers_held,
        "false_positives": counters.false_positives,
    }
