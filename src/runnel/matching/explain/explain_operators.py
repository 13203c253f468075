"""Explain how operators decide a query: its disjuncts, their calls in the order they are made, and their costs.

In: a loaded plan, a query, and learned operator statistics. Out: the explanation as data and as lines of text.
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

_MAX_DISJUNCTS = 20_000
"""If the plan has more disjuncts, orders over all of them are not computed, because that takes too long."""


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """A call that a query needs: its duration, the chance that the query's tests of its result pass, and its users.

    `chance` is that of the least likely test. `others` is the number of other queries that need the call.
    """

    call: str
    seconds: float
    chance: float
    others: int


@dataclass(frozen=True, slots=True)
class ExplainedOperators:
    """The disjuncts of a query, its calls in the order they are made if all tests pass, and the costs of orders.

    `alone` are the predicted costs of an item that satisfies the filters of all disjuncts of the query. `shared` are
    those of an item that satisfies the filters of all disjuncts of the plan. Both list one prediction per order, the
    best first.
    """

    disjuncts: tuple[str, ...]
    calls: tuple[ExplainedCall, ...]
    alone: tuple[Prediction, ...]
    shared: tuple[Prediction, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        return {
            "disjuncts": list(self.disjuncts),
            "calls": [asdict(call) for call in self.calls],
            "alone": [asdict(prediction) for prediction in self.alone],
            "shared": [asdict(prediction) for prediction in self.shared],
        }

    def lines(self) -> list[str]:
        """Return the explanation as lines of text."""
        count = f"{len(self.disjuncts)} alternatives" if len(self.disjuncts) > 1 else "one condition"
        lines = [f"operators decide items that pass the filters, by {count}:"]
        lines += [f"    {disjunct}" for disjunct in self.disjuncts]
        lines.append("  calls, in the order in which they are made if all tests pass:")
        lines += [f"    {number}. {_call_line(call)}" for number, call in enumerate(self.calls, 1)]
        best = self.alone[0]
        lines.append(f"  an item that passes all filters of the query: {_cost(best)} ({best.order})")
        if self.shared:
            lines.append("  an item that passes the filters of all queries with operators:")
            lines += [f"    {prediction.order}: {_cost(prediction)}" for prediction in self.shared]
        return lines


def explain_operators(
    plan: Plan, query: int, declarations: Sequence[OperatorDeclaration], learned: OperatorStatistics
) -> ExplainedOperators | None:
    """Explain how operators decide a query of a plan. Return None if the query has no operators."""
    selected = np.flatnonzero(query_of(plan.operators.disjunct_ids) == query)
    if not len(selected):
        return None
    disjuncts = OperatorDisjuncts.of(plan.operators)
    declared: Mapping[Key, OperatorDeclaration] = {
        (declaration.name, declaration.version): declaration for declaration in declarations
    }
    problem = order_problem_of(disjuncts, declared, learned)
    offsets = offsets_of([len(selected)])
    choice = choose_order(problem, offsets, selected.astype(np.int32))
    shared = choose_order(problem).predictions if problem.disjuncts <= _MAX_DISJUNCTS else ()
    return ExplainedOperators(
        tuple(describe_disjunct(plan.operators, int(disjunct)) for disjunct in selected),
        tuple(_explain_calls(disjuncts, problem, selected.tolist(), _order_calls(problem, choice, selected))),
        choice.predictions,
        shared,
    )


def _order_calls(problem: OrderProblem, choice: Choice, selected: np.ndarray[Any, Any]) -> list[int]:
    """Return the calls of the selected disjuncts in the order in which they are made if every test passes."""
    rounds = Rounds(problem, choice.order, offsets_of([len(selected)]), selected.astype(np.int32))
    ordered: list[int] = []
    while not rounds.is_done:
        items, calls = rounds.next_calls()
        ordered += calls.tolist()
        rounds.settle(items, calls, np.ones(int(rounds.answer_offsets(calls)[-1]), dtype=np.uint8))
    return ordered


def _explain_calls(
    disjuncts: OperatorDisjuncts, problem: OrderProblem, selected: Sequence[int], calls: Sequence[int]
) -> list[ExplainedCall]:
    query_tests = {test for disjunct in selected for test in disjuncts.disjunct_tests[disjunct]}
    queries = query_of(disjuncts.table.disjunct_ids)
    query = int(queries[selected[0]])
    explained = []
    for call in calls:
        tests = problem.tests_of_call(call).tolist()
        chance = min(float(problem.chances[test]) for test in tests if test in query_tests)
        users = {int(queries[disjunct]) for test in tests for disjunct in problem.disjuncts_of_test(test).tolist()}
        text = render_operators(disjuncts.calls[call]).replace("?,", "…,").replace("?)", "…)")
        explained.append(ExplainedCall(text, float(problem.costs[call]), chance, len(users - {query})))
    return explained


def _call_line(call: ExplainedCall) -> str:
    others = f", also needed by {call.others:,} other quer{'y' if call.others == 1 else 'ies'}" if call.others else ""
    return f"{call.call}: {_format_seconds(call.seconds)}, {call.chance:.0%} pass{others}"


def _cost(prediction: Prediction) -> str:
    calls = f"{prediction.calls:,.1f} call{'' if prediction.calls == 1 else 's'}"
    return f"{calls}, {_format_seconds(prediction.seconds)}"


def _format_seconds(seconds: float) -> str:
    """Format a duration with a suitable unit.

    >>> _format_seconds(0.04), _format_seconds(12e-6), _format_seconds(2.5)
    ('40 ms', '12 µs', '2.5 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs"
