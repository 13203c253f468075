"""Refinement: a filter plan made better by small steps, until none helps.

Once it is fixed which candidates are filters, the cheapest tree is known: every node goes below the most selective
filter that subsumes it, whatever the others do. So only the choice of filters is searched: those are left out that
cost more than they save, and those taken in that save more than they cost. VCA builds from the leaves up and never
looks back; this is where its choices are looked at again.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.papers.roses.factoring.filter_nodes import ABSENT, SOURCE, Nodes, plan_cost
from runnel.papers.roses.factoring.refine_kernels import add_nodes, all_gains, attach_nodes, drop_nodes, filters_below

_WORTHWHILE = 1e-3
"""A round that saves less than this part of the cost is the last."""


def refine_plan(nodes: Nodes, parents: Array, rounds: int) -> Array:
    """The parents of a plan that costs no more than the given one.

    A second search starts from the plan without shared filters, where those come first that save most; which of the
    two ends lower depends on the predicates.
    """
    alone = np.full(len(parents), ABSENT, dtype=np.int64)
    alone[: nodes.predicates] = SOURCE
    plans = (_descended(nodes, parents, rounds), _descended(nodes, alone, rounds))
    return min(plans, key=lambda plan: plan_cost(nodes, plan))


def _descended(nodes: Nodes, parents: Array, rounds: int) -> Array:
    best, cost = parents, plan_cost(nodes, parents)
    current = parents.copy()
    for _ in range(rounds):
        attach_nodes(nodes, current)
        drop_nodes(nodes, current)
        below = filters_below(nodes, current)
        gains = all_gains(nodes, current, *below)
        wanted = np.flatnonzero(gains > 0.0)
        add_nodes(nodes, current, wanted[np.argsort(-gains[wanted], kind="stable")], *below)
        attach_nodes(nodes, current)
        lower = plan_cost(nodes, current)
        if lower < cost:
            best = current.copy()
        if lower > cost * (1.0 - _WORTHWHILE):
            break
        cost = lower
    return best
