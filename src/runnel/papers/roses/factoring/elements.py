"""The elements of predicates: the clauses, own and wider, that a predicate shares with another one.

A set of a predicate's elements is a mask in one word, so a predicate has at most 62.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.kernel import kernel
from runnel.papers.roses.factoring.filters import Filters

MOST_ELEMENTS = 62


@dataclass(frozen=True)
class Elements:
    """Elements by predicate, in ascending order of clauses.

    `own` says which are the predicate's own clauses. `closures` has for each the mask of the elements that it
    implies, itself included. `ranked` has the places of a predicate's elements, own ones and selective ones first.
    """

    rows: Rows
    own: Array
    closures: Array
    ranked: Array

    def closed(self, predicates: Array, masks: Array) -> Array:
        """Masks over the elements of these predicates, with all elements that they imply."""
        return _closed(self.rows.offsets[predicates], masks, self.closures)

    def own_masks(self, predicates: Rows) -> Array:
        """The mask of all own clauses of a predicate; 0 if no other predicate has one of them."""
        bits = np.where(self.own, _bits(self.rows), np.uint64(0))
        masks = np.zeros(len(predicates), dtype=np.uint64)
        np.bitwise_or.at(masks, _owners(self.rows), bits)
        masks[np.bitwise_count(masks) < predicates.lengths] = 0
        return masks


def find_elements(predicates: Rows, filters: Filters) -> Elements:
    """The elements of distinct, reduced predicates.

    >>> predicates = Rows.of([[0, 2], [1], [3]])
    >>> wider = Rows.of([[3], [3], [], []])  # the clauses 0 and 1 both imply 3
    >>> found = find_elements(predicates, Filters.of(predicates, np.array([0.1, 0.1, 0.1, 0.5]), wider))
    >>> list(found.rows.lists()), found.own.tolist()
    ([[3], [3], [3]], [False, False, True])
    """
    owners, clauses, own = _collected(predicates, filters.wider)
    support = np.bincount(clauses, minlength=len(filters.selectivities))
    kept = support[clauses] >= 2
    owners, clauses, own = owners[kept], clauses[kept], own[kept]
    kept = _ranks(owners, clauses, own, filters.selectivities) < MOST_ELEMENTS
    owners, clauses, own = owners[kept], clauses[kept], own[kept]
    rows = Rows(offsets_of(np.bincount(owners, minlength=len(predicates))), clauses.astype(np.int32))
    ranked = np.empty(len(clauses), dtype=np.int64)
    ranks = _ranks(owners, clauses, own, filters.selectivities)
    ranked[rows.offsets[owners] + ranks] = np.arange(len(clauses)) - rows.offsets[owners]
    return Elements(rows, own, _closures(rows, filters.wider), ranked)


def _collected(predicates: Rows, wider: Rows) -> tuple[Array, Array, Array]:
    """Predicates and their own and wider clauses, ascending and each pair once; and which clauses are own."""
    owners = _owners(predicates)
    which, clauses = wider.expand(predicates.values)
    width = np.int64(max(1, len(wider)))
    mine = owners * width + predicates.values
    pairs = np.unique(np.concatenate([mine, owners[which] * width + clauses])) if len(which) else mine
    own = np.zeros(len(pairs), dtype=bool)
    own[np.searchsorted(pairs, mine)] = True
    return pairs // width, pairs % width, own


def _ranks(owners: Array, clauses: Array, own: Array, selectivities: Array) -> Array:
    """The rank of an element in its predicate: own clauses first, then those that fewest items pass."""
    order = np.lexsort((clauses, selectivities[clauses], ~own, owners))
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    first = np.repeat(starts, np.diff(np.append(starts, len(owners))))
    ranks = np.empty(len(owners), dtype=np.int64)
    ranks[order] = np.arange(len(owners)) - first
    return ranks


def _closures(rows: Rows, wider: Rows) -> Array:
    owners = _owners(rows)
    narrow, clauses = wider.expand(rows.values)
    width = np.int64(max(1, len(wider)))
    pairs = owners * width + rows.values
    wanted = owners[narrow] * width + clauses
    wide = np.minimum(np.searchsorted(pairs, wanted), max(0, len(pairs) - 1))
    there = np.flatnonzero(pairs[wide] == wanted) if len(pairs) else np.empty(0, dtype=np.int64)
    masks = _bits(rows)
    np.bitwise_or.at(masks, narrow[there], _bits(rows)[wide[there]])
    if len(there):
        _close(rows.offsets, masks, np.unique(owners[narrow[there]]))
    return masks


@kernel
def _closed(starts: Array, masks: Array, closures: Array) -> Array:
    closed = np.zeros(len(masks), dtype=np.uint64)
    for which in range(len(masks)):
        mask, place = masks[which], starts[which]
        while mask:
            if mask & np.uint64(1):
                closed[which] |= closures[place]
            mask >>= np.uint64(1)
            place += 1
    return closed


@kernel
def _close(offsets: Array, masks: Array, predicates: Array) -> None:
    """What an implied element implies is implied."""
    for predicate in predicates:
        start, stop = offsets[predicate], offsets[predicate + 1]
        changed = True
        while changed:
            changed = False
            for place in range(start, stop):
                closed = masks[place]
                for other in range(stop - start):
                    if masks[place] >> np.uint64(other) & np.uint64(1):
                        closed |= masks[start + other]
                if closed != masks[place]:
                    masks[place] = closed
                    changed = True


def _owners(rows: Rows) -> Array:
    return np.repeat(np.arange(len(rows)), rows.lengths)


def _bits(rows: Rows) -> Array:
    places = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], rows.lengths)
    return np.asarray(np.left_shift(np.uint64(1), places.astype(np.uint64)))
