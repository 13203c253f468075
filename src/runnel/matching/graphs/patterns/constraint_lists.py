"""Constraint lists: an index of the patterns of one shape by the values to which its variables are bound.

In: a table of patterns. Out: their order, and *groups* of patterns. The patterns of a group have the same shape and
the same kind of constraint on the same variable, and are sorted by the constraint's value. If the variable is bound
to v, only patterns whose value is between v - below and v + above can hold. Both are 0 for equality, one of them is
infinite for a lower or upper bound, and `below` is the width of the widest interval for constraints with two bounds.
Intervals are grouped by powers of two of their widths, which limits the number of false candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import IDENTIFIER, Array, Arrays, narrow_offsets, offsets_of
from runnel.matching.graphs.patterns.pattern_table import PatternTable

FEW_PATTERNS = 8
"""Shapes with at most this number of patterns are scanned instead of indexed."""

_EQUAL, _LESS, _AT_MOST, _GREATER = 0, 2, 3, 4
_IS_EQUAL, _IS_BELOW, _IS_ABOVE, _IS_WITHIN = 0, 1, 2, 3000


@dataclass(frozen=True)
class ConstraintLists:
    """The arrays.

    The patterns of a shape begin at `shape_members[shape]`, and its groups begin at `shape_groups[shape]`. The
    patterns of group g begin at `members[g]`; their values are those from `value_offsets[g]` to `value_offsets[g +
    1]`. The patterns of a shape before its first group are in no group.
    """

    shape_members: Array
    shape_groups: Array
    variables: Array
    sorts: Array
    below: Array
    above: Array
    members: Array
    value_offsets: Array
    values: Array

    def arrays(self, name: str) -> dict[str, Array]:
        """Return the arrays to store. Their names begin with `name`."""
        return {f"{name}.{field}": getattr(self, field) for field in _FIELDS}

    @staticmethod
    def stored(arrays: Arrays, name: str) -> ConstraintLists:
        """Build the lists from stored arrays."""
        fields: dict[str, Any] = {field: arrays[f"{name}.{field}"] for field in _FIELDS}
        return ConstraintLists(**fields)


_FIELDS = tuple(ConstraintLists.__dataclass_fields__)


@dataclass(frozen=True)
class _Candidates:
    """Constraints under which a pattern can be listed: pattern, variable, kind, value, and estimated selectivity."""

    patterns: Array
    variables: Array
    sorts: Array
    kinds: Array
    values: Array
    widths: Array
    shares: Array

    def select(self, positions: Array) -> _Candidates:
        return _Candidates(*(getattr(self, field)[positions] for field in _Candidates.__dataclass_fields__))

    def concatenate(self, other: _Candidates) -> _Candidates:
        fields = _Candidates.__dataclass_fields__
        return _Candidates(*(np.append(getattr(self, field), getattr(other, field)) for field in fields))


def list_constraints(table: PatternTable, ranks: Array) -> tuple[Array, ConstraintLists]:
    """Return the required order of the patterns, and the lists. `ranks` are the ranks of the table's texts."""
    candidates = _best_candidates(_with_intervals(_single_candidates(table, ranks)))
    grouped = np.full(len(table), -1, dtype=np.int64)
    shapes = table.pattern_shapes[candidates.patterns]
    candidates = candidates.select(
        np.lexsort((candidates.values, candidates.kinds, candidates.sorts, candidates.variables, shapes))
    )
    shapes = table.pattern_shapes[candidates.patterns].astype(np.int64)
    changes = [
        np.diff(column, prepend=-1) != 0
        for column in (shapes, candidates.variables, candidates.sorts, candidates.kinds)
    ]
    starts = np.flatnonzero(np.logical_or.reduce(changes)) if len(shapes) else np.empty(0, dtype=np.int64)
    grouped[candidates.patterns] = np.arange(len(candidates.patterns))
    order = np.lexsort((grouped, table.pattern_shapes))
    positions = np.empty(len(table), dtype=IDENTIFIER)
    positions[order] = np.arange(len(table))
    widest = np.maximum.reduceat(candidates.widths, starts) if len(starts) else np.empty(0)
    kinds = candidates.kinds[starts]
    shape_count = len(table.shape_edges)
    lists = ConstraintLists(
        shape_members=narrow_offsets(offsets_of(np.bincount(table.pattern_shapes, minlength=shape_count))),
        shape_groups=narrow_offsets(offsets_of(np.bincount(shapes[starts], minlength=shape_count))),
        variables=candidates.variables[starts].astype(np.uint8),
        sorts=candidates.sorts[starts].astype(np.uint8),
        below=np.where(kinds == _IS_ABOVE, np.inf, widest),
        above=np.where(kinds == _IS_BELOW, np.inf, 0.0),
        members=positions[candidates.patterns[starts]],
        value_offsets=narrow_offsets(np.append(starts, len(candidates.patterns))),
        values=candidates.values,
    )
    return order, lists


def _single_candidates(table: PatternTable, ranks: Array) -> _Candidates:
    """Return all constraints that can be listed: without `!=`, constraints that never hold, and small shapes."""
    rows = table.constraints.values.reshape(-1, 3)
    owners = np.repeat(np.arange(len(table)), table.constraints.lengths // 3)
    terms = rows[:, 2]
    sorts = table.sorts[terms]
    values = np.where(sorts > Sort.TEXT, table.keys[terms], np.where(sorts == Sort.TEXT, ranks[terms], terms))
    relations = rows[:, 1]
    sizes = np.bincount(table.pattern_shapes, minlength=len(table.shape_edges))
    is_usable = (relations == _EQUAL) | ((relations >= _LESS) & (sorts >= Sort.TEXT))
    is_usable &= ~np.isnan(values) & (sizes[table.pattern_shapes[owners]] > FEW_PATTERNS)
    kinds = np.where(relations == _EQUAL, _IS_EQUAL, np.where(relations <= _AT_MOST, _IS_BELOW, _IS_ABOVE))
    all_constraints = _Candidates(
        owners, rows[:, 0], sorts, kinds, values.astype(np.float64), np.zeros(len(rows)), np.ones(len(rows))
    )
    candidates = all_constraints.select(np.flatnonzero(is_usable))
    return _with_shares(candidates, table.pattern_shapes[candidates.patterns])


def _with_shares(candidates: _Candidates, shapes: Array) -> _Candidates:
    """Return the candidates with their shares.

    The share of a constraint is the fraction of the terms compared with the same variable that satisfy it. The terms
    that users ask for are the best available estimate of the published terms.
    """
    if not len(shapes):
        return candidates
    order = np.lexsort((candidates.values, candidates.sorts, candidates.variables, shapes))
    columns = [column[order] for column in (shapes, candidates.variables, candidates.sorts)]
    begins = np.logical_or.reduce([np.diff(column.astype(np.int64), prepend=-1) != 0 for column in columns])
    values = candidates.values[order]
    differs = begins | np.append(True, values[1:] != values[:-1])
    positions = np.arange(len(order))
    first, start = (np.maximum.accumulate(np.where(is_start, positions, 0)) for is_start in (differs, begins))
    last = _ends(differs)
    end = _ends(begins)
    kinds = candidates.kinds[order]
    low = np.where(kinds == _IS_BELOW, start, first)
    high = np.where(kinds == _IS_ABOVE, end, last)
    shares = np.empty(len(order))
    shares[order] = (high - low) / (end - start)
    return _Candidates(
        candidates.patterns,
        candidates.variables,
        candidates.sorts,
        candidates.kinds,
        candidates.values,
        candidates.widths,
        shares,
    )


def _ends(begins: Array) -> Array:
    """Return for every position the end of its run. `begins` marks the positions at which runs begin."""
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(begins)))
    return np.repeat(starts + lengths, lengths)


def _with_intervals(candidates: _Candidates) -> _Candidates:
    """Return the candidates, and intervals that combine a lower and an upper bound of the same variable."""
    order = np.lexsort(
        (candidates.values, candidates.kinds, candidates.sorts, candidates.variables, candidates.patterns)
    )
    candidates = candidates.select(order)
    is_same = np.ones(max(0, len(order) - 1), dtype=bool)
    for column in (candidates.patterns, candidates.variables, candidates.sorts):
        is_same &= column[1:] == column[:-1]
    # In this order the greatest upper bound precedes the least lower bound. Other bounds only narrow the interval.
    uppers = np.flatnonzero(is_same & (candidates.kinds[:-1] == _IS_BELOW) & (candidates.kinds[1:] == _IS_ABOVE))
    highs, lows = candidates.select(uppers), candidates.select(uppers + 1)
    with np.errstate(invalid="ignore"):  # the width between two infinite bounds is undefined
        widths = np.nextafter(highs.values - lows.values, np.inf)
    is_usable = np.isfinite(widths) & (widths > 0)
    shares = np.maximum(highs.shares + lows.shares - 1.0, 0.0)
    kinds = _IS_WITHIN + np.frexp(np.where(is_usable, widths, 1.0))[1]
    intervals = _Candidates(lows.patterns, lows.variables, lows.sorts, kinds, lows.values, widths, shares)
    return candidates.concatenate(intervals.select(np.flatnonzero(is_usable)))


def _best_candidates(candidates: _Candidates) -> _Candidates:
    """Return the most selective candidate of every pattern that has candidates."""
    order = np.lexsort((candidates.kinds, candidates.shares, candidates.patterns))
    candidates = candidates.select(order)
    return candidates.select(np.flatnonzero(np.diff(candidates.patterns, prepend=-1)))
