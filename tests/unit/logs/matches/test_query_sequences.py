"""Matches by query, read from steps, are what sets of pairs say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import CorruptDataError
from runnel.logs.matches.match_files import SteppedRows
from runnel.logs.matches.match_steps import steps_of
from runnel.logs.matches.query_sequences import matched_queries, sequences_by_query
from runnel.model.match import Steps

_IDS = st.sampled_from([1, 2, 3, 7, 65_534, 65_535, 65_536, 70_000, 200_000, (1 << 26) - 1, 1 << 26, 1 << 40])
_EMPTY = np.array([], dtype=np.int64)
_ROW = st.tuples(st.integers(1, 12), st.sets(_IDS, max_size=6))
_FILES = st.lists(st.lists(_ROW, max_size=8), max_size=3)
CASES = settings(max_examples=150, deadline=None, derandomize=True)


def _rows(file: list[tuple[int, set[int]]]) -> SteppedRows:
    sequences = np.array([sequence for sequence, _ in file], dtype=np.int64)
    offsets = np.cumsum([0, *(len(queries) for _, queries in file)])
    queries = np.array([query for _, row in file for query in sorted(row)], dtype=np.int64)
    return SteppedRows(sequences, steps_of(offsets, queries))


@CASES
@given(_FILES, st.sets(_IDS), st.integers(0, 13), st.integers(0, 13))
def test_sequences_by_query_do_not_depend_on_row_order(
    files: list[list[tuple[int, set[int]]]], wanted: set[int], after: int, upto: int
) -> None:
    rows = [_rows(file) for file in files]
    pairs = {(query, value) for file in files for value, row in file for query in row if after < value <= upto}
    assert matched_queries(rows, after, upto).tolist() == sorted({query for query, _ in pairs})
    sequences = sequences_by_query(rows, np.array(sorted(wanted), dtype=np.int64), after, upto)
    expected = {query: sorted(value for of, value in pairs if of == query) for query in wanted}
    assert {query: sequences.of(query).tolist() for query in wanted} == expected
    assert {query: values.tolist() for query, values in sequences.to_dict().items()} == {
        query: values for query, values in expected.items() if values
    }
    assert sequences.of(99).tolist() == []


@pytest.mark.parametrize(
    "steps",
    [
        Steps(np.array([0, 2]), np.array([3, 65_535], dtype=np.uint16), np.array([0, 0]), _EMPTY),
        Steps(np.array([0, 1]), np.array([65_535], dtype=np.uint16), np.array([0, 1]), np.array([-70_000])),
        Steps(np.array([0, 2]), np.array([65_535] * 2, dtype=np.uint16), np.array([0, 2]), np.array([2**62] * 2)),
        Steps(np.array([0, 9]), np.array([3], dtype=np.uint16), np.array([0, 0]), _EMPTY),
        Steps(np.array([0, 1]), np.array([3], dtype=np.uint16), np.array([0, 7]), _EMPTY),
        Steps(np.array([0, 1, 1]), np.array([3], dtype=np.uint16), np.array([0, 0]), _EMPTY),
    ],
    ids=["missing leap", "negative leap", "overflow", "too few steps", "too few leaps", "rows"],
)
def test_inconsistent_steps_are_reported(steps: Steps) -> None:
    rows = [SteppedRows(np.array([1]), steps)]
    with pytest.raises(CorruptDataError, match="damaged"):
        matched_queries(rows, 0, 9)
    with pytest.raises(CorruptDataError, match="damaged"):
        sequences_by_query(rows, np.array([3]), 0, 9)
