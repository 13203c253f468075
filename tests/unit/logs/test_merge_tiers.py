"""Which files are merged: few are left, each is written seldom, and none is left out."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.logs.merge_tiers import DAY, FILE_BYTES, FILE_ITEMS, HOUR, Level, due_runs


@dataclass(frozen=True)
class _File:
    level: int
    first_sequence: int
    last_sequence: int
    bytes: int
    began: int
    written: int = 0


def _tidied(files: list[_File], now: int, at_least: int) -> list[_File]:
    results = {file.first_sequence: file for file in files}
    for run in due_runs(files, open_from=now, at_least=at_least):
        first, *rest = run.files
        for element in rest:
            del results[element.first_sequence]
        is_alone = not rest and first.level > 0
        written = max(file.written for file in run.files) + (0 if is_alone else 1)
        results[first.first_sequence] = _File(
            run.level, *run.sequences, sum(file.bytes for file in run.files), first.began, written
        )
    return sorted(results.values(), key=lambda segment: segment.first_sequence)


def test_month_of_segments_becomes_daily_files_with_three_rewrites() -> None:
    files: list[_File] = []
    most = 0
    for minute in range(30 * 24 * 60):
        now = minute * 60_000_000
        files.append(_File(0, minute + 1, minute + 1, 1000, now))
        if minute % 10 == 0:
            files = _tidied(files, now, at_least=8)
        most = max(most, len(files))
    files = _tidied(files, 30 * DAY, at_least=8)
    assert [file.level for file in files] == [Level.DAY] * 30
    assert max(file.written for file in files) <= 3, "minutes, hours, days"
    assert most <= 30 + 24 + 60
    assert (files[0].first_sequence, files[-1].last_sequence) == (1, 30 * 24 * 60)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 3 * HOUR), st.integers(1, 90_000), st.integers(0, FILE_BYTES)), max_size=30),
    st.lists(st.integers(0, 10 * HOUR), max_size=5),
    st.integers(1, 6),
)
def test_merging_keeps_all_files_in_order_and_within_the_size_limit(
    steps: list[tuple[int, int, int]], waits: list[int], at_least: int
) -> None:
    files: list[_File] = []
    now = last = 0
    for pause, items, size in steps:
        now += pause
        files.append(_File(0, last + 1, last + items, size, now))
        last += items
    for wait in (0, *waits):
        now += wait
        before = files
        files = _tidied(files, now, at_least)
        assert sum(file.bytes for file in files) == sum(entry.bytes for entry in before)
        reached = 0
        for file in files:
            assert file.first_sequence == reached + 1
            reached = file.last_sequence
            if file not in before and file.level > 0:
                assert file.bytes <= FILE_BYTES
                assert file.last_sequence - file.first_sequence < FILE_ITEMS
        assert reached == last
        assert len(files) <= len(before)


def test_current_hour_is_not_merged_into_an_hour() -> None:
    files = [_File(0, number + 1, number + 1, 1, number * 600_000_000) for number in range(9)]
    runs = list(due_runs(files, open_from=int(1.4 * HOUR), at_least=4))
    assert [(run.level, run.sequences) for run in runs] == [(Level.HOUR, (1, 6))]
    runs = list(due_runs(files, open_from=int(1.4 * HOUR), at_least=3))
    assert [(run.level, run.sequences) for run in runs] == [(Level.HOUR, (1, 6)), (Level.MINUTES, (7, 9))]
