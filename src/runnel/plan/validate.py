"""Checks of the arrays of a loaded plan: offsets must fit their values, and ids must be in range.

The checks take linear time and are vectorized. Without them, a damaged plan would cause wrong matches, not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from runnel.arrays import Array, Rows, Texts
from runnel.errors import CorruptDataError
from runnel.plan.logical_plan import FormulaKind, LogicalPlan, QueryTable
from runnel.plan.pattern_bindings import PatternBindings


def validate(folder: str, logical: LogicalPlan, tombstones: Array) -> None:
    """Raise a CorruptDataError that names the array if an array does not fit the others."""
    validate_queries(folder, logical, tombstones, len(logical.predicates))
    validate_predicates(folder, logical)


def validate_queries(folder: str, queries: QueryTable, tombstones: Array, predicates: int) -> None:
    """Raise a CorruptDataError if an array of the queries is invalid. `predicates` is the number of predicates."""
    with _corrupt_data_in(folder):
        check_rows("scopes", queries.scopes, None)
        check_ids("target_predicates", queries.target_predicates, 0, predicates, len(queries.targets))
        check_ids("target_scopes", queries.target_scopes, 0, len(queries.scopes), len(queries.targets))
        check_rows("targets", queries.targets, len(queries.query_ids))
        check_ids("query_since", queries.query_since, None, None, len(queries.query_ids))
        check_ascending("query_ids", queries.query_ids)
        check_ascending("tombstones", tombstones)
        check_texts("gates", queries.gates.texts)
        check_ascending("disjuncts.ids", queries.gates.disjuncts)
        check_ids("disjuncts.gates", queries.gates.gate_feeds, None, None, len(queries.gates.disjuncts))
        operators = queries.operators
        check_texts("terms", operators.terms)
        check_ascending("operated.ids", operators.disjunct_ids)
        check_ids("operated.targets", operators.disjunct_targets, 0, None, len(operators))
        check_texts("operated.names", operators.names)
        if len(operators.names) != len(operators):
            raise ValueError(f"operated.names must contain exactly {len(operators)} texts")
        check_rows("operated.literals", operators.literals, 2 * len(operators.terms), len(operators))
        _check_bound_patterns(queries.bound_patterns)


def _check_bound_patterns(bound: PatternBindings) -> None:
    check_texts("bound.name_texts", bound.name_texts)
    check_texts("bound.wholes", bound.wholes)
    check_ids("bound.queries", bound.queries, 0, None, len(bound))
    if np.any(bound.queries[1:] < bound.queries[:-1]):
        raise ValueError("bound.queries must be in ascending order")
    check_ids("bound.atoms", bound.atoms, -len(bound.wholes), None, len(bound))
    check_ids("bound.names", bound.names, 0, len(bound.name_texts), len(bound))


def validate_predicates(folder: str, logical: LogicalPlan) -> None:
    """Raise a CorruptDataError if an array of the predicate table is invalid."""
    atoms, clauses, predicates = len(logical.atoms), len(logical.clauses), len(logical.predicates)
    with _corrupt_data_in(folder):
        check_texts("atoms", logical.atoms)
        check_rows("clauses", logical.clauses, 2 * atoms)
        check_rows("predicates", logical.predicates, clauses)
        check_ids("predicate_formulas", logical.predicate_formulas, -1, len(logical.formulas), predicates)
        check_ids("formula_kinds", logical.formula_kinds, 0, FormulaKind.OR + 1, len(logical.formulas))
        check_ids("bound.atoms", logical.bound_patterns.atoms, None, atoms, len(logical.bound_patterns))
        _check_formulas(logical)


@contextmanager
def _corrupt_data_in(folder: str) -> Iterator[None]:
    """Turn a ValueError into a CorruptDataError that names the plan folder."""
    try:
        yield
    except ValueError as error:
        raise CorruptDataError(f"plan {folder}: array {error}") from error


def check_texts(name: str, texts: Texts) -> None:
    """Raise ValueError unless the offsets of the texts fit their bytes."""
    _check_offsets(name, texts.offsets, len(texts.data))


def check_rows(name: str, rows: Rows, bound: int | None, count: int | None = None) -> None:
    """Raise ValueError unless there are `count` rows, their offsets fit the values, and the values are below `bound`.

    None for `bound` or `count` skips that check.
    """
    if count is not None and len(rows) != count:
        raise ValueError(f"{name}.offsets must contain exactly {count + 1} integers")
    _check_offsets(name, rows.offsets, len(rows.values))
    check_ids(f"{name}.values", rows.values, None if bound is None else 0, bound, len(rows.values))


def check_ids(name: str, ids: Array, low: int | None, bound: int | None, count: int) -> None:
    """Raise ValueError unless the array contains `count` integers from `low` up to below `bound`.

    None for `low` or `bound` skips that check.
    """
    if len(ids) != count or ids.dtype.kind not in "iu":
        raise ValueError(f"{name} must contain exactly {count} integers")
    is_below = low is not None and count and int(ids.min()) < low
    if is_below or (bound is not None and count and int(ids.max()) >= bound):
        raise ValueError(f"{name} contains an id that is out of range")


def check_ascending(name: str, ids: Array) -> None:
    """Raise ValueError unless the ids are integers in strictly ascending order."""
    if ids.dtype.kind not in "iu" or np.any(ids[1:] <= ids[:-1]):
        raise ValueError(f"{name} must contain integers in strictly ascending order")


def _check_offsets(name: str, offsets: Array, size: int) -> None:
    fits = len(offsets) > 0 and offsets.dtype.kind in "iu" and offsets[0] == 0 and offsets[-1] == size
    if not fits or np.any(offsets[1:] < offsets[:-1]):
        raise ValueError(f"{name}.offsets must contain ascending integers from 0 to {size}")


def _check_formulas(logical: LogicalPlan) -> None:
    """Raise ValueError unless children come before their parents, so that evaluation terminates."""
    rows = logical.formulas
    check_rows("formulas", rows, None)
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    bound = np.where(logical.formula_kinds[owners] <= FormulaKind.LITERAL, max(2, 2 * len(logical.atoms)), owners)
    if np.any(rows.values < 0) or np.any(rows.values >= bound):
        raise ValueError("formulas.values contains an id that is out of range")
