"""Pass: separate the conditions that filters can decide from those that need operators.

A formula with terms becomes disjuncts. Each has a filter, and a set of literals over terms that must hold as well
(this is the disjunctive normal form with respect to terms). The later passes handle the filter under the ID of the
disjunct, and operators are called only for items that pass it. A disjunct without terms stays with the query itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runnel.errors import RunnelError
from runnel.optimizer.draft import Branch, Draft
from runnel.optimizer.formulas import ALWAYS, COMPOUND, NEVER, Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.plan.gates import operator_disjunct_id, query_of_id
from runnel.plan.logical_plan import FormulaKind, PlanQuery
from runnel.plan.operator_table import OperatorDisjunct, OperatorTable, TermLiteral

Literals = frozenset[int]
"""Literals over terms that must all hold, as `term * 2 + negated`."""

Disjuncts = dict[Literals, int]
"""The disjuncts of a formula: the literals over terms, and the formula of the filter."""


def split_operators(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Split the formulas of queries with operators into disjuncts. The query keeps those without operators."""
    if not draft.formulas.terms:
        return draft
    splitter = _Splitter(draft.formulas, settings.max_disjuncts)
    branches: list[Branch] = []
    disjuncts: dict[int, tuple[int, Literals]] = {}
    queries = list(draft.queries)
    positions: dict[tuple[int, Literals], int] = {}
    counts: dict[int, int] = {}
    for branch in draft.branches or ():
        for literals, formula in _drop_idle_terms(draft, branch.query, splitter.split(branch.formula)).items():
            if not literals:
                branches.append(replace(branch, formula=formula))
                continue
            key = (branch.query, literals)
            if key not in positions:
                target = draft.queries[branch.query]
                query = query_of_id(target.id)
                disjunct = operator_disjunct_id(query, counts.get(query, 0))
                counts[query] = counts.get(query, 0) + 1
                positions[key] = len(queries)
                queries.append(PlanQuery(disjunct, target.since))
                disjuncts[disjunct] = (target.id, literals)
            branches.append(Branch(positions[key], formula, branch.sources))
    texts = draft.formulas.terms
    table = {
        disjunct: OperatorDisjunct(target, _name_literals(draft, disjunct, literals, texts))
        for disjunct, (target, literals) in disjuncts.items()
    }
    return _sort_queries(replace(draft, branches=tuple(branches), operators=OperatorTable.of(table)), queries)


def _drop_idle_terms(draft: Draft, query: int, disjuncts: Disjuncts) -> Disjuncts:
    """Remove the terms that have no operator calls and bind no variables of the query."""
    pattern_terms = draft.formulas.pattern_terms
    if not pattern_terms:
        return disjuncts
    names = draft.names.get(query_of_id(draft.queries[query].id), {})
    by_literals: dict[Literals, list[int]] = {}
    for literals, formula in disjuncts.items():
        remaining = frozenset(
            literal for literal in literals if literal >> 1 not in pattern_terms or names.get(literal >> 1)
        )
        by_literals.setdefault(remaining, []).append(formula)
    return {literals: draft.formulas.disjunction(formulas) for literals, formulas in by_literals.items()}


def _name_literals(draft: Draft, disjunct: int, literals: Literals, texts: list[str]) -> tuple[TermLiteral, ...]:
    """Return the literals of a disjunct. Those that are not negated have the query's names of their variables."""
    names = draft.names.get(query_of_id(disjunct), {})
    return tuple(
        TermLiteral(texts[literal >> 1], bool(literal & 1), () if literal & 1 else names.get(literal >> 1, ()))
        for literal in sorted(literals)
    )


def _sort_queries(draft: Draft, queries: list[PlanQuery]) -> Draft:
    """Return the draft with these queries, sorted by ID."""
    order = sorted(range(len(queries)), key=lambda index: queries[index].id)
    positions = {old: new for new, old in enumerate(order)}
    roots = draft.roots or ()
    return replace(
        draft,
        queries=tuple(queries[index] for index in order),
        # Disjuncts with operators have no node of their own, so any root serves as a placeholder.
        roots=tuple(roots[index] if index < len(roots) else roots[0] for index in order),
        branches=tuple(replace(branch, query=positions[branch.query]) for branch in draft.branches or ()),
    )


class _Splitter:
    """Splits formulas into disjuncts, each formula once, without recursion."""

    def __init__(self, formulas: Formulas, max_disjuncts: int) -> None:
        self._formulas = formulas
        self._max_disjuncts = max_disjuncts
        self._has_terms: dict[int, bool] = {}
        self._split_formulas: dict[tuple[int, bool], Disjuncts] = {}

    def split(self, root: int) -> Disjuncts:
        """Return the disjuncts of a formula."""
        waiting = [(root, False)]
        while waiting:
            formula, negated = waiting[-1]
            missing = [each for each in self._operands(formula, negated) if each not in self._split_formulas]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if (formula, negated) not in self._split_formulas:
                self._split_formulas[formula, negated] = self._split(formula, negated)
        return self._split_formulas[root, False]

    def _operands(self, formula: int, negated: bool) -> list[tuple[int, bool]]:
        if not self._contains_terms(formula):
            return []
        match self._formulas.kinds[formula]:
            case FormulaKind.NOT:
                return [(self._formulas.children[formula][0], not negated)]
            case FormulaKind.AND | FormulaKind.OR:
                return [(child, negated) for child in self._formulas.children[formula]]
            case _:
                return []

    def _contains_terms(self, formula: int) -> bool:
        """Return whether a formula contains terms."""
        if formula not in self._has_terms:
            for number in self._formulas.reachable([formula]):
                kind, children = self._formulas.kinds[number], self._formulas.children[number]
                parts = children if kind in COMPOUND else ()
                self._has_terms[number] = kind == FormulaKind.TERM or any(self._has_terms[part] for part in parts)
        return self._has_terms[formula]

    def _split(self, formula: int, negated: bool) -> Disjuncts:
        if not self._contains_terms(formula):
            return {frozenset(): self._formulas.negation(formula) if negated else formula}
        kind, children = self._formulas.kinds[formula], self._formulas.children[formula]
        if kind == FormulaKind.TERM:
            return {frozenset([2 * children[0] + negated]): ALWAYS}
        parts = [self._split_formulas[each] for each in self._operands(formula, negated)]
        if kind == FormulaKind.NOT:
            return parts[0]
        # De Morgan: a negated conjunction is a disjunction of negated parts.
        return self._conjoin(parts) if (kind == FormulaKind.AND) != negated else self._disjoin(parts)

    def _conjoin(self, parts: Iterable[Disjuncts]) -> Disjuncts:
        product: Disjuncts = {frozenset(): ALWAYS}
        for part in parts:
            pairs = [
                (left | right, self._formulas.conjunction([left_filter, right_filter]))
                for left, left_filter in product.items()
                for right, right_filter in part.items()
                if not any(literal ^ 1 in left for literal in right)
            ]
            product = self._merge(pairs)
        return product

    def _disjoin(self, parts: Iterable[Disjuncts]) -> Disjuncts:
        return self._merge(pair for part in parts for pair in part.items())

    def _merge(self, pairs: Iterable[tuple[Literals, int]]) -> Disjuncts:
        """Merge disjuncts with the same literals; the new filter is the disjunction of their filters."""
        by_literals: dict[Literals, list[int]] = {}
        for literals, formula in pairs:
            if formula != NEVER:
                by_literals.setdefault(literals, []).append(formula)
        if len(by_literals) > self._max_disjuncts:
            raise RunnelError(
                f"a query has more than {self._max_disjuncts} disjuncts with operators",
                hint="combine fewer conditions with operators with `or`, or define several feeds",
            )
        return {literals: self._formulas.disjunction(formulas) for literals, formulas in by_literals.items()}
