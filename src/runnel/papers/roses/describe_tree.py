"""Filter trees in words and as JSON, for `explain`: what is asked of which part of the items, and what it saves.

A tree may have a million nodes, so every description has a limit: the branches that cost most are shown, the rest is
counted.
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
"""How many filters a description shows, unless it is told."""

_WIDTH = 12
"""How many filters are shown below one, so that a flat tree is not a list of its first level."""

ClauseText = Callable[[int], str]


def clause_texts(logical: LogicalPlan) -> ClauseText:
    """How the clauses of a plan are written."""
    return lambda clause: render(stored_clause(logical, clause))


@dataclass(frozen=True, slots=True)
class FilterLine:
    """One filter: the part of all items that it is asked of and that passes, and the cost of all from here down."""

    node: int
    parent: int
    depth: int
    condition: str
    asked: float
    passes: float
    cost: float
    predicates: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """The filter as a JSON value."""
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
    """A tree, or as much of it as was asked for; `hidden` filters are left off."""

    cost: float
    unfactored_cost: float
    savings: float
    predicates: int
    filters: tuple[FilterLine, ...]
    hidden: int

    def to_json(self) -> dict[str, Any]:
        """The description as a JSON value."""
        return {
            "cost": round(self.cost, 6),
            "unfactored_cost": self.unfactored_cost,
            "savings": round(self.savings, 6),
            "predicates": self.predicates,
            "filters": [one.to_json() for one in self.filters],
            "left_off": self.hidden,
        }

    def lines(self) -> list[str]:
        """The description as text, a line for each filter, indented below the filter that it follows."""
        shown = [
            f"{self.cost:,.2f} filters asked per item instead of {self.unfactored_cost:,.0f} "
            f"({100 * self.savings:.1f} % saved)"
        ]
        for one in self.filters:
            ends = len(one.predicates)
            mark = "" if not ends else "; decides 1 predicate" if ends == 1 else f"; decides {ends:,} predicates"
            shares = f"asked of {_percent(one.asked)}, passed by {_percent(one.passes)} of the items"
            shown.append(f"{'  ' * one.depth}{one.condition}: {shares}{mark}")
        if self.hidden:
            shown.append(f"  and {self.hidden:,} more {'filter' if self.hidden == 1 else 'filters'}")
        return shown


def describe_tree(tree: FilterTree, texts: ClauseText, limit: int = LIMIT) -> TreeDescription:
    """A tree in words; `texts` gives the text of a clause.

    >>> tree = FilterTree(
    ...     np.array([-1, 0, 1, 1]), Rows.of([[], [0], [1], [2]]), Rows.of([[], [], [7], [8]]),
    ...     np.array([1.0, 0.25, 0.05, 0.05]),
    ... )
    >>> for line in describe_tree(tree, "abc".__getitem__).lines():
    ...     print(line)
    1.50 filters asked per item instead of 2 (25.0 % saved)
      a: asked of 100 %, passed by 25 % of the items
        b: asked of 25 %, passed by 5 % of the items; decides 1 predicate
        c: asked of 25 %, passed by 5 % of the items; decides 1 predicate
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
    """The cost of every node and of all below it."""
    costs = np.where(np.arange(len(tree)) == ROOT, 0.0, tree.selectivities[np.maximum(tree.parents, ROOT)])
    for depth in range(int(tree.depths.max(initial=0)), 0, -1):
        here = np.flatnonzero(tree.depths == depth)
        np.add.at(costs, tree.parents[here], costs[here])
    return costs


def _costliest(tree: FilterTree, costs: Array, limit: int) -> list[int]:
    """Of every node the children that cost most, level by level up to the limit; as a reader goes down the tree."""
    children = Rows.grouped(tree.parents[1:], np.arange(1, len(tree)), len(tree))
    chosen: dict[int, list[int]] = {}
    level, room = [ROOT], limit
    while level and room > 0:
        below: list[int] = []
        for node in level:
            row = children.row(node)
            dearest = row[np.lexsort((row, -costs[row]))][: min(_WIDTH, room)].tolist()
            chosen[node] = dearest
            below += dearest
            room -= len(dearest)
        level = below
    order: list[int] = []
    waiting = [ROOT]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting.extend(reversed(chosen.get(node, [])))
    return order[1:]


def _line(tree: FilterTree, texts: ClauseText, costs: Array, node: int) -> FilterLine:
    parent = int(tree.parents[node])
    return FilterLine(
        node=node,
        parent=parent,
        depth=int(tree.depths[node]),
        condition=" and ".join(_bracketed(texts(clause)) for clause in tree.clauses.row(node).tolist()) or "as above",
        asked=float(tree.selectivities[parent]),
        passes=float(tree.selectivities[node]),
        cost=float(costs[node]),
        predicates=tuple(tree.predicates.row(node).tolist()),
    )


def _bracketed(text: str) -> str:
    return f"({text})" if " or " in text else text


def _percent(share: float) -> str:
    """A share in two digits.

    >>> _percent(1.0), _percent(0.053), _percent(0.00001)
    ('100 %', '5.3 %', '0.001 %')
    """
    text = f"{100 * share:.2g}" if share < 0.9995 else "100"
    return f"{float(text):.10f}".rstrip("0").rstrip(".") + " %"
