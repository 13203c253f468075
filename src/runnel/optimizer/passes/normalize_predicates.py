"""Pass: bring every formula into conjunctive normal form, within limits (RoSeS §4.3, elementary predicates in CNF).

The normal form of a condition can be exponentially large. Beyond a limit, it becomes inexact: it keeps only clauses
that every match satisfies, and matching evaluates the formula itself after the clauses.
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
"""The clauses of a subformula, and whether they are exact."""

_PRODUCT_FACTOR = 4
"""Before simplification, a product of clauses can have this many times the maximum number of clauses."""


def normalize_predicates(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Compute the normal form of every branch's formula, and drop unsatisfiable branches."""
    branches = draft.branches or ()
    partial: dict[int, Partial] = {}
    for formula in draft.formulas.reachable(branch.formula for branch in branches):
        partial[formula] = _normalize(formula, partial, draft.formulas, settings)
    used = {branch.formula for branch in branches}
    forms = {formula: _build_form(*partial[formula]) for formula in sorted(used)}
    kept = tuple(branch for branch in branches if not forms[branch.formula].unsatisfiable)
    return replace(draft, branches=kept, normal_forms={branch.formula: forms[branch.formula] for branch in kept})


def _build_form(clauses: Clauses, exact: bool) -> NormalForm:
    return NormalForm(tuple(sorted(tuple(sorted(clause)) for clause in clauses)), exact)


def _normalize(formula: int, partial: dict[int, Partial], formulas: Formulas, settings: OptimizerSettings) -> Partial:
    children = formulas.children[formula]
    match formulas.kinds[formula]:
        case FormulaKind.CONSTANT:
            return (frozenset() if formula else UNSATISFIABLE), True
        case FormulaKind.LITERAL:
            return frozenset([_literal_clause(children[0], formulas, settings)]), True
        case FormulaKind.AND:
            clauses = simplify_clauses(clause for child in children for clause in partial[child][0])
            return _apply_limits(clauses, all(partial[child][1] for child in children), settings)
        case _:
            return _distribute([partial[child] for child in children], settings)


def _literal_clause(literal: int, formulas: Formulas, settings: OptimizerSettings) -> frozenset[int]:
    atom = formulas.atoms[literal >> 1]
    if isinstance(atom, In) and not literal & 1 and len(atom.constants) <= settings.max_constants:
        # Queries share atoms on single values more often than lists, so a list becomes a disjunction of equalities.
        equalities = (Compare(atom.attribute, "=", constant) for constant in atom.constants)
        return frozenset(2 * formulas.atom(equality) for equality in equalities)
    return frozenset([literal])


def _distribute(parts: list[Partial], settings: OptimizerSettings) -> Partial:
    """Return the disjunction of normal forms: the clauses of their product, which combine one clause from each."""
    exact = all(part[1] for part in parts)
    if all(len(part[0]) == 1 for part in parts):  # the usual case: a disjunction of literals
        clause = frozenset[int]().union(*(single for part in parts for single in part[0]))
        return _apply_limits(simplify_clauses([clause]), exact, settings)
    # Clauses that all alternatives share are factored out: (C and a) or (C and b) is C and (a or b).
    shared = frozenset.intersection(*(part[0] for part in parts))
    alternatives = sorted((part[0] - shared for part in parts), key=len)
    product: Clauses = UNSATISFIABLE
    for clauses in alternatives:
        if len(product) * len(clauses) > _PRODUCT_FACTOR * settings.max_clauses:
            # Each alternative implies all its clauses, so the union of one clause from each is implied by the
            # disjunction.
            product = frozenset([frozenset().union(*map(_choose_clause, alternatives))])
            exact = False
            break
        product = simplify_clauses(left | right for left in product for right in clauses)
    return _apply_limits(simplify_clauses([*shared, *product]), exact, settings)


def _choose_clause(clauses: Clauses) -> frozenset[int]:
    """Choose the clause of an alternative that is best for an index: few negated literals, then few literals."""
    return min(clauses, key=_cost)


def _cost(clause: frozenset[int]) -> tuple[int, int, tuple[int, ...]]:
    return sum(literal & 1 for literal in clause), len(clause), tuple(sorted(clause))


def _apply_limits(clauses: Clauses, exact: bool, settings: OptimizerSettings) -> Partial:
    literals = sum(map(len, clauses))
    if len(clauses) <= settings.max_clauses and literals <= settings.max_literals:
        return clauses, exact
    return frozenset(_within_limits(sorted(clauses, key=_cost), settings)), False


def _within_limits(clauses: list[frozenset[int]], settings: OptimizerSettings) -> Iterable[frozenset[int]]:
    literals = 0
    for clause in clauses[: settings.max_clauses]:
        literals += len(clause)
        if literals > settings.max_literals:
            return
        yield clause
