"""Workloads of the experiments of section 5: ways over tests by popularity, and how selective the tests are.

In: the parameters of the paper's table 1. Out: a problem with one test for each call. The paper does not say how its
selectivities are distributed, only that an event matches 0.2 % of the subscriptions. Here the chance of a test is a
number drawn evenly from 0 to 1, times one factor for all, chosen so that this part of the ways is expected to match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.matching.operators.orders.problem import OrderProblem

MATCHING = 0.002
"""The part of the ways that an event matches, as expected from the chances."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The parameters: `exponent` 0 stands for popularity weights drawn evenly from 0 to 1, others for Zipf's law.

    `spread` is the deviation of the logarithm of a call's cost, whose mean is 1; 0 for costs that are all the same.
    `chance` is that of every test; without it chances are drawn so that the wanted part of the ways matches.
    """

    ways: int = 80_000
    calls: int = 40_000
    exponent: float = 0.0
    shortest: int = 3
    longest: int = 5
    spread: float = 0.0
    chance: float | None = None
    seed: int = 1

    @property
    def popularity(self) -> str:
        """The popularity model, for people."""
        return f"zipf {self.exponent:g}" if self.exponent else "uniform"


def make_problem(workload: Workload) -> OrderProblem:
    """The problem of a workload; the same for the same parameters.

    >>> problem = make_problem(Workload(ways=200, calls=50))
    >>> problem.disjuncts, problem.calls, sorted(set(np.diff(problem.disjunct_offsets).tolist()))
    (200, 50, [3, 4, 5])
    """
    dice = np.random.default_rng(workload.seed)
    weights = _weights(workload, dice)
    lengths = dice.integers(workload.shortest, workload.longest + 1, workload.ways)
    disjuncts = Rows(offsets_of(lengths), _drawn(dice, weights, lengths))
    shape = dice.random(workload.calls)
    costs = np.exp(dice.normal(0.0, workload.spread, workload.calls)) if workload.spread else np.ones(workload.calls)
    chances = np.full(workload.calls, workload.chance) if workload.chance else shape * _factor(disjuncts, shape)
    return OrderProblem.of(disjuncts, np.arange(workload.calls), chances, costs / costs.mean())


def expected_matches(problem: OrderProblem) -> float:
    """The part of the ways that are accepted, as expected from the chances."""
    logarithms = np.log(np.maximum(problem.chances, 1e-300))[problem.disjunct_tests]
    return float(np.exp(np.add.reduceat(logarithms, problem.disjunct_offsets[:-1])).mean())


def _weights(workload: Workload, dice: np.random.Generator) -> Array:
    if not workload.exponent:
        return dice.random(workload.calls)
    ranked = np.arange(1, workload.calls + 1) ** -workload.exponent
    return np.asarray(dice.permutation(ranked))


def _drawn(dice: np.random.Generator, weights: Array, lengths: Array) -> Array:
    """Draw distinct tests for each disjunct by weight, in no order.

    Draw again if the disjunct already has the test.
    """
    bounds = np.cumsum(weights) / weights.sum()
    owners = np.repeat(np.arange(len(lengths)), lengths)
    tests = np.searchsorted(bounds, dice.random(len(owners)), side="right").clip(max=len(weights) - 1)
    while True:
        order = np.lexsort((tests, owners))
        same = (owners[order][1:] == owners[order][:-1]) & (tests[order][1:] == tests[order][:-1])
        again = order[1:][same]
        if not len(again):
            return np.asarray(tests[np.lexsort((dice.random(len(tests)), owners))])
        tests[again] = np.searchsorted(bounds, dice.random(len(again)), side="right").clip(max=len(weights) - 1)


def _factor(disjuncts: Rows, shape: Array) -> float:
    """The factor with which the expected part of matching ways is as wanted: it grows with the factor."""
    logarithms = np.log(np.maximum(shape, 1e-300))[disjuncts.values]
    products = np.exp(np.add.reduceat(logarithms, disjuncts.offsets[:-1]))
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if float((products * middle**disjuncts.lengths).mean()) < MATCHING:
            low = middle
        else:
            high = middle
    return (low + high) / 2
