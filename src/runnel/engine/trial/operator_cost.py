"""Estimate what a trial would cost before any operator is asked.

In: a query and a range of the log. Out: for about how many items operators would be asked, and how long that would
take according to learned costs. Only filters are matched for it, on the newest items of the range.
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
    """For how many items operators would be asked, with how many calls, and how many seconds these would take."""

    items: int
    calls: int
    seconds: float

    def told(self) -> str:
        """The cost as text.

        >>> OperatorCost(120, 130, 5.2).told()
        'operators are asked about 120 items, in some 130 calls: about 5.2 s'
        """
        time = f"{self.seconds:.2g} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} minutes"
        return f"operators are asked about {self.items:,} items, in some {self.calls:,} calls: about {time}"


def estimate_cost(
    workspace: Workspace, query: int, definitions: Mapping[int, Node], after: int, upto: int
) -> OperatorCost | None:
    """What asking operators about the items in (after, upto] would cost; None where none are asked."""
    if not any(has_calls(condition) for node in definitions.values() for condition in conditions_of(node)):
        return None
    begin = max(after, upto - _SAMPLED_ITEMS)
    with TemporaryPlan([PlanQuery(query)], definitions) as plan:
        sample = _sampled_cost(workspace, plan, begin, upto)
    scale = (upto - after) / max(1, upto - begin)
    return OperatorCost(round(sample.items * scale), round(sample.calls * scale), sample.seconds * scale)


def _sampled_cost(workspace: Workspace, plan: Plan, after: int, upto: int) -> OperatorCost:
    # Imported here, because the compiler of kernels takes a second to load.
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
        declared = {(one.name, one.version): one for one in callable_operators(connection)}
        learned = learned_operators(connection)
    problem = order_problem_of(OperatorDisjuncts.of(plan.operators), declared, learned)
    offsets = offsets_of([len(disjuncts) for disjuncts in undecided])
    best = choose_order(problem, offsets, np.concatenate(undecided).astype(np.int32)).predictions[0]
    return OperatorCost(len(undecided), round(best.calls * len(undecided)), best.cost * len(undecided))
