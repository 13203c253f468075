"""Estimate the cost of calling operators in a trial, before any operator is called.

In: a query and a range of the log. Out: the estimated number of items and calls, and their duration according to
learned costs. For the estimate, only filters are evaluated, on the newest items of the range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runnel.algebra.nodes.query import Node, conditions_of
from runnel.algebra.semantics.close_conditions import has_calls
from runnel.arrays import Array, offsets_of
from runnel.catalog.declared.operators import callable_operators
from runnel.catalog.learned.operator_statistics import learned_operators
from runnel.engine.workspace import Workspace
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.plan.gates import FIRST_OPERATOR_DISJUNCT
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan

_SAMPLED_ITEMS = 5_000
"""The number of newest items from which the cost of all is extrapolated."""


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The number of items for which operators would be called, the number of calls, and their seconds in total."""

    items: int
    calls: int
    seconds: float

    def describe(self) -> str:
        """Return the cost as text.

        >>> OperatorCost(120, 130, 5.2).describe()
        'operators are called for about 120 items, about 130 calls in 5.2 s'
        """
        duration = f"{self.seconds:.2g} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} minutes"
        return f"operators are called for about {self.items:,} items, about {self.calls:,} calls in {duration}"


def estimate_cost(
    workspace: Workspace, query: int, definitions: Mapping[int, Node], after: int, upto: int
) -> OperatorCost | None:
    """Estimate the cost of calling operators for the items in (after, upto], or return None if none is called."""
    if not any(has_calls(condition) for node in definitions.values() for condition in conditions_of(node)):
        return None
    begin = max(after, upto - _SAMPLED_ITEMS)
    with TemporaryPlan([PlanQuery(query)], definitions) as plan:
        sample = _sampled_cost(workspace, plan, begin, upto)
    scale = (upto - after) / max(1, upto - begin)
    return OperatorCost(round(sample.items * scale), round(sample.calls * scale), sample.seconds * scale)


def _sampled_cost(workspace: Workspace, plan: Plan, after: int, upto: int) -> OperatorCost:
    # Imported here, because the kernel compiler takes a second to load.
    from runnel.matching.compile.build_matcher import build_matcher
    from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
    from runnel.matching.operators.decide.operators_in_process import order_problem_of
    from runnel.matching.operators.orders.choose_order import choose_order

    matcher = build_matcher(plan)
    undecided: list[Array] = []
    for batch in workspace.items.read(after, upto):
        matches = matcher.match(batch)
        for row in map(matches.row, range(len(matches))):
            disjuncts = row[row >= FIRST_OPERATOR_DISJUNCT]
            if len(disjuncts):
                undecided.append(np.searchsorted(plan.operators.disjunct_ids, disjuncts))
    if not undecided:
        return OperatorCost(0, 0, 0.0)
    with workspace.catalog.read() as connection:
        declared = {(operator.name, operator.version): operator for operator in callable_operators(connection)}
        learned = learned_operators(connection)
    problem = order_problem_of(OperatorDisjuncts.of(plan.operators), declared, learned)
    offsets = offsets_of([len(disjuncts) for disjuncts in undecided])
    best = choose_order(problem, offsets, np.concatenate(undecided).astype(np.int32)).predictions[0]
    return OperatorCost(len(undecided), round(best.calls * len(undecided)), best.cost * len(undecided))
