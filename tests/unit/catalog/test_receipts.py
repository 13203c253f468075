"""Receipts: messages that were settled long ago become totals, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text, update
from tests import catalog_rows

from runnel.catalog.delivery import ledger, receipts
from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases, schema
from runnel.catalog.store.connection import Catalog, now
from runnel.model.message import Message, MessageState
from runnel.testing import FakeClock

_DAY = 86_400_000_000


def _catalog(factory: pytest.TempPathFactory, clock: FakeClock) -> Catalog:
    catalog = Catalog(f"sqlite:///{factory.mktemp('catalog') / 'c.sqlite'}", clock=clock)
    catalog.migrate()
    return catalog


def _subscribe(catalog: Catalog, count: int, **values: object) -> None:
    plain = {"feed": 1, "kind": "rss", "since": 0, "paused": 0, "created": 0}
    with catalog.write() as connection:
        connection.execute(insert(schema.subscriptions), [plain | values for _ in range(count)])


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(list(MessageState)), st.integers(0, 9)), max_size=25),
    st.integers(1, 5),
    st.integers(0, 12),
)
def test_folding_messages_preserves_counts_and_numbers(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[int, MessageState, int]], limit: int, keep: int
) -> None:
    clock = FakeClock()
    catalog = _catalog(tmp_path_factory, clock)
    _subscribe(catalog, 3)
    counts: Counter[str] = Counter()
    numbers: Counter[int] = Counter()
    for subscription, state, days in told:
        clock.advance(timedelta(days=days / 3))
        with catalog.write() as connection:
            number = ledger.next_number(connection, subscription)
            assert number == numbers[subscription] + 1, "numbers are given once, and in order"
            message = Message(subscription, number, number, number, 2, f"{subscription}-{number}", "d")
            ledger.record_messages(connection, [message])
            if state is not MessageState.OPEN:
                catalog_rows.settle(connection, message, state, "outcome")
            receipts.fold_messages(connection, now(connection) - keep * _DAY, limit)
            counts[state.value] += 1
            numbers[subscription] += 1
            assert receipts.message_counts(connection) == dict(counts)
    clock.advance(timedelta(days=400))
    with catalog.write() as connection:
        while receipts.fold_messages(connection, now(connection), limit):
            pass
        assert receipts.message_counts(connection) == dict(counts)
        assert {value: ledger.next_number(connection, value) - 1 for value in numbers} == dict(numbers)
        left = connection.execute(text("select count(*) from messages where state <> 'open'")).scalar_one()
        assert left <= 3, "at most the newest of each"
        folded = [receipts.receipt_of(connection, value) for value in (1, 2, 3)]
        assert sum(entry.done + entry.dead for entry in folded if entry) + left + counts["open"] == len(told)
        connection.execute(update(schema.subscriptions).values(ended=1))
        receipts.fold_messages(connection, now(connection), 100)
        ended = connection.execute(text("select count(*) from messages where state <> 'open'")).scalar_one()
        assert ended == 0, "nobody needs a number after the end"
    catalog.close()


def test_needed_after_respects_cursors_digests_and_the_last_batch(tmp_path_factory: pytest.TempPathFactory) -> None:
    catalog = _catalog(tmp_path_factory, FakeClock())
    _subscribe(catalog, 1)
    _subscribe(catalog, 1, period=5, since=70)
    with catalog.write() as connection:
        assert receipts.needed_after(connection) == 0
        epoch = leases.acquire(connection, 10).epoch
        match_segments.commit_segment(connection, MatchSegment(1, 0, 1, 90, 1, 90, 0), [], epoch=epoch)
        match_segments.commit_segment(connection, MatchSegment(1, 1, 91, 100, 1, 10, 0), [], epoch=epoch)
        ledger.set_cursor(connection, ledger.SHARED, 100)
        assert receipts.needed_after(connection) == 70, "a digest that has not begun"
        ledger.set_cursor(connection, 2, 100)
        assert receipts.needed_after(connection) == 90, "the last batch may be run again"
        ledger.set_cursor(connection, 1, 40)
        assert receipts.needed_after(connection) == 40, "one that lags"
        connection.execute(update(schema.subscriptions).where(schema.subscriptions.c.id == 1).values(disabled="gone"))
        assert receipts.needed_after(connection) == 90, "nothing is sent to one that is disabled"
        receipts.lift_cursors(connection, 60)
        assert ledger.cursor(connection, 1) == 60, "if it is used again it goes on with what is kept"
        ledger.record_messages(connection, [Message(2, 1, 21, 30, 1, "k", "d")])
        assert receipts.needed_after(connection) == 20, "an open message"
        connection.execute(update(schema.subscriptions).where(schema.subscriptions.c.id == 2).values(disabled="gone"))
        assert receipts.needed_after(connection) == 90, "not one of a disabled subscription"
        ledger.bury_unkept(connection, 20)
        assert ledger.has_open(connection, 2), "its items are kept"
        ledger.bury_unkept(connection, 21)
        assert not ledger.has_open(connection, 2)
    catalog.close()
