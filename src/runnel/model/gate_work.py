"""The work of gates that compare items with those of windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class GateWork:
    """What a gate did for some items.

    `items` reached the gate, and `passed` of them passed. `candidates` are the window items that they were compared
    with, and `joined` those that they joined. If gates share comparisons, each counts them, but the `nanoseconds` are
    divided among them by their items.
    """

    items: int = 0
    passed: int = 0
    candidates: int = 0
    joined: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True)
class GateWorkColumns:
    """The work of several gates: a row for each field of `GateWork`, with a column for each gate.

    >>> work = GateWorkColumns(np.array([[4, 0, 2], [1, 0, 2], [7, 0, 9], [1, 0, 3], [50, 0, 20]]))
    >>> work.total()
    GateWork(items=6, passed=3, candidates=16, joined=4, nanoseconds=70)
    >>> list(work.busiest(1))
    [(2, GateWork(items=2, passed=2, candidates=9, joined=3, nanoseconds=20))]
    """

    counts: npt.NDArray[np.int64]

    def total(self) -> GateWork:
        """Return the work of all gates together."""
        return GateWork(*self.counts.sum(axis=1).tolist())

    def busiest(self, limit: int) -> Iterator[tuple[int, GateWork]]:
        """Yield the gates that items reached, those with the most candidates first, with their work."""
        items, candidates = self.counts[0], self.counts[2]
        reached = np.flatnonzero(items)
        order = np.lexsort((-items[reached], -candidates[reached]))[:limit]
        for position in reached[order].tolist():
            yield position, GateWork(*self.counts[:, position].tolist())
