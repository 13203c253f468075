"""The operator cache and the statistics of operators, on every supported database."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update
from tests.log_upkeep import collect_garbage

from runnel.catalog.learned import operator_cache, operator_statistics
from runnel.catalog.store import leases, schema
from runnel.catalog.store.connection import Catalog, now
from runnel.engine.upkeep.merge_operator_cache import cache_steps
from runnel.engine.workspace_identity import claim_new
from runnel.errors import FencedError
from runnel.matching.operators.ask.answer_cache import AnswerCache
from runnel.matching.operators.ask.cache_files import CacheDraft, open_segment, write_segment
from runnel.matching.operators.ask.notebook import key_of_test
from runnel.matching.operators.plugins.encoding import to_bytes
from runnel.model.learned.operator_statistics import HALF_LIFE_DAYS, OperatorStatistics, OperatorUse
from runnel.model.learned.stream_statistics import ObservedShare
from runnel.model.operator_cache import CacheSegment
from runnel.storage.file_storage import Storage, open_storage
from runnel.testing import FakeClock

LARGE = 1 << 30


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """The storage of a workspace."""
    return open_storage(f"file://{tmp_path / 'root'}")


def key(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def segment(storage: Storage, *numbers: int) -> CacheSegment:
    results = write_segment(
        storage, CacheDraft(tuple((key(number), to_bytes(((float(number),),))) for number in numbers))
    )
    assert results is not None
    return results


def epoch(catalog: Catalog) -> int:
    with catalog.write() as connection:
        return leases.acquire(connection, 100).epoch


def add(catalog: Catalog, *segments: CacheSegment) -> None:
    for value in segments:
        with catalog.write() as connection:
            operator_cache.add_segments(connection, [value])


def known(catalog: Catalog, storage: Storage, upto: int) -> set[int]:
    """Return the numbers whose answers are in the cache and correct."""
    cache = AnswerCache()
    with catalog.read() as connection:
        cache.use_segments(storage, [value.path for value in operator_cache.live_segments(connection)])
    results = cache.find([key(number) for number in range(upto)])
    numbers = {number for number in range(upto) if key(number) in results}
    assert all(results[key(number)] == ((float(number),),) for number in numbers)
    return numbers


# --- files of answers --------------------------------------------------------------------------------------------


def test_segment_is_valid_only_with_its_row(catalog: Catalog, storage: Storage) -> None:
    value, other = segment(storage, 1, 2), segment(storage, 3)
    assert known(catalog, storage, 5) == set()
    add(catalog, value)
    assert known(catalog, storage, 5) == {1, 2}
    add(catalog, other)
    with catalog.read() as connection:
        assert [live.path for live in operator_cache.live_segments(connection)] == [value.path, other.path]
        totals = operator_cache.cache_totals(connection)
        assert (totals.segments, totals.answers, totals.bytes) == (2, 3, value.bytes + other.bytes)


def test_an_empty_cache_has_totals(catalog: Catalog) -> None:
    with catalog.write() as connection:
        operator_cache.add_segments(connection, [])
        assert operator_cache.cache_totals(connection) == operator_cache.CacheTotals(0, 0, 0)
        assert operator_cache.live_segments(connection) == []


def test_merging_files_loses_no_answers(catalog: Catalog, storage: Storage) -> None:
    holder = epoch(catalog)
    add(catalog, *(segment(storage, *range(50 * number, 50 * number + 60)) for number in range(20)))
    assert sum(cache_steps(catalog, storage, epoch=holder, most_bytes=LARGE)) >= 20
    with catalog.read() as connection:
        live = operator_cache.live_segments(connection)
        assert len(live) == 1
        assert live[0].answers == 1_010
    assert known(catalog, storage, 1_100) == set(range(1_010))
    assert sum(cache_steps(catalog, storage, epoch=holder, most_bytes=LARGE)) == 0
    add(catalog, *(segment(storage, 2_000 + number) for number in range(9)))
    assert sum(cache_steps(catalog, storage, epoch=holder, most_bytes=LARGE)) == 9
    with catalog.read() as connection:
        assert len(operator_cache.live_segments(connection)) == 2, "a large one is not rewritten for small ones"


def test_oldest_files_are_dropped_first(timed: Catalog, storage: Storage, clock: FakeClock) -> None:
    holder = epoch(timed)
    sizes = []
    for number in range(6):
        value = segment(storage, *range(10 * number, 10 * number + 10))
        sizes.append(value.bytes)
        add(timed, value)
        clock.advance(timedelta(seconds=1))
    assert sum(cache_steps(timed, storage, epoch=holder, most_bytes=sum(sizes[-3:]))) == 3
    assert known(timed, storage, 60) == set(range(30, 60))
    assert sum(cache_steps(timed, storage, epoch=holder, most_bytes=0)) == 3
    assert known(timed, storage, 60) == set()


def test_merging_drops_a_damaged_file(catalog: Catalog, storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    holder = epoch(catalog)
    several = [segment(storage, number) for number in range(8)]
    add(catalog, *several)
    storage.local(several[2].path).write_bytes(b"damaged")
    storage.delete(several[5].path)
    assert sum(cache_steps(catalog, storage, epoch=holder, most_bytes=LARGE)) == 8
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert known(catalog, storage, 8) == {0, 1, 3, 4, 6, 7}
    assert not caplog.records


def test_fenced_runner_cannot_merge_files(catalog: Catalog, storage: Storage) -> None:
    holder = epoch(catalog)
    add(catalog, *(segment(storage, number) for number in range(8)))
    with pytest.raises(FencedError):
        list(cache_steps(catalog, storage, epoch=holder + 1, most_bytes=LARGE))
    assert known(catalog, storage, 8) == set(range(8))


def test_retired_files_and_orphans_are_removed(timed: Catalog, storage: Storage, clock: FakeClock) -> None:
    holder = epoch(timed)
    several = [segment(storage, number) for number in range(8)]
    add(timed, *several)
    list(cache_steps(timed, storage, epoch=holder, most_bytes=LARGE))
    orphan = segment(storage, 99)
    claim_new(timed, storage)
    assert all(storage.local(value.path).exists() for value in several), "somebody may still read them"
    clock.advance(timedelta(hours=2))
    old = time.time() - 7_200
    for file in storage.files("operators"):
        os.utime(storage.local(file.path), (old, old))
    assert collect_garbage(timed, storage, older_than=3_600) == 9
    assert not storage.local(orphan.path).exists()
    assert not any(storage.local(value.path).exists() for value in several)
    assert known(timed, storage, 10) == set(range(8))
    with timed.read() as connection:
        assert len(operator_cache.segment_paths(connection)) == 1


def _commit_many(url: str, root: str, first: int) -> None:
    catalog, storage = Catalog(url), open_storage(root)
    for number in range(first, first + 10):
        add(catalog, segment(storage, number))
        with catalog.write() as connection:
            operator_statistics.note_operators(connection, OperatorStatistics({"mob 1": OperatorUse(1, 0.5)}))
    catalog.close()


def test_concurrent_writers_lose_no_answers(catalog: Catalog, storage: Storage) -> None:
    holder = epoch(catalog)
    with ThreadPoolExecutor(3) as threads:
        writers = [threads.submit(_commit_many, catalog.url, storage.url, first) for first in (0, 10, 20)]
        while not all(writer.done() for writer in writers):
            list(cache_steps(catalog, storage, epoch=holder, most_bytes=LARGE, at_least=3))
            time.sleep(0.02)
        for writer in writers:
            writer.result()
    assert known(catalog, storage, 40) == set(range(30))
    with catalog.read() as connection:
        assert operator_statistics.learned_operators(connection).operators["mob 1"].calls == pytest.approx(
            30, rel=0.02
        )


# --- what was learned --------------------------------------------------------------------------------------------


def test_recorded_observations_are_merged_and_survive_a_restart(url: str) -> None:
    catalog = Catalog(url)
    catalog.migrate()
    test = key_of_test("mob@1()")
    with catalog.write() as connection:
        assert operator_statistics.learned_operators(connection) == OperatorStatistics()
        operator_statistics.note_operators(connection, OperatorStatistics())
        assert operator_statistics.learned_operators(connection) == OperatorStatistics()
    for _ in range(100):
        with catalog.write() as connection:
            operator_statistics.note_operators(
                connection, OperatorStatistics({"mob 1": OperatorUse(2, 0.1)}, {test: ObservedShare(2, 1)})
            )
    catalog.close()
    again = Catalog(url)
    with again.read() as connection:
        statistics = operator_statistics.learned_operators(connection)
        rows = connection.execute(select(func.count()).select_from(schema.operator_learning)).scalar_one()
    again.close()
    assert statistics.operators["mob 1"].calls == pytest.approx(200, rel=0.05)
    assert statistics.cost("mob 1", 9.0) == pytest.approx(0.05, abs=0.3)
    assert statistics.chance(test) == pytest.approx(0.5, rel=0.01)
    assert rows <= 33


def test_observations_of_an_uncommitted_batch_are_discarded(catalog: Catalog) -> None:
    def note_and_fail() -> None:
        with catalog.write() as connection:
            operator_statistics.note_operators(connection, OperatorStatistics({"mob 1": OperatorUse(2, 0.1)}))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        note_and_fail()
    with catalog.read() as connection:
        assert operator_statistics.learned_operators(connection) == OperatorStatistics()


def test_older_observations_have_less_weight(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        operator_statistics.note_operators(connection, OperatorStatistics({"mob 1": OperatorUse(100, 10.0)}))
        clock.advance(timedelta(days=HALF_LIFE_DAYS))
        assert operator_statistics.learned_operators(connection).operators["mob 1"].calls == pytest.approx(50)
        operator_statistics.note_operators(connection, OperatorStatistics({"lame 1": OperatorUse(10, 1.0)}))
        clock.advance(timedelta(days=HALF_LIFE_DAYS))
        statistics = operator_statistics.learned_operators(connection)
        for _ in range(40):
            operator_statistics.note_operators(connection, OperatorStatistics({"other 1": OperatorUse(1, 0.1)}))
        folded = operator_statistics.learned_operators(connection)
    assert statistics.operators["mob 1"].calls == pytest.approx(25)
    assert statistics.operators["lame 1"].calls == pytest.approx(5)
    assert folded.operators["mob 1"].calls == pytest.approx(25), "folding does not make it older or newer"


def test_damaged_row_is_ignored(catalog: Catalog) -> None:
    with catalog.write() as connection:
        for _ in range(3):
            operator_statistics.note_operators(connection, OperatorStatistics({"mob 1": OperatorUse(1, 0.1)}))
        first = select(func.min(schema.operator_learning.c.id)).scalar_subquery()
        damaged = update(schema.operator_learning).where(schema.operator_learning.c.id == first)
        for content in (b"", b"nothing", b"x\x9c"):
            connection.execute(damaged.values(content=content))
            assert operator_statistics.learned_operators(connection).operators["mob 1"].calls == pytest.approx(
                2, rel=0.01
            )
        assert now(connection) > 0


def test_a_segment_that_is_open_can_be_read_after_it_was_removed(storage: Storage) -> None:
    value = segment(storage, 1)
    opened = open_segment(storage, value.path)
    assert opened is not None
    storage.delete(value.path)
    assert dict(opened.find([key(1)])) == {0: ((1.0,),)}
