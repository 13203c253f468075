"""Stored states of gates, on every supported database: stored by key, replaced, and deleted after they expire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import Connection
from tests import catalog_rows

from runnel.catalog.declared import feeds
from runnel.catalog.logs import gate_states, item_segments, match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store.connection import Catalog, now
from runnel.catalog.store.leases import acquire
from runnel.catalog.store.sequencer import take_sequences
from runnel.model.feed import FeedKind
from runnel.model.gate_state import GateState
from runnel.model.segment import Tier
from runnel.testing import FakeClock

HOUR = 3_600_000_000


def key(number: int, feed: int = 7, *, value: bytes = b"\0", expires: int = HOUR) -> GateState:
    return GateState(feed, feed.to_bytes(8, "big") + number.to_bytes(8, "big"), value, expires)


@contextmanager
def writing(catalog: Catalog) -> Iterator[Connection]:
    with catalog.write() as connection:
        yield connection


def test_the_last_value_of_each_key_is_stored(catalog: Catalog) -> None:
    first = [key(number) for number in range(1200)]
    with writing(catalog) as connection:
        gate_states.store_states(connection, first)
        gate_states.store_states(connection, [])
    fresh = [key(number, value=b"nine\0", expires=8) for number in range(0, 1200, 2)]
    with writing(catalog) as connection:
        gate_states.store_states(connection, [*fresh, key(3, feed=8, value=b"")])
    with catalog.read() as connection:
        states = gate_states.read_states(connection, [*(entry.key for entry in first), key(5000).key])
        assert states == {entry.key: entry for entry in [*first, *fresh]}
        other = key(3, feed=8, value=b"")
        assert gate_states.read_states(connection, {other.key, key(4, feed=8).key}) == {other.key: other}
        assert gate_states.read_states(connection, []) == {}
        assert (gate_states.count_states(connection, 7), gate_states.count_states(connection, 9)) == (1200, 0)


def test_states_are_deleted_when_no_waiting_item_needs_them(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        lease = acquire(connection, 3600)
        match_segments.start_lineage(connection, "test", reason="test")
        start = now(connection)
        first, accepted = take_sequences(connection, 2)
        item_segments.add_segment(
            connection, Tier.LOG, "a.arrow", sequences=(first, 2), times=(accepted, accepted), size=1
        )
        gate_states.store_states(connection, [key(1, expires=start + HOUR), key(2, expires=start + 3 * HOUR)])
    clock.advance(timedelta(hours=2))
    with timed.write() as connection:
        # The items that wait were accepted two hours ago.
        assert gate_states.forget_states(connection, 10) == 0
        assert match_segments.commit_segment(connection, MatchSegment(1, 0, 1, 2, 0, 2, 0), [], epoch=lease.epoch)
        # The log's time stands still: another machine, whose clock is behind, may publish next.
        assert gate_states.forget_states(connection, 10) == 0
        take_sequences(connection, 1)
        assert gate_states.forget_states(connection, 10) == 1
        assert gate_states.forget_states(connection, 10) == 0
        assert gate_states.count_states(connection, 7) == 1


def test_states_of_dropped_feeds_are_deleted_in_portions(timed: Catalog) -> None:
    with timed.write() as connection:
        far = now(connection) + HOUR
        kept = catalog_rows.add_feed(connection, "Kept", FeedKind.VIRTUAL, "create feed Kept from A;")
        gone = catalog_rows.add_feed(connection, "Gone", FeedKind.VIRTUAL, "create feed Gone from A;")
        gate_states.store_states(connection, [key(number, gone, expires=far) for number in range(7)])
        gate_states.store_states(connection, [key(number, kept, expires=far) for number in range(3)])
        feeds.drop_feed(connection, gone)
    with timed.write() as connection:
        assert [gate_states.forget_states(connection, 5) for _ in range(3)] == [5, 2, 0]
        assert gate_states.count_states(connection, kept) == 3
