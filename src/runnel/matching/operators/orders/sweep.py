"""Following a static order for 64 items at once: one bit for an item.

In: a problem, an order by calls, and the truth of every test for some items. Out: the calls that each takes, as
`Simulation` counts them. A way is a word of bits, the items that it is undecided for; a call is needed by the items
of the words of its ways, and an answer clears bits. So bookkeeping for one item is a sixty-fourth of a walk over
the ways.
"""

from __future__ import annotations

import numpy as np

from runnel.kernel import Number, kernel, lowest_bit, step
from runnel.matching.operators.orders.order import Kind, Order
from runnel.matching.operators.orders.problem import Problem
from runnel.plan.arrays import Array, read_only

WORD = 64


def pack_truths(truths: Array) -> Array:
    """For every word of items and every test the items that pass it, as bits.

    >>> pack_truths(np.array([[True, False], [True, True]])).tolist()
    [[3, 2]]
    """
    rows, tests = truths.shape
    words = -(-rows // WORD)
    padded = np.zeros((words * WORD, tests), dtype=np.uint64)
    padded[:rows] = truths
    shifts = np.arange(WORD, dtype=np.uint64)[:, None]
    return np.asarray(np.bitwise_or.reduce(padded.reshape(words, WORD, tests) << shifts, axis=1))


def sweep(problem: Problem, order: Order, packed: Array, rows: int) -> tuple[Array, Array]:
    """Decide all ways for so many items: how many calls each takes, and how many ways each accepts."""
    if order.kind is not Kind.RANKS:
        raise ValueError(f"{order.name} is not an order of calls that is the same for all items")
    sequence = np.argsort(order.ranks)
    calls, accepted = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    undecided = np.empty(problem.ways, dtype=np.uint64)
    for word, passed in enumerate(packed):
        part = slice(word * WORD, min(rows, (word + 1) * WORD))
        count = part.stop - part.start
        undecided[:] = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(WORD - count)
        _sweep(
            sequence,
            problem.call_offsets,
            problem.call_tests,
            problem.test_offsets,
            problem.test_ways,
            read_only(passed),
            undecided,
            calls[part],
        )
        _count_bits(undecided, accepted[part])
    return calls, accepted


@kernel
def _sweep(
    sequence: Array,
    call_offsets: Array,
    call_tests: Array,
    test_offsets: Array,
    test_ways: Array,
    passed: Array,
    undecided: Array,
    calls: Array,
) -> None:
    for call in sequence:
        needed = np.uint64(0)
        tests = call_tests[call_offsets[call] : call_offsets[call + 1]]
        for test in tests:
            for place in range(test_offsets[test], test_offsets[test + 1]):
                needed |= undecided[test_ways[place]]
        if needed == 0:
            continue
        _add_bits(needed, calls)
        for test in tests:
            cleared = passed[test] | ~needed
            if ~cleared != 0:
                for place in range(test_offsets[test], test_offsets[test + 1]):
                    undecided[test_ways[place]] &= cleared


@step
def _add_bits(word: Number, counts: Array) -> None:
    while word:
        counts[lowest_bit(word)] += 1
        word &= word - np.uint64(1)


@kernel
def _count_bits(words: Array, counts: Array) -> None:
    for word in words:
        if word != 0:
            _add_bits(word, counts)
