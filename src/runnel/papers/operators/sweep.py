"""Follow a static order for 64 items at once, with one bit per item.

In: a problem, an order of calls, and the truth of every test for a number of items. Out: the calls that each item
takes, as `Simulation` counts them. A disjunct is a word whose bits are the items for which it is undecided. The items
in the words of its disjuncts need a call, and an answer clears bits. One walk over the disjuncts serves 64 items, and
counting also handles 64 items at once.
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
    """Return for every word of 64 items and every test the items that pass it, as bits.

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
            raise ValueError(f"{order.name} is not a static order of calls")
        self._tests = _sort_tests(problem, order)
        lengths = np.diff(problem.test_offsets)[self._tests]
        self._calls = read_only(problem.test_calls[self._tests])
        self._offsets = read_only(offsets_of(lengths))
        positions = np.arange(self._offsets[-1]) + np.repeat(
            problem.test_offsets[self._tests] - self._offsets[:-1], lengths
        )
        disjuncts = problem.test_disjuncts[positions]
        needed, first = np.unique(disjuncts, return_index=True)
        numbers = np.empty(problem.disjuncts, dtype=IDENTIFIER)
        numbers[needed[np.argsort(first)]] = np.arange(len(needed))
        self._disjuncts = read_only(numbers[disjuncts])
        self._needed = len(needed)
        self._certain = problem.disjuncts - len(needed)

    def follow(self, packed: Array, rows: int) -> tuple[Array, Array]:
        """Decide all disjuncts for `rows` items, by the truths of the tests, packed by `pack_truths`."""
        calls, accepted = np.zeros(rows, dtype=np.int64), np.full(rows, self._certain, dtype=np.int64)
        undecided = np.empty(self._needed, dtype=np.uint64)
        for word, passed in enumerate(packed):
            part = slice(word * WORD, min(rows, (word + 1) * WORD))
            all_items = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(WORD - (part.stop - part.start))
            undecided[:] = all_items
            truths = read_only(passed[self._tests])
            _sweep(
                self._calls, self._offsets, self._disjuncts, truths, all_items, undecided, calls[part], accepted[part]
            )
        return calls, accepted


def _sort_tests(problem: OrderProblem, order: Order) -> Array:
    """Return the tests in the order in which they are answered."""
    return np.argsort(order.ranks[problem.test_calls], kind="stable")


@kernel
def _sweep(
    test_calls: Array,
    offsets: Array,
    disjuncts: Array,
    passed: Array,
    all_items: Number,
    undecided: Array,
    calls: Array,
    accepted: Array,
) -> None:
    call_digits, accepted_digits = np.zeros(_DIGITS, dtype=np.uint64), np.zeros(_DIGITS, dtype=np.uint64)
    first = 0
    while first < len(test_calls):
        last, needed = first, np.uint64(0)
        while last < len(test_calls) and test_calls[last] == test_calls[first]:
            last += 1
        for index in range(offsets[first], offsets[last]):
            needed |= undecided[disjuncts[index]]
            if needed == all_items:
                break
        if needed != 0:
            _count(needed, call_digits)
            for test in range(first, last):
                passed_items = passed[test]
                if needed & ~passed_items != 0:
                    for index in range(offsets[test], offsets[test + 1]):
                        undecided[disjuncts[index]] &= passed_items
        first = last
    for word in undecided:
        if word != 0:
            _count(word, accepted_digits)
    _read(call_digits, calls)
    _read(accepted_digits, accepted)


@inlined
def _count(word: Number, digits: Array) -> None:
    """Increment the counts of the items whose bits are set. Digit d of all 64 counts is one word."""
    digit = 0
    while word != 0:
        carried = digits[digit] & word
        digits[digit] ^= word
        word = carried
        digit += 1


@inlined
def _read(digits: Array, counts: Array) -> None:
    for digit in range(len(digits)):
        for item in range(len(counts)):
            counts[item] += np.int64((digits[digit] >> np.uint64(item)) & np.uint64(1)) << digit
