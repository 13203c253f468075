"""Refinement: improve a filter plan by local search.

For a given set of filters the cheapest tree is known: every node is a child of the most selective filter that
subsumes it. The search therefore only chooses the set of filters. It removes filters that cost more than they save,
and adds candidates that save more than they cost. VCA builds from the leaves up and never revises a choice;
refinement does.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.papers.roses.factoring.filter_nodes import ABSENT, SOURCE, Nodes, plan_cost
from runnel.papers.roses.factoring.refine_kernels import add_nodes, all_gains, attach_nodes, drop_nodes, filters_below

_MIN_SAVING = 1e-3
"""The search ends after a round that saves less than this share of the cost."""


def refine_plan(nodes: Nodes, parents: Array, rounds: int) -> Array:
    """Return the parents of a plan that costs no more than the given one.

    A second search starts from the plan without shared filters, and adds the filters that save the most first. Which
    of the two results is cheaper depends on the predicates.
    """
    unshared = np.full(len(parents), ABSENT, dtype=np.int64)
    unshared[: nodes.predicates] = SOURCE
    plans = (_descend(nodes, parents, rounds), _descend(nodes, unshared, rounds))
    return min(plans, key=lambda plan: plan_cost(nodes, plan))


def _descend(nodes: Nodes, parents: Array, rounds: int) -> Array:
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
        if lower > cost * (1.0 - _MIN_SAVING):
            break
        cost = lower
    return best
