"""Pass: hash-cons atoms, clauses, predicates and scopes into the predicate table.

Queries refer to ids from here on.
"""

from __future__ import annotations

from dataclasses import replace

from runnel.optimizer.draft import Branch, Draft, NormalForm
from runnel.optimizer.formulas import Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.optimizer.table_builder import TableBuilder
from runnel.plan.gates import query_of_id
from runnel.plan.logical_plan import EXACT, FormulaKind


def share_predicates(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Turn the branches into the logical plan: equal predicates are one predicate, equal scopes one scope."""
    builder = TableBuilder()
    forms = draft.normal_forms or {}
    translated = _Translation(builder, draft.formulas)
    predicates = {formula: translated.predicate(formula, form) for formula, form in forms.items()}
    for (query, predicate), sources in _joined(draft.branches or (), predicates).items():
        builder.add(predicate, builder.scope(sources), draft.queries[query].id)
    alive = {draft.queries[branch.query].id for branch in draft.branches or ()}
    alive |= {query_of_id(one) for one in alive}
    bound = builder.bound_patterns({query: some for query, some in draft.bound.items() if query in alive})
    return replace(draft, logical=replace(builder.finish(draft.queries), bound_patterns=bound))


def _joined(branches: tuple[Branch, ...], predicates: dict[int, int]) -> dict[tuple[int, int], list[int]]:
    """The sources of every query by predicate: formulas that differed may have become the same predicate."""
    joined: dict[tuple[int, int], list[int]] = {}
    for branch in branches:
        joined.setdefault((branch.query, predicates[branch.formula]), []).extend(branch.sources)
    return joined


class _Translation:
    """Ids of the draft's formulas and literals in the table; only what is used gets one."""

    def __init__(self, builder: TableBuilder, formulas: Formulas) -> None:
        self._builder = builder
        self._formulas = formulas
        self._copied: dict[int, int] = {}

    def predicate(self, formula: int, form: NormalForm) -> int:
        clauses = [self._builder.clause(map(self._literal, clause)) for clause in form.clauses]
        return self._builder.predicate(clauses, EXACT if form.exact else self._formula(formula))

    def _literal(self, literal: int) -> int:
        return 2 * self._builder.atom(self._formulas.atom_texts[literal >> 1]) + (literal & 1)

    def _formula(self, root: int) -> int:
        for formula in self._formulas.reachable([root]):
            if formula not in self._copied:
                kind, children = self._formulas.kinds[formula], self._formulas.children[formula]
                self._copied[formula] = self._builder.formula(kind, self._below(kind, children))
        return self._copied[root]

    def _below(self, kind: int, children: tuple[int, ...]) -> tuple[int, ...]:
        match kind:
            case FormulaKind.CONSTANT:
                return children
            case FormulaKind.LITERAL:
                return (self._literal(children[0]),)
            case _:
                return tuple(self._copied[child] for child in children)
