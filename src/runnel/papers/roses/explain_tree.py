"""Explain how the tree matcher decides a predicate (RoSeS §4.3-5): the filters that its items pass on each source.

In: a part of a plan, a predicate and its sources. Out: the path of filters from the source down to the predicate, as
text and as JSON, and the whole tree as a picture. The tree contains only the predicates of the source.
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

MAX_PREDICATES = 5_000
"""The maximum number of predicates of a source whose tree is explained. Building a larger tree takes seconds."""

MAX_SOURCES = 8
"""The maximum number of sources of a query whose trees are explained."""


@dataclass(frozen=True)
class ExplainedTree:
    """The tree of a source. `predicates[i]` is the number in the plan of predicate i of the tree."""

    tree: FilterTree
    texts: ClauseText
    predicates: Array

    @cached_property
    def _costs(self) -> Array:
        return subtree_costs(self.tree)

    def path(self, predicate: int) -> TreeDescription:
        """Return the filters from the source down to a predicate of the plan, and the number of other filters."""
        nodes = path_to(self.tree, int(np.searchsorted(self.predicates, predicate)))
        description = describe_tree(_path_as_tree(self.tree, nodes), self.texts)
        filters = tuple(
            replace(
                line,
                node=node,
                parent=int(self.tree.parents[node]),
                cost=float(self._costs[node]),
                predicates=tuple(self.predicates[self.tree.predicates.row(node)].tolist()),
            )
            for line, node in zip(description.filters, nodes[1:], strict=True)
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
        """Draw the most expensive branches of the tree as SVG."""
        from runnel.papers.roses.draw_tree import draw_tree  # matplotlib takes a second to load

        return draw_tree(self.tree, self.texts, title=title)


@dataclass(frozen=True, slots=True)
class TreeExplanation:
    """A query on sources with the same predicates: its path down their filter tree.

    `tree` is None if the sources have more than `MAX_PREDICATES` predicates. `hidden` is the number of further
    sources, which are not explained.
    """

    sources: tuple[str, ...]
    predicates: int
    tree: TreeDescription | None
    hidden: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        return {
            "matcher": "tree",
            "sources": list(self.sources),
            "predicates": self.predicates,
            "tree": None if self.tree is None else self.tree.to_json(),
        }

    def lines(self) -> list[str]:
        """Return the explanation as text."""
        heading = f"matched by the filter tree of {shortened(self.sources)}, {counted(self.predicates, 'predicate')}"
        hidden = [f"filter trees of {counted(self.hidden, 'more source')} are not shown"] if self.hidden else []
        if self.tree is None:
            return [f"{heading}; it is shown for {MAX_PREDICATES:,} at most", *hidden]
        first, *filters = self.tree.lines()
        note = [] if self.tree.filters else ["  no filter for this query: every item passes"]
        return [f"{heading}:", *(f"  {line}" for line in (first, *note, *filters)), *hidden]


class TreeExplainer:
    """Explains how the tree matcher matches a part; sources with the same predicates share a tree."""

    def __init__(self, part: PlanPart) -> None:
        self._part = part
        self._trees: dict[bytes, ExplainedTree | None] = {}

    def explain(self, predicate: int, sources: Mapping[int, str]) -> tuple[TreeExplanation, ...]:
        """Explain a predicate on its sources, at most `MAX_SOURCES` of them."""
        groups: dict[bytes, list[int]] = {}
        for source in list(sources)[:MAX_SOURCES]:
            groups.setdefault(self._key(source), []).append(source)
        explained = [
            TreeExplanation(
                tuple(sources[source] for source in group),
                len(key) // 8,
                None if (tree := self._tree(group[0])) is None else tree.path(predicate),
            )
            for key, group in groups.items()
        ]
        hidden = max(0, len(sources) - MAX_SOURCES)
        return (*explained[:-1], replace(explained[-1], hidden=hidden)) if explained else ()

    def pictures(self, sources: Mapping[int, str]) -> dict[str, str]:
        """Draw the trees of at most `MAX_SOURCES` sources. The key lists the sources that share the tree."""
        names_by_key: dict[bytes, list[str]] = {}
        trees: dict[bytes, ExplainedTree] = {}
        for source, name in list(sources.items())[:MAX_SOURCES]:
            tree = self._tree(source)
            if tree is not None:
                trees[self._key(source)] = tree
                names_by_key.setdefault(self._key(source), []).append(name)
        titles = {", ".join(names): trees[key] for key, names in names_by_key.items()}
        return {title: tree.picture(title) for title, tree in titles.items()}

    def _key(self, source: int) -> bytes:
        return predicates_of(self._part.logical, source).tobytes()

    def _tree(self, source: int) -> ExplainedTree | None:
        key = self._key(source)
        if key not in self._trees:
            self._trees[key] = build_explained_tree(self._part, source)
        return self._trees[key]


def build_explained_tree(part: PlanPart, source: int) -> ExplainedTree | None:
    """Build the tree of a source with the plan's selectivities, or return None if it has too many predicates."""
    predicates = predicates_of(part.logical, source)
    if len(predicates) > MAX_PREDICATES:
        return None
    tree, table = source_tree(part.logical, part.layout.get("atom_shares"), predicates)
    return ExplainedTree(tree, clause_texts(table), predicates)


def source_tree(logical: LogicalPlan, shares: Array | None, predicates: Array) -> tuple[FilterTree, LogicalPlan]:
    """Build the tree of the given predicates, and a table with only these predicates and all clauses of the tree.

    The tree refers to predicates and clauses by their numbers in that table. `shares` is the share of all items that
    satisfies each atom of the plan.
    """
    atoms, table = _extract_predicates(logical, predicates)
    known = None if shares is None else shares[atoms]
    filters = FilterTable.of(table, known)
    return filters.tree(np.arange(len(predicates))), replace(table, clauses=filters.clauses)


def path_to(tree: FilterTree, predicate: int) -> list[int]:
    """Return the nodes from the source down to the node that decides a predicate, both included.

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


def _path_as_tree(tree: FilterTree, nodes: list[int]) -> FilterTree:
    """Return a tree that consists of one path."""
    chosen = np.array(nodes)
    return FilterTree(
        np.arange(-1, len(nodes) - 1),
        _rows(tree.clauses, chosen),
        _rows(tree.predicates, chosen),
        tree.selectivities[chosen],
    )


def _extract_predicates(logical: LogicalPlan, predicates: Array) -> tuple[Array, LogicalPlan]:
    """Return a table of only these predicates, their clauses and atoms, and the numbers of the atoms in the plan."""
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
