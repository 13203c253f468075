"""The slow way for an item that the index cannot take: every predicate on its own, and each failure on its own."""

from __future__ import annotations

import numpy as np

from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.semantics.evaluate import holds
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.truth import formula_order
from runnel.matching.filters.index.part_index import CandidateMatches
from runnel.matching.filters.index.reach import Reach
from runnel.matching.patterns.contract import index_of
from runnel.model.match import Failure
from runnel.plan.logical_plan import EXACT, FormulaKind


def match_slowly(reach: Reach, columns: ItemColumns) -> CandidateMatches:
    """The queries of a part that a single item (row 0) matches, by the reference evaluator."""
    predicates = np.flatnonzero(reach.predicates(int(columns.feeds[0])))
    held: list[int] = []
    failures: list[Failure] = []
    for predicate in predicates.tolist():
        try:
            if _satisfied(reach, predicate, columns):
                held.append(predicate)
        except Exception as error:  # this is the last line of defence: a query's failure is recorded, never raised
            _, queries = reach.queries(columns, np.zeros(1, dtype=np.int64), np.array([predicate]))
            reason = f"{type(error).__name__}: {error}"[:500]
            failures += [Failure(0, query, reason) for query in queries.tolist()]
    chosen = np.array(held, dtype=np.int64)
    rows, queries = reach.queries(columns, np.zeros(len(chosen), dtype=np.int64), chosen)
    return CandidateMatches(rows, queries, tuple(failures))


def _satisfied(reach: Reach, predicate: int, columns: ItemColumns) -> bool:
    logical = reach.logical
    formula = int(logical.predicate_formulas[predicate])
    if formula != EXACT:
        return _formula_holds(reach, formula, columns)
    return all(
        any(_literal_holds(reach, literal, columns) for literal in logical.clauses.row(clause).tolist())
        for clause in logical.predicates.row(predicate).tolist()
    )


def _literal_holds(reach: Reach, literal: int, columns: ItemColumns) -> bool:
    atom = reach.atoms[literal >> 1]
    if isinstance(atom, ItemPattern):
        held = index_of(atom.family).holds(atom, columns, 0)
    else:
        held = holds(atom, columns.attributes(0), columns.accepted(0))
    return held != bool(literal & 1)


def _formula_holds(reach: Reach, formula: int, columns: ItemColumns) -> bool:
    kinds, rows = reach.logical.formula_kinds, reach.logical.formulas
    truths: dict[int, bool] = {}
    for one in formula_order(rows, kinds, formula):
        children = rows.row(one).tolist()
        match kinds[one]:
            case FormulaKind.CONSTANT:
                truths[one] = bool(children[0])
            case FormulaKind.LITERAL:
                truths[one] = _literal_holds(reach, children[0], columns)
            case FormulaKind.NOT:
                truths[one] = not truths[children[0]]
            case FormulaKind.AND:
                truths[one] = all(truths[child] for child in children)
            case _:
                truths[one] = any(truths[child] for child in children)
    return truths[formula]
