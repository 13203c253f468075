"""The representation of an order: arrays over the disjuncts and calls of a problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from runnel.arrays import IDENTIFIER, Array, read_only
from runnel.matching.operators.orders.batch_arrays import BatchLayout, BatchState
from runnel.matching.operators.orders.problem import OrderProblem


class Advance(Protocol):
    """The loop of an order over a batch: applies the answers of items, and names the next call of each item.

    The answer to the call of `items[number]` begins at `starts[number]` in `answers`. With `is_known`, all answers
    are known: `starts` has an element per call, the loop decides every item completely instead of naming its next
    call, and it adds the number of calls and their cost to `calls` and `costs`.
    """

    def __call__(
        self,
        layout: BatchLayout,
        state: BatchState,
        items: Array,
        answers: Array,
        starts: Array,
        failures: Array,
        is_known: bool,
        call_costs: Array,
        calls: Array,
        costs: Array,
    ) -> None:
        """Apply the answers to the items' calls, if there are any, and name the next calls."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class OrderKind:
    """The loop of an order, and the arrays of layout and state that the loop needs.

    `entry_seconds` is the time for reading an entry. An order `by_calls` iterates over the calls of an item, a scored
    order over its calls by decreasing score, and all others over its disjuncts. `score` computes the scores of a new
    state. With `moves_slots`, scores may also increase, so slots move between buckets. With `keeps_failures`,
    rejections are not shared between disjuncts, so each entry has its own failure. With `finishes_disjuncts`, the
    disjunct whose calls are being made is marked; after its rejection, those of its calls that undecided disjuncts
    also need are still made.
    """

    advance: Advance
    entry_seconds: float
    by_calls: bool = False
    score: Callable[[BatchLayout, BatchState], None] | None = None
    moves_slots: bool = False
    keeps_failures: bool = False
    finishes_disjuncts: bool = False

    @property
    def is_scored(self) -> bool:
        """Whether calls have scores that change."""
        return self.score is not None


@dataclass(frozen=True, slots=True)
class Order:
    """An order for the disjuncts and calls of one problem.

    Orders by disjuncts have `positions`, the position of each disjunct in the sequence, and `chains`, the tests of
    all disjuncts, with those of each disjunct in the order of evaluation. Orders by calls have `ranks`, the position
    of each call, and `sequence`, the call at each position. For adaptive orders, `positions` affects only the memory
    layout. Arrays that a kind of order does not use are empty.
    """

    name: str
    kind: OrderKind
    positions: Array
    chains: Array
    ranks: Array
    sequence: Array

    @staticmethod
    def by_disjuncts(
        name: str, kind: OrderKind, problem: OrderProblem, sequence: Array, chains: Array | None = None
    ) -> Order:
        """Return the order that evaluates the disjuncts in this sequence."""
        tests = problem.disjunct_tests if chains is None else chains
        return Order(
            name, kind, _invert(sequence), read_only(tests.astype(IDENTIFIER, copy=False)), _empty(), _empty()
        )

    @staticmethod
    def by_calls(name: str, kind: OrderKind, problem: OrderProblem, sequence: Array) -> Order:
        """Return the order that makes the calls in this sequence."""
        calls = read_only(sequence.astype(IDENTIFIER))
        return Order(name, kind, _empty(), problem.disjunct_tests, _invert(sequence), calls)

    @staticmethod
    def by_scores(name: str, kind: OrderKind, problem: OrderProblem) -> Order:
        """Return the order that chooses each next call by its current score.

        Disjuncts are sorted by their call with the highest worth. This affects only the memory layout: disjuncts that
        are decided together are next to each other.
        """
        ranks = _invert(np.argsort(-_worths(problem), kind="stable"))
        best = np.full(problem.disjuncts, problem.calls, dtype=IDENTIFIER)
        owners = np.repeat(np.arange(problem.disjuncts), np.diff(problem.disjunct_offsets))
        np.minimum.at(best, owners, ranks[problem.test_calls[problem.disjunct_tests]])
        positions = _invert(np.argsort(best, kind="stable"))
        return Order(name, kind, positions, problem.disjunct_tests, _empty(), _empty())


def _worths(problem: OrderProblem) -> Array:
    """Return the ratio of worth to cost of each call while all disjuncts are undecided."""
    worths = problem.gains * np.diff(problem.test_offsets)
    return np.bincount(problem.test_calls, weights=worths, minlength=problem.calls)


def _empty() -> Array:
    return read_only(np.empty(0, dtype=IDENTIFIER))


def _invert(sequence: Array) -> Array:
    """Return the inverse of a permutation: the position of each of the numbers 0 to n - 1.

    >>> _invert(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    positions: np.ndarray[Any, Any] = np.empty(len(sequence), dtype=IDENTIFIER)
    positions[sequence] = np.arange(len(sequence), dtype=IDENTIFIER)
    return read_only(positions)
