"""The chains of all ways, kept in order while ways come and go (sections 4.2.1 and 4.2.5).

In: the tests of a way that is added, or a way that is removed. Out: all ways in the order in which to evaluate them.
Adding and removing touch the way's own nodes; when the order is asked for, only chains that share a test with
what has changed are scored anew and moved. The order is the same, to the last place, as that of chains built anew.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from runnel.arrays import IDENTIFIER, Array, offsets_of, read_only
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.chain_links import (
    NOTHING,
    ChainLinks,
    find_places,
    find_stale,
    link_all,
    score_all,
    unlink,
)

_MOST_COST = 4096.0
"""A cost counts as at most so many units: the sums of a million chains fit."""
_ROOM = 64
_FEW_STALE = 30
"""Where fewer than one in so many ways are stale, each is moved by itself."""


class Chains:
    """Ways as chains of tests.

    `chances` and `costs` are those of the tests; `unit` is what counts as one unit of cost.

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
        self._tests = self._ways = self._nodes = self._dead = 0
        self._links = _empty()
        self._is_late = False
        self._changed: list[int] = []
        self._fresh: list[int] = []
        self._gone: list[int] = []
        self._sequence: Array = np.empty(0, dtype=IDENTIFIER)
        self.grow(chances, costs)

    @staticmethod
    def of(problem: OrderProblem) -> Chains:
        """The chains of a problem's ways, numbered as there."""
        costs = problem.costs[problem.test_calls]
        chains = Chains(problem.chances, costs, float(costs.mean()) if len(costs) else 1.0)
        chains._ways, chains._nodes = problem.disjuncts, len(problem.disjunct_tests)
        chains._make_room()
        ways = np.arange(problem.disjuncts, dtype=IDENTIFIER)
        link_all(chains._links, ways, problem.disjunct_offsets, problem.disjunct_tests, 0)
        chains._sort_all()
        return chains

    def grow(self, chances: npt.ArrayLike, costs: npt.ArrayLike) -> None:
        """Make more tests known; they get the next numbers."""
        passing, prices = np.asarray(chances, dtype=np.float64), np.asarray(costs, dtype=np.float64)
        known = self._tests
        self._tests += len(passing)
        self._make_room()
        links, new = self._links, slice(known, self._tests)
        links.chances[new] = passing
        links.costs[new] = np.minimum(prices / self._unit, _MOST_COST)
        with np.errstate(divide="ignore", invalid="ignore"):
            wishes = links.costs[new] / (1.0 - passing)
        links.heads[new] = NOTHING
        links.wishes[new] = np.where(passing >= 1.0, np.inf, wishes)

    def add(self, tests: npt.ArrayLike) -> int:
        """Add a way with these tests; gives its number, which is never used again."""
        chain = read_only(np.ascontiguousarray(tests, dtype=IDENTIFIER))
        if len(chain) and not 0 <= chain.min() <= chain.max() < self._tests:
            raise ValueError("a way has a test that is not known")
        way, start = self._ways, self._nodes
        self._ways += 1
        self._nodes += len(chain)
        self._make_room()
        one, whole = np.array([way], dtype=IDENTIFIER), read_only(np.array([0, len(chain)]))
        link_all(self._links, one, whole, chain, start)
        self._links.is_stale[way] = self._links.is_new[way] = True
        self._fresh.append(way)
        self._note(chain)
        return way

    def remove(self, way: int) -> None:
        """Remove a way."""
        if not 0 <= way < self._ways or self._links.lengths[way] == NOTHING:
            raise ValueError(f"there is no way {way}")
        self._note(self.chain(way))
        if not self._links.is_new[way]:
            self._gone.append(way)
        self._dead += int(self._links.lengths[way])
        unlink(self._links, way)
        if self._dead > _ROOM + (self._nodes - self._dead):
            self._compact()

    def chain(self, way: int) -> Array:
        """The tests of a way, from top to bottom."""
        start = self._links.starts[way]
        return self._links.node_tests[start : start + self._links.lengths[way]].copy()

    def tests(self) -> Array:
        """The chains of all ways, one after another, where none was removed since."""
        return self._links.node_tests[: self._nodes].copy()

    def order(self) -> Array:
        """The ways that there are, in the order in which they are best evaluated."""
        if self._is_late:
            stale = self._stale()
            if len(stale) > len(self._sequence) // _FEW_STALE:
                self._sort_again(stale)
            else:
                self._move(stale)
        return read_only(self._sequence)

    def _note(self, tests: Array) -> None:
        """Note tests whose sums have changed."""
        self._is_late = True
        changed = tests[~self._links.is_changed[tests]]
        self._links.is_changed[changed] = True
        self._changed.extend(changed.tolist())

    def _stale(self) -> Array:
        found = np.empty(self._ways, dtype=IDENTIFIER)
        count = find_stale(self._links, np.array(self._changed, dtype=np.int64), found)
        fresh = np.array(self._fresh, dtype=IDENTIFIER)
        # New ways were marked as stale when they came, so they are not among those found.
        stale = np.concatenate([found[:count], fresh[self._links.lengths[fresh] != NOTHING]])
        self._changed, self._fresh, self._is_late = [], [], False
        return stale

    def _move(self, stale: Array) -> None:
        """Score stale ways anew and put each where it belongs; the others keep their places."""
        links, sequence = self._links, self._sequence
        old = np.concatenate([stale[~links.is_new[stale]], np.array(self._gone, dtype=IDENTIFIER)])
        kept = np.ones(len(sequence), dtype=bool)
        kept[find_places(links.scores, sequence, old)] = False  # by the scores that they had
        rest = sequence[kept]
        score_all(links, stale)
        fresh = self._sorted(stale)
        self._sequence = np.insert(rest, find_places(links.scores, rest, fresh), fresh)
        self._settle(stale)

    def _sort_again(self, stale: Array) -> None:
        """Score stale ways anew and sort all: they are nearly in order, and sorting makes use of that."""
        links = self._links
        score_all(links, stale)
        kept = self._sequence[links.lengths[self._sequence] != NOTHING]
        ways = np.concatenate([kept, stale[links.is_new[stale]]])
        found = np.argsort(-links.scores[ways], kind="stable")
        sequence, scores = ways[found], links.scores[ways[found]]
        is_crossed = (scores[1:] == scores[:-1]) & (sequence[1:] < sequence[:-1])
        self._sequence = self._sorted(sequence) if is_crossed.any() else sequence
        self._settle(stale)

    def _sort_all(self) -> None:
        ways = self._alive()
        score_all(self._links, ways)
        self._sequence = self._sorted(ways)
        self._settle(ways)

    def _settle(self, ways: Array) -> None:
        """Note that the order is that of what there is now."""
        self._links.is_stale[ways] = False
        self._links.is_new[ways] = False
        self._gone = []

    def _alive(self) -> Array:
        return np.flatnonzero(self._links.lengths[: self._ways] != NOTHING).astype(IDENTIFIER)

    def _sorted(self, ways: Array) -> Array:
        return np.asarray(ways[np.lexsort((ways, -self._links.scores[ways]))])

    def _make_room(self) -> None:
        sizes = (7 * [self._tests]) + (6 * [self._nodes]) + (5 * [self._ways])
        self._links = ChainLinks(*(_with_room(kept, size) for kept, size in zip(self._links, sizes, strict=True)))

    def _compact(self) -> None:
        """Leave out the nodes of removed ways."""
        ways = self._alive()
        kept = [self.chain(way) for way in ways.tolist()]
        tests = np.concatenate([np.empty(0, dtype=IDENTIFIER), *kept])
        for array, value in ((self._links.heads, NOTHING), (self._links.reach_sums, 0), (self._links.cost_sums, 0)):
            array[:] = value
        link_all(self._links, ways, read_only(offsets_of([len(chain) for chain in kept])), read_only(tests), 0)
        self._nodes, self._dead = len(tests), 0


def _empty() -> ChainLinks:
    tests = ("f8", "f8", "f8", "i8", "i8", "i8", "?")
    nodes = ("i4", "i4", "i8", "i8", "i8", "i8")
    ways = ("i8", "i8", "f8", "?", "?")
    return ChainLinks(*(np.empty(0, dtype=kind) for kind in (*tests, *nodes, *ways)))


def _with_room(array: Array, size: int) -> Array:
    """The same array if it has room, otherwise a larger one; what is new is 0."""
    if len(array) >= size:
        return array
    larger = np.zeros(max(size, 2 * len(array), _ROOM), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
