"""Pass: bring every formula into conjunctive normal form, within limits (RoSeS §4.3, elementary predicates in CNF).

The normal form of arbitrary conditions can explode. Where a limit is reached, the normal form keeps clauses that
every match still satisfies, and says that it is not exact: then the formula itself decides after the clauses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runnel.algebra.nodes.expressions import Compare, In
from runnel.optimizer.draft import Draft, NormalForm
from runnel.optimizer.formulas import Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.optimizer.passes.simplify_clauses import UNSATISFIABLE, Clauses, simplify_clauses
from runnel.plan.logical_plan import FormulaKind

Partial = tuple[Clauses, bool]
"""Clauses in the making, and whether they are exact."""

_PRODUCT = 4
"""A product of clauses may pass through this many times the limit before simplification."""


def normalize_predicates(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every branch's formula its normal form, and drop the branches that nothing can satisfy."""
    branches = draft.branches or ()
    partial: dict[int, Partial] = {}
    for formula in draft.formulas.reachable(branch.formula for branch in branches):
        partial[formula] = _normalized(formula, partial, draft.formulas, settings)
    wanted = {branch.formula for branch in branches}
    forms = {formula: _form(*partial[formula]) for formula in sorted(wanted)}
    kept = tuple(branch for branch in branches if not forms[branch.formula].unsatisfiable)
    return replace(draft, branches=kept, normal_forms={one.formula: forms[one.formula] for one in kept})


def _form(clauses: Clauses, exact: bool) -> NormalForm:
    return NormalForm(tuple(sorted(tuple(sorted(clause)) for clause in clauses)), exact)


def _normalized(
    formula: int, partial: dict[int, Partial], formulas: Formulas, settings: OptimizerSettings
) -> Partial:
    children = formulas.children[formula]
    match formulas.kinds[formula]:
        case FormulaKind.CONSTANT:
            return (frozenset() if formula else UNSATISFIABLE), True
        case FormulaKind.LITERAL:
            return frozenset([_literal_clause(children[0], formulas, settings)]), True
        case FormulaKind.AND:
            clauses = simplify_clauses(clause for child in children for clause in partial[child][0])
            return _capped(clauses, all(partial[child][1] for child in children), settings)
        case _:
            return _distributed([partial[child] for child in children], settings)


def _literal_clause(literal: int, formulas: Formulas, settings: OptimizerSettings) -> frozenset[int]:
    atom = formulas.atoms[literal >> 1]
    if isinstance(atom, In) and not literal & 1 and len(atom.constants) <= settings.max_constants:
        # Single values are what queries share most, so a list is a disjunction of them.
        equalities = (Compare(atom.attribute, "=", constant) for constant in atom.constants)
        return frozenset(2 * formulas.atom(equality) for equality in equalities)
    return frozenset([literal])


def _distributed(parts: list[Partial], settings: OptimizerSettings) -> Partial:
    """The disjunction of normal forms: every choice of one clause each."""
    exact = all(part[1] for part in parts)
    if all(len(part[0]) == 1 for part in parts):  # nearly always: a clause as it was written
        clause = frozenset[int]().union(*(one for part in parts for one in part[0]))
        return _capped(simplify_clauses([clause]), exact, settings)
    # (C and a) or (C and b) is C and (a or b): what all alternatives ask for is not multiplied out.
    shared = frozenset.intersection(*(part[0] for part in parts))
    alternatives = sorted((part[0] - shared for part in parts), key=len)
    product: Clauses = UNSATISFIABLE
    for clauses in alternatives:
        if len(product) * len(clauses) > _PRODUCT * settings.max_clauses:
            # Each alternative implies each of its clauses, so one clause each, joined, is implied by them all.
            product = frozenset([frozenset().union(*map(_choice, alternatives))])
            exact = False
            break
        product = simplify_clauses(left | right for left in product for right in clauses)
    return _capped(simplify_clauses([*shared, *product]), exact, settings)


def _choice(clauses: Clauses) -> frozenset[int]:
    """The clause that stands for an alternative.

    Few literals, none negated if possible, so that an index can use it.
    """
    return min(clauses, key=_usefulness)


def _usefulness(clause: frozenset[int]) -> tuple[int, int, tuple[int, ...]]:
    return sum(literal & 1 for literal in clause), len(clause), tuple(sorted(clause))


def _capped(clauses: Clauses, exact: bool, settings: OptimizerSettings) -> Partial:
    literals = sum(map(len, clauses))
    if len(clauses) <= settings.max_clauses and literals <= settings.max_literals:
        return clauses, exact
    return frozenset(_affordable(sorted(clauses, key=_usefulness), settings)), False


def _affordable(clauses: list[frozenset[int]], settings: OptimizerSettings) -> Iterable[frozenset[int]]:
    literals = 0
    for clause in clauses[: settings.max_clauses]:
        literals += len(clause)
        if literals > settings.max_literals:
            return
        yield clause
