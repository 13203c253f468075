"""Bindings in the match log: they stay with their matches, wherever those go, and are nobody else's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.log_upkeep import compact_matches

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.errors import CorruptDataError
from runnel.logs.matches import match_log
from runnel.logs.matches.added_matches import add_matches
from runnel.logs.matches.match_files import (
    DETAILED_SCHEMA,
    MATCH_SCHEMA,
    MatchRows,
    joined,
    match_records,
    read_part,
    write_part,
    write_rows,
)
from runnel.logs.matches.match_log import MatchLog
from runnel.logs.matches.query_index import QueryIndex, write_index
from runnel.model.bindings import Binding, Bindings, bounded
from runnel.model.match import Matches
from runnel.model.segment import MatchPart
from runnel.storage.arrow_files import read_arrow, write_arrow
from runnel.storage.file_storage import FileStorage
from runnel.testing import FakeClock

Given = dict[int, dict[int, list[Binding]]]
QUERIES = range(1, 5)
_ROWS: st.SearchStrategy[list[Binding]] = st.lists(
    st.builds(dict, x=st.sampled_from([1.0, 2.5, True, "1", "<&\n"])), min_size=1, max_size=3
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[list[int]], Given, Given]:
    """The matches of some items, what others pass a gate later, and bindings of any of them."""
    count = draw(st.integers(1, 9))
    known: list[list[int]] = []
    later: dict[int, list[int]] = {}
    bound: Given = {}
    for sequence in range(1, count + 1):
        passing = draw(st.sets(st.sampled_from(QUERIES)))
        gated = draw(st.sets(st.sampled_from(QUERIES)))
        known.append(sorted(passing))
        later[sequence] = sorted(gated - passing)
        bound[sequence] = {query: draw(_ROWS) for query in QUERIES if draw(st.booleans())}
    return known, {key: {query: [] for query in values} for key, values in later.items()}, bound


def bindings_in(rows: MatchRows, count: int) -> dict[tuple[int, int], Bindings]:
    return rows.bindings_of({sequence: set(QUERIES) for sequence in range(1, count + 1)})


def pairs_in(rows: MatchRows) -> list[tuple[int, int]]:
    return [(int(sequence), int(query)) for sequence, query in zip(*rows.of_queries(list(QUERIES)), strict=True)]


def expected_of(pairs: list[tuple[int, int]], bound: Given) -> dict[tuple[int, int], Bindings]:
    return {
        (query, sequence): bounded(bound[sequence][query]) for sequence, query in pairs if query in bound[sequence]
    }


@settings(max_examples=50, deadline=None)
@given(world=worlds(), cut=st.integers(0, 9))
def test_bindings_are_written_and_read_with_their_matches(
    tmp_path_factory: pytest.TempPathFactory, world: tuple[list[list[int]], Given, Given], cut: int
) -> None:
    storage = FileStorage(tmp_path_factory.mktemp("bound").as_uri())
    known, later, bound = world
    count = len(known)
    sequences = np.arange(1, count + 1)
    records = [
        match_records(sequences[piece], Matches.of(known[piece]), bound)
        for piece in (slice(0, cut), slice(cut, None))
    ]
    part = write_part(storage, 1, records, (1, count))
    rows = read_part(storage, part.path)
    pairs = [(n, query) for n, values in enumerate(known, 1) for query in values]
    assert (pairs_in(rows), bindings_in(rows, count)) == (pairs, expected_of(pairs, bound))
    here = rows.between(cut, count)
    after = [pair for pair in pairs if pair[0] > cut]
    assert (pairs_in(here), bindings_in(here, count)) == (after, expected_of(after, bound))
    assert rows.matched().sequences.tolist() == sorted({n for n, _ in pairs})
    assert (pairs_in(rows.matched()), bindings_in(rows.matched(), count)) == (pairs, expected_of(pairs, bound))
    # What passed a gate is added where the batch is committed; its bindings were there before.
    passed = np.array([[n, query] for n in sorted(later) for query in later[n]], dtype=np.int64).reshape(-1, 2)
    settled, added = add_matches(storage, 1, part, passed[:, 0], passed[:, 1])
    assert added == len(passed)
    pairs = sorted([*pairs, *((n, query) for n, query in passed.tolist())])
    rows = read_part(storage, settled.path)
    assert (pairs_in(rows), bindings_in(rows, count)) == (pairs, expected_of(pairs, bound))
    # Compaction joins the parts and rewrites them.
    halves = [rows.between(0, cut), rows.between(cut, count)]
    whole = write_rows(storage, "merged.arrow", joined([entry.matched() for entry in halves]), (1, count))
    merged = read_part(storage, whole.path)
    assert (pairs_in(merged), bindings_in(merged, count)) == (pairs, expected_of(pairs, bound))
    assert 0 not in np.diff(merged.offsets)


def test_parts_without_bindings_keep_their_schema(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    matches = Matches.of([[7, 8], [], [70_000]])
    plain = [match_records(np.arange(1, 4), matches)]
    without: list[Given] = [{}, {1: {}}, {2: {7: []}, 1: {7: [{}]}}, {99: {7: [{"x": 1.0}]}}]
    for none in without:
        part = write_part(storage, 1, [match_records(np.arange(1, 4), matches, none)], (1, 3))
        before = write_arrow(storage, f"before-{len(none)}.arrow", plain, MATCH_SCHEMA)
        assert storage.read(part.path) == storage.read(before.path)
        storage.delete(before.path)
    rows = read_part(storage, part.path)
    assert rows.details is None
    again = write_rows(storage, "again.arrow", joined([rows, rows]), (1, 3))
    assert read_arrow(storage, again.path).schema.metadata == {b"runnel.format": b"matches/1"}
    bound = write_part(storage, 1, [match_records(np.arange(1, 4), matches, {2: {7: [{"x": 1.0}]}})], (1, 3))
    assert read_arrow(storage, bound.path).schema.metadata == {b"runnel.format": b"detailed matches/1"}
    # The only bindings are of an item that came to no match: what is merged has none.
    merged = write_rows(storage, "merged.arrow", read_part(storage, bound.path).matched(), (1, 3))
    unbound = write_rows(storage, "plain.arrow", rows, (1, 3))
    assert storage.read(merged.path) == storage.read(unbound.path)


class Log:
    """A match log that is written by hand."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.catalog = Catalog(f"sqlite:///{folder / 'catalog.sqlite'}", clock=self.clock)
        self.catalog.migrate()
        self.storage = FileStorage(folder.as_uri())
        with self.catalog.write() as connection:
            self.epoch = leases.acquire(connection, 1e9).epoch
        self.log = MatchLog(self.catalog, self.storage)
        self.batches = 0

    def commit(self, first: int, results: list[list[int]], bound: Given | None = None) -> MatchPart:
        sequences = np.arange(first, first + len(results))
        last = int(sequences[-1])
        part = write_part(self.storage, 1, [match_records(sequences, Matches.of(results), bound)], (first, last))
        segment = MatchSegment(1, self.batches, first, last, 1, len(results), sum(map(len, results)))
        with self.catalog.write() as connection:
            assert match_segments.commit_segment(connection, segment, [part], epoch=self.epoch)
        self.batches += 1
        return part


@pytest.fixture
def written(tmp_path: Path) -> Log:
    made = Log(tmp_path)
    made.commit(1, [[7], [8], []], {1: {7: [{"people": 60.0}]}, 3: {7: [{"people": 1.0}]}})
    made.commit(4, [[7], [7, 8]])
    made.commit(6, [[7, 8]], {6: {7: [{"people": 70.0}, {"people": 61.0}], 8: [{"other": "x"}]}})
    return made


def test_bindings_are_returned_only_for_the_query_and_its_matches(written: Log) -> None:
    assert written.log.bindings(7, range(1, 7)) == {
        1: Bindings(({"people": 60.0},), 1),
        6: Bindings(({"people": 61.0}, {"people": 70.0}), 2),
    }
    assert written.log.bindings(8, [6]) == {6: Bindings(({"other": "x"},), 1)}
    assert written.log.bindings(7, []) == {}
    assert written.log.bindings(7, [4, 5, 6000]) == {}
    assert written.log.bindings_of({7: [6], 8: {6, 1}}).keys() == {(7, 6), (8, 6)}


def test_row_with_bindings_but_no_queries_is_not_a_match(written: Log) -> None:
    assert [batch.sequences.tolist() for batch in written.log.read(0, 6)] == [[1, 2], [4, 5], [6]]
    assert list(written.log.read(2, 3)) == []
    assert {key: sequence.tolist() for key, sequence in written.log.of_queries([7, 8], 0, 6).items()} == {
        7: [1, 4, 5, 6],
        8: [2, 5, 6],
    }
    with written.catalog.read() as connection:
        first = match_segments.match_parts(connection, 0, 3)[0]
    index = write_index(written.storage, "index.arrow", read_part(written.storage, first.path), [7, 8])
    sequences = QueryIndex(written.storage, index).of_queries(np.array([7, 8]), 0, 3)
    assert {key: values.tolist() for key, values in sequences.items()} == {7: [1], 8: [2]}


def test_merging_keeps_bindings(written: Log) -> None:
    before = written.log.bindings(7, range(1, 7))
    written.clock.advance(timedelta(days=3))
    assert compact_matches(written.catalog, written.storage, epoch=written.epoch, asked=[7]) == 3
    with written.catalog.read() as connection:
        [part] = match_segments.match_parts(connection, 0, 6)
    assert read_part(written.storage, part.path).sequences.tolist() == [1, 2, 4, 5, 6]
    assert written.log.bindings(7, range(1, 7)) == before
    assert written.log.of_queries([7], 0, 6)[7].tolist() == [1, 4, 5, 6]


def test_part_is_checked_for_bindings_only_once(written: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read: list[str] = []

    def noting(storage: FileStorage, path: str) -> bool:
        asked.append(path)
        return "details" in read_arrow(storage, path).schema.names

    def reading(storage: FileStorage, path: str) -> MatchRows:
        read.append(path)
        return read_part(storage, path)

    monkeypatch.setattr(match_log, "has_details", noting)
    monkeypatch.setattr(match_log, "read_part", reading)
    for _ in range(3):
        assert written.log.bindings(7, [4, 5]) == {}
    assert (len(asked), read) == (1, []), "nothing is read for those who have no bindings"
    fresh = MatchLog(written.catalog, written.storage)
    list(fresh.read(3, 5))
    assert fresh.bindings(7, [4]) == {}
    assert len(asked) == 1, "who has read a part knows"


def test_damaged_bindings_raise_only_when_they_are_read(written: Log) -> None:
    part = written.commit(7, [[7], [7]], {7: {7: [{"x": 1.0}]}, 8: {7: [{"x": 2.0}]}})
    batch = read_arrow(written.storage, part.path).to_batches()[0]
    column = pa.array(['[{"queries":', batch.column("details")[1].as_py()], pa.large_string())
    written.storage.delete(part.path)
    damaged = pa.RecordBatch.from_arrays([*batch.columns[:3], column], schema=DETAILED_SCHEMA)
    path = write_arrow(written.storage, "matches/1/other.arrow", [damaged], DETAILED_SCHEMA).path
    with written.catalog.write() as connection:
        connection.execute(
            text("update match_parts set path = :new where path = :old"), {"new": path, "old": part.path}
        )
    assert written.log.bindings(7, [8]) == {8: Bindings(({"x": 2.0},), 1)}
    with pytest.raises(CorruptDataError, match="the stored bindings of an item are invalid"):
        written.log.bindings(7, [7, 8])
    assert written.log.of_queries([7], 6, 8)[7].tolist() == [7, 8], "matches themselves are not hurt"
