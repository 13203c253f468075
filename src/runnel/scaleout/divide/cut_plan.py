"""Cut a plan: extract the part of a logical plan that some of its queries need, as a plan of its own.

In: a logical plan, and a mask of its queries. Out: a logical plan in which these queries match as in the whole plan,
and which contains nothing that only other queries need. IDs are renumbered without gaps, in the same order. A query
and its disjuncts are always selected together, so the result includes the gates and operators of the selected
queries.
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
    """Return the logical plan of the selected queries; `wanted` is a mask over `query_ids`.

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
        raise RunnelError(f"the mask has {len(wanted)} entries, the plan has {len(logical.query_ids)} queries")
    queries = np.unique(query_of(logical.query_ids[wanted]))
    members = _members(logical.targets, wanted)
    targets = members.lengths > 0
    predicates = _Selection.of(logical.target_predicates[targets], len(logical.predicates))
    scopes = _Selection.of(logical.target_scopes[targets], len(logical.scopes))
    bound = np.isin(logical.bound_patterns.queries, queries)
    parts = _select_parts(logical, predicates.mask, logical.bound_patterns.atoms[bound])
    return LogicalPlan(
        atoms=_select_texts(logical.atoms, parts.atoms.mask),
        clauses=_renumber_rows(logical.clauses, parts.clauses.mask, parts.atoms, literals=True),
        predicates=_renumber_rows(logical.predicates, predicates.mask, parts.clauses),
        predicate_formulas=parts.predicate_formulas,
        formula_kinds=logical.formula_kinds[parts.formulas.mask],
        formulas=_cut_formulas(logical, parts),
        scopes=_select_rows(logical.scopes, scopes.mask),
        target_predicates=predicates.renumber(logical.target_predicates[targets]),
        target_scopes=scopes.renumber(logical.target_scopes[targets]),
        targets=_select_rows(members, targets),
        query_ids=logical.query_ids[wanted],
        query_since=logical.query_since[wanted],
        gates=_cut_gates(logical.gates, queries),
        operators=_cut_operators(logical.operators, queries),
        bound_patterns=_cut_bound_patterns(logical.bound_patterns, bound, parts.atoms),
    )


@dataclass(frozen=True)
class _Selection:
    """A mask of selected elements, and the new number of each selected element."""

    mask: Array
    numbers: Array

    @staticmethod
    def of(used: Array, count: int) -> _Selection:
        """Select the `used` ones of `count` elements."""
        mask = np.zeros(count, dtype=bool)
        mask[used] = True
        return _Selection(mask, np.cumsum(mask) - 1)

    def renumber(self, ids: Array) -> Array:
        """Return the new numbers of selected elements, in an array of the same type."""
        return self.numbers[ids].astype(ids.dtype)

    def renumber_literals(self, literals: Array) -> Array:
        """Renumber literals, which are twice the number of an element, plus 1 if negated."""
        return np.asarray(2 * self.numbers[literals >> 1] + (literals & 1), dtype=literals.dtype)


@dataclass(frozen=True)
class _PredicateParts:
    """The clauses, formulas and atoms of the selected predicates."""

    clauses: _Selection
    formulas: _Selection
    atoms: _Selection
    predicate_formulas: Array


def _select_parts(logical: LogicalPlan, predicates: Array, bound: Array) -> _PredicateParts:
    """Select the parts of predicates, and also the atoms that bind variables of selected queries."""
    clauses = _Selection.of(_select_rows(logical.predicates, predicates).values, len(logical.clauses))
    roots = logical.predicate_formulas[predicates]
    formulas = _Selection.of(_find_subformulas(logical, roots[roots != EXACT]), len(logical.formulas))
    leaves = _select_rows(logical.formulas, formulas.mask & (logical.formula_kinds == FormulaKind.LITERAL))
    literals = np.concatenate([_select_rows(logical.clauses, clauses.mask).values, leaves.values]) >> 1
    atoms = _Selection.of(np.concatenate([literals, bound[bound >= 0]]), len(logical.atoms))
    renumbered = np.full(len(roots), EXACT, dtype=roots.dtype)
    renumbered[roots != EXACT] = formulas.renumber(roots[roots != EXACT])
    return _PredicateParts(clauses, formulas, atoms, renumbered)


def _find_subformulas(logical: LogicalPlan, roots: Array) -> Array:
    """Return formulas with all their subformulas."""
    seen = np.zeros(len(logical.formulas), dtype=bool)
    pending = np.unique(roots)
    while len(pending):
        seen[pending] = True
        inner = pending[logical.formula_kinds[pending] > FormulaKind.LITERAL]
        _, children = logical.formulas.expand(inner)
        children = np.unique(children)
        pending = children[~seen[children]]
    return np.flatnonzero(seen)


def _cut_formulas(logical: LogicalPlan, parts: _PredicateParts) -> Rows:
    """Return the selected formulas with new numbers. The child of a constant is its truth value, not a number."""
    kept = _select_rows(logical.formulas, parts.formulas.mask)
    kinds = np.repeat(logical.formula_kinds[parts.formulas.mask], kept.lengths)
    values = kept.values.copy()
    leaves, inner = kinds == FormulaKind.LITERAL, kinds > FormulaKind.LITERAL
    values[leaves] = parts.atoms.renumber_literals(values[leaves])
    values[inner] = parts.formulas.renumber(values[inner])
    return Rows(kept.offsets, values)


def _members(targets: Rows, wanted: Array) -> Rows:
    """Return the selected queries of every target, by their new positions. A target may have none."""
    kept = wanted[targets.values]
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(kept)])
    positions = (np.cumsum(wanted) - 1).astype(targets.values.dtype)
    return Rows(before[targets.offsets], positions[targets.values[kept]])


def _cut_gates(table: GateTable, queries: Array) -> GateTable:
    """Return the disjuncts of the selected queries, their gates, and all gates that these depend on.

    A join depends on the gate of its window, even if no selected query reads the window.
    """
    if not len(table):
        return table
    gates = table.gates()
    joins = np.array([(gate.feed, gate.window) for gate in gates if gate.window is not None], dtype=np.int64)
    joins = joins.reshape(-1, 2)
    owners = query_of(table.disjuncts)
    kept = np.isin(owners, queries)
    needed = np.union1d(queries, table.gate_feeds[kept])
    while True:  # each iteration adds the gates directly before those found so far
        before = [table.gate_feeds[np.isin(owners, needed)], joins[np.isin(joins[:, 0], needed), 1]]
        grown = np.union1d(needed, np.concatenate(before))
        if len(grown) == len(needed):
            break
        needed = grown
    feeds = np.array([gate.feed for gate in gates], dtype=np.int64)
    return GateTable(
        table.disjuncts[kept], table.gate_feeds[kept], _select_texts(table.texts, np.isin(feeds, needed))
    )


def _cut_operators(table: OperatorTable, queries: Array) -> OperatorTable:
    """Return the disjuncts of the selected queries that call operators, with their terms."""
    if not len(table):
        return table
    kept = np.isin(query_of(table.disjunct_ids), queries)
    terms = _Selection.of(_select_rows(table.literals, kept).values >> 1, len(table.terms))
    return OperatorTable(
        table.disjunct_ids[kept],
        table.disjunct_targets[kept],
        _renumber_rows(table.literals, kept, terms, literals=True),
        _select_texts(table.names, kept),
        _select_texts(table.terms, terms.mask),
    )


def _cut_bound_patterns(table: PatternBindings, kept: Array, atoms: _Selection) -> PatternBindings:
    """Return the selected patterns. A negative number refers to `wholes`."""
    if not len(table):
        return table
    patterns = table.atoms[kept]
    whole = patterns < 0
    wholes = _Selection.of(-1 - patterns[whole], len(table.wholes))
    renumbered = patterns.copy()
    renumbered[whole] = -1 - wholes.renumber(-1 - patterns[whole])
    renumbered[~whole] = atoms.renumber(patterns[~whole])
    names = _Selection.of(table.names[kept], len(table.name_texts))
    return PatternBindings(
        table.queries[kept],
        renumbered,
        names.renumber(table.names[kept]),
        _select_texts(table.name_texts, names.mask),
        _select_texts(table.wholes, wholes.mask),
    )


def _renumber_rows(rows: Rows, mask: Array, selection: _Selection, *, literals: bool = False) -> Rows:
    """Return the selected rows with renumbered values, which are IDs or, with `literals`, literals."""
    chosen = _select_rows(rows, mask)
    values = selection.renumber_literals(chosen.values) if literals else selection.renumber(chosen.values)
    return Rows(chosen.offsets, values)


def _select_rows(rows: Rows, mask: Array) -> Rows:
    """Return the selected rows unchanged."""
    lengths = rows.lengths
    return Rows(row_offsets(lengths[mask]), rows.values[np.repeat(mask, lengths)])


def _select_texts(texts: Texts, mask: Array) -> Texts:
    """Return the selected texts. A mask of their bytes takes an eighth of the memory of indexes."""
    lengths = np.diff(texts.offsets)
    return Texts(row_offsets(lengths[mask]), texts.data[np.repeat(mask, lengths)])
