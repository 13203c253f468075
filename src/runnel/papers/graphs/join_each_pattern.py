"""Join every pattern with every graph, without an index. It shows what an index adds to compiled code."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.publications import Publications
from runnel.papers.graphs.contract import Counters, Pairs, check_programs
from runnel.papers.graphs.join_edges import (
    JoinOrders,
    JoinState,
    Triples,
    has_binding,
    make_state,
    order_shapes,
    triple_arrays,
)


class EachPatternMatcher:
    """Joins every pattern with every publication."""

    def __init__(self, table: PatternTable) -> None:
        self.counters = Counters()
        self._table, self._orders = table, order_shapes(table)

    @property
    def size(self) -> int:
        """The size in bytes of the shapes and constraints."""
        return sum(array.nbytes for array in self._orders)

    def match(self, publications: Publications) -> Pairs:
        """Return all pairs of a publication and a pattern that has a solution on it."""
        triples, state = triple_arrays(publications), make_state(self._orders)
        has_match = np.zeros(len(self._table), dtype=np.bool_)
        pairs: list[Pairs] = []
        for publication in range(len(publications)):
            join_all(publication, self._orders, triples, state, has_match)
            patterns = np.flatnonzero(has_match)
            pairs.append((np.full(len(patterns), publication), patterns))
        columns = tuple(np.concatenate([np.empty(0, np.int64), *(pair[side] for pair in pairs)]) for side in range(2))
        checked = check_programs(self._table, publications, (columns[0], columns[1]))
        pair_count = len(publications) * len(self._table)
        self.counters.touched += pair_count
        self.counters.candidates += pair_count
        self.counters.joined += pair_count
        self.counters.matches += len(checked[0])
        return checked


@kernel
def join_all(publication: int, orders: JoinOrders, triples: Triples, state: JoinState, has_match: Array) -> None:
    """Set for every pattern whether it has a binding."""
    for pattern in range(len(has_match)):
        has_match[pattern] = has_binding(pattern, publication, True, orders, triples, state)
