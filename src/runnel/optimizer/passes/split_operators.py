"""Pass: part what filters decide from what operators decide.

A formula with terms becomes ways: each a filter, and a set of literals over terms that must hold once the filter does
(the disjunctive normal form, as far as terms are concerned). The filter goes on through the passes under the way's
id; operators are asked about a way only for items that pass it. What needs no operator stays with the query itself.
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
"""Terms that must hold, as `term * 2 + negated`."""

Disjuncts = dict[Literals, int]
"""The ways to satisfy a formula: what must hold of terms, and the filter before it."""


def split_operators(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every query with operators its ways, and leave it what filters alone decide."""
    if not draft.formulas.terms:
        return draft
    splitter = _Splitter(draft.formulas, settings.max_ways)
    branches: list[Branch] = []
    ways: dict[int, tuple[int, Literals]] = {}
    queries = list(draft.queries)
    places: dict[tuple[int, Literals], int] = {}
    numbered: dict[int, int] = {}
    for branch in draft.branches or ():
        for literals, formula in _told(draft, branch.query, splitter.ways(branch.formula)).items():
            if not literals:
                branches.append(replace(branch, formula=formula))
                continue
            key = (branch.query, literals)
            if key not in places:
                target = draft.queries[branch.query]
                query = query_of_id(target.id)
                way = operator_disjunct_id(query, numbered.get(query, 0))
                numbered[query] = numbered.get(query, 0) + 1
                places[key] = len(queries)
                queries.append(PlanQuery(way, target.since))
                ways[way] = (target.id, literals)
            branches.append(Branch(places[key], formula, branch.sources))
    texts = draft.formulas.terms
    table = {
        way: OperatorDisjunct(target, _named(draft, way, literals, texts)) for way, (target, literals) in ways.items()
    }
    return _in_order(replace(draft, branches=tuple(branches), operators=OperatorTable.of(table)), queries)


def _told(draft: Draft, query: int, ways: Disjuncts) -> Disjuncts:
    """The ways of a query without the terms that ask no operator and bind nothing that it wants to know."""
    idle = draft.formulas.pattern_terms
    if not idle:
        return ways
    names = draft.names.get(query_of_id(draft.queries[query].id), {})
    by_literals: dict[Literals, list[int]] = {}
    for literals, formula in ways.items():
        left = frozenset(one for one in literals if one >> 1 not in idle or names.get(one >> 1))
        by_literals.setdefault(left, []).append(formula)
    return {literals: draft.formulas.disjunction(some) for literals, some in by_literals.items()}


def _named(draft: Draft, way: int, literals: Literals, texts: list[str]) -> tuple[TermLiteral, ...]:
    """The literals of a way, with the names that the query itself gives to the variables of those that must hold."""
    names = draft.names.get(query_of_id(way), {})
    return tuple(
        TermLiteral(texts[one >> 1], bool(one & 1), () if one & 1 else names.get(one >> 1, ()))
        for one in sorted(literals)
    )


def _in_order(draft: Draft, queries: list[PlanQuery]) -> Draft:
    """The draft with these queries, in the order of their ids."""
    order = sorted(range(len(queries)), key=lambda place: queries[place].id)
    places = {old: new for new, old in enumerate(order)}
    roots = draft.roots or ()
    return replace(
        draft,
        queries=tuple(queries[place] for place in order),
        # A way has no node: it was cut out of its target's.
        roots=tuple(roots[place] if place < len(roots) else roots[0] for place in order),
        branches=tuple(replace(one, query=places[one.query]) for one in draft.branches or ()),
    )


class _Splitter:
    """Splits formulas, each once, without recursion: children have smaller numbers than their parents."""

    def __init__(self, formulas: Formulas, most: int) -> None:
        self._formulas = formulas
        self._most = most
        self._has_terms: dict[int, bool] = {}
        self._done: dict[tuple[int, bool], Disjuncts] = {}

    def ways(self, root: int) -> Disjuncts:
        """The ways to satisfy a formula."""
        waiting = [(root, False)]
        while waiting:
            formula, negated = waiting[-1]
            below = [one for one in self._below(formula, negated) if one not in self._done]
            if below:
                waiting += below
                continue
            waiting.pop()
            if (formula, negated) not in self._done:
                self._done[formula, negated] = self._split(formula, negated)
        return self._done[root, False]

    def _below(self, formula: int, negated: bool) -> list[tuple[int, bool]]:
        if not self._touches(formula):
            return []
        match self._formulas.kinds[formula]:
            case FormulaKind.NOT:
                return [(self._formulas.children[formula][0], not negated)]
            case FormulaKind.AND | FormulaKind.OR:
                return [(child, negated) for child in self._formulas.children[formula]]
            case _:
                return []

    def _touches(self, formula: int) -> bool:
        """Whether a formula has terms."""
        if formula not in self._has_terms:
            for one in self._formulas.reachable([formula]):
                kind, children = self._formulas.kinds[one], self._formulas.children[one]
                below = children if kind in COMPOUND else ()
                self._has_terms[one] = kind == FormulaKind.TERM or any(self._has_terms[child] for child in below)
        return self._has_terms[formula]

    def _split(self, formula: int, negated: bool) -> Disjuncts:
        if not self._touches(formula):
            return {frozenset(): self._formulas.negation(formula) if negated else formula}
        kind, children = self._formulas.kinds[formula], self._formulas.children[formula]
        if kind == FormulaKind.TERM:
            return {frozenset([2 * children[0] + negated]): ALWAYS}
        below = [self._done[one] for one in self._below(formula, negated)]
        if kind == FormulaKind.NOT:
            return below[0]
        # De Morgan: a negated conjunction is a disjunction of negated parts.
        return self._all(below) if (kind == FormulaKind.AND) != negated else self._any(below)

    def _all(self, parts: Iterable[Disjuncts]) -> Disjuncts:
        found: Disjuncts = {frozenset(): ALWAYS}
        for part in parts:
            pairs = [
                (left | right, self._formulas.conjunction([one, other]))
                for left, one in found.items()
                for right, other in part.items()
                if not any(literal ^ 1 in left for literal in right)
            ]
            found = self._merged(pairs)
        return found

    def _any(self, parts: Iterable[Disjuncts]) -> Disjuncts:
        return self._merged(pair for part in parts for pair in part.items())

    def _merged(self, pairs: Iterable[tuple[Literals, int]]) -> Disjuncts:
        """Ways with the same literals are one, if any of their filters holds."""
        by_literals: dict[Literals, list[int]] = {}
        for literals, formula in pairs:
            if formula != NEVER:
                by_literals.setdefault(literals, []).append(formula)
        if len(by_literals) > self._most:
            raise RunnelError(
                f"a query combines operators in more than {self._most} ways",
                hint="use fewer `or` between operators, or several feeds",
            )
        return {literals: self._formulas.disjunction(some) for literals, some in by_literals.items()}
