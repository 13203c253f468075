"""Pass: push every negation down to the atoms, where it becomes the sign of a literal."""

from __future__ import annotations

from dataclasses import replace

from runnel.optimizer.draft import Draft
from runnel.optimizer.formulas import Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.plan.logical_plan import FormulaKind


def push_negations(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every branch an equivalent formula of literals, conjunctions and disjunctions."""
    branches = draft.branches or ()
    pushed = _push(draft.formulas, {branch.formula for branch in branches})
    return replace(draft, branches=tuple(replace(branch, formula=pushed[branch.formula]) for branch in branches))


def _push(formulas: Formulas, roots: set[int]) -> dict[int, int]:
    """Return equivalent formulas without negations, for the roots and all formulas below them."""
    positive: dict[int, int] = {}
    negative: dict[int, int] = {}
    # Subformulas are shared, so the positive and the negated form of each is built once, and only if it is needed.
    for formula, is_positive in _needed_forms(formulas, roots):
        table = positive if is_positive else negative
        children = formulas.children[formula]
        match formulas.kinds[formula], is_positive:
            case (FormulaKind.NOT, _):
                table[formula] = (negative if is_positive else positive)[children[0]]
            case (FormulaKind.AND, True) | (FormulaKind.OR, False):
                table[formula] = formulas.conjunction([table[child] for child in children])
            case (FormulaKind.OR, True) | (FormulaKind.AND, False):
                table[formula] = formulas.disjunction([table[child] for child in children])
            case _:
                table[formula] = formula if is_positive else formulas.negation(formula)
    return positive


def _needed_forms(formulas: Formulas, roots: set[int]) -> list[tuple[int, bool]]:
    """Return the formulas whose positive (True) or negated (False) form is needed, children first."""
    seen = {(root, True) for root in roots}
    stack = list(seen)
    while stack:
        formula, sign = stack.pop()
        kind = formulas.kinds[formula]
        if kind in (FormulaKind.NOT, FormulaKind.AND, FormulaKind.OR):
            below = sign != (kind == FormulaKind.NOT)
            fresh = [(child, below) for child in formulas.children[formula] if (child, below) not in seen]
            seen.update(fresh)
            stack.extend(fresh)
    return sorted(seen)
