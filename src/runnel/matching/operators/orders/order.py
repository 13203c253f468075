"""What an order is, for those who follow it: arrays over the ways and calls of a problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from runnel.arrays import IDENTIFIER, Array, read_only
from runnel.matching.operators.orders.batch_arrays import BatchLayout, BatchState
from runnel.matching.operators.orders.problem import OrderProblem


class Advance(Protocol):
    """The loop over a batch of an order: take in the answers of some items, and name the call that each needs next.

    `answers` from `starts[number]` on are those to the call of `items[number]`. Where all answers are known,
    `starts` is by calls instead; then nothing is named, but every item is decided, and its calls and their cost are
    added to `calls` and `costs`.
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
        """Settle what the items have asked for, if anything, and name what they need then."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class OrderKind:
    """How an order is followed: its loop, and what the loop needs of layout and state.

    `entry_seconds` is what looking at an entry takes. An order `by_calls` goes through the calls of an item, a scored
    one through those that are worth most, all others through its disjuncts. `score` fills the scores of a new state.
    Scores that rise, too, make slots move between buckets (`moves_slots`). `keeps_failures`: rejections are not
    shared between disjuncts, so each entry keeps its own. `finishes_disjuncts`: one that was begun is marked, and
    all its calls are made that others need, too.
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
    """An order for the ways and calls of one problem.

    Orders by ways have `positions`, the place of each way in the sequence, and `chains`: `way_tests` again, the
    tests of each way in the order in which it wants them. Orders by calls have `ranks`, the place of each call, and
    `sequence`, the call in each place.
    For adaptive orders `positions` say how many ways are best laid out, no more.
    What a kind does not use is empty.
    """

    name: str
    kind: OrderKind
    positions: Array
    chains: Array
    ranks: Array
    sequence: Array

    @staticmethod
    def by_ways(
        name: str, kind: OrderKind, problem: OrderProblem, sequence: Array, chains: Array | None = None
    ) -> Order:
        """The order in which these ways come one after another."""
        kept = problem.way_tests if chains is None else chains
        return Order(
            name, kind, _places(sequence), read_only(kept.astype(IDENTIFIER, copy=False)), _nothing(), _nothing()
        )

    @staticmethod
    def by_calls(name: str, kind: OrderKind, problem: OrderProblem, sequence: Array) -> Order:
        """The order in which these calls come one after another."""
        kept = read_only(sequence.astype(IDENTIFIER))
        return Order(name, kind, _nothing(), problem.way_tests, _places(sequence), kept)

    @staticmethod
    def by_scores(name: str, kind: OrderKind, problem: OrderProblem) -> Order:
        """The order that decides when asked.

        Ways are laid out by the call of theirs that rejects most. That changes nothing but where they lie: those
        that are decided together are beside one another.
        """
        ranks = _places(np.argsort(-_worths(problem), kind="stable"))
        best = np.full(problem.ways, problem.calls, dtype=IDENTIFIER)
        owners = np.repeat(np.arange(problem.ways), np.diff(problem.way_offsets))
        np.minimum.at(best, owners, ranks[problem.test_calls[problem.way_tests]])
        positions = _places(np.argsort(best, kind="stable"))
        return Order(name, kind, positions, problem.way_tests, _nothing(), _nothing())


def _worths(problem: OrderProblem) -> Array:
    """What each call is worth for its cost before anything is decided."""
    worths = problem.gains * np.diff(problem.test_offsets)
    return np.bincount(problem.test_calls, weights=worths, minlength=problem.calls)


def _nothing() -> Array:
    return read_only(np.empty(0, dtype=IDENTIFIER))


def _places(sequence: Array) -> Array:
    """For each of the numbers 0 to n - 1 its place in a sequence of them.

    >>> _places(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    places: np.ndarray[Any, Any] = np.empty(len(sequence), dtype=IDENTIFIER)
    places[sequence] = np.arange(len(sequence), dtype=IDENTIFIER)
    return read_only(places)
