"""Describe filter trees as text and as JSON, for `explain`: each filter, the share of items it reads, and the saving.

A tree may have a million nodes, so every description has a limit. The most expensive branches are shown, and the
others are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from runnel.algebra.nodes.render import render
from runnel.arrays import Array, Rows
from runnel.optimizer.describe import stored_clause
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree
from runnel.plan.logical_plan import LogicalPlan

LIMIT = 60
"""The default number of filters in a description."""

_WIDTH = 12
"""The maximum number of children shown per filter, so that a flat tree shows more than its first level."""

ClauseText = Callable[[int], str]


def clause_texts(logical: LogicalPlan) -> ClauseText:
    """Return a function that renders a clause of a plan."""
    return lambda clause: render(stored_clause(logical, clause))


@dataclass(frozen=True, slots=True)
class FilterLine:
    """One filter: the shares of all items that it reads (`asked`) and passes, and the cost of its subtree."""

    node: int
    parent: int
    depth: int
    condition: str
    asked: float
    passes: float
    cost: float
    predicates: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the filter as a JSON value."""
        return {
            "node": self.node,
            "parent": self.parent,
            "condition": self.condition,
            "asked": round(self.asked, 6),
            "passes": round(self.passes, 6),
            "cost": round(self.cost, 6),
            "predicates": list(self.predicates),
        }


@dataclass(frozen=True, slots=True)
class TreeDescription:
    """A tree, or its most expensive filters. `hidden` is the number of filters that are not shown."""

    cost: float
    unfactored_cost: float
    savings: float
    predicates: int
    filters: tuple[FilterLine, ...]
    hidden: int

    def to_json(self) -> dict[str, Any]:
        """Return the description as a JSON value."""
        return {
            "cost": round(self.cost, 6),
            "unfactored_cost": self.unfactored_cost,
            "savings": round(self.savings, 6),
            "predicates": self.predicates,
            "filters": [line.to_json() for line in self.filters],
            "left_off": self.hidden,
        }

    def lines(self) -> list[str]:
        """Return the description as text: one line per filter, indented below its parent."""
        shown = [
            f"{self.cost:,.2f} filters evaluated per item instead of {self.unfactored_cost:,.0f} "
            f"({100 * self.savings:.1f} % saved)"
        ]
        for line in self.filters:
            count = len(line.predicates)
            suffix = "" if not count else "; decides 1 predicate" if count == 1 else f"; decides {count:,} predicates"
            shares = f"evaluated for {_percent(line.asked)}, passed by {_percent(line.passes)} of the items"
            shown.append(f"{'  ' * line.depth}{line.condition}: {shares}{suffix}")
        if self.hidden:
            shown.append(f"  and {self.hidden:,} more {'filter' if self.hidden == 1 else 'filters'}")
        return shown


def describe_tree(tree: FilterTree, texts: ClauseText, limit: int = LIMIT) -> TreeDescription:
    """Describe a tree; `texts` renders a clause.

    >>> tree = FilterTree(
    ...     np.array([-1, 0, 1, 1]), Rows.of([[], [0], [1], [2]]), Rows.of([[], [], [7], [8]]),
    ...     np.array([1.0, 0.25, 0.05, 0.05]),
    ... )
    >>> for line in describe_tree(tree, "abc".__getitem__).lines():
    ...     print(line)
    1.50 filters evaluated per item instead of 2 (25.0 % saved)
      a: evaluated for 100 %, passed by 25 % of the items
        b: evaluated for 25 %, passed by 5 % of the items; decides 1 predicate
        c: evaluated for 25 %, passed by 5 % of the items; decides 1 predicate
    """
    costs = subtree_costs(tree)
    shown = _costliest(tree, costs, limit)
    return TreeDescription(
        cost=tree.cost,
        unfactored_cost=tree.unfactored_cost,
        savings=tree.savings,
        predicates=len(tree.predicates.values),
        filters=tuple(_line(tree, texts, costs, node) for node in shown),
        hidden=len(tree) - 1 - len(shown),
    )


def subtree_costs(tree: FilterTree) -> Array:
    """Return the cost of the subtree of every node."""
    costs = np.where(np.arange(len(tree)) == ROOT, 0.0, tree.selectivities[np.maximum(tree.parents, ROOT)])
    for depth in range(int(tree.depths.max(initial=0)), 0, -1):
        nodes = np.flatnonzero(tree.depths == depth)
        np.add.at(costs, tree.parents[nodes], costs[nodes])
    return costs


def _costliest(tree: FilterTree, costs: Array, limit: int) -> list[int]:
    """Choose the most expensive children of every node, level by level up to the limit. Return them depth first."""
    children = Rows.grouped(tree.parents[1:], np.arange(1, len(tree)), len(tree))
    chosen: dict[int, list[int]] = {}
    level, remaining = [ROOT], limit
    while level and remaining > 0:
        next_level: list[int] = []
        for node in level:
            row = children.row(node)
            costliest = row[np.lexsort((row, -costs[row]))][: min(_WIDTH, remaining)].tolist()
            chosen[node] = costliest
            next_level += costliest
            remaining -= len(costliest)
        level = next_level
    order: list[int] = []
    stack = [ROOT]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(chosen.get(node, [])))
    return order[1:]


def _line(tree: FilterTree, texts: ClauseText, costs: Array, node: int) -> FilterLine:
    parent = int(tree.parents[node])
    conditions = [_parenthesize(texts(clause)) for clause in tree.clauses.row(node).tolist()]
    return FilterLine(
        node=node,
        parent=parent,
        depth=int(tree.depths[node]),
        condition=" and ".join(conditions) or "as above",
        asked=float(tree.selectivities[parent]),
        passes=float(tree.selectivities[node]),
        cost=float(costs[node]),
        predicates=tuple(tree.predicates.row(node).tolist()),
    )


def _parenthesize(text: str) -> str:
    return f"({text})" if " or " in text else text


def _percent(share: float) -> str:
    """Format a share as a percentage with two significant digits.

    >>> _percent(1.0), _percent(0.053), _percent(0.00001)
    ('100 %', '5.3 %', '0.001 %')
    """
    text = f"{100 * share:.2g}" if share < 0.9995 else "100"
    return f"{float(text):.10f}".rstrip("0").rstrip(".") + " %"
