"""What has to be decided: ways, the tests that each needs, and the calls that settle the tests.

In: for every way its tests, for every test its call and the chance that it passes, for every call its cost. Out: the
same as flat arrays, in both directions. All orders work on these arrays alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runnel.arrays import IDENTIFIER, Array, Rows, offsets_of, read_only

FREE = 1e-9
"""What a call costs at least, as a part of the mean cost: calls that cost nothing come first, the best first."""


@dataclass(frozen=True, slots=True)
class OrderProblem:
    """Ways over tests over calls (section 3 of Liu and others, with several tests for a call).

    Way w needs the tests `way_tests[way_offsets[w]:way_offsets[w + 1]]`: it is accepted if all pass, rejected if
    one does not. Test t belongs to the call `test_calls[t]`, is passed with the probability `chances[t]`, and is in
    the ways `test_ways[test_offsets[t]:test_offsets[t + 1]]`. Call c costs `costs[c]`, in any unit, and settles the
    tests `call_tests[call_offsets[c]:call_offsets[c + 1]]`, all at once. A test of chance 1 rejects nothing, but
    its way is not accepted before it was evaluated.

    >>> problem = OrderProblem.of([[0, 1], [1, 2]], test_calls=[0, 1, 0], chances=[0.5, 0.2, 0.9], costs=[1.0, 4.0])
    >>> problem.tests_of_call(0).tolist(), problem.ways_of_test(1).tolist()
    ([0, 2], [0, 1])
    """

    way_offsets: Array
    way_tests: Array
    test_calls: Array
    chances: Array
    costs: Array
    test_offsets: Array
    test_ways: Array
    call_offsets: Array
    call_tests: Array
    test_places: Array
    """For every test which one of its call's tests it is."""
    gains: Array
    """For every test the probability that it fails, for what its call costs; 1 is the mean cost."""

    @property
    def ways(self) -> int:
        """How many ways there are."""
        return len(self.way_offsets) - 1

    @property
    def tests(self) -> int:
        """How many tests there are."""
        return len(self.test_calls)

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return len(self.costs)

    def tests_of_way(self, way: int) -> Array:
        """The tests that a way needs."""
        return self.way_tests[self.way_offsets[way] : self.way_offsets[way + 1]]

    def ways_of_test(self, test: int) -> Array:
        """The ways that need a test."""
        return self.test_ways[self.test_offsets[test] : self.test_offsets[test + 1]]

    def tests_of_call(self, call: int) -> Array:
        """The tests that a call settles, in the order in which its answers are given."""
        return self.call_tests[self.call_offsets[call] : self.call_offsets[call + 1]]

    @staticmethod
    def of(
        ways: Rows | Sequence[Sequence[int]],
        test_calls: npt.ArrayLike,
        chances: npt.ArrayLike,
        costs: npt.ArrayLike,
    ) -> OrderProblem:
        """The problem of these ways; chances outside 0 to 1 and costs below 0 are refused."""
        rows = ways if isinstance(ways, Rows) else Rows.of(ways)
        calls_of_tests = np.asarray(test_calls, dtype=IDENTIFIER)
        passing = np.asarray(chances, dtype=np.float64)
        prices = np.asarray(costs, dtype=np.float64)
        _check(rows, calls_of_tests, passing, prices)
        owners = np.repeat(np.arange(len(rows), dtype=IDENTIFIER), rows.lengths)
        by_test = Rows.grouped(rows.values, owners, len(calls_of_tests))
        by_call = Rows.grouped(calls_of_tests, np.arange(len(calls_of_tests), dtype=IDENTIFIER), len(prices))
        return OrderProblem(
            read_only(rows.offsets.astype(np.int64)),
            read_only(rows.values.astype(IDENTIFIER, copy=False)),
            read_only(calls_of_tests),
            read_only(passing),
            read_only(prices),
            read_only(by_test.offsets.astype(np.int64)),
            read_only(by_test.values),
            read_only(by_call.offsets.astype(np.int64)),
            read_only(by_call.values),
            read_only(_places_in_calls(by_call, len(calls_of_tests))),
            read_only(_gains(calls_of_tests, passing, prices)),
        )


def everything(problem: OrderProblem, items: int = 1) -> tuple[Array, Array]:
    """The active ways of so many items for which all ways are to be decided: offsets and ways.

    >>> [part.tolist() for part in everything(OrderProblem.of([[0], [0]], [0], [0.5], [1.0]), 2)]
    [[0, 2, 4], [0, 1, 0, 1]]
    """
    ways = np.arange(problem.ways, dtype=IDENTIFIER)
    return offsets_of(np.full(items, problem.ways)), np.tile(ways, items)


def _places_in_calls(by_call: Rows, tests: int) -> Array:
    places = np.empty(tests, dtype=IDENTIFIER)
    places[by_call.values] = np.arange(tests) - np.repeat(by_call.offsets[:-1], by_call.lengths)
    return places


def _gains(test_calls: Array, chances: Array, costs: Array) -> Array:
    mean = float(costs.mean()) if len(costs) else 0.0
    prices = np.maximum(costs / mean, FREE) if mean > 0.0 else np.ones(len(costs))
    return np.asarray((1.0 - chances) / prices[test_calls])


def _check(ways: Rows, test_calls: Array, chances: Array, costs: Array) -> None:
    """What kernels take for granted."""
    tests = len(test_calls)
    if len(chances) != tests:
        raise ValueError(f"there are {tests} tests, but {len(chances)} chances")
    if len(ways.values) and not 0 <= ways.values.min() <= ways.values.max() < tests:
        raise ValueError("a way needs a test that there is not")
    if tests and not 0 <= test_calls.min() <= test_calls.max() < len(costs):
        raise ValueError("a test belongs to a call that there is not")
    if not np.all((chances >= 0.0) & (chances <= 1.0)):
        raise ValueError("a chance is between 0 and 1")
    if not np.all((costs >= 0.0) & np.isfinite(costs)):
        raise ValueError("a cost is a number from 0 up")
