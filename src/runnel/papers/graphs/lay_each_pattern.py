"""Every pattern laid into every graph by the kernel of the join: what an index is worth beyond compiled code."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.publications import Publications
from runnel.papers.graphs.contract import Counters, Pairs, settle_programs
from runnel.papers.graphs.join_edges import Laid, Room, Triples, laid_shapes, lay, room_for, triples_in


class EachPatternMatcher:
    """No index at all."""

    def __init__(self, table: PatternTable) -> None:
        self.counters = Counters()
        self._table, self._laid = table, laid_shapes(table)

    @property
    def size(self) -> int:
        """The bytes of the shapes and constraints."""
        return sum(array.nbytes for array in self._laid)

    def match(self, publications: Publications) -> Pairs:
        """All pairs of a publication and a pattern that has a solution on it."""
        triples, room = triples_in(publications), room_for(self._laid)
        found = np.zeros(len(self._table), dtype=np.bool_)
        pairs: list[Pairs] = []
        for place in range(len(publications)):
            lay_all(place, self._laid, triples, room, found)
            patterns = np.flatnonzero(found)
            pairs.append((np.full(len(patterns), place), patterns))
        whole = tuple(np.concatenate([np.empty(0, np.int64), *(pair[side] for pair in pairs)]) for side in range(2))
        settled = settle_programs(self._table, publications, (whole[0], whole[1]))
        asked = len(publications) * len(self._table)
        self.counters.touched += asked
        self.counters.candidates += asked
        self.counters.joined += asked
        self.counters.matches += len(settled[0])
        return settled


@kernel
def lay_all(publication: int, laid: Laid, triples: Triples, room: Room, found: Array) -> None:
    """Say of every pattern whether it has a binding."""
    for pattern in range(len(found)):
        found[pattern] = lay(pattern, publication, True, laid, triples, room)
