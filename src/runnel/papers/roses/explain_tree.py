"""The filter tree around a query (RoSeS §4.3-5): the filters that its items pass on one source, and what all save.

In: a part of a plan, a source and a predicate. Out: the path of filters from the source down to the predicate, in
words and as JSON, and the whole tree as a picture. Only what is asked of the source is looked at, whatever else the
plan holds. Importing this loads the compiler of kernels, so `explain` does it when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows, Texts, offsets_of
from runnel.matching.compile.matcher_choice import MatcherChoice
from runnel.matching.explain.explain_query import disjuncts_of, part_of, targets_of
from runnel.optimizer.describe import counted, shortened
from runnel.optimizer.matcher_costs import ExpectedWork
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
from runnel.plan.store import Plan, PlanPart

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
class SourceExplanation:
    """A query on sources of which the same is asked: its way down their tree, and what the matchers do for an item.

    Without a tree there are too many predicates for one to be made just to look at.
    """

    sources: tuple[str, ...]
    predicates: int
    tree: TreeDescription | None
    work: ExpectedWork | None

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON value."""
        return {
            "sources": list(self.sources),
            "predicates": self.predicates,
            "tree": None if self.tree is None else self.tree.to_json(),
            "matchers": None if self.work is None else self.work.to_json(),
        }

    def lines(self) -> list[str]:
        """The explanation as text."""
        names, work = shortened(self.sources), [] if self.work is None else self.work.lines()
        if self.tree is None:
            asked = counted(self.predicates, "predicate")
            why = f"{asked}; the filter tree is shown for {MOST_PREDICATES:,} at most"
            return [f"{names}: {why}", *(f"  {line}" for line in work)]
        asked = counted(self.predicates, "predicate")
        first, *below = self.tree.lines()
        through = [] if self.tree.filters else ["  no filter for this query: every item passes"]
        inner = [first, *through, *below, *work]
        return [f"filter tree of {names}, {asked}:", *(f"  {line}" for line in inner)]


class SourceTrees:
    """The trees of a part's sources, made when they are asked for; sources of which the same is asked share one."""

    def __init__(self, part: PlanPart, removed: Array, choice: MatcherChoice | None = None) -> None:
        self._part = part
        self._removed = removed
        self._choice = choice
        self._trees: dict[bytes, ExplainedTree | None] = {}

    def explain(self, predicate: int, sources: Mapping[int, str]) -> tuple[SourceExplanation, ...]:
        """A predicate on some sources, given with their names; on the first few, if they are many."""
        groups: dict[bytes, list[int]] = {}
        for source in list(sources)[:MOST_TREES]:
            groups.setdefault(predicates_of(self._part.logical, source).tobytes(), []).append(source)
        return tuple(
            self._explained(predicate, key, {one: sources[one] for one in same}) for key, same in groups.items()
        )

    def tree(self, source: int) -> ExplainedTree | None:
        """The tree of a source, or None where it has too many predicates."""
        key = predicates_of(self._part.logical, source).tobytes()
        if key not in self._trees:
            self._trees[key] = explained_tree(self._part, source)
        return self._trees[key]

    def _explained(self, predicate: int, key: bytes, sources: Mapping[int, str]) -> SourceExplanation:
        source = next(iter(sources))
        found = self.tree(source)
        work = None if self._choice is None else self._choice.work(source)
        if work is not None:
            # The tree is there now; when the plan was compiled it was made only where it could have been chosen.
            asked = work.filters if found is None else found.tree.cost
            work = replace(work, filters=asked, queries=self._queries(source))
        path = None if found is None else found.path(predicate)
        return SourceExplanation(tuple(sources.values()), len(key) // 8, path, work)

    def _queries(self, source: int) -> int:
        """How many queries that live read a source."""
        logical = self._part.logical
        owners = np.repeat(np.arange(len(logical.scopes)), logical.scopes.lengths)
        scopes = np.unique(owners[logical.scopes.values == source])
        targets = np.flatnonzero(np.isin(logical.target_scopes, scopes))
        queries = np.unique(logical.targets.expand(targets)[1])
        return int(np.count_nonzero(~self._removed[queries]))


def pictures(plan: Plan, query: int, names: Mapping[int, str]) -> dict[str, str]:
    """The trees in which a query is, as SVG by the names of their sources; those of the first few sources."""
    part, position = part_of(plan, query, names)
    logical = part.logical
    places = [position, *(place for place, _ in disjuncts_of(part, query, names))]
    scopes = [int(logical.target_scopes[target]) for place in places for target in targets_of(logical, place)]
    sources = sorted({source for scope in scopes for source in logical.scopes.row(scope).tolist()})
    trees = SourceTrees(part, plan.removed(part))
    shown: dict[int, tuple[ExplainedTree, list[str]]] = {}
    for source in sources[:MOST_TREES]:
        found = trees.tree(source)
        if found is not None:
            shown.setdefault(id(found), (found, []))[1].append(names.get(source, f"#{source}"))
    titles = [(", ".join(several), found) for found, several in shown.values()]
    return {title: found.picture(title) for title, found in titles}


def explained_tree(part: PlanPart, source: int) -> ExplainedTree | None:
    """The tree of a source by what the plan knew of the stream, or None where it has too many predicates."""
    predicates = predicates_of(part.logical, source)
    if len(predicates) > MOST_PREDICATES:
        return None
    tree, table = source_tree(part.logical, part.layout.get("atom_shares"), predicates)
    return ExplainedTree(tree, clause_texts(table), predicates)


def source_tree(logical: LogicalPlan, shares: Array | None, predicates: Array) -> tuple[FilterTree, LogicalPlan]:
    """The tree of some predicates, and the table of nothing but these, whose numbers the tree has.

    `shares` is the part of all items that satisfies each atom of the plan.
    """
    atoms, table = _only(logical, predicates)
    known = None if shares is None else shares[atoms]
    return FilterTable.of(table, known).tree(np.arange(len(predicates))), table


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
