"""The reference matcher: evaluate every pattern on every graph by the definition."""

from __future__ import annotations

import numpy as np

from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.publications import Publications
from runnel.papers.graphs.contract import Counters, Pairs, triples_of


class GraphScanMatcher:
    """Evaluates every pair with `algebra.graphs.graph_solutions`."""

    def __init__(self, table: PatternTable) -> None:
        self.counters = Counters()
        self._table = table
        self._graphs = [table.graph(pattern) for pattern in range(len(table))]

    @property
    def size(self) -> int:
        """The size in bytes of the patterns."""
        return sum(array.nbytes for array in self._table.arrays().values())

    def match(self, publications: Publications) -> Pairs:
        """Return all pairs of a publication and a pattern that has a solution on it."""
        matches: list[tuple[int, int]] = []
        for publication in range(len(publications)):
            triples = list(triples_of(self._table, publications, publication))
            matches += [
                (publication, pattern) for pattern, graph in enumerate(self._graphs) if matches_graph(graph, triples)
            ]
        for name in ("touched", "candidates", "joined"):
            setattr(self.counters, name, getattr(self.counters, name) + len(publications) * len(self._graphs))
        self.counters.matches += len(matches)
        pairs = np.array(matches, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0].copy(), pairs[:, 1].copy()
