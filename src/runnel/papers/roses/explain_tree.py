"""How the tree matcher finds a predicate (RoSeS §4.3-5): the filters that its items pass on each source.

In: a part of a plan, a predicate and its sources. Out: the path of filters from the source down to the predicate, in
words and as JSON, and the whole tree as a picture. Only the predicates of the source are factored, whatever else the
plan holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows, Texts, offsets_of
from runnel.optimizer.describe import counted, shortened
from runnel.papers.roses.describe_tree import (
    ClauseText,
    TreeDescription,
    clause_texts,
    describe_tree,
    subtree_costs,
)
from runnel.papers.roses.factoring.filter_table import FilterTable, predicates_of
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree
from runnel.plan.logical_plan import EXACT, LogicalPlan
from runnel.plan.store import PlanPart

MOST_PREDICATES = 5_000
"""Of how many predicates of a source a tree is made to explain it: more than that takes seconds."""

MOST_TREES = 8
"""For how many sources of a query a tree is looked for."""


@dataclass(frozen=True)
class ExplainedTree:
    """The tree of a source. `predicates` are the plan's numbers of those it decides, in the order of the tree's."""

    tree: FilterTree
    texts: ClauseText
    predicates: Array

    @cached_property
    def _costs(self) -> Array:
        return subtree_costs(self.tree)

    def path(self, predicate: int) -> TreeDescription:
        """The filters from the source down to a predicate of the plan; the others are counted."""
        nodes = path_to(self.tree, int(np.searchsorted(self.predicates, predicate)))
        alone = describe_tree(_alone(self.tree, nodes), self.texts)
        filters = tuple(
            replace(
                line,
                node=node,
                parent=int(self.tree.parents[node]),
                cost=float(self._costs[node]),
                predicates=tuple(self.predicates[self.tree.predicates.row(node)].tolist()),
            )
            for line, node in zip(alone.filters, nodes[1:], strict=True)
        )
        return TreeDescription(
            cost=self.tree.cost,
            unfactored_cost=self.tree.unfactored_cost,
            savings=self.tree.savings,
            predicates=len(self.predicates),
            filters=filters,
            hidden=len(self.tree) - 1 - len(filters),
        )

    def picture(self, title: str) -> str:
        """The tree as an SVG picture: the branches that cost most."""
        from runnel.papers.roses.draw_tree import draw_tree  # matplotlib takes a second to load

        return draw_tree(self.tree, self.texts, title=title)


@dataclass(frozen=True, slots=True)
class TreeExplanation:
    """A query on sources with the same predicates: its path down their filter tree.

    Without a tree there are too many predicates for one to be made just to show it. `hidden` sources are not shown.
    """

    sources: tuple[str, ...]
    predicates: int
    tree: TreeDescription | None
    hidden: int = 0

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON value."""
        return {
            "matcher": "tree",
            "sources": list(self.sources),
            "predicates": self.predicates,
            "tree": None if self.tree is None else self.tree.to_json(),
        }

    def lines(self) -> list[str]:
        """The explanation as text."""
        asked = f"matched by the filter tree of {shortened(self.sources)}, {counted(self.predicates, 'predicate')}"
        more = [f"filter trees of {counted(self.hidden, 'more source')} are not shown"] if self.hidden else []
        if self.tree is None:
            return [f"{asked}; it is shown for {MOST_PREDICATES:,} at most", *more]
        first, *below = self.tree.lines()
        through = [] if self.tree.filters else ["  no filter for this query: every item passes"]
        return [f"{asked}:", *(f"  {line}" for line in (first, *through, *below)), *more]


class TreeExplainer:
    """Explains how the tree matcher matches a part; sources with the same predicates share a tree."""

    def __init__(self, part: PlanPart) -> None:
        self._part = part
        self._trees: dict[bytes, ExplainedTree | None] = {}

    def explain(self, predicate: int, sources: Mapping[int, str]) -> tuple[TreeExplanation, ...]:
        """A predicate on its sources; on the first few, if there are many."""
        groups: dict[bytes, list[int]] = {}
        for source in list(sources)[:MOST_TREES]:
            groups.setdefault(self._key(source), []).append(source)
        explained = [
            TreeExplanation(
                tuple(sources[one] for one in same),
                len(key) // 8,
                None if (tree := self._tree(same[0])) is None else tree.path(predicate),
            )
            for key, same in groups.items()
        ]
        hidden = max(0, len(sources) - MOST_TREES)
        return (*explained[:-1], replace(explained[-1], hidden=hidden)) if explained else ()

    def pictures(self, sources: Mapping[int, str]) -> dict[str, str]:
        """The trees of the first few sources, by the names of the sources that share each."""
        shown: dict[bytes, list[str]] = {}
        trees: dict[bytes, ExplainedTree] = {}
        for source, name in list(sources.items())[:MOST_TREES]:
            tree = self._tree(source)
            if tree is not None:
                trees[self._key(source)] = tree
                shown.setdefault(self._key(source), []).append(name)
        titles = {", ".join(names): trees[key] for key, names in shown.items()}
        return {title: tree.picture(title) for title, tree in titles.items()}

    def _key(self, source: int) -> bytes:
        return predicates_of(self._part.logical, source).tobytes()

    def _tree(self, source: int) -> ExplainedTree | None:
        key = self._key(source)
        if key not in self._trees:
            self._trees[key] = explained_tree(self._part, source)
        return self._trees[key]


def explained_tree(part: PlanPart, source: int) -> ExplainedTree | None:
    """The tree of a source by what the plan knew of the stream, or None where it has too many predicates."""
    predicates = predicates_of(part.logical, source)
    if len(predicates) > MOST_PREDICATES:
        return None
    tree, table = source_tree(part.logical, part.layout.get("atom_shares"), predicates)
    return ExplainedTree(tree, clause_texts(table), predicates)


def source_tree(logical: LogicalPlan, shares: Array | None, predicates: Array) -> tuple[FilterTree, LogicalPlan]:
    """The tree of some predicates, and a table of these with the wider clauses of the tree, whose numbers it has.

    `shares` is the part of all items that satisfies each atom of the plan.
    """
    atoms, table = _only(logical, predicates)
    known = None if shares is None else shares[atoms]
    filters = FilterTable.of(table, known)
    return filters.tree(np.arange(len(predicates))), replace(table, clauses=filters.clauses)


def path_to(tree: FilterTree, predicate: int) -> list[int]:
    """The nodes from the source down to the one that decides a predicate, both included.

    >>> tree = FilterTree(
    ...     np.array([-1, 0, 1, 1]), Rows.of([[], [0], [1], [2]]), Rows.of([[], [], [7], [8]]),
    ...     np.array([1.0, 0.5, 0.1, 0.1]),
    ... )
    >>> path_to(tree, 8)
    [0, 1, 3]
    """
    owners = np.repeat(np.arange(len(tree)), tree.predicates.lengths)
    node = int(owners[np.flatnonzero(tree.predicates.values == predicate)[0]])
    path = [node]
    while node != ROOT:
        node = int(tree.parents[node])
        path.append(node)
    return path[::-1]


def _alone(tree: FilterTree, nodes: list[int]) -> FilterTree:
    """A path as a tree of its own."""
    chosen = np.array(nodes)
    return FilterTree(
        np.arange(-1, len(nodes) - 1),
        _rows(tree.clauses, chosen),
        _rows(tree.predicates, chosen),
        tree.selectivities[chosen],
    )


def _only(logical: LogicalPlan, predicates: Array) -> tuple[Array, LogicalPlan]:
    """A table with nothing but these predicates, their clauses and atoms; and the atoms' numbers in the plan."""
    rows = _rows(logical.predicates, predicates)
    clauses, clause_numbers = np.unique(rows.values, return_inverse=True)
    inner = _rows(logical.clauses, clauses)
    atoms, atom_numbers = np.unique(inner.values >> 1, return_inverse=True)
    none = np.empty(0, dtype=np.int64)
    table = LogicalPlan(
        atoms=Texts.of(logical.atoms.raw(atom) for atom in atoms.tolist()),
        clauses=Rows(inner.offsets, (2 * atom_numbers + (inner.values & 1)).astype(IDENTIFIER)),
        predicates=Rows(rows.offsets, clause_numbers.astype(IDENTIFIER)),
        predicate_formulas=np.full(len(predicates), EXACT, dtype=IDENTIFIER),
        formula_kinds=none,
        formulas=Rows.of([]),
        scopes=Rows.of([]),
        target_predicates=none,
        target_scopes=none,
        targets=Rows.of([]),
        query_ids=none,
        query_since=none,
    )
    return atoms, table


def _rows(rows: Rows, chosen: Array) -> Rows:
    return Rows(offsets_of(rows.lengths[chosen]), rows.expand(chosen)[1])
