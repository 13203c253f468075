"""Recording of messages: subscriptions get exactly their matches, and the match log is read as little as possible."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.integration.in_process import InProcess

import runnel
from runnel.catalog.declared import feeds
from runnel.catalog.delivery import ledger
from runnel.catalog.logs import match_segments
from runnel.delivery import match_reader, matches_by_query, recorder
from runnel.delivery.match_reader import ItemSummary, _group_by_size
from runnel.delivery.matches_by_query import MatchesByQuery
from runnel.engine import Engine
from runnel.testing import MemorySink

WORDS = ("rock", "jazz", "folk", "soul", "punk", "opera")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "workspace") as engine:
        engine.execute("register feed Wire;")
        for word in WORDS:
            engine.execute(f"create feed {word.title()} from Wire where title contains '{word}';")
        yield engine


def _publish(engine: Engine, dice: random.Random, first: int, count: int) -> dict[str, str]:
    titles = {str(n): " ".join(dice.sample(WORDS, dice.randrange(4))) or "news" for n in range(first, first + count)}
    engine.publish("Wire", [{"id": item_id, "title": title} for item_id, title in titles.items()])
    return titles


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("few_subscriptions", [0, 500])
@pytest.mark.parametrize("few_feeds", [0, 1_000])
def test_subscriptions_get_exactly_their_matches(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, seed: int, few_subscriptions: int, few_feeds: int
) -> None:
    """For few and many subscriptions, and whether a range is read for all feeds or for some."""
    monkeypatch.setattr(recorder, "_FEW_SUBSCRIPTIONS", few_subscriptions)
    monkeypatch.setattr(matches_by_query, "_FEW_FEEDS", few_feeds)
    monkeypatch.setattr(recorder, "_MAX_TURN_ITEMS", 7)
    dice = random.Random(seed)
    runner = InProcess(engine, max_batch_items=10, slice_items=3)
    expected: dict[str, list[str]] = {}
    readers: dict[str, str] = {}
    for turn in range(3):
        name = f"reader{turn}"
        word = readers[name] = dice.choice(WORDS)
        engine.execute(f"subscribe to {word.title()} output memory '{name}';")
        expected[name] = []
        for item_id, title in _publish(engine, dice, 100 * turn, dice.randrange(1, 25)).items():
            for reader, wanted_word in readers.items():
                expected[reader] += [item_id] if wanted_word in title.split() else []
        runner.match()
        runner.deliver()
    runner.close()
    assert {name: MemorySink.item_ids(name) for name in expected} == expected


def test_matches_that_no_subscription_needs_are_not_read(engine: Engine) -> None:
    """The files of the matches are deleted, so reading them would fail. The cursor still moves past them."""
    engine.execute("subscribe to Rock output log; subscribe to Jazz output memory 'a' every 1 hour;")
    runner = InProcess(engine)
    _publish(engine, random.Random(1), 0, 40)
    runner.match()
    with engine.workspace.catalog.read() as connection:
        last = match_segments.matched_upto(connection)
        for part in match_segments.match_parts(connection, 0, last):
            engine.workspace.storage.local(part.path).unlink()
    assert not runner.dispatcher.recorder.record(runner.epoch)
    with engine.workspace.catalog.read() as connection:
        assert ledger.cursor(connection, ledger.SHARED) == last == 40
    runner.close()


def test_many_feeds_of_a_range_are_read_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches_by_query, "_FEW_FEEDS", 2)
    _publish(engine, random.Random(2), 0, 40)
    runner = InProcess(engine)
    for word in WORDS:
        engine.execute(f"subscribe to {word.title()} output memory '{word}';")
    titles = _publish(engine, random.Random(3), 100, 40)
    runner.match()
    by_query = MatchesByQuery(engine.workspace.matches)
    with engine.workspace.catalog.read() as connection:
        ids = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    upto = engine.workspace.matches.matched_upto()
    for word in WORDS:
        expected = [41 + n for n, title in enumerate(titles.values()) if word in title.split()]
        assert list(by_query.sequences(ids[word.title()], 40, upto)) == expected
    assert by_query.reads == 3, "one read for each of the first two feeds, then one for all feeds"
    assert by_query.feeds(40, upto) == {
        ids[word.title()] for title in titles.values() for word in title.split() if word != "news"
    }
    runner.close()


@hypothesis_settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 60), max_size=30), st.integers(0, 40))
def test_grouping_without_adding_up_sizes_gives_the_same_groups(sizes: list[int], slack: int) -> None:
    """`max_item_bytes` is an upper bound and may be larger than every item."""
    summaries = {number: ItemSummary(str(number), size) for number, size in enumerate(sizes)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_reader, "_MAX_MESSAGE_ITEMS", 5)
        patch.setattr(match_reader, "_MAX_OWN_BYTES", 100)
        expected = list(_group_by_size(list(summaries), summaries, 1 << 60))
        assert list(_group_by_size(list(summaries), summaries, max(sizes, default=0) + slack)) == expected
    assert [sequence for group in expected for sequence in group] == list(summaries)
    assert all(len(group) <= 5 for group in expected)
    assert all(len(group) == 1 or sum(sizes[sequence] for sequence in group) <= 100 for group in expected)
