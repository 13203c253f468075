"""Runnel's own matcher, adapted to the contract: it searches by shapes, each indexed by its rarest edge."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.publications import Publications
from runnel.papers.graphs.contract import Counters, Pairs, sort_pairs, triples_of


class ShapeMatcher:
    """Adapts the matcher of plans. Counts patterns checked, shapes searched and bindings found."""

    def __init__(self, table: PatternTable, frequencies: Mapping[str, float] | None = None) -> None:
        self.counters = Counters()
        self.layout = GraphLayout.of(table, frequencies)
        self._table, self._matcher = table, GraphMatcher(self.layout)

    @property
    def size(self) -> int:
        """The size in bytes of the arrays that are read for every item."""
        return sum(array.nbytes for array in self.layout.arrays().values())

    def match(self, publications: Publications) -> Pairs:
        """Return all pairs of a publication and a pattern that has a solution on it."""
        done = self._matcher.counters
        before = done.checks, done.shapes, done.bindings
        matched = self._matcher.match(publications)
        self.counters.touched += done.checks - before[0]
        self.counters.candidates += done.shapes - before[1]
        self.counters.joined += done.bindings - before[2]
        # A plan quarantines a search that takes too many steps. Here the definition decides it.
        doubted = [
            (place, pattern)
            for place, pattern in zip(matched.doubted_places.tolist(), matched.doubted_keys.tolist(), strict=True)
            if matches_graph(self._table.graph(pattern), list(triples_of(self._table, publications, place)))
        ]
        settled = np.array(doubted, dtype=np.int64).reshape(-1, 2)
        places = np.concatenate([matched.places, settled[:, 0]])
        self.counters.matches += len(places)
        return sort_pairs(places, np.concatenate([matched.keys.astype(np.int64), settled[:, 1]]))
