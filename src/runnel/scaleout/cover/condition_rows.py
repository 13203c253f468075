"""Conditions: sets of clauses as rows, with what is done to many at once; equal ones in, one of each out."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows, offsets_of


def distinct(rows: Rows) -> tuple[Rows, Array]:
    """The distinct rows, and for each row the number of its like; the values of a row are ascending.

    >>> found, numbers = distinct(Rows.of([[1, 2], [1], [1, 2], []]))
    >>> list(found.lists()), numbers.tolist()
    ([[], [1], [1, 2]], [2, 1, 2, 0])
    """
    width = int(rows.values.max(initial=0)) + 2
    numbers = np.zeros(len(rows), dtype=np.int64)
    lengths = rows.lengths
    for place in range(int(lengths.max(initial=0))):
        # What two rows begin with has a number; with the next value, or none, it gives that of a longer beginning.
        following = np.zeros(len(rows), dtype=np.int64)
        longer = lengths > place
        following[longer] = rows.values[rows.offsets[:-1][longer] + place] + 1
        numbers = np.unique(numbers * width + following, return_inverse=True)[1].reshape(-1)
    _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    return chosen(rows, firsts), numbers.reshape(-1)


def chosen(rows: Rows, which: Array) -> Rows:
    """Some of the rows, in a given order."""
    _, values = rows.expand(which)
    return Rows(offsets_of(rows.lengths[which]), values)


def intersected(rows: Rows, groups: Array, count: int) -> Rows:
    """For every group of rows the values that all of them have, ascending; no row has a value twice.

    >>> [row for row in intersected(Rows.of([[1, 2], [2, 3], [4]]), np.array([0, 0, 1]), 2).lists()]
    [[2], [4]]
    """
    width = int(rows.values.max(initial=0)) + 1
    owners = np.repeat(groups.astype(np.int64), rows.lengths)
    pairs, times = np.unique(owners * width + rows.values, return_counts=True)
    sizes = np.bincount(groups, minlength=count)
    kept = pairs[times == sizes[pairs // width]]
    return Rows(offsets_of(np.bincount(kept // width, minlength=count)), kept % width)


def renumbered(groups: Array) -> tuple[Array, int]:
    """Groups with numbers from 0 on without gaps, in their order; and how many there are."""
    found, numbers = np.unique(groups, return_inverse=True)
    return numbers.reshape(-1), len(found)
