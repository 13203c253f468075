"""The input of factoring: predicates as sets of clauses, the clauses that subsume others, and selectivities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.kernel import kernel


@dataclass(frozen=True)
class Filters:
    """Predicates over numbered clauses.

    `wider` has for every clause clauses that strictly subsume it. `selectivities` is the share of all items that
    satisfies each clause; a wider clause never has a smaller one. Clauses are assumed to be independent, unless there
    is a `sample` of `sampled` items: one row per clause, with one bit per item that satisfies it. Clauses from
    `first_union` on are unions of others. Two unions are seldom independent, so no filter contains two.
    """

    predicates: Rows
    selectivities: Array
    wider: Rows
    sample: Array
    first_union: int
    sampled: int = 0

    @staticmethod
    def of(
        predicates: Rows,
        selectivities: Array,
        wider: Rows | None = None,
        sample: Array | None = None,
        first_union: int | None = None,
    ) -> Filters:
        """Build filters from clauses. `sample` has one row of truths per item and one column per clause.

        >>> filters = Filters.of(Rows.of([[0, 1], [0, 2]]), np.array([0.5, 0.1, 0.1]))
        >>> len(filters.predicates), len(filters.wider)
        (2, 3)
        """
        count = len(selectivities)
        known = wider if wider is not None else Rows.of([[]] * count)
        bits, sampled = np.zeros((count, 0), dtype=np.uint64), 0
        if sample is not None and len(sample):
            bits, sampled = pack_sample(np.asarray(sample, dtype=bool)), len(sample)
        rates = np.clip(np.asarray(selectivities, dtype=np.float64), 0.0, 1.0)
        first = count if first_union is None else first_union
        return Filters(predicates, make_monotone(rates, known), known, bits, first, sampled)


def set_rates(sets: Rows, filters: Filters) -> Array:
    """Return the share of the items that satisfies each of these sets, none of which is empty.

    If no sampled item satisfies a set, its clauses are assumed to be independent, and its share is at most that of
    half a sampled item.

    >>> sample = np.array([[1, 1], [1, 0], [0, 0], [0, 0]])
    >>> filters = Filters.of(Rows.of([[0, 1]]), np.array([0.5, 0.25]), sample=sample)
    >>> set_rates(filters.predicates, filters).tolist()
    [0.25]
    """
    if not len(sets):
        return np.empty(0, dtype=np.float64)
    rates = np.multiply.reduceat(filters.selectivities[sets.values], sets.offsets[:-1])
    if filters.sampled:
        all_true = np.bitwise_and.reduceat(filters.sample[sets.values], sets.offsets[:-1], axis=0)
        counts = np.bitwise_count(all_true).sum(axis=1)
        rates = np.where(counts > 0, counts / filters.sampled, np.minimum(rates, 0.5 / filters.sampled))
    return np.asarray(rates)


def pack_sample(truths: Array) -> Array:
    """Pack truths by item and clause into bits by clause, 64 items per word."""
    words = -(-len(truths) // 64)
    padded = np.zeros((truths.shape[1], words * 64), dtype=bool)
    padded[:, : len(truths)] = truths.T
    return np.ascontiguousarray(np.packbits(padded, axis=1, bitorder="little").view(np.uint64))


def make_monotone(selectivities: Array, wider: Rows) -> Array:
    """Raise the selectivity of each clause that was estimated below that of a narrower clause."""
    narrow = np.repeat(np.arange(len(wider)), wider.lengths)
    raised = selectivities.copy()
    while len(narrow):
        before = raised.copy()
        np.maximum.at(raised, wider.values, raised[narrow])
        if np.array_equal(before, raised):
            break
    return raised


def reduced(filters: Filters) -> Rows:
    """Return the predicates without clauses that another of their clauses implies.

    Clauses are distinct and ascending.
    """
    owners = np.repeat(np.arange(len(filters.predicates)), filters.predicates.lengths)
    order = np.lexsort((filters.predicates.values, owners))
    values = filters.predicates.values[order].astype(np.int64)
    fresh = np.ones(len(values), dtype=bool)
    fresh[1:] = (np.diff(values) != 0) | (np.diff(owners) != 0)
    values, owners = values[fresh], owners[fresh]
    offsets = offsets_of(np.bincount(owners, minlength=len(filters.predicates)))
    implied = np.zeros(len(values), dtype=bool)
    if len(filters.wider.values):
        _mark_implied(offsets, values, filters.wider.offsets, filters.wider.values, implied)
    lengths = np.bincount(owners[~implied], minlength=len(filters.predicates))
    return Rows(offsets_of(lengths), values[~implied].astype(np.int32))


@kernel
def _mark_implied(offsets: Array, values: Array, wider_offsets: Array, wider_values: Array, implied: Array) -> None:
    for predicate in range(len(offsets) - 1):
        start, stop = offsets[predicate], offsets[predicate + 1]
        for index in range(start, stop):
            # An omitted clause must not cause another omission: of equivalent clauses, one must stay.
            if stop - start < 2 or implied[index]:
                continue
            clause = values[index]
            for wider_index in range(wider_offsets[clause], wider_offsets[clause + 1]):
                for implied_index in range(start, stop):
                    if values[implied_index] == wider_values[wider_index] and implied_index != index:
                        implied[implied_index] = True


def distinct_rows(rows: Rows) -> tuple[Rows, Array]:
    """Return the distinct rows in order of first occurrence, and the number of the distinct row of each row.

    >>> distinct, numbers = distinct_rows(Rows.of([[1, 2], [3], [1, 2]]))
    >>> list(distinct.lists()), numbers.tolist()
    ([[1, 2], [3]], [0, 1, 0])
    """
    data = np.ascontiguousarray(rows.values.astype(np.int32))
    raw, size = data.tobytes(), data.itemsize
    offsets = (rows.offsets * size).tolist()
    numbers: dict[bytes, int] = {}
    row_numbers = np.empty(len(rows), dtype=np.int64)
    for row in range(len(rows)):
        row_numbers[row] = numbers.setdefault(raw[offsets[row] : offsets[row + 1]], len(numbers))
    lengths = [len(encoded) // size for encoded in numbers]
    return Rows(offsets_of(lengths), np.frombuffer(b"".join(numbers), dtype=np.int32)), row_numbers
