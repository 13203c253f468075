"""What is recorded for delivery, compared with what the reference evaluator matches; and what is not read for it."""

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
from runnel.delivery.match_reader import ItemOutline, _pieces
from runnel.delivery.matches_by_query import MatchesByQuery
from runnel.engine import Engine
from runnel.testing import MemorySink

WORDS = ("rock", "jazz", "folk", "soul", "punk", "opera")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "root") as opened:
        opened.execute("register feed Wire;")
        for word in WORDS:
            opened.execute(f"create feed {word.title()} from Wire where title contains '{word}';")
        yield opened


def _publish(engine: Engine, dice: random.Random, first: int, count: int) -> dict[str, str]:
    titles = {str(n): " ".join(dice.sample(WORDS, dice.randrange(4))) or "news" for n in range(first, first + count)}
    engine.publish("Wire", [{"id": one, "title": title} for one, title in titles.items()])
    return titles


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("few_subscriptions", [0, 500])
@pytest.mark.parametrize("few_feeds", [0, 1_000])
def test_subscriptions_get_exactly_what_matches(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, seed: int, few_subscriptions: int, few_feeds: int
) -> None:
    """However feeds are found, and whether a range is read whole or for some feeds."""
    monkeypatch.setattr(recorder, "_FEW_SUBSCRIPTIONS", few_subscriptions)
    monkeypatch.setattr(matches_by_query, "_FEW_FEEDS", few_feeds)
    monkeypatch.setattr(recorder, "_TURN_ITEMS", 7)
    dice = random.Random(seed)
    runner = InProcess(engine, max_batch_items=10, slice_items=3)
    expected: dict[str, list[str]] = {}
    readers: dict[str, str] = {}
    for turn in range(3):
        name = f"reader{turn}"
        word = readers[name] = dice.choice(WORDS)
        engine.execute(f"subscribe to {word.title()} output memory '{name}';")
        expected[name] = []
        for one, title in _publish(engine, dice, 100 * turn, dice.randrange(1, 25)).items():
            for reader, of in readers.items():
                expected[reader] += [one] if of in title.split() else []
        runner.match()
        runner.deliver()
    runner.close()
    assert {name: MemorySink.item_ids(name) for name in expected} == expected


def test_matches_that_no_subscription_needs_are_not_read(engine: Engine) -> None:
    """The cursor moves past them even though their files are gone: anything that reads them fails."""
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
        assert list(by_query.of(ids[word.title()], 40, upto)) == expected
    assert by_query.reads == 3, "two feeds by themselves, then all of them at once"
    assert by_query.feeds(40, upto) == {
        ids[word.title()] for title in titles.values() for word in title.split() if word != "news"
    }
    runner.close()


@hypothesis_settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 60), max_size=30), st.integers(0, 40))
def test_messages_are_cut_alike_whether_sizes_are_added_up_or_not(sizes: list[int], slack: int) -> None:
    """`largest` may be larger than every item: it is a bound, not a measurement."""
    outlines = {number: ItemOutline(str(number), size) for number, size in enumerate(sizes)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_reader, "_MESSAGE_ITEMS", 5)
        patch.setattr(match_reader, "_MESSAGE_BYTES", 100)
        expected = list(_pieces(list(outlines), outlines, 1 << 60))
        assert list(_pieces(list(outlines), outlines, max(sizes, default=0) + slack)) == expected
    assert [one for piece in expected for one in piece] == list(outlines)
    assert all(len(piece) <= 5 for piece in expected)
    assert all(len(piece) == 1 or sum(sizes[one] for one in piece) <= 100 for piece in expected)
