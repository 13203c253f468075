"""The chains of all disjuncts, kept in order while disjuncts are added and removed (sections 4.2.1 and 4.2.5).

In: the tests of a disjunct that is added, or a disjunct that is removed. Out: all disjuncts in the order in which to
evaluate them. Adding and removing change only the disjunct's own nodes. When the order is read, only the chains that
share a test with a changed chain are scored again and moved. The order is exactly that of newly built chains.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from runnel.arrays import IDENTIFIER, Array, offsets_of, read_only
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.chain_links import (
    NOTHING,
    ChainLinks,
    find_positions,
    find_stale,
    link_all,
    score_all,
    unlink,
)

_MAX_COST = 4096.0
"""The maximum cost of a test, in units, so that the sums of a million chains do not overflow."""
_MIN_CAPACITY = 64
_FEW_STALE = 30
"""If at most one in this many disjuncts is stale, the stale ones are moved individually."""


class Chains:
    """Disjuncts as chains of tests.

    `chances` and `costs` are those of the tests; `unit` is the cost that counts as one unit.

    >>> chains = Chains(chances=[0.5, 0.2, 0.9], costs=[1.0, 1.0, 1.0])
    >>> chains.add([0, 2]), chains.add([2, 1]), chains.add([0, 1])
    (0, 1, 2)
    >>> chains.chain(1).tolist(), chains.order().tolist()
    ([1, 2], [0, 1, 2])
    >>> chains.remove(0)
    >>> chains.order().tolist()
    [1, 2]
    """

    def __init__(self, chances: npt.ArrayLike, costs: npt.ArrayLike, unit: float = 1.0) -> None:
        self._unit = unit if unit > 0 else 1.0
        self._tests = self._disjuncts = self._nodes = self._dead = 0
        self._links = _empty()
        self._is_late = False
        self._changed: list[int] = []
        self._fresh: list[int] = []
        self._gone: list[int] = []
        self._sequence: Array = np.empty(0, dtype=IDENTIFIER)
        self.grow(chances, costs)

    @staticmethod
    def of(problem: OrderProblem) -> Chains:
        """Build the chains of a problem's disjuncts, with the same numbers."""
        costs = problem.costs[problem.test_calls]
        chains = Chains(problem.chances, costs, float(costs.mean()) if len(costs) else 1.0)
        chains._disjuncts, chains._nodes = problem.disjuncts, len(problem.disjunct_tests)
        chains._reserve()
        disjuncts = np.arange(problem.disjuncts, dtype=IDENTIFIER)
        link_all(chains._links, disjuncts, problem.disjunct_offsets, problem.disjunct_tests, 0)
        chains._sort_all()
        return chains

    def grow(self, chances: npt.ArrayLike, costs: npt.ArrayLike) -> None:
        """Add tests, which get the next numbers."""
        pass_chances, test_costs = np.asarray(chances, dtype=np.float64), np.asarray(costs, dtype=np.float64)
        known = self._tests
        self._tests += len(pass_chances)
        self._reserve()
        links, new = self._links, slice(known, self._tests)
        links.chances[new] = pass_chances
        links.costs[new] = np.minimum(test_costs / self._unit, _MAX_COST)
        with np.errstate(divide="ignore", invalid="ignore"):
            priorities = links.costs[new] / (1.0 - pass_chances)
        links.heads[new] = NOTHING
        links.priorities[new] = np.where(pass_chances >= 1.0, np.inf, priorities)

    def add(self, tests: npt.ArrayLike) -> int:
        """Add a disjunct with these tests. Return its number, which is never reused."""
        chain = read_only(np.ascontiguousarray(tests, dtype=IDENTIFIER))
        if len(chain) and not 0 <= chain.min() <= chain.max() < self._tests:
            raise ValueError("a disjunct has an unknown test")
        disjunct, start = self._disjuncts, self._nodes
        self._disjuncts += 1
        self._nodes += len(chain)
        self._reserve()
        disjuncts, offsets = np.array([disjunct], dtype=IDENTIFIER), read_only(np.array([0, len(chain)]))
        link_all(self._links, disjuncts, offsets, chain, start)
        self._links.is_stale[disjunct] = self._links.is_new[disjunct] = True
        self._fresh.append(disjunct)
        self._mark_changed(chain)
        return disjunct

    def remove(self, disjunct: int) -> None:
        """Remove a disjunct."""
        if not 0 <= disjunct < self._disjuncts or self._links.lengths[disjunct] == NOTHING:
            raise ValueError(f"there is no disjunct {disjunct}")
        self._mark_changed(self.chain(disjunct))
        if not self._links.is_new[disjunct]:
            self._gone.append(disjunct)
        self._dead += int(self._links.lengths[disjunct])
        unlink(self._links, disjunct)
        if self._dead > _MIN_CAPACITY + (self._nodes - self._dead):
            self._compact()

    def chain(self, disjunct: int) -> Array:
        """Return the tests of a disjunct, from top to bottom."""
        start = self._links.starts[disjunct]
        return self._links.node_tests[start : start + self._links.lengths[disjunct]].copy()

    def tests(self) -> Array:
        """Return the chains of all disjuncts, one after another. No disjunct may have been removed."""
        return self._links.node_tests[: self._nodes].copy()

    def order(self) -> Array:
        """Return the disjuncts in the order in which to evaluate them."""
        if self._is_late:
            stale = self._stale()
            if len(stale) > len(self._sequence) // _FEW_STALE:
                self._sort_again(stale)
            else:
                self._move(stale)
        return read_only(self._sequence)

    def _mark_changed(self, tests: Array) -> None:
        """Record tests whose sums have changed."""
        self._is_late = True
        changed = tests[~self._links.is_changed[tests]]
        self._links.is_changed[changed] = True
        self._changed.extend(changed.tolist())

    def _stale(self) -> Array:
        linked = np.empty(self._disjuncts, dtype=IDENTIFIER)
        count = find_stale(self._links, np.array(self._changed, dtype=np.int64), linked)
        fresh = np.array(self._fresh, dtype=IDENTIFIER)
        # New disjuncts were marked as stale when they were added, so they are not in `linked`.
        stale = np.concatenate([linked[:count], fresh[self._links.lengths[fresh] != NOTHING]])
        self._changed, self._fresh, self._is_late = [], [], False
        return stale

    def _move(self, stale: Array) -> None:
        """Score stale disjuncts again and move each to its position; the others keep their order."""
        links, sequence = self._links, self._sequence
        old = np.concatenate([stale[~links.is_new[stale]], np.array(self._gone, dtype=IDENTIFIER)])
        kept = np.ones(len(sequence), dtype=bool)
        kept[find_positions(links.scores, sequence, old)] = False  # found by their old scores
        rest = sequence[kept]
        score_all(links, stale)
        fresh = self._sorted(stale)
        self._sequence = np.insert(rest, find_positions(links.scores, rest, fresh), fresh)
        self._mark_current(stale)

    def _sort_again(self, stale: Array) -> None:
        """Score stale disjuncts again and sort all. They are nearly in order, which makes sorting fast."""
        links = self._links
        score_all(links, stale)
        kept = self._sequence[links.lengths[self._sequence] != NOTHING]
        disjuncts = np.concatenate([kept, stale[links.is_new[stale]]])
        by_score = np.argsort(-links.scores[disjuncts], kind="stable")
        sequence, scores = disjuncts[by_score], links.scores[disjuncts[by_score]]
        is_crossed = (scores[1:] == scores[:-1]) & (sequence[1:] < sequence[:-1])
        self._sequence = self._sorted(sequence) if is_crossed.any() else sequence
        self._mark_current(stale)

    def _sort_all(self) -> None:
        disjuncts = self._alive()
        score_all(self._links, disjuncts)
        self._sequence = self._sorted(disjuncts)
        self._mark_current(disjuncts)

    def _mark_current(self, disjuncts: Array) -> None:
        """Mark the order as up to date: these disjuncts are not stale or new, and removed ones are not in it."""
        self._links.is_stale[disjuncts] = False
        self._links.is_new[disjuncts] = False
        self._gone = []

    def _alive(self) -> Array:
        return np.flatnonzero(self._links.lengths[: self._disjuncts] != NOTHING).astype(IDENTIFIER)

    def _sorted(self, disjuncts: Array) -> Array:
        return np.asarray(disjuncts[np.lexsort((disjuncts, -self._links.scores[disjuncts]))])

    def _reserve(self) -> None:
        sizes = (7 * [self._tests]) + (6 * [self._nodes]) + (5 * [self._disjuncts])
        self._links = ChainLinks(*(_with_capacity(kept, size) for kept, size in zip(self._links, sizes, strict=True)))

    def _compact(self) -> None:
        """Leave out the nodes of removed disjuncts."""
        disjuncts = self._alive()
        kept = [self.chain(disjunct) for disjunct in disjuncts.tolist()]
        tests = np.concatenate([np.empty(0, dtype=IDENTIFIER), *kept])
        for array, value in ((self._links.heads, NOTHING), (self._links.reach_sums, 0), (self._links.cost_sums, 0)):
            array[:] = value
        link_all(self._links, disjuncts, read_only(offsets_of([len(chain) for chain in kept])), read_only(tests), 0)
        self._nodes, self._dead = len(tests), 0


def _empty() -> ChainLinks:
    tests = ("f8", "f8", "f8", "i8", "i8", "i8", "?")
    nodes = ("i4", "i4", "i8", "i8", "i8", "i8")
    disjuncts = ("i8", "i8", "f8", "?", "?")
    return ChainLinks(*(np.empty(0, dtype=kind) for kind in (*tests, *nodes, *disjuncts)))


def _with_capacity(array: Array, size: int) -> Array:
    """Return the array if it has `size` elements, or a larger copy whose new elements are 0."""
    if len(array) >= size:
        return array
    larger = np.zeros(max(size, 2 * len(array), _MIN_CAPACITY), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
