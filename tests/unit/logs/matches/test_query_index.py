"""The index by query says what scanning says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import CorruptDataError
from runnel.logs.matches.match_files import joined, match_records, read_part, write_part, write_rows
from runnel.logs.matches.query_index import QueryIndex, write_index
from runnel.model.match import Matches
from runnel.storage.file_storage import FileStorage

_ROWS = st.lists(st.lists(st.integers(1, 12), max_size=6), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(_ROWS, st.sets(st.integers(1, 15)), st.sets(st.integers(1, 15)), st.integers(0, 20), st.integers(0, 20))
def test_index_and_scan_return_the_same_matches(
    tmp_path_factory: pytest.TempPathFactory,
    found: list[list[int]],
    indexed: set[int],
    wanted: set[int],
    after: int,
    upto: int,
) -> None:
    storage = FileStorage(tmp_path_factory.mktemp("index").as_uri())
    sequences = np.arange(1, len(found) + 1)
    half = len(found) // 2
    halves = [
        write_part(storage, 1, [match_records(sequences[cut], Matches.of(found[cut]))], (1, len(found)))
        for cut in (slice(0, half), slice(half, None))
    ]
    rows = joined([read_part(storage, part.path) for part in halves])
    rows = read_part(storage, write_rows(storage, "whole.arrow", rows, (1, len(found))).path)
    index = QueryIndex(storage, write_index(storage, "index.arrow", rows, indexed))
    ids = np.array(sorted(wanted), dtype=np.int64)
    covered = index.covers(ids)
    assert ids[covered].tolist() == sorted(wanted & indexed)
    expected = {
        query: [n for n, row in enumerate(found, 1) if query in row and after < n <= upto]
        for query in wanted & indexed
    }
    answer = index.of_queries(ids[covered], after, upto)
    assert {query: values.tolist() for query, values in answer.items()} == {
        query: values for query, values in expected.items() if values
    }


def test_damaged_index_is_reported(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    storage.write("index.arrow", b"not arrow")
    with pytest.raises(CorruptDataError, match="is damaged"):
        QueryIndex(storage, "index.arrow")
