"""How operators decide a query: its ways, their calls in the order in which they are made, and what that costs.

In: a loaded plan, a query, and what was learned. Out: the same as data and as lines of text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from runnel.algebra.nodes.render import render_operators
from runnel.arrays import offsets_of
from runnel.matching.operators.decide.decider import Key
from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
from runnel.matching.operators.decide.operators_in_process import order_problem_of
from runnel.matching.operators.orders.choose_order import Choice, Prediction, choose_order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.rounds import Rounds
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.model.operator import OperatorDeclaration
from runnel.optimizer.describe import describe_disjunct
from runnel.plan.gates import query_of
from runnel.plan.store import Plan

_MOST_WAYS = 20_000
"""Of more ways the orders are not tried for the sake of an explanation."""


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """A call that a query needs: what it costs, how likely the query's tests of it pass, and who needs it besides."""

    call: str
    seconds: float
    chance: float
    others: int


@dataclass(frozen=True, slots=True)
class ExplainedOperators:
    """The ways of a query, its calls in the order in which they are made if all hold, and what orders would cost.

    `alone` is what an item takes that reaches all ways of the query; `shared` what one takes that reaches all ways of
    the plan, by order, the best first.
    """

    ways: tuple[str, ...]
    calls: tuple[ExplainedCall, ...]
    alone: tuple[Prediction, ...]
    shared: tuple[Prediction, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "ways": list(self.ways),
            "calls": [asdict(one) for one in self.calls],
            "alone": [asdict(one) for one in self.alone],
            "shared": [asdict(one) for one in self.shared],
        }

    def lines(self) -> list[str]:
        """As text."""
        several = f"{len(self.ways)} ways" if len(self.ways) > 1 else "one way"
        found = [f"operators decide what the filters let through, in {several}:"]
        found += [f"    {way}" for way in self.ways]
        found.append("  calls, in the order in which they are made while nothing fails:")
        found += [f"    {place}. {_call_line(one)}" for place, one in enumerate(self.calls, 1)]
        best = self.alone[0]
        found.append(f"  expected for an item that comes so far: {_cost(best)} ({best.order})")
        if self.shared:
            found.append("  for all queries with operators together, if no filter held them back:")
            found += [f"    {one.order}: {_cost(one)}" for one in self.shared]
        return found


def explain_operators(
    plan: Plan, query: int, declarations: Sequence[OperatorDeclaration], learned: OperatorStatistics
) -> ExplainedOperators | None:
    """How operators decide a query of a plan; None where none do."""
    own = np.flatnonzero(query_of(plan.operators.way_ids) == query)
    if not len(own):
        return None
    ways = OperatorDisjuncts.of(plan.operators)
    declared: Mapping[Key, OperatorDeclaration] = {(one.name, one.version): one for one in declarations}
    problem = order_problem_of(ways, declared, learned)
    offsets = offsets_of([len(own)])
    choice = choose_order(problem, offsets, own.astype(np.int32))
    shared = choose_order(problem).predictions if problem.disjuncts <= _MOST_WAYS else ()
    return ExplainedOperators(
        tuple(describe_disjunct(plan.operators, int(way)) for way in own),
        tuple(_explained_calls(ways, problem, own.tolist(), _call_order(problem, choice, own))),
        choice.predictions,
        shared,
    )


def _call_order(problem: OrderProblem, choice: Choice, own: np.ndarray[Any, Any]) -> list[int]:
    """The calls of some ways, in the order in which they are made if every test passes."""
    rounds = Rounds(problem, choice.order, offsets_of([len(own)]), own.astype(np.int32))
    found: list[int] = []
    while not rounds.is_done:
        items, calls = rounds.next_calls()
        found += calls.tolist()
        rounds.settle(items, calls, np.ones(int(rounds.answer_offsets(calls)[-1]), dtype=np.uint8))
    return found


def _explained_calls(
    ways: OperatorDisjuncts, problem: OrderProblem, own: Sequence[int], calls: Sequence[int]
) -> list[ExplainedCall]:
    mine = {test for way in own for test in ways.disjunct_tests[way]}
    queries = query_of(ways.table.way_ids)
    this = queries[own[0]]
    found = []
    for call in calls:
        tests = problem.tests_of_call(call).tolist()
        chance = min(float(problem.chances[test]) for test in tests if test in mine)
        users = {int(queries[way]) for test in tests for way in problem.disjuncts_of_test(test).tolist()}
        text = render_operators(ways.calls[call]).replace("?,", "…,").replace("?)", "…)")
        found.append(ExplainedCall(text, float(problem.costs[call]), chance, len(users - {int(this)})))
    return found


def _call_line(one: ExplainedCall) -> str:
    others = "" if not one.others else f", asked for {one.others:,} other quer{'y' if one.others == 1 else 'ies'} too"
    return f"{one.call}: {_time(one.seconds)}, {one.chance:.0%} pass{others}"


def _cost(one: Prediction) -> str:
    return f"{one.calls:,.1f} call{'' if one.calls == 1 else 's'}, {_time(one.seconds)}"


def _time(seconds: float) -> str:
    """A time that people can compare.

    >>> _time(0.04), _time(12e-6), _time(2.5)
    ('40 ms', '12 µs', '2.5 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs"
