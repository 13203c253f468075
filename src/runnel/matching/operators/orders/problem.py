"""The problem that orders solve: disjuncts, their tests, and the calls that decide the tests.

In: the tests of every disjunct, the call of every test and the probability that it passes, and the cost of every
call. Out: flat arrays of these relations in both directions. Orders use only these arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runnel.arrays import IDENTIFIER, Array, Rows, offsets_of, read_only

FREE = 1e-9
"""The minimum cost of a call, as a fraction of the mean cost. Free calls come first, ordered by their worth."""


@dataclass(frozen=True, slots=True)
class OrderProblem:
    """Disjuncts, tests and calls (section 3 of Liu et al., extended by several tests per call).

    Disjunct d needs the tests `disjunct_tests[disjunct_offsets[d]:disjunct_offsets[d + 1]]`: it is accepted if all of
    them pass, and rejected if one fails. Test t belongs to the call `test_calls[t]`, passes with the probability
    `chances[t]`, and is needed by the disjuncts `test_disjuncts[test_offsets[t]:test_offsets[t + 1]]`. Call c costs
    `costs[c]`, in any unit, and decides the tests `call_tests[call_offsets[c]:call_offsets[c + 1]]`, all at once. A
    test with probability 1 rejects nothing, but its disjunct is not accepted before the test is evaluated.

    >>> problem = OrderProblem.of([[0, 1], [1, 2]], test_calls=[0, 1, 0], chances=[0.5, 0.2, 0.9], costs=[1.0, 4.0])
    >>> problem.tests_of_call(0).tolist(), problem.disjuncts_of_test(1).tolist()
    ([0, 2], [0, 1])
    """

    disjunct_offsets: Array
    disjunct_tests: Array
    test_calls: Array
    chances: Array
    costs: Array
    test_offsets: Array
    test_disjuncts: Array
    call_offsets: Array
    call_tests: Array
    test_positions: Array
    """The index of every test among the tests of its call."""
    gains: Array
    """The probability that each test fails, divided by the cost of its call in units of the mean cost."""

    @property
    def disjuncts(self) -> int:
        """The number of disjuncts."""
        return len(self.disjunct_offsets) - 1

    @property
    def tests(self) -> int:
        """The number of tests."""
        return len(self.test_calls)

    @property
    def calls(self) -> int:
        """The number of calls."""
        return len(self.costs)

    def tests_of_disjunct(self, disjunct: int) -> Array:
        """Return the tests that a disjunct needs."""
        return self.disjunct_tests[self.disjunct_offsets[disjunct] : self.disjunct_offsets[disjunct + 1]]

    def disjuncts_of_test(self, test: int) -> Array:
        """Return the disjuncts that need a test."""
        return self.test_disjuncts[self.test_offsets[test] : self.test_offsets[test + 1]]

    def tests_of_call(self, call: int) -> Array:
        """Return the tests that a call decides, in the order of its answers."""
        return self.call_tests[self.call_offsets[call] : self.call_offsets[call + 1]]

    @staticmethod
    def of(
        disjuncts: Rows | Sequence[Sequence[int]],
        test_calls: npt.ArrayLike,
        chances: npt.ArrayLike,
        costs: npt.ArrayLike,
    ) -> OrderProblem:
        """Build a problem. Raise ValueError for probabilities outside 0 to 1, negative costs and invalid numbers."""
        rows = disjuncts if isinstance(disjuncts, Rows) else Rows.of(disjuncts)
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
            read_only(_positions_in_calls(by_call, len(calls_of_tests))),
            read_only(_gains(calls_of_tests, passing, prices)),
        )


def everything(problem: OrderProblem, items: int = 1) -> tuple[Array, Array]:
    """Return offsets and active disjuncts of `items` items with all disjuncts of the problem.

    >>> [part.tolist() for part in everything(OrderProblem.of([[0], [0]], [0], [0.5], [1.0]), 2)]
    [[0, 2, 4], [0, 1, 0, 1]]
    """
    disjuncts = np.arange(problem.disjuncts, dtype=IDENTIFIER)
    return offsets_of(np.full(items, problem.disjuncts)), np.tile(disjuncts, items)


def _positions_in_calls(by_call: Rows, tests: int) -> Array:
    positions = np.empty(tests, dtype=IDENTIFIER)
    positions[by_call.values] = np.arange(tests) - np.repeat(by_call.offsets[:-1], by_call.lengths)
    return positions


def _gains(test_calls: Array, chances: Array, costs: Array) -> Array:
    mean = float(costs.mean()) if len(costs) else 0.0
    prices = np.maximum(costs / mean, FREE) if mean > 0.0 else np.ones(len(costs))
    return np.asarray((1.0 - chances) / prices[test_calls])


def _check(disjuncts: Rows, test_calls: Array, chances: Array, costs: Array) -> None:
    """Check the preconditions of the kernels."""
    tests = len(test_calls)
    if len(chances) != tests:
        raise ValueError(f"there are {tests} tests, but {len(chances)} probabilities")
    if len(disjuncts.values) and not 0 <= disjuncts.values.min() <= disjuncts.values.max() < tests:
        raise ValueError("a disjunct needs a test that does not exist")
    if tests and not 0 <= test_calls.min() <= test_calls.max() < len(costs):
        raise ValueError("a test belongs to a call that does not exist")
    if not np.all((chances >= 0.0) & (chances <= 1.0)):
        raise ValueError("probabilities must be between 0 and 1")
    if not np.all((costs >= 0.0) & np.isfinite(costs)):
        raise ValueError("costs must be finite and not negative")
