"""Cutting a plan: the part of a logical plan that some of its queries need, as a plan of its own.

In: a logical plan, and which of its queries are wanted. Out: a logical plan in which these match as they do in the
whole one, and nothing is left of the others. What is kept is renumbered without gaps and stays in order. A query and
its ways are wanted together, so what gates and operators decide goes with the query that they decide for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, Texts, row_offsets
from runnel.errors import RunnelError
from runnel.plan.gates import GateTable, query_of
from runnel.plan.logical_plan import EXACT, FormulaKind, LogicalPlan
from runnel.plan.operator_table import OperatorTable
from runnel.plan.pattern_bindings import PatternBindings


def cut_plan(logical: LogicalPlan, wanted: Array) -> LogicalPlan:
    """The logical plan of the wanted queries alone; `wanted` says it for every position in `query_ids`.

    >>> from runnel.optimizer.table_builder import TableBuilder
    >>> from runnel.plan.logical_plan import PlanQuery
    >>> builder = TableBuilder()
    >>> for query, atom in ((7, "rock"), (8, "jazz"), (9, "rock")):
    ...     builder.add(builder.predicate([builder.clause([2 * builder.atom(atom)])]), builder.scope([1]), query)
    >>> part = cut_plan(builder.finish([PlanQuery(7), PlanQuery(8), PlanQuery(9)]), np.array([False, True, False]))
    >>> part.query_ids.tolist(), list(part.atoms.texts()), list(part.targets.lists())
    ([8], ['jazz'], [[0]])
    """
    wanted = np.asarray(wanted, dtype=bool)
    if len(wanted) != len(logical.query_ids):
        raise RunnelError(f"{len(wanted)} choices for the {len(logical.query_ids)} queries of a plan")
    queries = np.unique(query_of(logical.query_ids[wanted]))
    members = _members(logical.targets, wanted)
    targets = members.lengths > 0
    predicates = _Kept.of(logical.target_predicates[targets], len(logical.predicates))
    scopes = _Kept.of(logical.target_scopes[targets], len(logical.scopes))
    bound = np.isin(logical.bound_patterns.queries, queries)
    asked = _cut_predicates(logical, predicates.mask, logical.bound_patterns.atoms[bound])
    return LogicalPlan(
        atoms=_texts(logical.atoms, asked.atoms.mask),
        clauses=_renumbered(logical.clauses, asked.clauses.mask, asked.atoms, literals=True),
        predicates=_renumbered(logical.predicates, predicates.mask, asked.clauses),
        predicate_formulas=asked.predicate_formulas,
        formula_kinds=logical.formula_kinds[asked.formulas.mask],
        formulas=_cut_formulas(logical, asked),
        scopes=_rows(logical.scopes, scopes.mask),
        target_predicates=predicates.renumbered(logical.target_predicates[targets]),
        target_scopes=scopes.renumbered(logical.target_scopes[targets]),
        targets=_rows(members, targets),
        query_ids=logical.query_ids[wanted],
        query_since=logical.query_since[wanted],
        gates=_cut_gates(logical.gates, queries),
        operators=_cut_operators(logical.operators, queries),
        bound_patterns=_cut_bound_patterns(logical.bound_patterns, bound, asked.atoms),
    )


@dataclass(frozen=True)
class _Kept:
    """Which of some numbered things are kept, and the new number of each that is."""

    mask: Array
    numbers: Array

    @staticmethod
    def of(used: Array, count: int) -> _Kept:
        """What is used of so many things."""
        mask = np.zeros(count, dtype=bool)
        mask[used] = True
        return _Kept(mask, np.cumsum(mask) - 1)

    def renumbered(self, ids: Array) -> Array:
        """Ids of things that are kept by their new numbers, in an array of the same type."""
        return self.numbers[ids].astype(ids.dtype)

    def literals(self, literals: Array) -> Array:
        """The same for literals: twice the number of a thing, and whether it is negated."""
        return np.asarray(2 * self.numbers[literals >> 1] + (literals & 1), dtype=literals.dtype)


@dataclass(frozen=True)
class _Asked:
    """What kept predicates ask: clauses, formulas and atoms."""

    clauses: _Kept
    formulas: _Kept
    atoms: _Kept
    predicate_formulas: Array


def _cut_predicates(logical: LogicalPlan, predicates: Array, bound: Array) -> _Asked:
    """What these predicates ask; and the atoms that queries bind variables by are kept, whoever asks for them."""
    clauses = _Kept.of(_rows(logical.predicates, predicates).values, len(logical.clauses))
    deciding = logical.predicate_formulas[predicates]
    formulas = _Kept.of(_reached(logical, deciding[deciding != EXACT]), len(logical.formulas))
    leaves = _rows(logical.formulas, formulas.mask & (logical.formula_kinds == FormulaKind.LITERAL))
    literals = np.concatenate([_rows(logical.clauses, clauses.mask).values, leaves.values]) >> 1
    atoms = _Kept.of(np.concatenate([literals, bound[bound >= 0]]), len(logical.atoms))
    renumbered = np.full(len(deciding), EXACT, dtype=deciding.dtype)
    renumbered[deciding != EXACT] = formulas.renumbered(deciding[deciding != EXACT])
    return _Asked(clauses, formulas, atoms, renumbered)


def _reached(logical: LogicalPlan, roots: Array) -> Array:
    """Formulas with all that they are made of; each is looked at once."""
    seen = np.zeros(len(logical.formulas), dtype=bool)
    fresh = np.unique(roots)
    while len(fresh):
        seen[fresh] = True
        inner = fresh[logical.formula_kinds[fresh] > FormulaKind.LITERAL]
        _, children = logical.formulas.expand(inner)
        children = np.unique(children)
        fresh = children[~seen[children]]
    return np.flatnonzero(seen)


def _cut_formulas(logical: LogicalPlan, asked: _Asked) -> Rows:
    """Formulas over the new numbers; the child of a constant is no number, but the truth itself."""
    kept = _rows(logical.formulas, asked.formulas.mask)
    kinds = np.repeat(logical.formula_kinds[asked.formulas.mask], kept.lengths)
    values = kept.values.copy()
    leaves, inner = kinds == FormulaKind.LITERAL, kinds > FormulaKind.LITERAL
    values[leaves] = asked.atoms.literals(values[leaves])
    values[inner] = asked.formulas.renumbered(values[inner])
    return Rows(kept.offsets, values)


def _members(targets: Rows, wanted: Array) -> Rows:
    """The wanted queries of every target, by their new positions; a target may be left without any."""
    kept = wanted[targets.values]
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(kept)])
    positions = (np.cumsum(wanted) - 1).astype(targets.values.dtype)
    return Rows(before[targets.offsets], positions[targets.values[kept]])


def _cut_gates(table: GateTable, queries: Array) -> GateTable:
    """The disjuncts of some queries, the gates of these queries, and all gates that those depend on."""
    if not len(table):
        return table
    owners = query_of(table.disjuncts)
    kept = np.isin(owners, queries)
    needed = np.union1d(queries, table.gate_feeds[kept])
    while True:  # a gate after a gate after a gate: each turn finds those that come directly before
        grown = np.union1d(needed, table.gate_feeds[np.isin(owners, needed)])
        if len(grown) == len(needed):
            break
        needed = grown
    feeds = np.array([gate.feed for gate in table.gates()], dtype=np.int64)
    return GateTable(table.disjuncts[kept], table.gate_feeds[kept], _texts(table.texts, np.isin(feeds, needed)))


def _cut_operators(table: OperatorTable, queries: Array) -> OperatorTable:
    """The ways of some queries that operators decide, with the terms that these ask."""
    if not len(table):
        return table
    kept = np.isin(query_of(table.disjunct_ids), queries)
    terms = _Kept.of(_rows(table.literals, kept).values >> 1, len(table.terms))
    return OperatorTable(
        table.disjunct_ids[kept],
        table.disjunct_targets[kept],
        _renumbered(table.literals, kept, terms, literals=True),
        _texts(table.names, kept),
        _texts(table.terms, terms.mask),
    )


def _cut_bound_patterns(table: PatternBindings, kept: Array, atoms: _Kept) -> PatternBindings:
    """The patterns that are kept; a negative number is one of the wholes."""
    if not len(table):
        return table
    patterns = table.atoms[kept]
    whole = patterns < 0
    wholes = _Kept.of(-1 - patterns[whole], len(table.wholes))
    renumbered = patterns.copy()
    renumbered[whole] = -1 - wholes.renumbered(-1 - patterns[whole])
    renumbered[~whole] = atoms.renumbered(patterns[~whole])
    names = _Kept.of(table.names[kept], len(table.name_texts))
    return PatternBindings(
        table.queries[kept],
        renumbered,
        names.renumbered(table.names[kept]),
        _texts(table.name_texts, names.mask),
        _texts(table.wholes, wholes.mask),
    )


def _renumbered(rows: Rows, mask: Array, kept: _Kept, *, literals: bool = False) -> Rows:
    """The chosen rows with their values, ids of what is kept or literals over that, by the new numbers."""
    chosen = _rows(rows, mask)
    return Rows(chosen.offsets, kept.literals(chosen.values) if literals else kept.renumbered(chosen.values))


def _rows(rows: Rows, mask: Array) -> Rows:
    """The chosen rows as they are."""
    lengths = rows.lengths
    return Rows(row_offsets(lengths[mask]), rows.values[np.repeat(mask, lengths)])


def _texts(texts: Texts, mask: Array) -> Texts:
    """The chosen texts; their bytes are copied by a mask, which takes an eighth of the room that places would."""
    lengths = np.diff(texts.offsets)
    return Texts(row_offsets(lengths[mask]), texts.data[np.repeat(mask, lengths)])
