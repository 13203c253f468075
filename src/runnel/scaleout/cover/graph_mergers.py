"""Mergers of graph patterns (§4.3): patterns in, for each the pattern that stands for it out, if one does.

Where publications are known, the paper's way: patterns that the same summary of publications matches become what they
have in common. Where none are, or that was not enough, a pattern becomes a sub-pattern: all of its edges without its
filter, then fewer and fewer of the edges that tell most.
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
"""How many edges mergers by edges have, in the order in which they are tried."""


class GraphMergers:
    """Patterns, each its own or a member of a merger.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> one, two = Edge("<urn:a>", "<urn:p>", "<urn:b>"), Edge("<urn:a>", "<urn:q>", "<urn:c>")
    >>> mergers = GraphMergers([Graph((one, two)), Graph((one,))])
    >>> merge_by_edges(mergers, 1)
    >>> len(mergers), mergers.texts()[1].tolist()
    (1, [0, 0])

    `groups` has for every pattern the number of what stands for it: its own, or a merger's behind them.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = list(graphs)
        self.groups: Array = np.arange(len(self.graphs))
        self._mergers: dict[int, Graph] = {}

    def __len__(self) -> int:
        return len(np.unique(self.groups))

    def standing(self) -> dict[int, Graph]:
        """The patterns and mergers that stand for something, by a number in `groups`."""
        return {
            one: self.graphs[one] if one < len(self.graphs) else self._mergers[one]
            for one in np.unique(self.groups).tolist()
        }

    @property
    def next(self) -> int:
        """The number of the next merger."""
        return len(self.graphs) + len(self._mergers)

    def replace(self, standing: dict[int, int], mergers: dict[int, Graph]) -> None:
        """Let new mergers, by numbers from `next` on, stand for what others stood for."""
        self._mergers |= mergers
        turned = np.arange(self.next)
        turned[list(standing)] = list(standing.values())
        self.groups = turned[self.groups]

    def texts(self) -> tuple[tuple[str, ...], Array]:
        """The mergers that stand for something as stored atoms; and by pattern the place of its merger, or -1."""
        texts: dict[str, int] = {}
        numbers = np.full(self.next, -1, dtype=np.int64)
        for one, graph in self.standing().items():
            if one >= len(self.graphs):
                numbers[one] = texts.setdefault(graph_text(graph), len(texts))
        return tuple(texts), numbers[self.groups]


def merge_by_edges(mergers: GraphMergers, lower: int) -> None:
    """Merge patterns that have the same sub-pattern, until there are so few; the sub-patterns become ever smaller."""
    for edges in EDGES:
        standing = mergers.standing()
        excess = len(standing) - lower
        if excess <= 0:
            return
        shared = common_edges(standing.values())
        groups: dict[Graph, list[int]] = {}
        for number, graph in standing.items():
            groups.setdefault(sub_pattern(graph, edges, shared), []).append(number)
        found: dict[int, int] = {}
        made: dict[int, Graph] = {}
        for pattern, members in sorted(groups.items(), key=lambda one: (-len(one[1]), one[1][0])):
            if excess <= 0 or len(members) < 2:
                break
            number = mergers.next + len(made)
            made[number] = pattern
            found |= dict.fromkeys(members, number)
            excess -= len(members) - 1
        mergers.replace(found, made)


def merge_by_publications(
    mergers: GraphMergers, lower: int, publications: Sequence[Sequence[Triple]]
) -> dict[str, int]:
    """Merge patterns that the same publications match, as far as they have something in common; what was counted."""
    index = RootIndex()
    for number, graph in enumerate(mergers.graphs):
        if graph.edges:
            index.subscribe(number, graph)
    below = len(index) - index.root_count
    for publication in publications:
        index.observe(publication)
    index.merge(max(1, lower - below))
    made: dict[int, Graph] = {}
    found: dict[int, int] = {}
    for merger in index.index.mergers():
        number = mergers.next + len(made)
        made[number] = index.index.store.graph(merger)
        found |= dict.fromkeys(index.index.subscriptions_below(merger), number)
    mergers.replace(found, made)
    index.counters = Counters()
    for publication in publications:
        index.match(publication)
    counted = index.counters
    return {
        "publications": counted.publications,
        "mergers_held": counted.mergers_held,
        "false_positives": counted.false_positives,
    }
