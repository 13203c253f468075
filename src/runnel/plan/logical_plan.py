"""The logical plan: the predicate table, the queries that refer to it, and the cost of compiling them.

Each distinct atom, clause, predicate and scope is stored once under a dense id, however many queries use it. A
*literal* is `atom * 2 + negated`. A *clause* is a disjunction of literals, a *predicate* a conjunction of clauses
(a predicate without clauses is always true). A *scope* is a set of source feeds. A *target* is a pair (predicate,
scope), and the queries of a target match exactly the items of the scope's sources that satisfy the predicate. If the
CNF of a predicate would be too large, its clauses are only necessary conditions, and a *formula*, a node of a shared
and/or graph, decides whether an item satisfies it.
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
"""The value in `predicate_formulas` of a predicate that is exactly the conjunction of its clauses."""


class FormulaKind(IntEnum):
    """The kinds of formula.

    A constant, literal or term has one child, which is not a formula: it is the truth value, the literal or the term.
    Operators decide terms, so the optimizer removes them from formulas; a stored plan contains none.
    """

    CONSTANT = 0
    LITERAL = 1
    NOT = 2
    AND = 3
    OR = 4
    TERM = 5


@dataclass(frozen=True, slots=True)
class PlanQuery:
    """A feed to match items with. Only items with a sequence above `since` match it."""

    id: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class CostRecord:
    """The duration of one step of compiling a plan, and counters that the step reports."""

    step: str
    seconds: float
    counters: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        return {"pass": self.step, "seconds": self.seconds, "counters": dict(self.counters)}


@dataclass(frozen=True, kw_only=True)
class QueryTable:
    """The queries as arrays, in ascending order of their catalog ids, and their targets.

    After the queries come their disjuncts, which have ids of their own: those with gates (see `gates`) and those that
    operators decide (see `operator_table`). `targets` has one row per target, with the positions of its queries.
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
        """Return the arrays of the queries by the names under which they are stored."""
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
        """Return the arrays that depend on the sequences after which queries start."""
        return {"query_since": self.query_since, **self.gates.arrays()}


@dataclass(frozen=True, kw_only=True)
class LogicalPlan(QueryTable):
    """The predicate table and its queries as arrays.

    Matching reads the predicate table only if an atom needs the evaluator. A large table is therefore stored in a
    file of its own, which workers rarely have to load.
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
        """The number of queries, targets, scopes, predicates, clauses, atoms and formulas."""
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
        """Return the arrays of the predicate table by the names under which they are stored."""
        return {
            **self.atoms.arrays("atoms"),
            **self.clauses.arrays("clauses"),
            **self.predicates.arrays("predicates"),
            "predicate_formulas": self.predicate_formulas,
            "formula_kinds": self.formula_kinds,
            **self.formulas.arrays("formulas"),
        }

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by the names under which they are stored."""
        return self.query_arrays() | self.predicate_arrays()

    @staticmethod
    def stored(arrays: Arrays, costs: tuple[CostRecord, ...] = ()) -> LogicalPlan:
        """Build a logical plan from the arrays that `arrays` returned."""
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
    """Return dense ids as an array."""
    return np.array(values, dtype=IDENTIFIER)
