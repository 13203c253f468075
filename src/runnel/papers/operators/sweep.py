"""Following a static order for 64 items at once: one bit for an item.

In: a problem, an order by calls, and the truth of every test for some items. Out: the calls that each takes, as
`Simulation` counts them. A disjunct is a word of bits: the items for which it is undecided. A call is needed by the
items in the words of its disjuncts, and an answer clears bits. So bookkeeping for one item is a sixty-fourth of a
walk over the disjuncts, and counting is done for 64 items at once, too.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import IDENTIFIER, Array, offsets_of, read_only
from runnel.kernel import Number, inlined, kernel
from runnel.matching.operators.orders.advance import RANKS
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem

WORD = 64
_DIGITS = 40
"""The number of binary digits of a count. There cannot be more calls or disjuncts."""


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


def sweep(problem: OrderProblem, order: Order, packed: Array, rows: int) -> tuple[Array, Array]:
    """Decide all disjuncts for `rows` items. Return the calls and the accepted disjuncts of each item."""
    return Sweep(problem, order).follow(packed, rows)


class Sweep:
    """The disjuncts of a problem, in the order in which a static order reaches them, for local memory access."""

    def __init__(self, problem: OrderProblem, order: Order) -> None:
        if order.kind is not RANKS:
            raise ValueError(f"{order.name} is not an order of calls that is the same for all items")
        self._tests = _in_sequence(problem, order)
        lengths = np.diff(problem.test_offsets)[self._tests]
        self._calls = read_only(problem.test_calls[self._tests])
        self._offsets = read_only(offsets_of(lengths))
        places = np.arange(self._offsets[-1]) + np.repeat(
            problem.test_offsets[self._tests] - self._offsets[:-1], lengths
        )
        disjuncts = problem.test_disjuncts[places]
        found, first = np.unique(disjuncts, return_index=True)
        numbers = np.empty(problem.disjuncts, dtype=IDENTIFIER)
        numbers[found[np.argsort(first)]] = np.arange(len(found))
        self._disjuncts = read_only(numbers[disjuncts])
        self._needed = len(found)
        self._certain = problem.disjuncts - len(found)

    def follow(self, packed: Array, rows: int) -> tuple[Array, Array]:
        """Decide all disjuncts for `rows` items, by the truths of the tests, packed by `pack_truths`."""
        calls, accepted = np.zeros(rows, dtype=np.int64), np.full(rows, self._certain, dtype=np.int64)
        undecided = np.empty(self._needed, dtype=np.uint64)
        for word, passed in enumerate(packed):
            part = slice(word * WORD, min(rows, (word + 1) * WORD))
            everyone = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(WORD - (part.stop - part.start))
            undecided[:] = everyone
            truths = read_only(passed[self._tests])
            _sweep(
                self._calls, self._offsets, self._disjuncts, truths, everyone, undecided, calls[part], accepted[part]
            )
        return calls, accepted


def _in_sequence(problem: OrderProblem, order: Order) -> Array:
    """The tests in the order in which they are settled."""
    return np.argsort(order.ranks[problem.test_calls], kind="stable")


@kernel
def _sweep(
    test_calls: Array,
    offsets: Array,
    disjuncts: Array,
    passed: Array,
    everyone: Number,
    undecided: Array,
    calls: Array,
    accepted: Array,
) -> None:
    counted, held = np.zeros(_DIGITS, dtype=np.uint64), np.zeros(_DIGITS, dtype=np.uint64)
    first = 0
    while first < len(test_calls):
        last, needed = first, np.uint64(0)
        while last < len(test_calls) and test_calls[last] == test_calls[first]:
            last += 1
        for place in range(offsets[first], offsets[last]):
            needed |= undecided[disjuncts[place]]
            if needed == everyone:
                break
        if needed != 0:
            _count(needed, counted)
            for test in range(first, last):
                kept = passed[test]
                if needed & ~kept != 0:
                    for place in range(offsets[test], offsets[test + 1]):
                        undecided[disjuncts[place]] &= kept
        first = last
    for word in undecided:
        if word != 0:
            _count(word, held)
    _read(counted, calls)
    _read(held, accepted)


@inlined
def _count(word: Number, digits: Array) -> None:
    """Count up where bits are set: digit d of all 64 counts is one word, and most additions end at a low digit."""
    place = 0
    while word != 0:
        carried = digits[place] & word
        digits[place] ^= word
        word = carried
        place += 1


@inlined
def _read(digits: Array, counts: Array) -> None:
    for place in range(len(digits)):
        for item in range(len(counts)):
            counts[item] += np.int64((digits[place] >> np.uint64(item)) & np.uint64(1)) << place
