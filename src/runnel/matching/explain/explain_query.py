"""Explain a query of a plan: its predicate on every source, how the matcher finds it, and what it shares.

In: a loaded plan and a query. Out: an explanation as text and as JSON. The plan's matcher explains how it matches
predicates (see `Explainer`). Importing this module loads numba, which takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from runnel.algebra.nodes.render import render, render_name
from runnel.arrays import Array
from runnel.errors import NotFoundError
from runnel.matching.compile.build_matcher import find_matcher, matcher_name
from runnel.matching.contract import Explainer, Explanation
from runnel.optimizer.describe import (
    counted,
    describe_disjunct,
    describe_stored_formula,
    shortened,
    stored_atom,
    stored_clause,
    stored_predicate,
    wrapped,
)
from runnel.plan.gates import query_of, visible
from runnel.plan.logical_plan import EXACT, LogicalPlan
from runnel.plan.store import Plan, PlanPart

_SINGULAR = {
    "queries": "query",
    "predicates": "predicate",
    "inexact_predicates": "inexact predicate",
    "clauses": "clause",
    "atoms": "atom",
    "scopes": "scope",
    "bytes": "byte",
}
"""The totals that are shown for the whole plan, with their singular."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """The number of uses of a clause (by predicates) or of an atom (by clauses) in the plan part."""

    text: str
    uses: int


@dataclass(frozen=True, slots=True)
class BranchExplanation:
    """The query on some sources. If it is not exact, the predicate only finds candidates and `decided_by` decides.

    `matched` explains how the plan's matcher finds the predicate on these sources.
    """

    sources: tuple[str, ...]
    predicate: str
    exact: bool
    queries: int
    clauses: tuple[Sharing, ...]
    atoms: tuple[Sharing, ...]
    decided_by: str | None = None
    gate: str | None = None
    """The gates that the items must pass."""
    asked: str | None = None
    """The condition that operators decide for the items."""
    matched: tuple[Explanation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        return asdict(replace(self, matched=())) | {"matched": [matched.to_json() for matched in self.matched]}


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """A query in its plan, and the plan as a whole."""

    query: str
    part: str
    since: int
    branches: tuple[BranchExplanation, ...]
    totals: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        return asdict(replace(self, branches=())) | {"branches": [branch.to_json() for branch in self.branches]}

    def lines(self) -> list[str]:
        """Return the explanation as lines of text."""
        lines = [f"{self.query} (in the {self.part} of the plan; items after sequence {self.since})"]
        if not self.branches:
            lines.append("  no item can match: the query's condition is never true, or it reads no source")
        for branch in self.branches:
            lines += _branch_lines(branch)
        totals = ", ".join(counted(count, _SINGULAR[name]) for name, count in self.totals.items())
        return wrapped([*lines, f"whole plan: {totals}"])


def explain_query(query: int, plan: Plan, names: Mapping[int, str] | None = None) -> PlanExplanation:
    """Explain the query with this catalog id. `names` maps the ids of feeds to their names."""
    names = names or {}
    part, query_position = part_of(plan, query, names)
    explainer = _explainer(plan, part)
    gates = disjuncts_of(part, query, names)
    branches = tuple(
        replace(_branch(part, target, names, explainer), gate=gate, asked=asked)
        for position, gate, asked in (
            (query_position, None, None),
            *((position, gate, None) for position, gate in gates),
            *_operator_disjuncts(part, query, dict(gates)),
        )
        for target in targets_of(part.logical, position)
    )
    since = int(part.logical.query_since[query_position])
    return PlanExplanation(_name(query, names), part.manifest.kind, since, branches, _totals(plan))


def draw_query(query: int, plan: Plan, names: Mapping[int, str]) -> dict[str, str]:
    """Return drawings (SVG) of how a query is matched, by title; the dict is empty if the matcher draws nothing."""
    part, query_position = part_of(plan, query, names)
    logical = part.logical
    positions = [query_position, *(position for position, _ in disjuncts_of(part, query, names))]
    targets = (target for position in positions for target in targets_of(logical, position))
    scopes = {int(logical.target_scopes[target]) for target in targets}
    sources = sorted({source for scope in scopes for source in logical.scopes.row(scope).tolist()})
    return _explainer(plan, part).pictures({source: names.get(source, f"#{source}") for source in sources})


def _explainer(plan: Plan, part: PlanPart) -> Explainer:
    return find_matcher(matcher_name(plan)).explainer(part, plan.removed(part))


def part_of(plan: Plan, query: int, names: Mapping[int, str] | None = None) -> tuple[PlanPart, int]:
    """Return the plan part that contains a query and the query's position. Raise NotFoundError if no part does."""
    for part in reversed(plan.parts):
        ids = part.logical.query_ids
        position = int(np.searchsorted(ids, query))
        if position < len(ids) and ids[position] == query and not plan.removed(part)[position]:
            return part, position
    raise NotFoundError(
        f"{_name(query, names or {})} is not in the plan",
        hint="subscribe to it: only feeds with subscriptions, and the views they read, are compiled",
    )


def disjuncts_of(part: PlanPart, query: int, names: Mapping[int, str]) -> list[tuple[int, str]]:
    """Return the position in the plan and the required gates, as text, of each disjunct of a query with gates."""
    table = part.logical.gates
    gates = {gate.feed: gate for gate in table.gates()}
    disjuncts: list[tuple[int, str]] = []
    for index in np.flatnonzero(query_of(table.disjuncts) == query).tolist():
        position = int(np.searchsorted(part.logical.query_ids, table.disjuncts[index]))
        feeds = [feed for feed in (int(table.gate_feeds[index]), query) if feed in gates]
        text = ", then ".join(f"{_name(feed, names)} ({gates[feed].rule.render()})" for feed in feeds)
        disjuncts.append((position, text))
    return disjuncts


def _operator_disjuncts(part: PlanPart, query: int, gates: Mapping[int, str]) -> list[tuple[int, str | None, str]]:
    """Return position, gates and operator condition of each disjunct of a query that operators decide.

    `gates` maps the positions of disjuncts to their gates as text.
    """
    table, ids = part.logical.operators, part.logical.query_ids
    disjuncts: list[tuple[int, str | None, str]] = []
    for index in np.flatnonzero(query_of(table.disjunct_ids) == query).tolist():
        identifiers = [table.disjunct_ids[index], table.disjunct_targets[index]]
        position, target = np.searchsorted(ids, identifiers).tolist()
        disjuncts.append((position, gates.get(target), describe_disjunct(table, index)))
    return disjuncts


def targets_of(logical: LogicalPlan, position: int) -> list[int]:
    """Return the targets of the query or disjunct at a position of the plan."""
    owners = np.repeat(np.arange(len(logical.targets)), logical.targets.lengths)
    targets: list[int] = np.unique(owners[logical.targets.values == position]).tolist()
    return targets


def _name(feed: int, names: Mapping[int, str]) -> str:
    return render_name(names[feed]) if feed in names else f"#{feed}"


def _totals(plan: Plan) -> dict[str, int]:
    names = [name for name in _SINGULAR if name != "bytes"]
    totals = {name: sum(part.manifest.counts.get(name, 0) for part in plan.parts) for name in names}
    removed = (plan.removed(part)[: len(visible(part.logical.query_ids))] for part in plan.parts)
    totals["queries"] -= sum(map(int, map(np.count_nonzero, removed)))
    return totals | {"bytes": sum(part.manifest.size for part in plan.parts)}


def _branch(part: PlanPart, target: int, names: Mapping[int, str], explainer: Explainer) -> BranchExplanation:
    logical = part.logical
    predicate = int(logical.target_predicates[target])
    formula = int(logical.predicate_formulas[predicate])
    sources = {
        source: _name(source, names) for source in logical.scopes.row(int(logical.target_scopes[target])).tolist()
    }
    clauses = logical.predicates.row(predicate)
    return BranchExplanation(
        sources=tuple(sources.values()),
        predicate=render(stored_predicate(logical, predicate)),
        exact=formula == EXACT,
        queries=_sharing_queries(logical, predicate),
        clauses=_shared_clauses(logical, clauses),
        atoms=_shared_atoms(logical, clauses),
        decided_by=None if formula == EXACT else describe_stored_formula(logical, formula),
        matched=tuple(explainer.explain(predicate, sources)),
    )


def _sharing_queries(logical: LogicalPlan, predicate: int) -> int:
    targets = np.flatnonzero(logical.target_predicates == predicate)
    return len(np.unique(logical.targets.expand(targets)[1]))


def _shared_clauses(logical: LogicalPlan, clauses: Array) -> tuple[Sharing, ...]:
    uses = np.bincount(logical.predicates.values, minlength=len(logical.clauses))
    return tuple(Sharing(render(stored_clause(logical, clause)), int(uses[clause])) for clause in clauses.tolist())


def _shared_atoms(logical: LogicalPlan, clauses: Array) -> tuple[Sharing, ...]:
    atoms = np.unique(logical.clauses.expand(clauses)[1] >> 1)
    owners = np.repeat(np.arange(len(logical.clauses)), logical.clauses.lengths)
    used = logical.clauses.values >> 1
    return tuple(
        Sharing(render(stored_atom(logical, atom)), len(np.unique(owners[used == atom]))) for atom in atoms.tolist()
    )


def _branch_lines(branch: BranchExplanation) -> list[str]:
    lines = [
        f"  on {shortened(branch.sources)}:",
        f"    predicate: {branch.predicate}",
        f"    shared by {counted(branch.queries, 'query')}",
    ]
    lines += [f"    {line}" for matched in branch.matched for line in matched.lines()]
    lines += [
        f"    clause in {clause.uses:,} predicates: {clause.text}" for clause in branch.clauses if clause.uses > 1
    ]
    lines += [f"    atom in {atom.uses:,} clauses: {atom.text}" for atom in branch.atoms if atom.uses > 1]
    if branch.asked is not None:
        lines.append(f"    then operators decide: {branch.asked}")
    if branch.gate is not None:
        lines.append(f"    must pass the gate of {branch.gate}")
    if branch.decided_by is not None:
        lines.append(f"    too large for conjunctive normal form; decided by: {branch.decided_by}")
    return lines
