"""Hash-consing of rows: equal rows get one number, exactly and without Python objects."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows, offsets_of


def ascending(rows: Rows) -> Rows:
    """The same rows, the values of each in ascending order."""
    width = int(rows.values.max(initial=0)) + 1
    before = np.repeat(np.arange(len(rows)) * width, rows.lengths)
    return Rows(rows.offsets, (np.sort(before + rows.values) - before).astype(rows.values.dtype))


def distinct_rows(rows: Rows) -> tuple[Rows, Array]:
    """The distinct rows in the order of their first use, and for each row the number of its like.

    Rows are compared exactly, value by value: a prefix of a row has a number, which together with the next value
    determines the number of the longer prefix.
    """
    width = int(rows.values.max(initial=0)) + 2
    prefixes = np.zeros(len(rows), dtype=np.int64)
    lengths = rows.lengths
    for place in range(int(lengths.max(initial=0))):
        longer = lengths > place
        following = np.zeros(len(rows), dtype=np.int64)
        following[longer] = rows.values[rows.offsets[:-1][longer] + place] + 1
        _, prefixes = np.unique(prefixes * width + following, return_inverse=True)
    _, first, numbers = np.unique(prefixes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    owners, values = rows.expand(first[order])
    return Rows(offsets_of(np.bincount(owners, minlength=len(order))), values), ranks[numbers]
