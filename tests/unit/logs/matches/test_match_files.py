"""Matches as they are stored: what is written is read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runnel.logs.matches.match_files import joined, match_records, read_part, write_part, write_rows
from runnel.model.match import LEAP, Matches
from runnel.storage.file_storage import FileStorage

ROWS = st.lists(
    st.lists(
        st.one_of(st.integers(0, 5), st.integers(LEAP - 2, LEAP + 2), st.integers(0, 2**62)), max_size=8, unique=True
    ),
    max_size=12,
)


def stored(folder: Path, rows: list[list[int]], pieces: int) -> list[tuple[int, list[int]]]:
    """Return the rows that are read after they were written in this number of pieces."""
    storage = FileStorage(folder.as_uri())
    sequences = np.arange(10, 10 + len(rows), dtype=np.int64)
    cuts = [len(rows) * piece // pieces for piece in range(pieces + 1)]
    records = [match_records(sequences[low:high], Matches.of(rows[low:high])) for low, high in pairwise(cuts)]
    part = write_part(storage, 1, records, (10, 10 + len(rows)))
    results = read_part(storage, part.path)
    later = replace(results, sequences=results.sequences + 100)
    again = write_rows(storage, "merged.arrow", joined([results, later]), (10, 110 + len(rows)))
    twice = read_part(storage, again.path)
    assert twice.queries.tolist() == [*results.queries.tolist(), *results.queries.tolist()]
    assert twice.sequences.tolist() == [*results.sequences.tolist(), *later.sequences.tolist()]
    bounds = results.offsets.tolist()
    ids = [results.queries[low:high].tolist() for low, high in pairwise(bounds)]
    return list(zip(results.sequences.tolist(), ids, strict=True))


@settings(max_examples=80, deadline=None)
@given(rows=ROWS, pieces=st.integers(1, 3))
@example(rows=[[LEAP], [LEAP - 1], [0, LEAP, 3 * LEAP], [], [2**62]], pieces=2)
def test_match_file_round_trip(tmp_path_factory: object, rows: list[list[int]], pieces: int) -> None:
    folder = tmp_path_factory.mktemp("matches")  # type: ignore[attr-defined]
    wanted = [(10 + row, sorted(ids)) for row, ids in enumerate(rows) if ids]
    assert stored(folder, rows, pieces) == wanted


def test_a_match_takes_two_bytes(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    rows = [np.arange(5, 1_000_000, 111).tolist() for _ in range(50)]
    records = match_records(np.arange(50, dtype=np.int64), Matches.of(rows))
    part = write_part(storage, 1, [records], (0, 49))
    assert part.bytes < 2.1 * sum(map(len, rows))
