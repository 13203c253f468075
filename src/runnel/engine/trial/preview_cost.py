"""What a preview would cost, said before any operator is asked.

In: a query and a stretch of the log. Out: for about how many items operators would be asked, and how long that would
take by what was learned. Filters alone are matched for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runnel.algebra.nodes.query import Node, conditions_of
from runnel.algebra.semantics.close_conditions import has_calls
from runnel.arrays import offsets_of
from runnel.catalog.declared.operators import callable_operators
from runnel.catalog.learned.operator_statistics import learned_operators
from runnel.engine.trial.adhoc_matching import adhoc_plan
from runnel.engine.workspace import Workspace
from runnel.errors import TooExpensiveError
from runnel.plan.gates import FIRST_OPERATOR_DISJUNCT
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan

_LOOKED_AT = 5_000
"""Items, the newest, by which the others are judged."""


@dataclass(frozen=True, slots=True)
class PreviewCost:
    """For how many items operators would be asked, with how many calls, and how many seconds these would take."""

    items: int
    calls: int
    seconds: float

    def told(self) -> str:
        """As a person would say it.

        >>> PreviewCost(120, 130, 5.2).told()
        'operators are asked about 120 items, in some 130 calls: about 5.2 s'
        """
        time = f"{self.seconds:.2g} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} minutes"
        return f"operators are asked about {self.items:,} items, in some {self.calls:,} calls: about {time}"


def preview_cost(
    root: Workspace, query: int, definitions: Mapping[int, Node], after: int, upto: int
) -> PreviewCost | None:
    """What asking operators about the items in (after, upto] would cost; None where none are asked.

    Refuses what would take longer than the setting preview_operator_seconds.
    """
    if not any(has_calls(one) for node in definitions.values() for one in conditions_of(node)):
        return None
    begin = max(after, upto - _LOOKED_AT)
    with adhoc_plan([PlanQuery(query)], definitions) as plan:
        sample = _sampled(root, plan, begin, upto)
    scale = (upto - after) / max(1, upto - begin)
    cost = PreviewCost(round(sample.items * scale), round(sample.calls * scale), sample.seconds * scale)
    most = root.settings.preview_operator_seconds
    if cost.seconds > most:
        raise TooExpensiveError(
            f"this preview would take longer than {most:g} seconds: {cost.told()}",
            hint="preview a shorter time (`over last 1 hours`), or raise the setting preview_operator_seconds",
        )
    return cost


def _sampled(root: Workspace, plan: Plan, after: int, upto: int) -> PreviewCost:
    # Imported here, as the compiler of kernels takes a second to load.
    from runnel.matching.compile.build_matcher import build_matcher
    from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
    from runnel.matching.operators.decide.operators_in_process import order_problem_of
    from runnel.matching.operators.orders.choose_order import choose_order

    matcher = build_matcher(plan)
    ways: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for batch in root.items.read(after, upto):
        matches = matcher.match(batch)
        rows = (matches.row(row) for row in range(len(matches)))
        found = (np.searchsorted(plan.operators.way_ids, row[row >= FIRST_OPERATOR_DISJUNCT]) for row in rows)
        ways += [one for one in found if len(one)]
    if not ways:
        return PreviewCost(0, 0, 0.0)
    with root.catalog.read() as connection:
        declared = {(one.name, one.version): one for one in callable_operators(connection)}
        learned = learned_operators(connection)
    problem = order_problem_of(OperatorDisjuncts.of(plan.operators), declared, learned)
    offsets = offsets_of([len(one) for one in ways])
    best = choose_order(problem, offsets, np.concatenate(ways).astype(np.int32)).predictions[0]
    return PreviewCost(len(ways), round(best.calls * len(ways)), best.cost * len(ways))
