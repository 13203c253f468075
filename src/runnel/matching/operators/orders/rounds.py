"""Decide the active disjuncts of a batch in rounds. Out: the next call of every item. In: the answers.

    rounds = Rounds(problem, order, active_offsets, active_disjuncts)
    while not rounds.is_done:
        items, calls = rounds.next_calls()
        rounds.settle(items, calls, passed, failed)    # the answers; the caller may group the calls freely
    rounds.outcomes

An item waits for at most one call. Answers may arrive in any order and in several `settle` calls. Meanwhile
`next_calls` leaves out the items that wait, and the other items proceed.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, offsets_of, read_only
from runnel.matching.operators.orders.batch_arrays import NOTHING, BatchLayout, BatchState
from runnel.matching.operators.orders.batch_layout import build_batch_layout
from runnel.matching.operators.orders.batch_state import create_state
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem

_NO_ANSWERS, _NO_STARTS = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64)
_NO_COUNTS, _NO_COSTS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)


class Rounds:
    """Decides the active disjuncts of a batch of items, making calls in a given order.

    `active_disjuncts[active_offsets[i]:active_offsets[i + 1]]` are the disjuncts to be decided for item i.

    >>> from runnel.matching.operators.orders.adaptive import adaptive
    >>> from runnel.matching.operators.orders.batch_arrays import REJECTED
    >>> problem = OrderProblem.of([[0, 1], [1, 2]], test_calls=[0, 1, 2], chances=[0.5, 0.1, 0.5], costs=[1.0, 1.0,
    ...     1.0])
    >>> rounds = Rounds(problem, adaptive(problem), np.array([0, 2]), np.array([0, 1]))
    >>> [part.tolist() for part in rounds.next_calls()]
    [[0], [1]]
    >>> rounds.settle(np.array([0]), np.array([1]), passed=np.array([False]))
    >>> rounds.is_done, rounds.outcomes.tolist() == [REJECTED, REJECTED]
    (True, True)
    """

    def __init__(self, problem: OrderProblem, order: Order, active_offsets: Array, active_disjuncts: Array) -> None:
        self._problem = problem
        self._loop = order.kind.advance
        self._layout: BatchLayout = build_batch_layout(problem, order, active_offsets, active_disjuncts)
        self._state: BatchState = create_state(self._layout, order.kind)
        self._waiting = 0
        self._live = np.arange(len(self._state.asked), dtype=np.int64)
        self._advance(self._live, _NO_ANSWERS, _NO_STARTS, _NO_ANSWERS)

    @property
    def is_done(self) -> bool:
        """Whether no item waits for an answer or needs another call."""
        return not len(self._live)

    @property
    def waiting(self) -> int:
        """The number of calls that `next_calls` returned and that have no answer yet."""
        return self._waiting

    @property
    def touched(self) -> int:
        """The number of entries that the bookkeeping has read."""
        return int(self._state.touched.sum())

    @property
    def outcomes(self) -> Array:
        """The outcome of each of `active_disjuncts`: UNDECIDED, REJECTED, ACCEPTED or UNKNOWN (int8)."""
        outcomes = np.empty(len(self._layout.pair_positions), dtype=np.int8)
        outcomes[self._layout.pair_positions] = self._state.outcomes
        return outcomes

    def next_calls(self) -> tuple[Array, Array]:
        """Return the items that need a call now, and the call of each (two arrays of equal length).

        Items that wait for an answer are left out. The arrays are empty if all items are decided or waiting.
        """
        named, asked = self._state.named, self._state.asked
        items = self._live[named[self._live] != NOTHING]
        slots = named[items]
        asked[items] = slots
        named[items] = NOTHING
        self._waiting += len(items)
        return items, self._layout.slot_calls[slots]

    def settle(self, items: Array, calls: Array, passed: Array, failed: Array | None = None) -> None:
        """Apply the answers to some of the calls that `next_calls` returned.

        `passed` contains, for one (item, call) after another, whether each test of the call passed, in the order of
        `problem.tests_of_call(call)`; see `answer_offsets`. `failed` contains for each (item, call) whether the call
        failed. Then its values in `passed` are ignored, and the undecided disjuncts with a test of the call become
        UNKNOWN.
        """
        answered = np.ascontiguousarray(items, dtype=np.int64)
        answers = np.ascontiguousarray(passed, dtype=np.uint8)
        failures = np.zeros(len(answered), dtype=np.uint8) if failed is None else np.asarray(failed, dtype=np.uint8)
        offsets = self.answer_offsets(calls)
        self._check(answered, np.asarray(calls), answers, failures, offsets)
        self._waiting -= len(answered)
        self._advance(answered, answers, offsets, failures)

    def answer_offsets(self, calls: Array) -> Array:
        """Return where the values of each call begin in the argument `passed` of `settle`."""
        offsets = self._problem.call_offsets
        return offsets_of(offsets[calls + 1] - offsets[calls])

    def _advance(self, items: Array, answers: Array, offsets: Array, failed: Array) -> None:
        """Apply answers, name the next calls, and drop the items that are decided."""
        arrays = read_only(items), read_only(answers), read_only(offsets), read_only(failed)
        state = self._state
        self._loop(self._layout, state, *arrays, False, self._problem.costs, _NO_COUNTS, _NO_COSTS)
        self._live = self._live[(state.named[self._live] != NOTHING) | (state.asked[self._live] != NOTHING)]

    def _check(self, items: Array, calls: Array, passed: Array, failed: Array, offsets: Array) -> None:
        if len(items) != len(calls) or len(failed) != len(calls) or len(passed) != offsets[-1]:
            raise ValueError("the number of answers does not fit the calls")
        if len(items) and not 0 <= items.min() <= items.max() < len(self._state.asked):
            raise ValueError("an item is not in the batch")
        slots = self._state.asked[items]
        if np.any(slots == NOTHING) or len(np.unique(items)) != len(items):
            raise ValueError("an item has an answer but does not wait for one, or has two answers")
        if not np.array_equal(self._layout.slot_calls[slots], calls):
            raise ValueError("an item has the answer to a call other than the one that it waits for")
