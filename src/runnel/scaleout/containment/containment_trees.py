"""Containment trees of patterns, which are identified by numbers.

A root contains the patterns below it, and a merger those that it was made of. The links are arrays, so that kernels
can traverse them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel
from runnel.scaleout.containment.compare_demands import NO, YES
from runnel.scaleout.containment.homomorphism import MAX_TRIED_EDGES, NOBODY, StoredPatterns, find_homomorphism
from runnel.scaleout.containment.pattern_store import grown

NONE = -1


class TreeLinks(NamedTuple):
    """For every pattern its parent, its first child, and its next and previous sibling, or NONE."""

    parents: Array
    firsts: Array
    nexts: Array
    befores: Array


class ContainmentTrees:
    """The parent and the children of each pattern."""

    def __init__(self) -> None:
        self.counts: Array = np.zeros(64, np.int32)
        self.links = TreeLinks(*(np.full(64, NONE, np.int32) for _ in TreeLinks._fields))

    def make_room(self, count: int) -> None:
        """Make room for the links of numbers below `count`."""
        old = len(self.links.parents)
        if count > old:
            self.counts = grown(self.counts, count)
            self.links = TreeLinks(*(grown(array, count) for array in self.links))
            for array in self.links:
                array[old:] = NONE

    def parent(self, pattern: int) -> int:
        """Return the parent of a pattern, or NONE."""
        return int(self.links.parents[pattern])

    def children(self, pattern: int) -> list[int]:
        """Return the children of a pattern."""
        children: list[int] = []
        child = int(self.links.firsts[pattern])
        while child != NONE:
            children.append(child)
            child = int(self.links.nexts[child])
        return children

    def attach(self, pattern: int, parent: int) -> None:
        """Make a pattern without a parent a child of another."""
        links = self.links
        first = links.firsts[parent]
        links.parents[pattern], links.nexts[pattern], links.befores[pattern] = parent, first, NONE
        if first != NONE:
            links.befores[first] = pattern
        links.firsts[parent] = pattern
        self.counts[parent] += 1

    def detach(self, pattern: int) -> None:
        """Remove a pattern, with its subtree, from its parent."""
        links = self.links
        parent, following, before = links.parents[pattern], links.nexts[pattern], links.befores[pattern]
        if parent == NONE:
            return
        self.counts[parent] -= 1
        if before == NONE:
            links.firsts[parent] = following
        else:
            links.nexts[before] = following
        if following != NONE:
            links.befores[following] = before
        links.parents[pattern] = links.nexts[pattern] = links.befores[pattern] = NONE


@kernel
def seek_below(
    held: StoredPatterns, links: TreeLinks, roots: Array, targets: Array, found: Array, hits: Array
) -> Number:
    """Find the patterns below roots that hold for a publication, and return the number of patterns that were checked.

    Write the numbers of the patterns to `found`, one root after the other, and their count by root to `hits`. A
    pattern that is undecided after the maximum number of steps is written as -1 - number. Patterns below one that
    does not hold are skipped.
    """
    size, checked = 0, 0
    for index in range(len(roots)):
        root, before = roots[index], size
        node = links.firsts[root]
        while node != NONE:
            checked += 1
            answer = find_homomorphism(held, node, targets, 0, len(targets), NOBODY, MAX_TRIED_EDGES)
            if answer != NO:
                found[size] = node if answer == YES else -1 - node
                size += 1
            if answer != NO and links.firsts[node] != NONE:
                node = links.firsts[node]
                continue
            while node != root and links.nexts[node] == NONE:
                node = links.parents[node]
            node = NONE if node == root else links.nexts[node]
        hits[index] = size - before
    return checked
