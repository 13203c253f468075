"""Statistics of the stream, on every supported database: recorded, merged, weighted by age, and limited."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select, update
from tests import catalog_rows

from runnel.catalog.learned import stream_statistics
from runnel.catalog.learned.stream_statistics import WHOLE_STREAM
from runnel.catalog.store import schema
from runnel.catalog.store.connection import Catalog
from runnel.model.feed import FeedKind
from runnel.model.learned.stream_statistics import HALF_LIFE_DAYS, HALF_LIFE_ITEMS, ObservedShare, StreamSample
from runnel.testing import FakeClock

ATOM = '["compare", "price", "<", 10]'


@pytest.fixture
def sources(timed: Catalog) -> tuple[int, int]:
    """Two source feeds."""
    with timed.write() as connection:
        first, second = (
            catalog_rows.add_feed(connection, name, FeedKind.SOURCE, f"register feed {name};") for name in ("A", "B")
        )
    return first, second


def learn(catalog: Catalog, *notes: dict[int, StreamSample]) -> dict[int, StreamSample]:
    """Record observations, merge them, and return the statistics."""
    with catalog.write() as connection:
        for note in notes:
            stream_statistics.note(connection, note)
        stream_statistics.learn(connection)
    with catalog.read() as connection:
        return stream_statistics.learned(connection)


def test_observations_are_merged_per_feed_and_for_the_whole_stream(timed: Catalog, sources: tuple[int, int]) -> None:
    first, second = sources
    stream_sample = StreamSample(2, {"rock": 2, "東京": 1}, {ATOM: ObservedShare(2, 1)})
    known = learn(
        timed, {first: stream_sample}, {second: StreamSample(1, {"rock": 1})}, {first: StreamSample(1, {"jazz": 1})}
    )
    assert known[first] == StreamSample(3, {"rock": 2, "東京": 1, "jazz": 1}, {ATOM: ObservedShare(2, 1)})
    assert known[second] == StreamSample(1, {"rock": 1})
    assert known[WHOLE_STREAM].words == {"rock": 3, "東京": 1, "jazz": 1}
    with timed.write() as connection:
        assert stream_statistics.learn(connection) == 0, "a note is folded once"
        assert stream_statistics.learned(connection, [second, 999]) == {second: known[second]}


def test_observations_of_a_rolled_back_batch_are_discarded(timed: Catalog, sources: tuple[int, int]) -> None:
    def fail() -> None:
        with timed.write() as connection:
            stream_statistics.note(connection, {sources[0]: StreamSample(1, {"rock": 1})})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert learn(timed) == {}


def test_older_observations_have_less_weight(timed: Catalog, sources: tuple[int, int], clock: FakeClock) -> None:
    first = sources[0]
    learn(timed, {first: StreamSample(100, {"rock": 50})})
    clock.advance(timedelta(days=HALF_LIFE_DAYS))
    assert learn(timed, {first: StreamSample(1, {"jazz": 1})})[first].words["rock"] == pytest.approx(25, rel=1e-3)
    learn(timed, {first: StreamSample(HALF_LIFE_ITEMS, {"jazz": 1})})
    with timed.read() as connection:
        known = stream_statistics.learned(connection, [first])[first]
    assert known.words["rock"] == pytest.approx(12.5, rel=1e-3)
    assert known.items == pytest.approx(HALF_LIFE_ITEMS + 25.5, rel=1e-3)


def test_stored_statistics_have_a_maximum_size(
    timed: Catalog, sources: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sources[0]
    many = StreamSample(
        9,
        {f"w{number}": 1 + number % 7 for number in range(40_000)},
        {f"a{n}": ObservedShare(1, 0) for n in range(5_000)},
    )
    known = learn(timed, {first: many})
    assert (len(known[first].words), len(known[first].atoms)) == (1_024, 128)
    assert (len(known[WHOLE_STREAM].words), len(known[WHOLE_STREAM].atoms)) == (32_768, 4_096)
    assert min(known[first].words.values()) == known[first].floor == 7
    monkeypatch.setattr(stream_statistics, "_MAX_NOTES", 3)
    with timed.write() as connection:
        for _ in range(5):
            stream_statistics.note(connection, {first: StreamSample(1, {"rock": 1})})
        assert stream_statistics.learn(connection) == 3


def test_statistics_of_dropped_feeds_are_deleted(timed: Catalog, sources: tuple[int, int]) -> None:
    first, second = sources
    learn(timed, {first: StreamSample(1, {"rock": 1}), second: StreamSample(1, {"rock": 1})})
    with timed.write() as connection:
        stream_statistics.note(connection, {first: StreamSample(1, {"late": 1})})
        connection.execute(update(schema.feeds).where(schema.feeds.c.id == first).values(dropped=1))
        assert stream_statistics.forget_dropped(connection) == 1
    assert set(learn(timed)) == {WHOLE_STREAM, second}, "nor does a late note bring it back"


def test_damaged_rows_are_ignored(timed: Catalog, sources: tuple[int, int]) -> None:
    first = sources[0]
    learn(timed, {first: StreamSample(5, {"rock": 5})})
    with timed.write() as connection:
        stream_statistics.note(connection, {first: StreamSample(1, {"rock": 1})})
        connection.execute(update(schema.statistics).values(content=b"no zlib"))
        connection.execute(update(schema.observations).values(content=b"\x78\x9c broken"))
        assert stream_statistics.learned(connection, [first])[first] == StreamSample()
        assert stream_statistics.learn(connection) == 1
        assert connection.execute(select(func.count()).select_from(schema.observations)).scalar_one() == 0
    assert learn(timed, {first: StreamSample(1, {"jazz": 1})})[first].words == {"jazz": 1}
