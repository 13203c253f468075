"""Read stored matches by query without decoding them, with one pass over the steps per call.

In: rows of steps. Out: the queries with a match, and the sequences of given queries. An item may match ten thousand
queries, so nothing is sorted, and there is no array of all matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.errors import CorruptDataError
from runnel.kernel import Number, kernel
from runnel.logs.matches.match_files import MatchRows, SteppedRows
from runnel.model.match import LEAP

Ids = npt.NDArray[np.int64]
_NONE: Ids = np.empty(0, dtype=np.int64)

_DENSE = 1 << 26
"""Ids below this bound are looked up in a table. A catalog assigns ids from 1, so higher ids are rare."""

_HIGHEST = 1 << 60
"""The highest possible id. Two such numbers can be added without overflow."""

_DAMAGED = -2


@dataclass(frozen=True)
class QuerySequences:
    """Sequences by query: those of `queries[i]` are `sequences[offsets[i]:offsets[i + 1]]`, ascending."""

    queries: Ids
    offsets: Ids
    sequences: Ids

    def of(self, query: int) -> Ids:
        """Return the sequences of one query."""
        row = int(np.searchsorted(self.queries, query))
        if row == len(self.queries) or self.queries[row] != query:
            return _NONE
        return self.sequences[self.offsets[row] : self.offsets[row + 1]]

    def to_dict(self) -> dict[int, Ids]:
        """Return the sequences of the queries that have any."""
        filled = np.flatnonzero(np.diff(self.offsets))
        ranges = zip(self.offsets[filled].tolist(), self.offsets[filled + 1].tolist(), strict=True)
        return {
            query: self.sequences[low:high]
            for query, (low, high) in zip(self.queries[filled].tolist(), ranges, strict=True)
        }


def matched_queries(rows: Sequence[SteppedRows], after: int, upto: int) -> Ids:
    """Return the ids, in ascending order, of the queries that at least one item in (after, upto] satisfies.

    >>> from runnel.logs.matches.match_steps import steps_of
    >>> some = SteppedRows(np.array([4, 6]), steps_of(np.array([0, 2, 3]), np.array([1, 9, 7])))
    >>> matched_queries([some], 0, 6).tolist(), matched_queries([some], 4, 6).tolist()
    ([1, 7, 9], [7])
    """
    highest = max((_checked_highest(part) for part in rows), default=-1)
    # Ids below _DENSE are marked in a table; the few higher ones are collected in lists.
    marks = np.zeros(min(highest + 1, _DENSE), dtype=np.bool_)
    beyond: list[Ids] = []
    for part in rows:
        _mark(*_arrays(part), after, upto, marks)
        if highest >= _DENSE:
            beyond.append(_ids_beyond(part, after, upto))
    dense = np.flatnonzero(marks)
    return np.unique(np.concatenate([dense, *beyond])) if beyond else dense


def _ids_beyond(rows: SteppedRows, after: int, upto: int) -> Ids:
    """Return the ids that are too high for a table."""
    ids = rows.steps.ids()
    inside = np.repeat((after < rows.sequences) & (rows.sequences <= upto), np.diff(rows.steps.offsets))
    return ids[inside & (ids >= _DENSE)]


def sequences_by_query(rows: Sequence[SteppedRows], queries: Ids, after: int, upto: int) -> QuerySequences:
    """Return the sequences in (after, upto] of the items that satisfy each query. `queries` must be ascending.

    >>> from runnel.logs.matches.match_steps import steps_of
    >>> some = SteppedRows(np.array([4, 6]), steps_of(np.array([0, 2, 4]), np.array([1, 9, 7, 9])))
    >>> sequences_by_query([some], np.array([7, 8, 9]), 0, 6).to_dict()
    {7: array([6]), 9: array([4, 6])}
    """
    highest = max((_checked_highest(part) for part in rows), default=-1)
    if highest >= _DENSE and len(queries) and queries[-1] >= _DENSE:
        return _decoded_by_query(rows, queries, after, upto)
    dense = queries[: np.searchsorted(queries, _DENSE)]
    # Pages of the tables without a query are never touched, so they use no memory.
    wanted = np.zeros(int(dense[-1]) + 1 if len(dense) else 0, dtype=np.bool_)
    wanted[dense] = True
    places = np.zeros(len(wanted), dtype=np.int32)
    places[dense] = np.arange(len(dense))
    counts = np.zeros(len(queries), dtype=np.int64)
    for part in rows:
        _count(*_arrays(part), after, upto, wanted, places, counts)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    result = QuerySequences(queries, offsets, np.empty(offsets[-1], dtype=np.int64))
    ends = offsets[:-1].copy()
    for part in rows:
        _fill(*_arrays(part), after, upto, wanted, places, ends, result.sequences)
    return result if _ascend(result.offsets, result.sequences) else _in_order(result)


def _decoded_by_query(rows: Sequence[SteppedRows], queries: Ids, after: int, upto: int) -> QuerySequences:
    """Return what `sequences_by_query` does for ids that are too high for a table: decode and sort all matches."""
    pairs = [MatchRows(part.sequences, part.steps.offsets, part.steps.ids()).of_queries(queries) for part in rows]
    sequences, of = (np.concatenate(several) for several in zip(*pairs, strict=True))
    inside = (after < sequences) & (sequences <= upto)
    sequences, of = sequences[inside], of[inside]
    order = np.argsort(of, kind="stable")
    offsets = np.append(np.searchsorted(of[order], queries), len(order))
    return _in_order(QuerySequences(queries, offsets, sequences[order]))


def _in_order(result: QuerySequences) -> QuerySequences:
    """Sort the sequences of each query and remove duplicates. Files may have unordered rows or repeat a match."""
    owners = np.repeat(np.arange(len(result.queries)), np.diff(result.offsets))
    order = np.lexsort((result.sequences, owners))
    sequences = result.sequences[order]
    is_first = np.ones(len(sequences), dtype=bool)
    is_first[1:] = (sequences[1:] != sequences[:-1]) | (owners[1:] != owners[:-1])
    counts = np.bincount(owners[is_first], minlength=len(result.queries))
    return QuerySequences(result.queries, np.concatenate([[0], np.cumsum(counts)]), sequences[is_first])


def _arrays(rows: SteppedRows) -> tuple[Any, Any, Any, Any, Any]:
    steps = rows.steps
    return rows.sequences, steps.offsets, steps.steps, steps.leap_offsets, steps.leaps


def _checked_highest(rows: SteppedRows) -> int:
    """Return the highest id in rows, or -1. Compiled loops do not check bounds, so rows are checked here."""
    steps = rows.steps
    fits = (
        len(steps.offsets) == len(steps.leap_offsets) == len(rows.sequences) + 1
        and _are_offsets(steps.offsets, len(steps.steps))
        and _are_offsets(steps.leap_offsets, len(steps.leaps))
    )
    highest = int(_highest(*_arrays(rows)[1:])) if fits else _DAMAGED
    if highest == _DAMAGED:
        raise CorruptDataError("a file of matches is damaged: its sequences are not consistent")
    return highest


def _are_offsets(offsets: Ids, length: int) -> bool:
    return bool(offsets[0] == 0 and offsets[-1] == length and np.all(offsets[1:] >= offsets[:-1]))


@kernel
def _highest(offsets: Any, steps: Any, leap_offsets: Any, leaps: Any) -> Number:
    """Return the highest id, -1 if there is none, or _DAMAGED if leaps are missing or too long."""
    highest: Number = -1
    for row in range(len(offsets) - 1):
        number: Number = 0
        leap = leap_offsets[row]
        for index in range(offsets[row], offsets[row + 1]):
            step: Number = np.int64(steps[index])
            if step == LEAP:
                if leap >= leap_offsets[row + 1] or not LEAP <= leaps[leap] <= _HIGHEST:
                    return _DAMAGED
                step = leaps[leap]
                leap += 1
            number += step
            if number > _HIGHEST:
                return _DAMAGED
        if offsets[row] < offsets[row + 1]:
            highest = max(highest, number)
    return highest


@kernel
def _mark(
    sequences: Any, offsets: Any, steps: Any, leap_offsets: Any, leaps: Any, after: int, upto: int, marks: Any
) -> None:
    for row in range(len(sequences)):
        if after < sequences[row] <= upto:
            number: Number = 0
            leap = leap_offsets[row]
            for index in range(offsets[row], offsets[row + 1]):
                step: Number = np.int64(steps[index])
                if step == LEAP:
                    step = leaps[leap]
                    leap += 1
                number += step
                if number < len(marks):
                    marks[number] = True


@kernel
def _count(
    sequences: Any,
    offsets: Any,
    steps: Any,
    leap_offsets: Any,
    leaps: Any,
    after: int,
    upto: int,
    wanted: Any,
    places: Any,
    counts: Any,
) -> None:
    for row in range(len(sequences)):
        if after < sequences[row] <= upto:
            number: Number = 0
            leap = leap_offsets[row]
            for index in range(offsets[row], offsets[row + 1]):
                step: Number = np.int64(steps[index])
                if step == LEAP:
                    step = leaps[leap]
                    leap += 1
                number += step
                if number < len(wanted) and wanted[number]:
                    counts[places[number]] += 1


@kernel
def _fill(
    sequences: Any,
    offsets: Any,
    steps: Any,
    leap_offsets: Any,
    leaps: Any,
    after: int,
    upto: int,
    wanted: Any,
    places: Any,
    ends: Any,
    filled: Any,
) -> None:
    for row in range(len(sequences)):
        if after < sequences[row] <= upto:
            number: Number = 0
            leap = leap_offsets[row]
            for index in range(offsets[row], offsets[row + 1]):
                step: Number = np.int64(steps[index])
                if step == LEAP:
                    step = leaps[leap]
                    leap += 1
                number += step
                if number < len(wanted) and wanted[number]:
                    place = places[number]
                    filled[ends[place]] = sequences[row]
                    ends[place] += 1


@kernel
def _ascend(offsets: Any, sequences: Any) -> bool:
    for row in range(len(offsets) - 1):
        for index in range(offsets[row] + 1, offsets[row + 1]):
            if sequences[index] <= sequences[index - 1]:
                return False
    return True
