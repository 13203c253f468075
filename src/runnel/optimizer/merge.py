"""Compaction.

A base and its delta folded into the logical plan of the next base, without parsing anything again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from runnel.optimizer.build_table import TableBuilder
from runnel.plan.arrays import Array
from runnel.plan.gates import query_of
from runnel.plan.logical import EXACT, CostRecord, FormulaKind, LogicalPlan, PlanQuery
from runnel.plan.store import PlanPart


def merge(base: PlanPart, delta: PlanPart | None) -> LogicalPlan:
    """The logical plan that matches as the base with the delta does; what no living query uses is left out."""
    started = perf_counter()
    builder = TableBuilder()
    queries: list[PlanQuery] = []
    if delta is None:
        queries += _add(builder, base.logical, np.zeros(len(base.logical.query_ids), dtype=bool))
    else:
        ids = base.logical.query_ids
        # A way goes with its query.
        removed = np.isin(ids, delta.tombstones) | np.isin(query_of(ids), delta.tombstones)
        queries += _add(builder, base.logical, removed)
        queries += _add(builder, delta.logical, np.zeros(len(delta.logical.query_ids), dtype=bool))
    record = partial(CostRecord, "merge", perf_counter() - started)
    merged = builder.finish(queries, (record({"queries": len(queries)}),))
    gates = base.logical.gates
    if delta is not None:
        gates = gates.with_delta(delta.logical.gates, delta.tombstones)
    return replace(merged, gates=gates)


def _add(builder: TableBuilder, logical: LogicalPlan, removed: Array) -> list[PlanQuery]:
    copy = _Copy(builder, logical)
    ids, since = logical.query_ids.tolist(), logical.query_since.tolist()
    gone = removed.tolist()
    for target, members in enumerate(logical.targets.lists()):
        alive = [ids[member] for member in members if not gone[member]]
        if alive:
            predicate = copy.predicate(int(logical.target_predicates[target]))
            scope = builder.scope(logical.scopes.row(int(logical.target_scopes[target])).tolist())
            for query in alive:
                builder.add(predicate, scope, query)
    return [PlanQuery(*pair) for pair, dead in zip(zip(ids, since, strict=True), gone, strict=True) if not dead]


class _Copy:
    """Predicates of one table in another, each copied when first asked for."""

    def __init__(self, builder: TableBuilder, logical: LogicalPlan) -> None:
        self._builder = builder
        self._logical = logical
        self._predicates: dict[int, int] = {}
        self._clauses: dict[int, int] = {}
        self._formulas: dict[int, int] = {}

    def predicate(self, predicate: int) -> int:
        """The new id of a predicate."""
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
            inner = kind > FormulaKind.LITERAL
            missing = [child for child in children if inner and child not in self._formulas]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if inner:
                children = [self._formulas[child] for child in children]
            elif kind == FormulaKind.LITERAL:
                children = [self._literal(children[0])]
            self._formulas[formula] = self._builder.formula(kind, children)
        return self._formulas[root]
