"""A clock that is set back by an hour: times in the log never decrease, and no due time is delayed by an hour."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, select, update
from tests import catalog_rows
from tests.services import PostgreSQL

from runnel.catalog.declared import subscriptions
from runnel.catalog.delivery import ledger, outbox
from runnel.catalog.store import leases, schema, sequencer
from runnel.catalog.store.connection import Catalog, now
from runnel.errors import FencedError, RunnerActiveError
from runnel.model.feed import FeedKind
from runnel.model.message import Message
from runnel.testing import FakeClock

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)


def _digest(connection: Connection, every: timedelta) -> int:
    feed = catalog_rows.add_feed(connection, "A", FeedKind.SOURCE, "register feed A;")
    return catalog_rows.add_subscription(connection, feed, "log", None, since=0, every=every, lifetime=None)


def _elsewhere(connection: Connection, seconds: float) -> None:
    """Make the lease belong to a process on another machine."""
    holder = json.dumps({"host": "elsewhere", "process": 1, "started": 1, "seconds": seconds})
    connection.execute(update(schema.leases).values(holder=holder))


def _is_due(connection: Connection, subscription: int) -> bool:
    return subscription in [value.subscription.id for value in outbox.due(connection, after=0, limit=10)]


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(-7200, 7200), st.integers(1, 5)), min_size=1, max_size=8))
def test_times_in_the_log_never_decrease(timed: Catalog, clock: FakeClock, steps: list[tuple[int, int]]) -> None:
    accepted: list[int] = []
    firsts: list[int] = []
    counts: list[int] = []
    for seconds, count in steps:
        clock.advance(timedelta(seconds=seconds))
        with timed.write() as connection:
            first, at = sequencer.take_sequences(connection, count)
            assert at >= now(connection)
        firsts.append(first)
        accepted.append(at)
        counts.append(count)
    assert accepted == sorted(accepted)
    assert [later - earlier for earlier, later in pairwise(firsts)] == counts[:-1]


def test_digest_is_not_delayed_by_a_clock_that_was_set_back(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        lease = leases.acquire(connection, 20)
        digest = _digest(connection, 10 * _MINUTE)
    clock.advance(5 * _MINUTE)
    with timed.write() as connection:
        leases.renew(connection, lease, 20, "running")
    clock.advance(-_HOUR)
    with timed.write() as connection:
        leases.renew(connection, lease, 20, "running")
        assert not _is_due(connection, digest)
    clock.advance(6 * _MINUTE)
    with timed.write() as connection:
        assert _is_due(connection, digest)
        [held] = subscriptions.live_subscriptions(connection)
        outbox.begin_next_periods(connection, [held])
        assert not _is_due(connection, digest)
    clock.advance(10 * _MINUTE)
    with timed.read() as connection:
        assert _is_due(connection, digest), "the period after it is of the same length"


def test_retry_is_not_delayed_by_a_clock_that_was_set_back(timed: Catalog, clock: FakeClock) -> None:
    wait = 5 * _MINUTE
    with timed.write() as connection:
        lease = leases.acquire(connection, 20)
        ledger.record_messages(connection, [Message(1, 1, 1, 5, 2, "key-1", "digest")])
        again = now(connection) + wait // _MICROSECOND
        connection.execute(update(schema.messages).values(not_before=again))
        connection.execute(
            insert(schema.polls).values(feed=1, address="a", due=again, failures=1, requests=1, unchanged=0)
        )
    clock.advance(-_HOUR)
    with timed.write() as connection:
        leases.renew(connection, lease, 20, "running")
        current = now(connection)
        [tried] = connection.execute(select(schema.messages.c.not_before)).scalars()
        [polled] = connection.execute(select(schema.polls.c.due)).scalars()
    assert tried - current == polled - current == wait // _MICROSECOND


def test_new_runner_adjusts_due_times_after_the_clock_was_set_back(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        lease = leases.acquire(connection, 20)
        digest = _digest(connection, 10 * _MINUTE)
        leases.release(connection, lease)
    clock.advance(-3 * _HOUR)
    with timed.write() as connection:
        leases.acquire(connection, 20)
    clock.advance(11 * _MINUTE)
    with timed.read() as connection:
        assert _is_due(connection, digest)


def test_small_clock_correction_changes_no_due_times(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        lease = leases.acquire(connection, 20)
        _digest(connection, 10 * _MINUTE)
        before = connection.execute(select(schema.subscriptions.c.due)).scalar_one()
    for _ in range(5):
        clock.advance(timedelta(seconds=-20))
        with timed.write() as connection:
            leases.renew(connection, lease, 20, "running")
            assert sequencer.follow_clock(connection) == 0
    with timed.read() as connection:
        assert connection.execute(select(schema.subscriptions.c.due)).scalar_one() == before


def test_live_holder_keeps_its_lease_when_the_clock_changes(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        lease = leases.acquire(connection, 20)
    clock.advance(-_HOUR)
    with timed.read() as connection:
        state = leases.state(connection)
    assert state is not None
    assert state.alive
    with pytest.raises(RunnerActiveError):
        _acquire(timed)
    with timed.write() as connection:
        leases.renew(connection, lease, 20, "running")
        _elsewhere(connection, 20)
    with pytest.raises(RunnerActiveError, match="elsewhere"):
        _acquire(timed)


def _acquire(catalog: Catalog) -> leases.Lease:
    with catalog.write() as connection:
        return leases.acquire(connection, 20)


def test_lease_granted_before_the_clock_was_set_back_is_expired(timed: Catalog, clock: FakeClock) -> None:
    old = _acquire(timed)
    with timed.write() as connection:
        _elsewhere(connection, 20)
    clock.advance(timedelta(seconds=-10))
    with pytest.raises(RunnerActiveError, match="elsewhere"):
        _acquire(timed)  # clocks differ by seconds, and a lease must bear that
    clock.advance(-_HOUR)
    fresh = _acquire(timed)
    assert fresh.epoch == old.epoch + 1
    with timed.write() as connection, pytest.raises(FencedError):
        leases.check(connection, old.epoch)


def test_longer_lease_of_another_host_is_respected(timed: Catalog) -> None:
    with timed.write() as connection:
        leases.acquire(connection, 600)
        _elsewhere(connection, 600)
    with pytest.raises(RunnerActiveError, match="elsewhere"):
        _acquire(timed)


def test_server_and_sqlite_catalogs_use_the_same_clock(postgresql: PostgreSQL, clock: FakeClock) -> None:
    catalog = Catalog(postgresql.database(), clock=clock)
    catalog.migrate()
    with catalog.write() as connection:
        _, accepted = sequencer.take_sequences(connection, 1)
    assert accepted == int(clock() * 1e6), "times are the catalog's clock's, not the server's"
    catalog.close()
