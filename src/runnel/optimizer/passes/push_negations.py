"""Pass: push every negation down to the atoms, where it becomes the sign of a literal."""

from __future__ import annotations

from dataclasses import replace

from runnel.optimizer.draft import Draft
from runnel.optimizer.formulas import Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.plan.logical_plan import FormulaKind


def push_negations(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every branch a formula of literals, conjunctions and disjunctions only."""
    branches = draft.branches or ()
    pushed = _pushed(draft.formulas, {branch.formula for branch in branches})
    return replace(draft, branches=tuple(replace(one, formula=pushed[one.formula]) for one in branches))


def _pushed(formulas: Formulas, roots: set[int]) -> dict[int, int]:
    """The formulas below the roots, without negations. The table grows meanwhile; the list of old ones does not."""
    positive: dict[int, int] = {}
    negative: dict[int, int] = {}
    # A subformula is shared, so both its forms are made once each, and only where something asks for them.
    for formula, wanted in _wanted(formulas, roots):
        table = positive if wanted else negative
        children = formulas.children[formula]
        match formulas.kinds[formula], wanted:
            case (FormulaKind.NOT, _):
                table[formula] = (negative if wanted else positive)[children[0]]
            case (FormulaKind.AND, True) | (FormulaKind.OR, False):
                table[formula] = formulas.conjunction([table[child] for child in children])
            case (FormulaKind.OR, True) | (FormulaKind.AND, False):
                table[formula] = formulas.disjunction([table[child] for child in children])
            case _:
                table[formula] = formula if wanted else formulas.negation(formula)
    return positive


def _wanted(formulas: Formulas, roots: set[int]) -> list[tuple[int, bool]]:
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
