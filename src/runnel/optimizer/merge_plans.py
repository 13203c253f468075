"""Compaction: merge a base and its delta into the logical plan of the next base, without parsing queries again."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from runnel.arrays import Array
from runnel.optimizer.table_builder import TableBuilder
from runnel.plan.logical_plan import EXACT, CostRecord, FormulaKind, LogicalPlan, PlanQuery
from runnel.plan.pattern_bindings import NamedPattern
from runnel.plan.store import Plan


def merge_plans(plan: Plan) -> LogicalPlan:
    """Return a logical plan that is equivalent to a base with its delta. Parts of removed queries are omitted."""
    started = perf_counter()
    builder = TableBuilder()
    queries = [query for part in plan.parts for query in _add(builder, part.logical, plan.removed(part))]
    bound: dict[int, list[NamedPattern]] = {}
    for part in plan.parts:
        bound |= plan.bound_patterns(part).patterns(part.logical.atoms)
    record = CostRecord("merge", perf_counter() - started, {"queries": len(queries)})
    patterns = builder.bound_patterns(bound)
    return replace(
        builder.finish(queries, (record,)), gates=plan.gates, operators=plan.operators, bound_patterns=patterns
    )


def _add(builder: TableBuilder, logical: LogicalPlan, removed: Array) -> list[PlanQuery]:
    copier = _TableCopier(builder, logical)
    ids, since = logical.query_ids.tolist(), logical.query_since.tolist()
    is_removed = removed.tolist()
    for target, members in enumerate(logical.targets.lists()):
        live_queries = [ids[member] for member in members if not is_removed[member]]
        if live_queries:
            predicate = copier.predicate(int(logical.target_predicates[target]))
            scope = builder.scope(logical.scopes.row(int(logical.target_scopes[target])).tolist())
            for query in live_queries:
                builder.add(predicate, scope, query)
    return [PlanQuery(*pair) for pair, flag in zip(zip(ids, since, strict=True), is_removed, strict=True) if not flag]


class _TableCopier:
    """Copies predicates from one table into another, each when it is first requested."""

    def __init__(self, builder: TableBuilder, logical: LogicalPlan) -> None:
        self._builder = builder
        self._logical = logical
        self._predicates: dict[int, int] = {}
        self._clauses: dict[int, int] = {}
        self._formulas: dict[int, int] = {}

    def predicate(self, predicate: int) -> int:
        """Return the ID of a predicate in the new table."""
        if predicate not in self._predicates:
            formula = int(self._logical.predicate_formulas[predicate])
            clauses = [self._clause(clause) for clause in self._logical.predicates.row(predicate).tolist()]
            copied = EXACT if formula == EXACT else self._formula(formula)
            self._predicates[predicate] = self._builder.predicate(clauses, copied)
        return self._predicates[predicate]

    def _clause(self, clause: int) -> int:
        if clause not in self._clauses:
            literals = map(self._literal, self._logical.clauses.row(clause).tolist())
            self._clauses[clause] = self._builder.clause(literals)
        return self._clauses[clause]

    def _literal(self, literal: int) -> int:
        return 2 * self._builder.atom(self._logical.atoms.text(literal >> 1)) + (literal & 1)

    def _formula(self, root: int) -> int:
        stack = [root]
        while stack:
            formula = stack[-1]
            children = self._logical.formulas.row(formula).tolist()
            kind = int(self._logical.formula_kinds[formula])
            is_compound = kind > FormulaKind.LITERAL
            missing = [child for child in children if is_compound and child not in self._formulas]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if is_compound:
                children = [self._formulas[child] for child in children]
            elif kind == FormulaKind.LITERAL:
                children = [self._literal(children[0])]
            self._formulas[formula] = self._builder.formula(kind, children)
        return self._formulas[root]
