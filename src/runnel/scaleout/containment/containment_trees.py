"""Containment trees: patterns by number in, who lies below whom out.

Below a root lies what it contains; below a merger what was merged. Links are arrays, so that kernels can go through
them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel
from runnel.scaleout.containment.compare_demands import NO, YES
from runnel.scaleout.containment.homomorphism import MOST, NOBODY, StoredPatterns, find_homomorphism
from runnel.scaleout.containment.pattern_store import grown

NONE = -1


class TreeLinks(NamedTuple):
    """For every pattern its parent, the first below it, and the next and previous below the same, or NONE."""

    parents: Array
    firsts: Array
    nexts: Array
    befores: Array


class ContainmentTrees:
    """Who lies below whom."""

    def __init__(self) -> None:
        self.counts: Array = np.zeros(64, np.int32)
        self.links = TreeLinks(*(np.full(64, NONE, np.int32) for _ in TreeLinks._fields))

    def make_room(self, count: int) -> None:
        """Let numbers below a count have links."""
        old = len(self.links.parents)
        if count > old:
            self.counts = grown(self.counts, count)
            self.links = TreeLinks(*(grown(one, count) for one in self.links))
            for one in self.links:
                one[old:] = NONE

    def parent(self, pattern: int) -> int:
        """What a pattern lies below, or NONE."""
        return int(self.links.parents[pattern])

    def children(self, pattern: int) -> list[int]:
        """What lies directly below a pattern."""
        found: list[int] = []
        one = int(self.links.firsts[pattern])
        while one != NONE:
            found.append(one)
            one = int(self.links.nexts[one])
        return found

    def attach(self, pattern: int, parent: int) -> None:
        """Put a pattern that lies nowhere below another."""
        links = self.links
        first = links.firsts[parent]
        links.parents[pattern], links.nexts[pattern], links.befores[pattern] = parent, first, NONE
        if first != NONE:
            links.befores[first] = pattern
        links.firsts[parent] = pattern
        self.counts[parent] += 1

    def detach(self, pattern: int) -> None:
        """Take a pattern, with all below it, from where it lies."""
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
    """Find what holds of a publication below roots; `hits` gets how many, by root. The answer: how many were asked.

    Numbers go to `found`, end to end; of those that are not decided within the steps as -1 - number. What lies below
    one that does not hold is not looked at.
    """
    size, checked = 0, 0
    for place in range(len(roots)):
        root, before = roots[place], size
        one = links.firsts[root]
        while one != NONE:
            checked += 1
            answer = find_homomorphism(held, one, targets, 0, len(targets), NOBODY, MOST)
            if answer != NO:
                found[size] = one if answer == YES else -1 - one
                size += 1
            if answer != NO and links.firsts[one] != NONE:
                one = links.firsts[one]
                continue
            while one != root and links.nexts[one] == NONE:
                one = links.parents[one]
            one = NONE if one == root else links.nexts[one]
        hits[place] = size - before
    return checked
