"""Runnel's own matcher under the contract of contenders: by shapes, each found under its rarest edge."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.publications import Publications
from runnel.papers.graphs.contract import Counters, Pairs, in_order, triples_of


class ShapeMatcher:
    """What plans run. Its counters: patterns checked, shapes searched for, ways found to lay them."""

    def __init__(self, table: PatternTable, frequencies: Mapping[str, float] | None = None) -> None:
        self.counters = Counters()
        self.layout = GraphLayout.of(table, frequencies)
        self._table, self._matcher = table, GraphMatcher(self.layout)

    @property
    def size(self) -> int:
        """The bytes of the arrays that are looked at for every item."""
        return sum(array.nbytes for array in self.layout.arrays().values())

    def match(self, publications: Publications) -> Pairs:
        """All pairs of a publication and a pattern that has a solution on it."""
        done = self._matcher.counters
        before = done.checks, done.shapes, done.bindings
        matched = self._matcher.match(publications)
        self.counters.touched += done.checks - before[0]
        self.counters.candidates += done.shapes - before[1]
        self.counters.joined += done.bindings - before[2]
        # A plan sets aside what takes too many steps; here the definition decides it.
        doubted = [
            (place, pattern)
            for place, pattern in zip(matched.doubted_places.tolist(), matched.doubted_keys.tolist(), strict=True)
            if matches_graph(self._table.graph(pattern), list(triples_of(self._table, publications, place)))
        ]
        settled = np.array(doubted, dtype=np.int64).reshape(-1, 2)
        places = np.concatenate([matched.places, settled[:, 0]])
        self.counters.matches += len(places)
        return in_order(places, np.concatenate([matched.keys.astype(np.int64), settled[:, 1]]))
