"""The logical plan: the predicate table, the queries that refer to it, and what its making cost.

Every distinct atom, clause, predicate and scope has one dense id, whatever the number of queries that use it. A
*literal* is `atom * 2 + negated`. A *clause* is a disjunction of literals, a *predicate* a conjunction of clauses
(without clauses it is always true). A *scope* is a set of source feeds. A *target* is a pair (predicate, scope),
and the queries of a target match exactly the items of the scope's sources that satisfy the predicate. A predicate
whose CNF would be too large keeps clauses that every match satisfies, and a *formula*, a node of a shared and/or
graph, that decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Arrays, Rows, Texts
from runnel.plan.gates import GateTable, visible
from runnel.plan.operator_table import OperatorTable
from runnel.plan.pattern_bindings import PatternBindings

EXACT = -1
"""In `predicate_formulas`: the clauses say all there is to say."""


class FormulaKind(IntEnum):
    """The kinds of formula.

    The only child of a constant, literal or term is no formula but the truth, literal or term itself. Terms, which
    operators decide, are taken out of formulas before a plan is made.
    """

    CONSTANT = 0
    LITERAL = 1
    NOT = 2
    AND = 3
    OR = 4
    TERM = 5


@dataclass(frozen=True, slots=True)
class PlanQuery:
    """A feed that somebody wants matched; only items with a sequence above `since` match it."""

    id: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class CostRecord:
    """What one step of making a plan took and what it found."""

    step: str
    seconds: float
    counters: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON value."""
        return {"pass": self.step, "seconds": self.seconds, "counters": dict(self.counters)}


@dataclass(frozen=True, kw_only=True)
class QueryTable:
    """The queries in arrays, in ascending order of their catalog ids, and the targets that they have.

    Behind them come the disjuncts that have gates (see `gates`) and those that operators decide (see
    `operator_table`).
    """

    scopes: Rows
    target_predicates: Array
    target_scopes: Array
    targets: Rows
    query_ids: Array
    query_since: Array
    gates: GateTable = field(default_factory=GateTable)
    operators: OperatorTable = field(default_factory=OperatorTable)
    bound_patterns: PatternBindings = field(default_factory=PatternBindings)

    def query_arrays(self) -> dict[str, Array]:
        """The arrays of queries by the names under which they are stored."""
        return {
            **self.scopes.arrays("scopes"),
            "target_predicates": self.target_predicates,
            "target_scopes": self.target_scopes,
            **self.targets.arrays("targets"),
            "query_ids": self.query_ids,
            "query_since": self.query_since,
            **self.gates.arrays(),
            **self.operators.arrays(),
            **self.bound_patterns.arrays(),
        }

    def start_arrays(self) -> dict[str, Array]:
        """Those of the arrays of queries that say after which sequences they count."""
        return {"query_since": self.query_since, **self.gates.arrays()}


@dataclass(frozen=True, kw_only=True)
class LogicalPlan(QueryTable):
    """The predicate table and its queries in arrays.

    Items are matched without looking at the predicate table, unless an atom needs the evaluator; so the table lies in
    a file of its own, and workers mostly do without it.
    """

    atoms: Texts
    clauses: Rows
    predicates: Rows
    predicate_formulas: Array
    formula_kinds: Array
    formulas: Rows
    costs: tuple[CostRecord, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each thing."""
        return {
            "queries": len(visible(self.query_ids)),
            "targets": len(self.targets),
            "scopes": len(self.scopes),
            "predicates": len(self.predicates),
            "inexact_predicates": int(np.count_nonzero(self.predicate_formulas != EXACT)),
            "clauses": len(self.clauses),
            "atoms": len(self.atoms),
            "formulas": len(self.formulas),
        }

    def predicate_arrays(self) -> dict[str, Array]:
        """The arrays of the predicate table by the names under which they are stored."""
        return {
            **self.atoms.arrays("atoms"),
            **self.clauses.arrays("clauses"),
            **self.predicates.arrays("predicates"),
            "predicate_formulas": self.predicate_formulas,
            "formula_kinds": self.formula_kinds,
            **self.formulas.arrays("formulas"),
        }

    def arrays(self) -> dict[str, Array]:
        """All arrays by the names under which they are stored."""
        return self.query_arrays() | self.predicate_arrays()

    @staticmethod
    def stored(arrays: Arrays, costs: tuple[CostRecord, ...] = ()) -> LogicalPlan:
        """The logical plan of arrays made by `arrays`."""
        return LogicalPlan(
            atoms=Texts.stored(arrays, "atoms"),
            clauses=Rows.stored(arrays, "clauses"),
            predicates=Rows.stored(arrays, "predicates"),
            predicate_formulas=arrays["predicate_formulas"],
            formula_kinds=arrays["formula_kinds"],
            formulas=Rows.stored(arrays, "formulas"),
            scopes=Rows.stored(arrays, "scopes"),
            target_predicates=arrays["target_predicates"],
            target_scopes=arrays["target_scopes"],
            targets=Rows.stored(arrays, "targets"),
            query_ids=arrays["query_ids"],
            query_since=arrays["query_since"],
            costs=costs,
            gates=GateTable.stored(arrays),
            operators=OperatorTable.stored(arrays),
            bound_patterns=PatternBindings.stored(arrays),
        )


def identifiers(values: list[int]) -> Array:
    """Dense ids as an array."""
    return np.array(values, dtype=IDENTIFIER)
