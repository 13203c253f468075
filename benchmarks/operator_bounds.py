"""How few calls could decide an event, if one knew the answers beforehand: a lower bound for every order.

In: a problem and the truth of every test. Out: a number that no order can go below. All calls of accepted ways are
needed. Of every other way at least one call is needed that rejects it: a covering problem, whose linear relaxation
is bounded from below by any feasible solution of its dual. The dual (a packing: every rejected way gets a price,
and the prices of the ways that a call rejects may not exceed its cost) is ascended by averaged primal-dual steps;
each price is then cut to what its calls allow, and raised again where there is room. No solver is needed, and the
bound is valid however far the ascent has come; the gap to the primal value says how far that is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows
from runnel.kernel import kernel
from runnel.matching.operators.orders.problem import OrderProblem


@dataclass(frozen=True, slots=True)
class Bound:
    """Costs: of the calls of accepted ways, of the packing, and what the relaxation cannot be above."""

    mandatory: float
    packing: float
    cover: float

    @property
    def value(self) -> float:
        """What no order can go below."""
        return self.mandatory + self.packing

    @property
    def gap(self) -> float:
        """By how much the bound of the relaxation could still be raised, as a part of it."""
        return (self.cover - self.packing) / max(self.packing, 1e-12)


def lower_bound(problem: OrderProblem, truth: Array, steps: int = 600) -> Bound:
    """The bound for one event.

    >>> problem = OrderProblem.of([[0, 1], [1, 2], [3]], [0, 1, 2, 3], [0.5] * 4, [1.0] * 4)
    >>> lower_bound(problem, np.array([True, False, False, True])).value
    2.0
    """
    owners = np.repeat(np.arange(problem.disjuncts), np.diff(problem.disjunct_offsets))
    failing = ~truth[problem.disjunct_tests]
    failures = np.bincount(owners[failing], minlength=problem.disjuncts)
    calls = problem.test_calls[problem.disjunct_tests]
    is_mandatory = np.zeros(problem.calls, dtype=bool)
    is_mandatory[calls[failures[owners] == 0]] = True
    # A mandatory call may reject other ways for nothing: those ask for nothing more.
    is_free = np.bincount(owners[failing & is_mandatory[calls]], minlength=problem.disjuncts) > 0
    kept = failing & ~is_free[owners]
    mandatory = float(problem.costs[is_mandatory].sum())
    pairs = np.unique(np.stack([owners[kept], calls[kept]]), axis=1)
    if not pairs.shape[1]:
        return Bound(mandatory, 0.0, 0.0)
    disjuncts, rows = np.unique(pairs[0], return_inverse=True)
    by_way = Rows.grouped(rows, pairs[1], len(disjuncts))
    by_call = Rows.grouped(pairs[1], rows.astype(np.int64), problem.calls)
    prices, shares = _ascend(
        by_way.offsets, by_way.values, by_call.offsets, by_call.values, problem.costs.copy(), steps
    )
    packing = _repaired(by_way.offsets, by_way.values, problem.costs.copy(), prices)
    # What a way lacks to be covered is added at its cheapest call: a solution of the relaxation, from above.
    lacking = np.maximum(1.0 - np.add.reduceat(shares[by_way.values], by_way.offsets[:-1]), 0.0)
    cheapest = np.minimum.reduceat(problem.costs[by_way.values], by_way.offsets[:-1])
    return Bound(mandatory, float(packing), float(shares @ problem.costs + lacking @ cheapest))


@kernel
def _ascend(
    way_offsets: Array, way_calls: Array, call_offsets: Array, call_ways: Array, costs: Array, steps: int
) -> tuple[Array, Array]:
    """Averaged primal-dual steps: prices of ways, and shares of calls (Chambolle and Pock's method)."""
    disjuncts, calls = len(way_offsets) - 1, len(call_offsets) - 1
    prices, shares = np.zeros(disjuncts), np.zeros(calls)
    price_sums, share_sums = np.zeros(disjuncts), np.zeros(calls)
    before = np.zeros(calls)
    for number in range(steps):
        for call in range(calls):
            first, last = call_offsets[call], call_offsets[call + 1]
            total = 0.0
            for index in range(first, last):
                total += prices[call_ways[index]]
            # Steps by row and column sums, so that every call and way has its own length of step.
            moved = shares[call] + (total - costs[call]) / max(last - first, 1)
            moved = max(moved, 0.0)
            before[call] = 2.0 * moved - shares[call]
            shares[call] = moved
        for disjunct in range(disjuncts):
            first, last = way_offsets[disjunct], way_offsets[disjunct + 1]
            total = 0.0
            for index in range(first, last):
                total += before[way_calls[index]]
            prices[disjunct] = max(prices[disjunct] + (1.0 - total) / (last - first), 0.0)
        if 2 * number >= steps:
            for disjunct in range(disjuncts):
                price_sums[disjunct] += prices[disjunct]
            for call in range(calls):
                share_sums[call] += shares[call]
    rounds = steps - (steps + 1) // 2
    return price_sums / max(rounds, 1), share_sums / max(rounds, 1)


@kernel
def _repaired(way_offsets: Array, way_calls: Array, costs: Array, prices: Array) -> float:
    """The sum of allowed prices: each cut by the call that it overloads most, then raised to what is left."""
    loads = np.zeros(len(costs))
    for disjunct in range(len(prices)):
        for index in range(way_offsets[disjunct], way_offsets[disjunct + 1]):
            loads[way_calls[index]] += prices[disjunct]
    left = costs.copy()
    for disjunct in range(len(prices)):
        factor = 1.0
        for index in range(way_offsets[disjunct], way_offsets[disjunct + 1]):
            call = way_calls[index]
            if loads[call] > costs[call]:
                factor = min(factor, costs[call] / loads[call])
        prices[disjunct] *= factor
        for index in range(way_offsets[disjunct], way_offsets[disjunct + 1]):
            left[way_calls[index]] -= prices[disjunct]
    total = 0.0
    for disjunct in range(len(prices)):
        room = 1e300
        for index in range(way_offsets[disjunct], way_offsets[disjunct + 1]):
            room = min(room, left[way_calls[index]])
        room = max(room, 0.0)
        for index in range(way_offsets[disjunct], way_offsets[disjunct + 1]):
            left[way_calls[index]] -= room
        total += prices[disjunct] + room
    return total
