"""An index of subscriptions by containment (§4.2, §4.4): trees in which each pattern contains those below it.

A new pattern is put below a root that contains it. Otherwise it becomes a root, and the roots that it contains are
put below it. If a root is removed, its children are placed again; if another pattern is removed, its children move to
its parent. Mergers (§4.3) are roots without a subscription. A merger stays correct if a member is removed, and is
computed again after a quarter of its members was removed.
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

    `each` limits the work for placing a pattern, in units of about one listed pattern or edge that is checked. Work
    that earlier patterns did not use is available to later ones, starting with `spare`. A pattern that is not placed
    within the limit becomes a root, even if others contain it, and is counted in `given_up`.
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
        """Listed patterns that are not roots."""
        self._removed: list[int] = []
        self._patterns: dict[int, int] = {}
        self._removed_members: dict[int, int] = {}
        self._generation = self.store.generation
        self._found: Array = np.zeros(64, np.int64)

    def __len__(self) -> int:
        return len(self._patterns)

    def __contains__(self, subscription: int) -> bool:
        return subscription in self._patterns

    def insert(self, subscription: int, graph: Graph) -> None:
        """Add a subscription under a new number. Its pattern must have an edge."""
        if subscription in self._patterns:
            raise ValueError(f"subscription {subscription} is already in the index")
        pattern = self._add(graph)
        self._patterns[subscription] = pattern
        self.owners[pattern] = subscription
        self._insert_into_trees(pattern)

    def remove(self, subscription: int) -> None:
        """Remove a subscription (§4.4)."""
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
                self._insert_into_trees(child)
        elif self.kinds[parent] == MERGER:
            self._repair_merger(parent)

    def roots(self) -> list[int]:
        """Return the subscriptions that are roots, in ascending order."""
        return sorted(self.owners[np.flatnonzero(self.kinds == ROOT)].tolist())

    def mergers(self) -> list[int]:
        """Return the numbers of the mergers."""
        return [int(pattern) for pattern in np.flatnonzero(self.kinds == MERGER)]

    def below(self, subscription: int) -> list[int]:
        """Return the subscriptions below another, on any level, in ascending order."""
        return self.subscriptions_below(self._patterns[subscription])

    def subscriptions_below(self, pattern: int) -> list[int]:
        """Return the subscriptions below a root or merger, given by its number: the part of a back end (§4.2)."""
        subscriptions: list[int] = []
        pending = self.trees.children(pattern)
        while pending:
            node = pending.pop()
            subscriptions.append(int(self.owners[node]))
            pending += self.trees.children(node)
        return sorted(subscriptions)

    def merge(self, graph: Graph) -> int:
        """Add a merger, and put all roots that it contains below it. Return by how many the roots decreased."""
        merger = self._add(graph)
        before = self.root_count
        members = self._place(merger, above=False) or []
        if len(members) < 2:
            self._stale += 1
            self._forget(merger)
            return 0
        self._removed_members[merger] = 0
        self.kinds[merger] = MERGER
        self.root_count += 1
        for member in members:
            self._put_below(member, merger)
        return before - self.root_count

    @property
    def counters(self) -> tuple[int, int]:
        """The number of listed patterns that were read while inserting and matching, and how many were checked."""
        counts = (self.access.lists.counts, self.edges.lists.counts)
        return sum(int(count[LOOKED]) for count in counts), sum(int(count[CHECKED]) for count in counts)

    @property
    def work(self) -> int:
        """The total work for checking listed patterns so far."""
        return int(self.access.lists.counts[WORK]) + int(self.edges.lists.counts[WORK])

    @property
    def size(self) -> int:
        """The size of the arrays in bytes."""
        own = (self.kinds, self.marks, self.owners, self._listed, self._found, *self.trees.links)
        return self.store.size + self.access.size + self.edges.size + sum(array.nbytes for array in own)

    def result_buffer(self) -> Array:
        """Return the array to which kernels write the numbers of patterns; it has room for all."""
        return self._found

    def seek(self, targets: Array, begin: int, end: int, frozen: int) -> int:
        """Return how many roots and mergers map into edges (see `seek_roots`).

        Their numbers are in `result_buffer()`.
        """
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

    def _insert_into_trees(self, pattern: int) -> None:
        """Insert a pattern that has no parent, with its subtree."""
        contained = self._place(pattern, above=True)
        if contained is None:
            self.kinds[pattern] = BELOW
            self.trees.attach(pattern, int(self._found[0]))
            return
        self.kinds[pattern] = ROOT
        self.root_count += 1
        for contained_root in contained:
            self._put_below(contained_root, pattern)

    def _place(self, pattern: int, *, above: bool) -> list[int] | None:
        """Find the place of a pattern. Return None if `above` is set and a root or merger contains it.

        Otherwise list the pattern, and return the roots and mergers that it contains.
        """
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
            # A search may slightly exceed the limit. The next pattern has less work available then.
            self._spare = most - (self.work - before)
            self.given_up += count >= 0 and self._spare < 0
        if count < 0:
            return None
        self._listed[pattern] = True
        self._stale -= listed
        return self._found[:count].tolist() if count else []

    def _put_below(self, pattern: int, parent: int) -> None:
        """Put a root below another one. Of a merger, put its children there and remove the merger."""
        if self.kinds[pattern] == MERGER:
            for child in self._remove_merger(pattern):
                self.trees.attach(child, parent)
        else:
            self._unroot(pattern, BELOW)
            self.trees.attach(pattern, parent)

    def _remove_merger(self, merger: int) -> list[int]:
        """Remove a merger, and return its children, which have no parent then."""
        children = self.trees.children(merger)
        for child in children:
            self.trees.detach(child)
        del self._removed_members[merger]
        self._unroot(merger, OUTSIDE)
        self._forget(merger)
        return children

    def _repair_merger(self, merger: int) -> None:
        """Compute a merger again if many members were removed: it still contains the others, but is too general."""
        self._removed_members[merger] += 1
        members = int(self.trees.counts[merger])
        if members > 1 and 4 * self._removed_members[merger] <= members:
            return
        children = self._remove_merger(merger)
        for child in children:
            self._make_root(child, ROOT)
        if len(children) > 1:
            graph = self.intersection(children)
            if graph is not None and self.merge(graph):
                return
        for child in children:
            self._unroot(child, OUTSIDE)
        for child in children:
            self._insert_into_trees(child)

    def intersection(self, patterns: Iterable[int]) -> Graph | None:
        """Return the intersection of patterns, or None if they have nothing in common."""
        first, *others = patterns
        common: Graph | None = self.store.graph(first)
        for pattern in others:
            common = None if common is None else intersect_patterns(common, self.store.graph(pattern))
        return common

    def _make_root(self, pattern: int, kind: int) -> None:
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
        """Turn a root into another kind. It stays listed until many are stale, because it may become a root again."""
        self.kinds[pattern] = kind
        self.root_count -= 1
        self._stale += 1
        if self._stale > 1024 and self._stale > self.root_count:
            self._relist()

    def _relist(self) -> None:
        """Clear the lists, and list only the current roots and mergers."""
        self._listed[:] = False
        self._stale = 0
        self.access.clear()
        self.edges.clear()
        removed, self._removed = self._removed, []
        for pattern in removed:
            self.store.forget(pattern)
        self._generation = self.store.generation
        self.root_count = 0
        for root in np.flatnonzero((self.kinds == ROOT) | (self.kinds == MERGER)):
            self._make_root(int(root), int(self.kinds[root]))

    def _forget(self, pattern: int) -> None:
        """Remove a pattern from the store as soon as it is no longer listed."""
        self.owners[pattern] = _NOBODY
        if self._listed[pattern]:
            self._removed.append(pattern)
            return
        self.store.forget(pattern)
        if self.store.generation != self._generation:
            self._relist()
