"""Operations on conditions, which are sets of clauses stored as rows: deduplicate, select, intersect, renumber."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows, offsets_of


def distinct(rows: Rows) -> tuple[Rows, Array]:
    """Return the distinct rows, and for each row the number of its distinct row. Values of a row must be ascending.

    >>> rows, numbers = distinct(Rows.of([[1, 2], [1], [1, 2], []]))
    >>> list(rows.lists()), numbers.tolist()
    ([[], [1], [1, 2]], [2, 1, 2, 0])
    """
    width = int(rows.values.max(initial=0)) + 2
    numbers = np.zeros(len(rows), dtype=np.int64)
    lengths = rows.lengths
    for column in range(int(lengths.max(initial=0))):
        # Rows with the same prefix have the same number. Combine it with the next value, if any, for the longer
        # prefix.
        following = np.zeros(len(rows), dtype=np.int64)
        longer = lengths > column
        following[longer] = rows.values[rows.offsets[:-1][longer] + column] + 1
        numbers = np.unique(numbers * width + following, return_inverse=True)[1].reshape(-1)
    _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    return chosen(rows, firsts), numbers.reshape(-1)


def chosen(rows: Rows, which: Array) -> Rows:
    """Return some of the rows, in the given order."""
    _, values = rows.expand(which)
    return Rows(offsets_of(rows.lengths[which]), values)


def intersected(rows: Rows, groups: Array, count: int) -> Rows:
    """Return for every group of rows their common values in ascending order. A row must not contain a value twice.

    >>> [row for row in intersected(Rows.of([[1, 2], [2, 3], [4]]), np.array([0, 0, 1]), 2).lists()]
    [[2], [4]]
    """
    width = int(rows.values.max(initial=0)) + 1
    owners = np.repeat(groups.astype(np.int64), rows.lengths)
    pairs, counts = np.unique(owners * width + rows.values, return_counts=True)
    sizes = np.bincount(groups, minlength=count)
    kept = pairs[counts == sizes[pairs // width]]
    return Rows(offsets_of(np.bincount(kept // width, minlength=count)), kept % width)


def renumbered(groups: Array) -> tuple[Array, int]:
    """Return consecutive numbers for groups, in the same order, and the number of groups."""
    distinct_groups, numbers = np.unique(groups, return_inverse=True)
    return numbers.reshape(-1), len(distinct_groups)
