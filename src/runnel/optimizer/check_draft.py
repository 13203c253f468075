"""The invariants of a draft, checked after every pass: a pass that breaks one is named, not its victims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runnel.errors import RunnelError
from runnel.optimizer.draft import Draft, FlatFilter, FlatRead, FlatUnion
from runnel.plan.logical_plan import FormulaKind, LogicalPlan
from runnel.plan.validate import validate


def check_draft(draft: Draft, after: str) -> None:
    """Raise an error that names the pass unless everything the passes so far promised holds."""
    for invariant in _INVARIANTS:
        problem = invariant(draft)
        if problem is not None:
            raise RunnelError(
                f"the optimiser's pass {after} broke a plan: {problem}",
                hint="this is a defect of Runnel; report it",
            )


def _roots_exist(draft: Draft) -> str | None:
    if draft.roots is None:
        return None
    if len(draft.roots) != len(draft.queries):
        return "a query has no node"
    for number in draft.nodes.reachable(draft.roots):
        match draft.nodes.nodes[number]:
            case FlatRead(source) if source in draft.definitions:
                return f"the view {source} is still read"
            case FlatUnion(inputs) if any(one >= number for one in inputs):
                return "a node comes before its input"
            case FlatFilter(inner, formula) if inner >= number or formula >= len(draft.formulas):
                return "a filter refers to something that is not there"
    return None


def _branches_disjoint(draft: Draft) -> str | None:
    seen: set[tuple[int, int]] = set()
    for branch in draft.branches or ():
        if not branch.sources or list(branch.sources) != sorted(set(branch.sources)):
            return "the sources of a branch are not a set"
        pairs = {(branch.query, source) for source in branch.sources}
        if not seen.isdisjoint(pairs):
            return f"the query {draft.queries[branch.query].id} reads a source twice"
        seen |= pairs
        if not branch.formula or branch.formula >= len(draft.formulas):
            return "a branch has no formula that can hold"
    return None


def _forms_normal(draft: Draft) -> str | None:
    if draft.normal_forms is None:
        return None
    for branch in draft.branches or ():
        form = draft.normal_forms.get(branch.formula)
        if form is None or form.unsatisfiable:
            return "a branch has no normal form that can hold"
        for clause in form.clauses:
            if list(clause) != sorted(set(clause)) or any(literal ^ 1 in clause for literal in clause):
                return "a clause is not a set of literals"
    kinds = draft.formulas.kinds
    wanted = draft.formulas.reachable(draft.normal_forms)
    return "a negation is left above an atom" if any(kinds[one] == FormulaKind.NOT for one in wanted) else None


def _logical_whole(draft: Draft) -> str | None:
    if draft.logical is None:
        return None
    try:
        validate("draft", draft.logical, np.empty(0, dtype=np.int64))
    except RunnelError as error:
        return error.message
    return _pairs_once(draft.logical)


def _pairs_once(logical: LogicalPlan) -> str | None:
    pairs = set(zip(logical.target_predicates.tolist(), logical.target_scopes.tolist(), strict=True))
    return None if len(pairs) == len(logical.targets) else "a target is there twice"


_INVARIANTS: tuple[Callable[[Draft], str | None], ...] = (
    _roots_exist,
    _branches_disjoint,
    _forms_normal,
    _logical_whole,
)
