"""Deciding the active ways of a batch of items in rounds: the next call of every item out, answers in.

    rounds = Rounds(problem, order, active_offsets, active_ways)
    while not rounds.is_done:
        items, calls = rounds.next_calls()
        rounds.settle(items, calls, passed, failed)    # what was answered, grouped and asked as the caller likes
    rounds.outcomes

An item has at most one call under way. Calls may be settled in any order and in parts; meanwhile the items that
wait are left out of `next_calls`, and the others go on.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, offsets_of, read_only
from runnel.matching.operators.orders.batch_arrays import NOTHING, BatchLayout, BatchState
from runnel.matching.operators.orders.batch_layout import lay_out
from runnel.matching.operators.orders.batch_state import begin
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem

_NO_ANSWERS, _NO_STARTS = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64)
_NO_COUNTS, _NO_COSTS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)


class Rounds:
    """The undecided ways of a batch of items, and the order in which their calls are made.

    `active_ways[active_offsets[i]:active_offsets[i + 1]]` are the ways to be decided for item i.

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

    def __init__(self, problem: OrderProblem, order: Order, active_offsets: Array, active_ways: Array) -> None:
        self._problem = problem
        self._loop = order.kind.advance
        self._layout: BatchLayout = lay_out(problem, order, active_offsets, active_ways)
        self._state: BatchState = begin(self._layout, order.kind)
        self._waiting = 0
        self._live = np.arange(len(self._state.asked), dtype=np.int64)
        self._advance(self._live, _NO_ANSWERS, _NO_STARTS, _NO_ANSWERS)

    @property
    def is_done(self) -> bool:
        """Whether no call is under way and none is needed any more."""
        return not len(self._live)

    @property
    def waiting(self) -> int:
        """How many calls were named and not settled yet."""
        return self._waiting

    @property
    def touched(self) -> int:
        """How many entries the bookkeeping has looked at."""
        return int(self._state.touched.sum())

    @property
    def outcomes(self) -> Array:
        """What became of each active way, as they were given: UNDECIDED, REJECTED, ACCEPTED or UNKNOWN (int8)."""
        found = np.empty(len(self._layout.pair_places), dtype=np.int8)
        found[self._layout.pair_places] = self._state.outcomes
        return found

    def next_calls(self) -> tuple[Array, Array]:
        """The items that need a call now, and the call of each (two arrays of one length).

        An item that waits for an answer is not among them. Nothing comes when all is decided, or all wait.
        """
        named, asked = self._state.named, self._state.asked
        items = self._live[named[self._live] != NOTHING]
        slots = named[items]
        asked[items] = slots
        named[items] = NOTHING
        self._waiting += len(items)
        return items, self._layout.slot_calls[slots]

    def settle(self, items: Array, calls: Array, passed: Array, failed: Array | None = None) -> None:
        """Take in the answers to some of the calls that `next_calls` named.

        `passed` has for each (item, call), end to end, a truth value for every test of the call, in the order of
        `problem.tests_of_call(call)`; `answer_offsets` says where each begins. `failed` says of each (item, call)
        whether there was no answer: then its values in `passed` do not count, and the undecided ways with a test of
        the call become UNKNOWN.
        """
        asked = np.ascontiguousarray(items, dtype=np.int64)
        answers = np.ascontiguousarray(passed, dtype=np.uint8)
        without = np.zeros(len(asked), dtype=np.uint8) if failed is None else np.asarray(failed, dtype=np.uint8)
        offsets = self.answer_offsets(calls)
        self._check(asked, np.asarray(calls), answers, without, offsets)
        self._waiting -= len(asked)
        self._advance(asked, answers, offsets, without)

    def answer_offsets(self, calls: Array) -> Array:
        """Where the truth values of each call begin in what `settle` takes."""
        offsets = self._problem.call_offsets
        return offsets_of(offsets[calls + 1] - offsets[calls])

    def _advance(self, items: Array, answers: Array, offsets: Array, failed: Array) -> None:
        """Take in what was answered, name what comes next, and leave out the items that need nothing more."""
        given = read_only(items), read_only(answers), read_only(offsets), read_only(failed)
        state = self._state
        self._loop(self._layout, state, *given, False, self._problem.costs, _NO_COUNTS, _NO_COSTS)
        self._live = self._live[(state.named[self._live] != NOTHING) | (state.asked[self._live] != NOTHING)]

    def _check(self, items: Array, calls: Array, passed: Array, failed: Array, offsets: Array) -> None:
        if len(items) != len(calls) or len(failed) != len(calls) or len(passed) != offsets[-1]:
            raise ValueError("the answers do not fit the calls in number")
        if len(items) and not 0 <= items.min() <= items.max() < len(self._state.asked):
            raise ValueError("there is no such item in the batch")
        slots = self._state.asked[items]
        if np.any(slots == NOTHING) or len(np.unique(items)) != len(items):
            raise ValueError("an item has an answer to a call that was not asked, or two answers")
        if not np.array_equal(self._layout.slot_calls[slots], calls):
            raise ValueError("an item has the answer to another call than the one that was asked")
