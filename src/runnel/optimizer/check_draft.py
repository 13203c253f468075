"""Checks of a draft's invariants after every pass, so that the error names the pass that broke one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runnel.errors import RunnelError
from runnel.optimizer.draft import Draft, FlatFilter, FlatRead, FlatUnion
from runnel.plan.logical_plan import FormulaKind, LogicalPlan
from runnel.plan.validate import validate


def check_draft(draft: Draft, after: str) -> None:
    """Raise RunnelError, naming the pass `after`, if the draft violates an invariant."""
    for invariant in _INVARIANTS:
        problem = invariant(draft)
        if problem is not None:
            raise RunnelError(
                f"the optimizer pass {after} produced an invalid draft: {problem}",
                hint="this is a bug in Runnel; please report it",
            )


def _check_roots(draft: Draft) -> str | None:
    if draft.roots is None:
        return None
    if len(draft.roots) != len(draft.queries):
        return "a query has no node"
    for number in draft.nodes.reachable(draft.roots):
        match draft.nodes.nodes[number]:
            case FlatRead(source) if source in draft.definitions:
                return f"the view {source} is still read"
            case FlatUnion(inputs) if any(each >= number for each in inputs):
                return "a node comes before its input"
            case FlatFilter(inner, formula) if inner >= number or formula >= len(draft.formulas):
                return "a filter refers to a node or formula that does not exist"
    return None


def _check_branches(draft: Draft) -> str | None:
    seen: set[tuple[int, int]] = set()
    for branch in draft.branches or ():
        if not branch.sources or list(branch.sources) != sorted(set(branch.sources)):
            return "the sources of a branch are not sorted and unique"
        pairs = {(branch.query, source) for source in branch.sources}
        if not seen.isdisjoint(pairs):
            return f"two branches of the query {draft.queries[branch.query].id} have the same source"
        seen |= pairs
        if not branch.formula or branch.formula >= len(draft.formulas):
            return "a branch has no satisfiable formula"
    return None


def _check_normal_forms(draft: Draft) -> str | None:
    if draft.normal_forms is None:
        return None
    for branch in draft.branches or ():
        form = draft.normal_forms.get(branch.formula)
        if form is None or form.unsatisfiable:
            return "a branch has no satisfiable normal form"
        for clause in form.clauses:
            if list(clause) != sorted(set(clause)) or any(literal ^ 1 in clause for literal in clause):
                return "a clause is not sorted and unique, or contains a literal and its complement"
    kinds = draft.formulas.kinds
    used = draft.formulas.reachable(draft.normal_forms)
    has_negation = any(kinds[formula] == FormulaKind.NOT for formula in used)
    return "a formula still contains a negation" if has_negation else None


def _check_logical_plan(draft: Draft) -> str | None:
    if draft.logical is None:
        return None
    try:
        validate("draft", draft.logical, np.empty(0, dtype=np.int64))
    except RunnelError as error:
        return error.message
    return _check_targets(draft.logical)


def _check_targets(logical: LogicalPlan) -> str | None:
    pairs = set(zip(logical.target_predicates.tolist(), logical.target_scopes.tolist(), strict=True))
    return None if len(pairs) == len(logical.targets) else "two targets have the same predicate and scope"


_INVARIANTS: tuple[Callable[[Draft], str | None], ...] = (
    _check_roots,
    _check_branches,
    _check_normal_forms,
    _check_logical_plan,
)
