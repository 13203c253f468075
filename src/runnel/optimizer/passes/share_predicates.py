"""Pass: store atoms, clauses, predicates and scopes in the predicate table, each different one once (hash-consing).

From here on, queries refer to the IDs of the table.
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
    """Turn the branches into the logical plan. Equal predicates and equal scopes are shared."""
    builder = TableBuilder()
    forms = draft.normal_forms or {}
    translator = _Translator(builder, draft.formulas)
    predicates = {formula: translator.predicate(formula, form) for formula, form in forms.items()}
    for (query, predicate), sources in _merge_sources(draft.branches or (), predicates).items():
        builder.add(predicate, builder.scope(sources), draft.queries[query].id)
    satisfiable = {draft.queries[branch.query].id for branch in draft.branches or ()}
    satisfiable |= {query_of_id(query) for query in satisfiable}
    bound = builder.bound_patterns(
        {query: patterns for query, patterns in draft.bound.items() if query in satisfiable}
    )
    return replace(draft, logical=replace(builder.finish(draft.queries), bound_patterns=bound))


def _merge_sources(branches: tuple[Branch, ...], predicates: dict[int, int]) -> dict[tuple[int, int], list[int]]:
    """Return the sources by query and predicate. Different formulas may have become the same predicate."""
    sources_by_predicate: dict[tuple[int, int], list[int]] = {}
    for branch in branches:
        sources_by_predicate.setdefault((branch.query, predicates[branch.formula]), []).extend(branch.sources)
    return sources_by_predicate


class _Translator:
    """Translates formulas and literals of the draft into IDs of the table, each when it is first used."""

    def __init__(self, builder: TableBuilder, formulas: Formulas) -> None:
        self._builder = builder
        self._formulas = formulas
        self._ids: dict[int, int] = {}

    def predicate(self, formula: int, form: NormalForm) -> int:
        clauses = [self._builder.clause(map(self._literal, clause)) for clause in form.clauses]
        return self._builder.predicate(clauses, EXACT if form.exact else self._formula(formula))

    def _literal(self, literal: int) -> int:
        return 2 * self._builder.atom(self._formulas.atom_texts[literal >> 1]) + (literal & 1)

    def _formula(self, root: int) -> int:
        for formula in self._formulas.reachable([root]):
            if formula not in self._ids:
                kind, children = self._formulas.kinds[formula], self._formulas.children[formula]
                self._ids[formula] = self._builder.formula(kind, self._translate_children(kind, children))
        return self._ids[root]

    def _translate_children(self, kind: int, children: tuple[int, ...]) -> tuple[int, ...]:
        match kind:
            case FormulaKind.CONSTANT:
                return children
            case FormulaKind.LITERAL:
                return (self._literal(children[0]),)
            case _:
                return tuple(self._ids[child] for child in children)
