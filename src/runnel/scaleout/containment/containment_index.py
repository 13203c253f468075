"""The index of containment (§4.2, §4.4): subscriptions in, trees whose roots contain all that lies below out.

A new pattern that a root contains comes below it; otherwise it becomes a root, and the roots that it contains come
below it. Where a root goes, what lay below it is placed anew; where another goes, what lay below it comes below its
parent. Mergers (§4.3) are roots that nobody subscribed to; they stay right when a member goes, and are made anew
when a quarter has gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.arrays import Array
from runnel.scaleout.containment.containment_trees import NONE, ContainmentTrees
from runnel.scaleout.containment.edge_postings import (
    BELOW,
    CHECKED,
    ENDLESS,
    LOOKED,
    MERGER,
    OUTSIDE,
    ROOT,
    WORK,
    list_pattern,
    place_pattern,
    seek_roots,
)
from runnel.scaleout.containment.growing_lists import GrowingLists
from runnel.scaleout.containment.intersect_patterns import intersect_patterns
from runnel.scaleout.containment.pattern_store import PatternStore, grown

_NOBODY = -1


class ContainmentIndex:
    """Subscriptions in containment trees.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.algebra.graphs.edges import Comparison, Edge
    >>> year = (Edge(Variable("p"), "<urn:year>", Variable("y")),)
    >>> index = ContainmentIndex()
    >>> index.insert(7, Graph(year, Comparison(Variable("y"), ">", '"2"')))
    >>> index.insert(8, Graph(year))
    >>> index.roots(), index.below(8)
    ([8], [7])
    >>> index.remove(8)
    >>> index.roots()
    [7]

    With `each`, placing a pattern may take so much work (about a listed pattern or an edge that is looked at), and
    what others left of theirs, `spare` among it. What is not placed by then becomes a root, though others may contain
    it, and is counted: `given_up`.
    """

    def __init__(self, *, each: int | None = None, spare: int = 0) -> None:
        self.store = PatternStore()
        self.trees = ContainmentTrees()
        self.access = GrowingLists()
        self.edges = GrowingLists()
        self.kinds: Array = np.zeros(64, np.uint8)
        self.marks: Array = np.zeros(64, np.int64)
        self.owners: Array = np.full(64, _NOBODY, np.int64)
        self.root_count = 0
        self.given_up = 0
        self._each, self._spare = each, spare
        self._listed: Array = np.zeros(64, bool)
        self._stamp = 0
        self._stale = 0
        self._gone: list[int] = []
        self._patterns: dict[int, int] = {}
        self._lost: dict[int, int] = {}
        self._generation = self.store.generation
        self._found: Array = np.zeros(64, np.int64)

    def __len__(self) -> int:
        return len(self._patterns)

    def __contains__(self, subscription: int) -> bool:
        return subscription in self._patterns

    def insert(self, subscription: int, graph: Graph) -> None:
        """Take in a subscription; its number is new, and its pattern has an edge."""
        if subscription in self._patterns:
            raise ValueError(f"subscription {subscription} is there already")
        pattern = self._add(graph)
        self._patterns[subscription] = pattern
        self.owners[pattern] = subscription
        self._settle(pattern)

    def remove(self, subscription: int) -> None:
        """Take out a subscription (§4.4)."""
        pattern = self._patterns.pop(subscription)
        parent, children = self.trees.parent(pattern), self.trees.children(pattern)
        for child in children:
            self.trees.detach(child)
        if parent == NONE:
            self._unroot(pattern, OUTSIDE)
        else:
            self.trees.detach(pattern)
            self.kinds[pattern] = OUTSIDE
            for child in children:
                self.trees.attach(child, parent)
        self._forget(pattern)
        if parent == NONE:
            for child in children:
                self._settle(child)
        elif self.kinds[parent] == MERGER:
            self._mend(parent)

    def roots(self) -> list[int]:
        """The subscriptions that are roots, ascending."""
        return sorted(self.owners[np.flatnonzero(self.kinds == ROOT)].tolist())

    def mergers(self) -> list[int]:
        """The numbers of the patterns that stand for others."""
        return [int(one) for one in np.flatnonzero(self.kinds == MERGER)]

    def below(self, subscription: int) -> list[int]:
        """The subscriptions that lie below one, on whatever level, ascending."""
        return self.subscriptions_below(self._patterns[subscription])

    def subscriptions_below(self, pattern: int) -> list[int]:
        """The subscriptions that lie below a root or merger by its number: what a back end is given (§4.2)."""
        found: list[int] = []
        waiting = self.trees.children(pattern)
        while waiting:
            one = waiting.pop()
            found.append(int(self.owners[one]))
            waiting += self.trees.children(one)
        return sorted(found)

    def merge(self, graph: Graph) -> int:
        """Put all roots that a new merger contains below it; how many roots are fewer."""
        merger = self._add(graph)
        before = self.root_count
        members = self._place(merger, above=False) or []
        if len(members) < 2:
            self._stale += 1
            self._forget(merger)
            return 0
        self._lost[merger] = 0
        self.kinds[merger] = MERGER
        self.root_count += 1
        for one in members:
            self._put_below(one, merger)
        return before - self.root_count

    @property
    def counters(self) -> tuple[int, int]:
        """How many listed patterns were looked at while inserting and matching, and how many of them were laid."""
        both = (self.access.lists.counts, self.edges.lists.counts)
        return sum(int(one[LOOKED]) for one in both), sum(int(one[CHECKED]) for one in both)

    @property
    def work(self) -> int:
        """What looking at listed patterns has taken so far."""
        return int(self.access.lists.counts[WORK]) + int(self.edges.lists.counts[WORK])

    @property
    def size(self) -> int:
        """How many bytes the arrays take."""
        own = (self.kinds, self.marks, self.owners, self._listed, self._found, *self.trees.links)
        return self.store.size + self.access.size + self.edges.size + sum(one.nbytes for one in own)

    def found(self) -> Array:
        """Room for the numbers of all patterns, for kernels to write into."""
        return self._found

    def seek(self, targets: Array, begin: int, end: int, frozen: int) -> int:
        """How many roots and mergers can be laid into edges (see `seek_roots`); their numbers are in `found()`."""
        lists, stamp = self.access.lists, self._next_stamp()
        held, kinds, marks = self.store.held, self.kinds, self.marks
        return int(seek_roots(held, lists, kinds, marks, stamp, targets, begin, end, frozen, ENDLESS, self._found))

    def _next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def _add(self, graph: Graph) -> int:
        if not graph.edges:
            raise ValueError("a pattern without edges cannot be indexed")
        pattern = self.store.add(graph)
        room = self.store.room
        if room > len(self.kinds):
            self.kinds, self.marks = grown(self.kinds, room), grown(self.marks, room)
            self.owners, self._listed = grown(self.owners, room), grown(self._listed, room)
            self._found = np.zeros(room, np.int64)
            self.trees.make_room(room)
        self.owners[pattern] = _NOBODY
        return pattern

    def _settle(self, pattern: int) -> None:
        """Place a pattern that lies nowhere, with all below it."""
        contained = self._place(pattern, above=True)
        if contained is None:
            self.kinds[pattern] = BELOW
            self.trees.attach(pattern, int(self._found[0]))
            return
        self.kinds[pattern] = ROOT
        self.root_count += 1
        for one in contained:
            self._put_below(one, pattern)

    def _place(self, pattern: int, *, above: bool) -> list[int] | None:
        """None where a pattern has a container, if one is sought; otherwise what it contains, and it is listed."""
        listed = bool(self._listed[pattern])
        self._make_room(pattern)
        self._stamp += 2
        most = ENDLESS if self._each is None else self._spare + self._each
        before = self.work
        count = place_pattern(
            self.store.held,
            self.access.lists,
            self.edges.lists,
            self.kinds,
            self.marks,
            self._stamp - 1,
            pattern,
            above,
            listed,
            most,
            self._found,
        )
        if self._each is not None:
            # A search may go a little beyond: whoever comes next has less.
            self._spare = most - (self.work - before)
            self.given_up += count >= 0 and self._spare < 0
        if count < 0:
            return None
        self._listed[pattern] = True
        self._stale -= listed
        return self._found[:count].tolist() if count else []

    def _put_below(self, pattern: int, parent: int) -> None:
        """Put a root below another one; of a merger, what lies below it."""
        if self.kinds[pattern] == MERGER:
            for child in self._drop(pattern):
                self.trees.attach(child, parent)
        else:
            self._unroot(pattern, BELOW)
            self.trees.attach(pattern, parent)

    def _drop(self, merger: int) -> list[int]:
        """Take out a merger; the answer is what lay directly below it, and now lies nowhere."""
        children = self.trees.children(merger)
        for child in children:
            self.trees.detach(child)
        del self._lost[merger]
        self._unroot(merger, OUTSIDE)
        self._forget(merger)
        return children

    def _mend(self, merger: int) -> None:
        """A member of a merger has gone. The merger still contains the others, but may say too little."""
        self._lost[merger] += 1
        members = int(self.trees.counts[merger])
        if members > 1 and 4 * self._lost[merger] <= members:
            return
        children = self._drop(merger)
        for child in children:
            self._root(child, ROOT)
        if len(children) > 1:
            graph = self.intersection(children)
            if graph is not None and self.merge(graph):
                return
        for child in children:
            self._unroot(child, OUTSIDE)
        for child in children:
            self._settle(child)

    def intersection(self, patterns: Iterable[int]) -> Graph | None:
        """What patterns have in common, or None."""
        first, *others = patterns
        found: Graph | None = self.store.graph(first)
        for pattern in others:
            found = None if found is None else intersect_patterns(found, self.store.graph(pattern))
        return found

    def _root(self, pattern: int, kind: int) -> None:
        self.kinds[pattern] = kind
        self.root_count += 1
        if self._listed[pattern]:
            self._stale -= 1
            return
        self._listed[pattern] = True
        self._make_room(pattern)
        list_pattern(self.store.held, self.access.lists, self.edges.lists, pattern)

    def _make_room(self, pattern: int) -> None:
        self.access.make_room(1)
        self.edges.make_room(8 * int(self.store.held.places[pattern, 1]))

    def _unroot(self, pattern: int, kind: int) -> None:
        """A root becomes something else. It stays listed until many have: it may come back."""
        self.kinds[pattern] = kind
        self.root_count -= 1
        self._stale += 1
        if self._stale > 1024 and self._stale > self.root_count:
            self._relist()

    def _relist(self) -> None:
        """List the roots anew, and no others."""
        self._listed[:] = False
        self._stale = 0
        self.access.clear()
        self.edges.clear()
        gone, self._gone = self._gone, []
        for pattern in gone:
            self.store.forget(pattern)
        self._generation = self.store.generation
        self.root_count = 0
        for root in np.flatnonzero((self.kinds == ROOT) | (self.kinds == MERGER)):
            self._root(int(root), int(self.kinds[root]))

    def _forget(self, pattern: int) -> None:
        """Give a pattern's number free, once nothing lists it."""
        self.owners[pattern] = _NOBODY
        if self._listed[pattern]:
            self._gone.append(pattern)
            return
        self.store.forget(pattern)
        if self.store.generation != self._generation:
            self._relist()
