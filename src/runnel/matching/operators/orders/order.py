"""What an order is, for those who follow it: arrays over the ways and calls of a problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from runnel.arrays import IDENTIFIER, Array, read_only
from runnel.matching.operators.orders.problem import OrderProblem


class OrderKind(IntEnum):
    """How the next call of an item is found."""

    INDEPENDENT = 0
    """Way after way, test after test until one fails, whatever other ways have learned."""
    MARKED = 1
    """Way after way; of a way that was begun, every call that any undecided way needs."""
    CHAINS = 2
    """Way after way, test after test, until the way is decided."""
    RANKS = 3
    """Call after call, those that no undecided way needs left out."""
    ADAPTIVE = 4
    """The call that is worth most for what it costs, as things stand; every undecided way counts as one."""
    WEIGHTED = 5
    """The same, but a way counts as one over its remaining tests."""

    @property
    def is_scored(self) -> bool:
        """Whether calls have scores that change."""
        return self in (OrderKind.ADAPTIVE, OrderKind.WEIGHTED)


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
    def by_calls(name: str, problem: OrderProblem, sequence: Array) -> Order:
        """The order in which these calls come one after another."""
        kept = read_only(sequence.astype(IDENTIFIER))
        return Order(name, OrderKind.RANKS, _nothing(), problem.way_tests, _places(sequence), kept)

    @staticmethod
    def adaptive(name: str, kind: OrderKind, problem: OrderProblem) -> Order:
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
