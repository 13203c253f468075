"""The elements of predicates: the clauses, own and wider, that a predicate shares with another predicate.

A set of a predicate's elements is a mask in one word, so a predicate has at most 62.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.kernel import kernel
from runnel.papers.roses.factoring.filters import Filters

MAX_ELEMENTS = 62


@dataclass(frozen=True)
class Elements:
    """Elements by predicate, in ascending order of clauses.

    `own` marks the predicate's own clauses. `closures` has for each element the mask of the elements that it implies,
    itself included. `ranked` has the positions of a predicate's elements, own elements first, then by selectivity.
    """

    rows: Rows
    own: Array
    closures: Array
    ranked: Array

    def closed(self, predicates: Array, masks: Array) -> Array:
        """Extend masks over the elements of these predicates by all elements that they imply."""
        return _closed(self.rows.offsets[predicates], masks, self.closures)

    def own_masks(self, predicates: Rows) -> Array:
        """Return the mask of each predicate's own clauses, or 0 if one of them is not an element."""
        bits = np.where(self.own, _bits(self.rows), np.uint64(0))
        masks = np.zeros(len(predicates), dtype=np.uint64)
        np.bitwise_or.at(masks, _owners(self.rows), bits)
        masks[np.bitwise_count(masks) < predicates.lengths] = 0
        return masks


def find_elements(predicates: Rows, filters: Filters) -> Elements:
    """Return the elements of distinct, reduced predicates.

    >>> predicates = Rows.of([[0, 2], [1], [3]])
    >>> wider = Rows.of([[3], [3], [], []])  # the clauses 0 and 1 both imply 3
    >>> elements = find_elements(predicates, Filters.of(predicates, np.array([0.1, 0.1, 0.1, 0.5]), wider))
    >>> list(elements.rows.lists()), elements.own.tolist()
    ([[3], [3], [3]], [False, False, True])
    """
    owners, clauses, own = _collect_clauses(predicates, filters.wider)
    support = np.bincount(clauses, minlength=len(filters.selectivities))
    kept = support[clauses] >= 2
    owners, clauses, own = owners[kept], clauses[kept], own[kept]
    kept = _ranks(owners, clauses, own, filters.selectivities) < MAX_ELEMENTS
    owners, clauses, own = owners[kept], clauses[kept], own[kept]
    rows = Rows(offsets_of(np.bincount(owners, minlength=len(predicates))), clauses.astype(np.int32))
    ranked = np.empty(len(clauses), dtype=np.int64)
    ranks = _ranks(owners, clauses, own, filters.selectivities)
    ranked[rows.offsets[owners] + ranks] = np.arange(len(clauses)) - rows.offsets[owners]
    return Elements(rows, own, _closures(rows, filters.wider), ranked)


def _collect_clauses(predicates: Rows, wider: Rows) -> tuple[Array, Array, Array]:
    """Return distinct pairs of a predicate and its own or wider clause, ascending, and which clauses are own."""
    owners = _owners(predicates)
    pair_numbers, clauses = wider.expand(predicates.values)
    width = np.int64(max(1, len(wider)))
    own_pairs = owners * width + predicates.values
    pairs = (
        np.unique(np.concatenate([own_pairs, owners[pair_numbers] * width + clauses]))
        if len(pair_numbers)
        else own_pairs
    )
    own = np.zeros(len(pairs), dtype=bool)
    own[np.searchsorted(pairs, own_pairs)] = True
    return pairs // width, pairs % width, own


def _ranks(owners: Array, clauses: Array, own: Array, selectivities: Array) -> Array:
    """Return the rank of each element in its predicate: own clauses first, then the most selective."""
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
    wide_pairs = owners[narrow] * width + clauses
    wide = np.minimum(np.searchsorted(pairs, wide_pairs), max(0, len(pairs) - 1))
    present = np.flatnonzero(pairs[wide] == wide_pairs) if len(pairs) else np.empty(0, dtype=np.int64)
    masks = _bits(rows)
    np.bitwise_or.at(masks, narrow[present], _bits(rows)[wide[present]])
    if len(present):
        _close(rows.offsets, masks, np.unique(owners[narrow[present]]))
    return masks


@kernel
def _closed(starts: Array, masks: Array, closures: Array) -> Array:
    closed = np.zeros(len(masks), dtype=np.uint64)
    for index in range(len(masks)):
        mask, element = masks[index], starts[index]
        while mask:
            if mask & np.uint64(1):
                closed[index] |= closures[element]
            mask >>= np.uint64(1)
            element += 1
    return closed


@kernel
def _close(offsets: Array, masks: Array, predicates: Array) -> None:
    """Extend the masks by the elements that implied elements imply."""
    for predicate in predicates:
        start, stop = offsets[predicate], offsets[predicate + 1]
        changed = True
        while changed:
            changed = False
            for element in range(start, stop):
                closed = masks[element]
                for other in range(stop - start):
                    if masks[element] >> np.uint64(other) & np.uint64(1):
                        closed |= masks[start + other]
                if closed != masks[element]:
                    masks[element] = closed
                    changed = True


def _owners(rows: Rows) -> Array:
    return np.repeat(np.arange(len(rows)), rows.lengths)


def _bits(rows: Rows) -> Array:
    positions = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], rows.lengths)
    return np.asarray(np.left_shift(np.uint64(1), positions.astype(np.uint64)))
