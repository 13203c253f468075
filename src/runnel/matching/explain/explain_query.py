"""What became of a query in a plan: its predicate on every source, how the plan's matcher finds it, what it shares.

In: a loaded plan and a query. Out: an explanation for people and programs. How predicates are matched is explained by
the matcher that the plan is served by (`Explainer`). Importing this loads the compiler of kernels.
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
"""What is counted in the whole plan, and what one of it is called."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How often a clause or atom of the query is used: by how many predicates, or clauses, of the plan part."""

    text: str
    uses: int


@dataclass(frozen=True, slots=True)
class BranchExplanation:
    """The query on some sources. Not exact: the predicate finds candidates and `decided_by` decides.

    `matched` says how the plan's matcher finds the predicate on these sources.
    """

    sources: tuple[str, ...]
    predicate: str
    exact: bool
    queries: int
    clauses: tuple[Sharing, ...]
    atoms: tuple[Sharing, ...]
    decided_by: str | None = None
    gate: str | None = None
    """The gates that its items must pass."""
    asked: str | None = None
    """What operators must say of what comes this way."""
    matched: tuple[Explanation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON value."""
        return asdict(replace(self, matched=())) | {"matched": [one.to_json() for one in self.matched]}


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """A query in its plan, and the plan as a whole."""

    query: str
    part: str
    since: int
    branches: tuple[BranchExplanation, ...]
    totals: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON value."""
        return asdict(replace(self, branches=())) | {"branches": [one.to_json() for one in self.branches]}

    def lines(self) -> list[str]:
        """The explanation as text, a line a fact."""
        shown = [f"{self.query} (in the {self.part} of the plan; items after sequence {self.since})"]
        if not self.branches:
            shown.append("  no item can match: its condition contradicts itself, or it reads no source")
        for branch in self.branches:
            shown += _branch_lines(branch)
        totals = ", ".join(counted(count, _SINGULAR[name]) for name, count in self.totals.items())
        return wrapped([*shown, f"whole plan: {totals}"])


def explain_query(query: int, plan: Plan, names: Mapping[int, str] | None = None) -> PlanExplanation:
    """What a plan does for a query, by its catalog id; `names` gives the feeds' names."""
    known = names or {}
    part, position = part_of(plan, query, known)
    explainer = _explainer(plan, part)
    gates = disjuncts_of(part, query, known)
    branches = tuple(
        replace(_branch(part, target, known, explainer), gate=gate, asked=asked)
        for place, gate, asked in (
            (position, None, None),
            *((place, gate, None) for place, gate in gates),
            *_operated(part, query, dict(gates)),
        )
        for target in targets_of(part.logical, place)
    )
    since = int(part.logical.query_since[position])
    return PlanExplanation(_name(query, known), part.manifest.kind, since, branches, _totals(plan))


def draw_query(query: int, plan: Plan, names: Mapping[int, str]) -> dict[str, str]:
    """Pictures (SVG) of how a query is matched, by title; none where the plan's matcher draws nothing."""
    part, position = part_of(plan, query, names)
    logical = part.logical
    places = [position, *(place for place, _ in disjuncts_of(part, query, names))]
    scopes = {int(logical.target_scopes[target]) for place in places for target in targets_of(logical, place)}
    sources = sorted({source for scope in scopes for source in logical.scopes.row(scope).tolist()})
    return _explainer(plan, part).pictures({source: names.get(source, f"#{source}") for source in sources})


def _explainer(plan: Plan, part: PlanPart) -> Explainer:
    return find_matcher(matcher_name(plan)).explainer(part, plan.removed(part))


def part_of(plan: Plan, query: int, names: Mapping[int, str] | None = None) -> tuple[PlanPart, int]:
    """The part of a plan that holds a query, and the query's place there; NotFound if none does."""
    for part in reversed(plan.parts):
        ids = part.logical.query_ids
        position = int(np.searchsorted(ids, query))
        if position < len(ids) and ids[position] == query and not plan.removed(part)[position]:
            return part, position
    raise NotFoundError(
        f"{_name(query, names or {})} is not in the plan", hint="only feeds that somebody subscribes to are compiled"
    )


def disjuncts_of(part: PlanPart, query: int, names: Mapping[int, str]) -> list[tuple[int, str]]:
    """The disjuncts of a query that have gates, by their positions in the plan, and the gates that each needs."""
    table = part.logical.gates
    gates = {gate.feed: gate for gate in table.gates()}
    found: list[tuple[int, str]] = []
    for at in np.flatnonzero(query_of(table.disjuncts) == query).tolist():
        position = int(np.searchsorted(part.logical.query_ids, table.disjuncts[at]))
        passed = [feed for feed in (int(table.gate_feeds[at]), query) if feed in gates]
        found.append(
            (position, ", then ".join(f"{_name(feed, names)} ({gates[feed].rule.render()})" for feed in passed))
        )
    return found


def _operated(part: PlanPart, query: int, gates: Mapping[int, str]) -> list[tuple[int, str | None, str]]:
    """The ways of a query that operators decide, by their places: the gate behind, and what is asked."""
    table, ids = part.logical.operators, part.logical.query_ids
    found: list[tuple[int, str | None, str]] = []
    for at in np.flatnonzero(query_of(table.way_ids) == query).tolist():
        place, target = np.searchsorted(ids, [table.way_ids[at], table.way_targets[at]]).tolist()
        found.append((place, gates.get(target), describe_disjunct(table, at)))
    return found


def targets_of(logical: LogicalPlan, position: int) -> list[int]:
    """The targets of a query, by its place in the plan."""
    owners = np.repeat(np.arange(len(logical.targets)), logical.targets.lengths)
    found: list[int] = np.unique(owners[logical.targets.values == position]).tolist()
    return found


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
    return tuple(Sharing(render(stored_clause(logical, one)), int(uses[one])) for one in clauses.tolist())


def _shared_atoms(logical: LogicalPlan, clauses: Array) -> tuple[Sharing, ...]:
    atoms = np.unique(logical.clauses.expand(clauses)[1] >> 1)
    owners = np.repeat(np.arange(len(logical.clauses)), logical.clauses.lengths)
    used = logical.clauses.values >> 1
    return tuple(
        Sharing(render(stored_atom(logical, one)), len(np.unique(owners[used == one]))) for one in atoms.tolist()
    )


def _branch_lines(branch: BranchExplanation) -> list[str]:
    lines = [
        f"  on {shortened(branch.sources)}:",
        f"    predicate: {branch.predicate}",
        f"    shared by {counted(branch.queries, 'query')}",
    ]
    lines += [f"    {line}" for one in branch.matched for line in one.lines()]
    lines += [f"    clause in {one.uses:,} predicates: {one.text}" for one in branch.clauses if one.uses > 1]
    lines += [f"    atom in {one.uses:,} clauses: {one.text}" for one in branch.atoms if one.uses > 1]
    if branch.asked is not None:
        lines.append(f"    then operators decide: {branch.asked}")
    if branch.gate is not None:
        lines.append(f"    must pass the gate of {branch.gate}")
    if branch.decided_by is not None:
        lines.append(f"    too large for a normal form; decided by: {branch.decided_by}")
    return lines
