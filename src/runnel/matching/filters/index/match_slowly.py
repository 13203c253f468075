"""The fallback for an item that the index cannot match: the reference evaluator decides each predicate separately."""

from __future__ import annotations

import numpy as np

from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.semantics.evaluate import holds
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.truth import formula_order
from runnel.matching.filters.index.part_index import CandidateMatches
from runnel.matching.filters.index.part_queries import PartQueries
from runnel.matching.patterns.contract import index_of
from runnel.model.match import Failure
from runnel.plan.logical_plan import EXACT, FormulaKind


def match_slowly(part_queries: PartQueries, columns: ItemColumns) -> CandidateMatches:
    """Return the queries of a part that a single item (row 0) matches, according to the reference evaluator."""
    predicates = np.flatnonzero(part_queries.predicates(int(columns.feeds[0])))
    satisfied: list[int] = []
    failures: list[Failure] = []
    for predicate in predicates.tolist():
        try:
            if _is_satisfied(part_queries, predicate, columns):
                satisfied.append(predicate)
        except Exception as error:  # the last fallback: an error becomes a failure of the query and is never raised
            _, queries = part_queries.queries(columns, np.zeros(1, dtype=np.int64), np.array([predicate]))
            reason = f"{type(error).__name__}: {error}"[:500]
            failures += [Failure(0, query, reason) for query in queries.tolist()]
    rows, queries = part_queries.queries(
        columns, np.zeros(len(satisfied), dtype=np.int64), np.array(satisfied, dtype=np.int64)
    )
    return CandidateMatches(rows, queries, tuple(failures))


def _is_satisfied(part_queries: PartQueries, predicate: int, columns: ItemColumns) -> bool:
    logical = part_queries.logical
    formula = int(logical.predicate_formulas[predicate])
    if formula != EXACT:
        return _formula_holds(part_queries, formula, columns)
    return all(
        any(_literal_holds(part_queries, literal, columns) for literal in logical.clauses.row(clause).tolist())
        for clause in logical.predicates.row(predicate).tolist()
    )


def _literal_holds(part_queries: PartQueries, literal: int, columns: ItemColumns) -> bool:
    atom = part_queries.atoms[literal >> 1]
    if isinstance(atom, ItemPattern):
        is_true = index_of(atom.family).holds(atom, columns, 0)
    else:
        is_true = holds(atom, columns.attributes(0), columns.accepted(0))
    return is_true != bool(literal & 1)


def _formula_holds(part_queries: PartQueries, formula: int, columns: ItemColumns) -> bool:
    kinds, rows = part_queries.logical.formula_kinds, part_queries.logical.formulas
    truths: dict[int, bool] = {}
    for node in formula_order(rows, kinds, formula):
        children = rows.row(node).tolist()
        match kinds[node]:
            case FormulaKind.CONSTANT:
                truths[node] = bool(children[0])
            case FormulaKind.LITERAL:
                truths[node] = _literal_holds(part_queries, children[0], columns)
            case FormulaKind.NOT:
                truths[node] = not truths[children[0]]
            case FormulaKind.AND:
                truths[node] = all(truths[child] for child in children)
            case _:
                truths[node] = any(truths[child] for child in children)
    return truths[formula]
