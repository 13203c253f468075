"""Layers of the match log: however matches are dealt into files and runs of rows, readers see what one file says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log_upkeep import compact_matches

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.errors import CorruptDataError, LineageConflictError
from runnel.logs import merge_tiers
from runnel.logs.matches import compaction, match_files, match_log
from runnel.logs.matches.added_matches import add_matches
from runnel.logs.matches.match_files import (
    MatchRows,
    joined,
    match_records,
    read_part,
    repeats_items,
    united,
    write_part,
)
from runnel.logs.matches.match_log import MatchLog
from runnel.logs.merge_tiers import FILE_BYTES, HOUR, Level, due_runs
from runnel.model.bindings import Binding, Bindings, bounded
from runnel.model.match import Matches
from runnel.model.segment import MatchPart
from runnel.storage.file_storage import FileStorage
from runnel.testing import FakeClock

QUERIES = (1, 2, 3, 70_000, 1 << 40)
Pair = tuple[int, int]
Bound = dict[Pair, list[Binding]]
CASES = settings(max_examples=20, deadline=None, derandomize=True)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that live for a moment need not survive a power cut."""
    monkeypatch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)


@dataclass(frozen=True)
class World:
    """The matches of some items and their bindings, the last sequences of stretches, and where each pair goes.

    `dealt` has, for each pair, the file of its stretch and the run of rows in that file.
    """

    items: int
    bound: Bound
    ends: tuple[int, ...]
    dealt: dict[Pair, Pair]
    files: int

    @property
    def stretches(self) -> list[Pair]:
        return [(low + 1, high) for low, high in pairwise((0, *self.ends))]


_ROWS: st.SearchStrategy[list[Binding]] = st.lists(
    st.builds(dict, x=st.sampled_from([1.0, True, "1", "],[", "東"])), min_size=1, max_size=2
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    items, files = draw(st.integers(1, 10)), draw(st.integers(1, 3))
    pairs = sorted(draw(st.sets(st.tuples(st.integers(1, items), st.sampled_from(QUERIES)), max_size=30)))
    bound = {pair: draw(_ROWS) for pair in pairs if draw(st.integers(0, 2)) == 0}
    ends = sorted({*draw(st.sets(st.integers(1, items), max_size=4)), items})
    dealt = {pair: (draw(st.integers(0, files - 1)), draw(st.integers(0, 1))) for pair in pairs}
    return World(items, bound, tuple(ends), dealt, files)


def records_of(pairs: Sequence[Pair], bound: Bound) -> Any:
    """Rows of the items that some pairs are of."""
    sequences = sorted({sequence for sequence, _ in pairs})
    matches = Matches.of([[query for value, query in pairs if value == sequence] for sequence in sequences])
    by_item: dict[int, dict[int, list[Binding]]] = {}
    for sequence, query in pairs:
        if (sequence, query) in bound:
            by_item.setdefault(sequence, {})[query] = bound[sequence, query]
    return match_records(np.array(sequences, dtype=np.int64), matches, by_item)


@dataclass
class Log:
    """A match log that is written by hand."""

    folder: Path
    new: Path | None = None
    clock: FakeClock = field(default_factory=FakeClock)
    batch: int = 0

    def __post_init__(self) -> None:
        if self.new is not None:
            shutil.copy(self.new, self.folder / "catalog.sqlite")
        self.catalog = Catalog(f"sqlite:///{self.folder / 'catalog.sqlite'}", clock=self.clock)
        if self.new is None:
            self.catalog.migrate()
        self.storage = FileStorage(self.folder.as_uri())
        with self.catalog.write() as connection:
            self.epoch = leases.acquire(connection, 1e9).epoch
        self.log = MatchLog(self.catalog, self.storage)

    def commit(self, parts: Sequence[MatchPart]) -> None:
        first, last = min(part.first_sequence for part in parts), max(part.last_sequence for part in parts)
        segment = MatchSegment(1, self.batch, first, last, 1, last - first + 1, 0)
        with self.catalog.write() as connection:
            assert match_segments.commit_segment(connection, segment, parts, epoch=self.epoch)
        self.batch += 1

    def write(self, world: World, *, layers: bool) -> None:
        """Commit a world, a batch for every second stretch."""
        waiting: list[MatchPart] = []
        for number, (first, last) in enumerate(world.stretches):
            pairs = [pair for pair in world.dealt if first <= pair[0] <= last]
            if layers:
                waiting += self.layered(world, pairs, (first, last))
            else:
                waiting.append(write_part(self.storage, 1, [records_of(pairs, world.bound)], (first, last)))
            if number % 2 or last == world.items:
                self.commit(waiting)
                waiting = []

    def layered(self, world: World, pairs: Sequence[Pair], sequences: Pair) -> Iterator[MatchPart]:
        """The files of a stretch: the first is always there, with nothing in it or not."""
        for file in range(world.files):
            runs = [[pair for pair in pairs if world.dealt[pair] == (file, run)] for run in (1, 0)]
            if file == 0 or any(runs):
                records = [records_of(run, world.bound) for run in runs if run]
                yield write_part(self.storage, 1, records, sequences)

    def parts(self) -> list[str]:
        with self.catalog.read() as connection:
            return [match_part.path for match_part in match_segments.match_parts(connection, 0, 1 << 40)]


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog to copy: making one takes longer than most cases."""
    path = tmp_path_factory.mktemp("new") / "catalog.sqlite"
    catalog = Catalog(f"sqlite:///{path}")
    catalog.migrate()
    catalog.close()
    return path


def all_of(log: MatchLog, after: int, upto: int) -> dict[int, list[int]]:
    """The queries of each item, as they are read: every item once, in order."""
    results: dict[int, list[int]] = {}
    last = after
    for rows in log.read(after, upto):
        for row, sequence in enumerate(rows.sequences.tolist()):
            assert last < sequence <= upto
            results[sequence] = rows.queries[rows.offsets[row] : rows.offsets[row + 1]].tolist()
            assert results[sequence]
            last = sequence
    return results


def told(log: MatchLog, after: int, upto: int, asked: Sequence[int]) -> tuple[object, ...]:
    """Everything that a log says of a range."""
    by_query = log.of_queries(asked, after, upto)
    items = range(after + 1, upto + 1)
    return (
        all_of(log, after, upto),
        {query: values.tolist() for query, values in by_query.items()},
        log.bindings_of(dict.fromkeys(asked, items)) if len(items) else {},
    )


def wanted(world: World, after: int, upto: int, asked: Sequence[int]) -> tuple[object, ...]:
    inside = sorted(pair for pair in world.dealt if after < pair[0] <= upto)
    items: dict[int, list[int]] = {}
    by_query: dict[int, list[int]] = {}
    for sequence, query in inside:
        items.setdefault(sequence, []).append(query)
        if query in asked:
            by_query.setdefault(query, []).append(sequence)
    bound = {
        (query, sequence): bounded(world.bound[sequence, query])
        for sequence, query in inside
        if query in asked and (sequence, query) in world.bound
    }
    return items, by_query, bound


@CASES
@given(world=worlds(), data=st.data(), few=st.integers(1, 3), layers=st.sampled_from([True, True, True, False]))
def test_layers_are_read_like_one_file(
    tmp_path_factory: pytest.TempPathFactory, new: Path, world: World, data: st.DataObject, few: int, layers: bool
) -> None:
    made = Log(tmp_path_factory.mktemp("layers"), new)
    made.write(world, layers=layers)
    after = data.draw(st.integers(0, world.items))
    upto = data.draw(st.integers(after, world.items))
    asked = data.draw(st.lists(st.sampled_from(QUERIES), unique=True))
    ranges = [(0, world.items, list(QUERIES)), (after, upto, asked)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_log, "_PARTS", few)  # so that a look at the manifest ends between layers
        patch.setattr(compaction, "_PARTS", few)
        patch.setattr(match_files, "_BLOCK", few)
        for days in (None, 0, 2):  # as it was written, merged in an hour that goes on, and when the day is over
            if days is not None:
                made.clock.advance(timedelta(days=days))
                compact_matches(made.catalog, made.storage, epoch=made.epoch, asked=QUERIES[:3])
            for value in ranges:
                assert told(made.log, *value) == wanted(world, *value)
    compact_matches(made.catalog, made.storage, epoch=made.epoch)
    assert len(made.parts()) == 1
    assert not repeats_items(made.storage, made.parts()[0])
    made.catalog.close()


@CASES
@given(world=worlds(), data=st.data())
def test_matches_that_pass_a_gate_are_added_to_a_file_with_repeated_items(
    tmp_path_factory: pytest.TempPathFactory, world: World, data: st.DataObject
) -> None:
    storage = FileStorage(tmp_path_factory.mktemp("gates").as_uri())
    passed = sorted(data.draw(st.sets(st.sampled_from(sorted(world.dealt))))) if world.dealt else []
    known = [pair for pair in world.dealt if pair not in passed]
    runs = [[pair for pair in known if world.dealt[pair][1] == run] for run in (1, 0)]
    # Items have the bindings of what may pass a gate before they have the match.
    early: dict[int, dict[int, list[Binding]]] = {}
    for pair in passed:
        if pair in world.bound:
            early.setdefault(pair[0], {})[pair[1]] = world.bound[pair]
    nothing = Matches.of([[] for _ in early])
    records = [records_of(run, world.bound) for run in runs if run]
    records.append(match_records(np.array(sorted(early), dtype=np.int64), nothing, early))
    part = write_part(storage, 1, records, (1, world.items))
    columns = np.array(passed, dtype=np.int64).reshape(-1, 2)
    settled, added = add_matches(storage, 1, part, columns[:, 0], columns[:, 1])
    assert added == len(passed)
    rows = read_part(storage, settled.path)
    pairs = [(int(value), int(query)) for value, query in zip(*rows.of_queries(QUERIES), strict=True)]
    assert pairs == sorted(world.dealt)
    bindings = rows.bindings_of({sequence: set(QUERIES) for sequence in range(1, world.items + 1)})
    assert bindings.keys() == {(query, sequence) for sequence, query in world.bound}
    assert not passed or not repeats_items(storage, settled.path)


@pytest.mark.parametrize("largest", [7, 1 << 61, -1])
@pytest.mark.parametrize("block", [1, 3, 500_000])
def test_united_rows_have_each_query_once_in_order(largest: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_files, "_BLOCK", block)
    rows = MatchRows(np.array([5, 3, 5, 4, 5]), np.array([0, 1, 3, 3, 4, 5]), np.array([largest, 1, 2, 6, 2]))
    value = united(rows)
    assert value.sequences.tolist() == [3, 4, 5]
    of = [value.queries[low:high].tolist() for low, high in pairwise(value.offsets.tolist())]
    assert of == [[1, 2], [6], sorted([2, largest])]
    twice = joined([rows, rows])
    assert (twice.sequences.tolist(), twice.queries.tolist()) == (value.sequences.tolist(), value.queries.tolist())
    assert united(value) is value


def test_items_without_matches_have_no_rows(tmp_path: Path) -> None:
    made = Log(tmp_path)
    empty = write_part(made.storage, 1, [], (1, 9))
    assert not repeats_items(made.storage, empty.path)
    made.commit([empty, write_part(made.storage, 1, [records_of([(4, 7)], {})], (1, 9))])
    assert all_of(made.log, 0, 9) == {4: [7]}
    compact_matches(made.catalog, made.storage, epoch=made.epoch)
    assert all_of(made.log, 0, 9) == {4: [7]}
    assert len(made.parts()) == 1


def test_single_file_with_repeated_items_is_rewritten_once(tmp_path: Path) -> None:
    made = Log(tmp_path)
    made.commit([write_part(made.storage, 1, [records_of([(2, 7)], {}), records_of([(1, 8), (2, 8)], {})], (1, 2))])
    [before] = made.parts()
    assert repeats_items(made.storage, before)
    assert compact_matches(made.catalog, made.storage, epoch=made.epoch) == 1
    [after] = made.parts()
    assert after != before
    made.clock.advance(timedelta(days=2))
    compact_matches(made.catalog, made.storage, epoch=made.epoch)
    assert made.parts() == [after]
    assert all_of(made.log, 0, 2) == {1: [8], 2: [7, 8]}


def test_layers_merged_during_a_read_are_read_once(tmp_path: Path) -> None:
    made = Log(tmp_path)
    for first in (1, 3, 5):
        pairs = [(first, 7), (first + 1, 7)], [(first, 8), (first + 1, 9)]
        made.commit([write_part(made.storage, 1, [records_of(pair, {})], (first, first + 1)) for pair in pairs])
    reading = made.log.read(0, 6)
    assert next(reading).sequences.tolist() == [1, 2]
    old = made.parts()
    compact_matches(made.catalog, made.storage, epoch=made.epoch)
    made.storage.local(old[3]).unlink()  # one layer of two: the other alone must not be taken for all there is
    rest = list(reading)
    assert [rows.sequences.tolist() for rows in rest] == [[3, 4, 5, 6]]
    assert rest[0].queries.tolist() == [7, 8, 7, 9, 7, 8, 7, 9]
    made.storage.local(made.parts()[0]).unlink()
    with pytest.raises(CorruptDataError, match="is damaged"):
        list(made.log.read(0, 6))


def test_expired_layers_are_removed_together(tmp_path: Path) -> None:
    made = Log(tmp_path)
    for first in (1, 3):
        made.commit(
            [write_part(made.storage, 1, [records_of([(first, query)], {})], (first, first + 1)) for query in QUERIES]
        )
    with made.catalog.write() as connection:
        assert match_segments.retain_matches(connection, 1) == 0
        assert match_segments.retain_matches(connection, 2) == len(QUERIES)
    assert len(made.parts()) == len(QUERIES)
    assert all_of(made.log, 0, 4) == {3: list(QUERIES)}


def test_overlapping_parts_that_are_not_layers_are_refused(tmp_path: Path) -> None:
    made = Log(tmp_path)
    part: Callable[..., MatchPart] = lambda *sequences: write_part(made.storage, 1, [], sequences)  # noqa: E731
    with pytest.raises(LineageConflictError, match="parts 1-4 and 3-6"):
        made.commit([part(1, 4), part(3, 6)])
    with pytest.raises(LineageConflictError, match="parts 1-2 and 1-4"):
        made.commit([part(1, 4), part(1, 2), part(3, 4)])
    made.commit([part(1, 4), part(5, 6), part(1, 4)])
    assert len(made.parts()) == 3


def test_parts_with_gaps_are_refused(tmp_path: Path) -> None:
    """Of two attempts at routing, with stretches of their own, neither may be there in part."""
    made = Log(tmp_path)
    part: Callable[..., MatchPart] = lambda *sequences: write_part(made.storage, 1, [], sequences)  # noqa: E731
    with pytest.raises(LineageConflictError, match="parts 1-4 and 7-8"):
        made.commit([part(1, 4), part(7, 8), part(1, 4)])
    segment = MatchSegment(1, 0, 1, 9, 1, 9, 0)
    with (
        made.catalog.write() as connection,
        pytest.raises(LineageConflictError, match="sequences 1-9, but its parts have 1-8"),
    ):
        match_segments.commit_segment(connection, segment, [part(1, 4), part(5, 8)], epoch=made.epoch)
    assert made.parts() == []


@dataclass(frozen=True)
class _File:
    level: int
    first_sequence: int
    last_sequence: int
    bytes: int
    began: int


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, HOUR), st.sampled_from([0, 10, FILE_BYTES // 3])), max_size=20
    ),
    st.integers(1, 4),
    st.booleans(),
)
def test_merged_runs_never_separate_layers(stretches: list[tuple[int, int, int]], at_least: int, over: bool) -> None:
    files: list[_File] = []
    now = 0
    for number, (layers, pause, size) in enumerate(stretches, 1):
        now += pause
        # The commit has one time for all layers; if it had not, they would still go together.
        files += [_File(Level.FRESH, number, number, size, now + layer) for layer in range(layers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_tiers, "_FILES", 7)
        runs = list(due_runs(files, open_from=now + 48 * HOUR if over else now, at_least=at_least))
    placed = {id(file): number for number, run in enumerate(runs) for file in run.files}
    assert len(placed) == sum(len(run.files) for run in runs)
    assert not over or len(placed) == len(files)
    for segment, other in pairwise(files):
        if segment.first_sequence == other.first_sequence:
            assert placed.get(id(segment)) == placed.get(id(other))
    for run in runs:
        assert len(run.files) <= 7
        assert [file.first_sequence for file in run.files] == sorted(file.first_sequence for file in run.files)


def test_bindings_of_all_layers_of_an_item_are_read(tmp_path: Path) -> None:
    made = Log(tmp_path)
    bound: Bound = {(1, 7): [{"x": "],["}], (1, 8): [{"x": 1.0}], (2, 9): [{"y": True}]}
    runs = [[(1, 7), (2, 7)], [(1, 8)], [(2, 9)]]
    made.commit([write_part(made.storage, 1, [records_of(run, bound)], (1, 2)) for run in runs])
    expected = {
        (7, 1): Bindings(({"x": "],["},), 1),
        (8, 1): Bindings(({"x": 1.0},), 1),
        (9, 2): Bindings(({"y": True},), 1),
    }
    asked = {7: [1, 2], 8: [1, 2], 9: [1, 2]}
    assert made.log.bindings_of(asked) == expected
    [rows] = made.log.read(0, 2)
    assert rows.bindings_of({1: {7, 8, 9}, 2: {7, 8, 9}}) == expected
    compact_matches(made.catalog, made.storage, epoch=made.epoch)
    assert made.log.bindings_of(asked) == expected
