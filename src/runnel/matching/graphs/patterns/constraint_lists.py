"""Constraint lists: the patterns of one shape, to be found by what its variables are bound to.

In: a table of patterns. Out: their order, and *groups*: patterns of one shape that ask the same of a variable, sorted
by a value. Under a binding to v only those can hold whose value lies from v - below to v + above: both are 0 where
equality is asked, one is infinite where a limit is, and `below` is the width of the widest where there are two
limits. Patterns of intervals are grouped by powers of two of their widths, so that few are looked at in vain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import IDENTIFIER, Array, Arrays, narrow_offsets, offsets_of
from runnel.matching.graphs.patterns.pattern_table import PatternTable

FEW_PATTERNS = 8
"""Patterns of a shape that are simply gone through."""

_EQUAL, _LESS, _AT_MOST, _GREATER = 0, 2, 3, 4
_IS_EQUAL, _IS_BELOW, _IS_ABOVE, _IS_WITHIN = 0, 1, 2, 3000


@dataclass(frozen=True)
class ConstraintLists:
    """The arrays.

    The patterns of a shape are those from `shape_members[shape]` on; its groups those from `shape_groups[shape]` on.
    Group g has the patterns from `members[g]` on, and the values from `value_offsets[g]` to `value_offsets[g + 1]`.
    Patterns of a shape before its first group are in none.
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
        """The arrays to store under a name."""
        return {f"{name}.{one}": getattr(self, one) for one in _FIELDS}

    @staticmethod
    def stored(arrays: Arrays, name: str) -> ConstraintLists:
        """The lists of arrays made by `arrays`."""
        fields: dict[str, Any] = {one: arrays[f"{name}.{one}"] for one in _FIELDS}
        return ConstraintLists(**fields)


_FIELDS = tuple(ConstraintLists.__dataclass_fields__)


@dataclass(frozen=True)
class _Ways:
    """Ways to find patterns: for each the pattern, what it asks of which variable, its value, and how good it is."""

    patterns: Array
    variables: Array
    sorts: Array
    kinds: Array
    values: Array
    widths: Array
    shares: Array

    def chosen(self, places: Array) -> _Ways:
        return _Ways(*(getattr(self, one)[places] for one in _Ways.__dataclass_fields__))

    def joined(self, other: _Ways) -> _Ways:
        return _Ways(*(np.append(getattr(self, one), getattr(other, one)) for one in _Ways.__dataclass_fields__))


def list_constraints(table: PatternTable, ranks: Array) -> tuple[Array, ConstraintLists]:
    """The order in which the patterns must stand, and the lists; `ranks` are those of the table's texts."""
    ways = _best(_with_intervals(_single_ways(table, ranks)))
    grouped = np.full(len(table), -1, dtype=np.int64)
    shapes = table.pattern_shapes[ways.patterns]
    ways = ways.chosen(np.lexsort((ways.values, ways.kinds, ways.sorts, ways.variables, shapes)))
    shapes = table.pattern_shapes[ways.patterns].astype(np.int64)
    changes = [np.diff(one, prepend=-1) != 0 for one in (shapes, ways.variables, ways.sorts, ways.kinds)]
    starts = np.flatnonzero(np.logical_or.reduce(changes)) if len(shapes) else np.empty(0, dtype=np.int64)
    grouped[ways.patterns] = np.arange(len(ways.patterns))
    order = np.lexsort((grouped, table.pattern_shapes))
    places = np.empty(len(table), dtype=IDENTIFIER)
    places[order] = np.arange(len(table))
    widest = np.maximum.reduceat(ways.widths, starts) if len(starts) else np.empty(0)
    kinds = ways.kinds[starts]
    shape_count = len(table.shape_edges)
    lists = ConstraintLists(
        shape_members=narrow_offsets(offsets_of(np.bincount(table.pattern_shapes, minlength=shape_count))),
        shape_groups=narrow_offsets(offsets_of(np.bincount(shapes[starts], minlength=shape_count))),
        variables=ways.variables[starts].astype(np.uint8),
        sorts=ways.sorts[starts].astype(np.uint8),
        below=np.where(kinds == _IS_ABOVE, np.inf, widest),
        above=np.where(kinds == _IS_BELOW, np.inf, 0.0),
        members=places[ways.patterns[starts]],
        value_offsets=narrow_offsets(np.append(starts, len(ways.patterns))),
        values=ways.values,
    )
    return order, lists


def _single_ways(table: PatternTable, ranks: Array) -> _Ways:
    """Every constraint that is a way by itself: not `!=`, nothing that never holds, and not of a small shape."""
    rows = table.constraints.values.reshape(-1, 3)
    owners = np.repeat(np.arange(len(table)), table.constraints.lengths // 3)
    terms = rows[:, 2]
    sorts = table.sorts[terms]
    values = np.where(sorts > Sort.TEXT, table.keys[terms], np.where(sorts == Sort.TEXT, ranks[terms], terms))
    relations = rows[:, 1]
    sizes = np.bincount(table.pattern_shapes, minlength=len(table.shape_edges))
    usable = (relations == _EQUAL) | ((relations >= _LESS) & (sorts >= Sort.TEXT))
    usable &= ~np.isnan(values) & (sizes[table.pattern_shapes[owners]] > FEW_PATTERNS)
    kinds = np.where(relations == _EQUAL, _IS_EQUAL, np.where(relations <= _AT_MOST, _IS_BELOW, _IS_ABOVE))
    all_ways = _Ways(
        owners, rows[:, 0], sorts, kinds, values.astype(np.float64), np.zeros(len(rows)), np.ones(len(rows))
    )
    found = all_ways.chosen(np.flatnonzero(usable))
    return _measured(found, table.pattern_shapes[found.patterns])


def _measured(ways: _Ways, shapes: Array) -> _Ways:
    """The ways with their shares: which part of the terms that are compared with the same lies where they hold.

    What people ask for is the best guess of what is published.
    """
    if not len(shapes):
        return ways
    order = np.lexsort((ways.values, ways.sorts, ways.variables, shapes))
    columns = [one[order] for one in (shapes, ways.variables, ways.sorts)]
    begins = np.logical_or.reduce([np.diff(one.astype(np.int64), prepend=-1) != 0 for one in columns])
    values = ways.values[order]
    differs = begins | np.append(True, values[1:] != values[:-1])
    places = np.arange(len(order))
    first, start = (np.maximum.accumulate(np.where(one, places, 0)) for one in (differs, begins))
    last = _ends(differs)
    end = _ends(begins)
    kinds = ways.kinds[order]
    low = np.where(kinds == _IS_BELOW, start, first)
    high = np.where(kinds == _IS_ABOVE, end, last)
    shares = np.empty(len(order))
    shares[order] = (high - low) / (end - start)
    return _Ways(ways.patterns, ways.variables, ways.sorts, ways.kinds, ways.values, ways.widths, shares)


def _ends(begins: Array) -> Array:
    """For every place where its run ends; runs begin at some places."""
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(begins)))
    return np.repeat(starts + lengths, lengths)


def _with_intervals(ways: _Ways) -> _Ways:
    """The ways, and those by a lower and an upper limit of one variable together."""
    order = np.lexsort((ways.values, ways.kinds, ways.sorts, ways.variables, ways.patterns))
    ways = ways.chosen(order)
    same = np.ones(max(0, len(order) - 1), dtype=bool)
    for one in (ways.patterns, ways.variables, ways.sorts):
        same &= one[1:] == one[:-1]
    # In this order the greatest upper limit stands before the least lower one; others only narrow what is between.
    uppers = np.flatnonzero(same & (ways.kinds[:-1] == _IS_BELOW) & (ways.kinds[1:] == _IS_ABOVE))
    highs, lows = ways.chosen(uppers), ways.chosen(uppers + 1)
    with np.errstate(invalid="ignore"):  # between two infinite limits there is no width
        widths = np.nextafter(highs.values - lows.values, np.inf)
    usable = np.isfinite(widths) & (widths > 0)
    shares = np.maximum(highs.shares + lows.shares - 1.0, 0.0)
    kinds = _IS_WITHIN + np.frexp(np.where(usable, widths, 1.0))[1]
    within = _Ways(lows.patterns, lows.variables, lows.sorts, kinds, lows.values, widths, shares)
    return ways.joined(within.chosen(np.flatnonzero(usable)))


def _best(ways: _Ways) -> _Ways:
    """The best way of every pattern that has one."""
    order = np.lexsort((ways.kinds, ways.shares, ways.patterns))
    ways = ways.chosen(order)
    return ways.chosen(np.flatnonzero(np.diff(ways.patterns, prepend=-1)))
