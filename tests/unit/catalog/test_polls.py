"""Polls and hubs in the catalog: rows that come and go with their feeds, batches, figures, hostile texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from sqlalchemy import event
from tests import catalog_rows
from tests.services import PostgreSQL, postgresql

from runnel.catalog.declared import feeds
from runnel.catalog.polling import hubs, polls
from runnel.catalog.polling.hubs import HubRow, HubState
from runnel.catalog.polling.poll_memory import PollMemory
from runnel.catalog.polling.polls import PollState
from runnel.catalog.store.connection import Catalog
from runnel.model.feed import FeedKind
from runnel.workspace_key import WorkspaceKey

KEY = WorkspaceKey.make()

__all__ = ["postgresql"]

START = 1_800_000_000.0


class _Clock:
    seconds = START

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: _Clock) -> Iterator[Catalog]:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    if request.param == "postgresql":
        server: PostgreSQL = request.getfixturevalue("postgresql")
        url = server.database()
    made = Catalog(url, clock=clock, key=lambda: KEY)
    made.migrate()
    yield made
    made.close()


def _add(catalog: Catalog, name: str, address: str | None, every: float | None = None) -> int:
    with catalog.write() as connection:
        return catalog_rows.add_feed(
            connection,
            name,
            FeedKind.SOURCE,
            f"register feed {name};",
            address=address,
            every=None if every is None else timedelta(seconds=every),
        )


def _due(catalog: Catalog) -> list[str]:
    with catalog.read() as connection:
        return [poll.feed.name for poll in polls.due_polls(connection)]


def _adopt(catalog: Catalog, after: int = 0) -> int:
    with catalog.write() as connection:
        return polls.adopt(connection, after)


def _pause(catalog: Catalog, feed: int, paused: bool) -> None:
    with catalog.write() as connection:
        known = feeds.feed_by_id(connection, feed)
        assert known is not None
        feeds.pause_feed(connection, known, paused)


def test_rows_are_created_once_and_only_for_web_feeds(catalog: Catalog) -> None:
    _add(catalog, "File", "drop/news")
    _add(catalog, "Silent", None)
    web = _add(catalog, "Web", "HTTPS://muse.example/rss", every=60)
    highest = _adopt(catalog)
    assert _due(catalog) == ["Web"]
    assert _adopt(catalog) == highest
    later = _add(catalog, "Later", "http://muse.example/rss")
    with catalog.read() as connection:
        assert polls.needs_maintenance(connection, highest)
    assert _adopt(catalog, highest) == later
    with catalog.read() as connection:
        assert not polls.needs_maintenance(connection, later)
        first, second = polls.due_polls(connection)
        assert [state.feed for state in polls.poll_states(connection)] == [web, later]
    assert (first.feed.every, second.feed.every) == (timedelta(seconds=60), None)


def test_due_feeds_are_ordered_by_waiting_time(catalog: Catalog, clock: _Clock) -> None:
    ids = [_add(catalog, name, "http://muse.example/") for name in "ABC"]
    _adopt(catalog)
    with catalog.write() as connection:
        states = [
            replace(state, due=int((START + wait) * 1e6))
            for state, wait in zip(polls.poll_states(connection), (20, 10, 30), strict=True)
        ]
        polls.record_polls(connection, states)
    assert _due(catalog) == []
    clock.seconds += 20
    assert _due(catalog) == ["B", "A"]
    _pause(catalog, ids[0], True)
    assert _due(catalog) == ["B"]
    with catalog.write() as connection:
        feeds.drop_feed(connection, ids[1])
    assert _due(catalog) == []


def test_polls_are_recorded_in_bulk_and_counted(catalog: Catalog) -> None:
    for row in range(6):
        _add(catalog, f"F{row}", "http://muse.example/")
    _adopt(catalog)
    with catalog.write() as connection:
        states = polls.poll_states(connection)
        for _ in range(2):
            polls.record_polls(
                connection,
                [replace(state, status=304, checked=7, requests=1, unchanged=state.feed % 2) for state in states],
                saturated=3,
            )
        polls.record_polls(connection, [replace(states[0], problem="no", failures=2, requests=1)])
        polls.record_polls(connection, [replace(states[1], problem="no", stopped=polls.GONE, failures=1)])
        counts = polls.poll_counts(connection)
        poll_states = polls.poll_states(connection)
    assert (counts.feeds, counts.requests, counts.unchanged, counts.saturated) == (6, 13, 6, 6)
    assert (counts.failing, counts.stopped, counts.due) == (1, 1, 5)
    assert [state.requests for state in poll_states] == [3, 2, 2, 2, 2, 2]
    assert [state.status for state in poll_states] == [None, None, 304, 304, 304, 304]


def test_rows_of_dropped_feeds_are_deleted_and_totals_stay(catalog: Catalog) -> None:
    feed = _add(catalog, "A", "http://muse.example/")
    highest = _adopt(catalog)
    with catalog.write() as connection:
        polls.record_polls(connection, [PollState(feed, "http://muse.example/", requests=4)])
        feeds.drop_feed(connection, feed)
    with catalog.write() as connection:
        assert polls.needs_maintenance(connection, highest)
        polls.maintain_polls(connection)
        assert not polls.needs_maintenance(connection, highest)
        assert polls.poll_states(connection) == []
        assert polls.poll_counts(connection).requests == 4


def test_stopped_feed_is_polled_again_only_after_resume(catalog: Catalog, clock: _Clock) -> None:
    feed = _add(catalog, "A", "http://muse.example/declared")
    highest = _adopt(catalog)
    clock.seconds += 60
    with catalog.write() as connection:
        gone = PollState(
            feed, "http://muse.example/moved", due=9, checked=int(clock() * 1e6), stopped=polls.GONE, problem="gone"
        )
        polls.record_polls(connection, [gone])
    clock.seconds += 60
    with catalog.read() as connection:
        assert not polls.needs_maintenance(connection, highest)
    _pause(catalog, feed, True)
    with catalog.read() as connection:
        assert not polls.needs_maintenance(connection, highest), "paused is not resumed"
    _pause(catalog, feed, False)
    with catalog.write() as connection:
        assert polls.needs_maintenance(connection, highest)
        polls.maintain_polls(connection)
        (state,) = polls.poll_states(connection)
    assert (state.stopped, state.problem, state.address) == (None, None, "http://muse.example/declared")
    assert _due(catalog) == ["A"]


def test_due_feeds_are_found_by_an_index(tmp_path: Path, clock: _Clock) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}", clock=clock, key=lambda: KEY)
    catalog.migrate()
    asked: list[str] = []
    with catalog.read() as connection:
        event.listen(connection.engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
        polls.due_polls(connection)
        plan = connection.exec_driver_sql(f"explain query plan {asked[0]}", (0, 5, 5, 0)).all()
    catalog.close()
    assert any("polls_due" in row[-1] for row in plan), plan


@settings(deadline=None, max_examples=100)
@given(
    some.builds(
        PollMemory,
        digest=some.text(max_size=20),
        broken=some.none() | some.text(min_size=1, max_size=20),
        quarantined=some.lists(some.text("0123456789abcdef", min_size=12, max_size=12), max_size=5).map(tuple),
        since=some.none() | some.integers(1, 1 << 60),
        held=some.integers(0, 1 << 40),
        saturated=some.integers(0, 1 << 40),
        ttl=some.floats(0, 86_400),
        skip_hours=some.lists(some.integers(0, 23), max_size=4).map(tuple),
        skip_days=some.lists(some.integers(0, 6), max_size=4).map(tuple),
        refresh=some.text(max_size=50),
    )
)
def test_poll_memory_round_trip(memory: PollMemory) -> None:
    assert PollMemory.from_text(memory.to_text()) == memory


@settings(deadline=None, max_examples=200)
@given(
    some.text()
    | some.sampled_from(["[]", "7", "null", '{"quarantined": 5}', '{"since": "x"}', '{"held": null}', "[" * 100_000])
)
def test_invalid_poll_memory_is_ignored(text: str) -> None:
    assert isinstance(PollMemory.from_text(text), PollMemory)


def test_only_the_newest_quarantine_fingerprints_are_kept() -> None:
    memory = PollMemory()
    for number in range(200):
        memory = memory.with_quarantined([str(number)])
    assert len(memory.quarantined) == 64
    assert memory.quarantined[-1] == "199"


# --- hubs --------------------------------------------------------------------------------------------------------

_HOUR = 3_600_000_000


def _hub(
    feed: int, state: HubState = HubState.PENDING, *, requested: int | None = None, lease_until: int | None = None
) -> HubRow:
    topic, callback = "https://muse.example/rss", f"call-{feed}"
    return HubRow(feed, "https://hub.example/", topic, callback, b"s3cret", state, requested, lease_until)


def test_a_feed_has_one_hub_at_a_time(catalog: Catalog) -> None:
    feed = _add(catalog, "A", "http://muse.example/")
    other = replace(_hub(feed), callback="call-other", hub="https://other.example/")
    with catalog.write() as connection:
        hubs.put_hub(connection, _hub(feed))
        assert hubs.hub_by_callback(connection, f"call-{feed}") == _hub(feed)
        hubs.put_hub(connection, other)
        assert hubs.hub_by_callback(connection, f"call-{feed}") is None
        assert hubs.hubs_of(connection) == {feed: other}
        assert hubs.hubs_of(connection, [feed + 1]) == {}
        hubs.remove_hub(connection, "call-other")
        assert hubs.hubs_of(connection) == {}


def test_hub_secrets_are_not_in_the_representation() -> None:
    assert "s3cret" not in repr(_hub(1))
    assert "call-1" not in repr(_hub(1))


_RENEWALS = (
    (HubState.ACTIVE, 1, 9, False),
    (HubState.ACTIVE, 7, 3, True),
    (HubState.ACTIVE, 100, -1, True),
    (HubState.RENEWING, 0.5, 10, False),
    (HubState.RENEWING, 2, 10, True),
    (HubState.RENEWING, 0.5, 0.2, True),
    (HubState.PENDING, 2, 0, False),
    (HubState.PENDING, 25, 0, True),
    (HubState.DENIED, 2, 0, False),
    (HubState.DENIED, 25, 0, True),
    (HubState.FAILED, 25, 0, True),
    (HubState.ENDING, 99, 0, False),
)
"""State, hours since the hub was asked, hours left of the lease, and whether it is to be asked again."""


def test_hub_subscription_is_renewed_or_retried_in_time(catalog: Catalog, clock: _Clock) -> None:
    moment = int(clock() * 1e6)
    wanted: set[int] = set()
    for row, (state, asked_ago, lease_left, again) in enumerate(_RENEWALS):
        feed = _add(catalog, f"F{row}", "http://muse.example/")
        wanted |= {feed} if again else set()
        until = moment + int(lease_left * _HOUR) if lease_left else 0
        with catalog.write() as connection:
            hubs.put_hub(connection, _hub(feed, state, requested=moment - int(asked_ago * _HOUR), lease_until=until))
    with catalog.write() as connection:
        assert {row.feed for row in hubs.to_renew(connection)} == wanted
        dropped = min(wanted)
        feeds.drop_feed(connection, dropped)
        assert {row.feed for row in hubs.to_renew(connection)} == wanted - {dropped}
        assert [row.feed for row in hubs.of_dropped_feeds(connection)] == [dropped]


def test_push_after_the_lease_expired_is_refused(clock: _Clock) -> None:
    moment = int(clock() * 1e6)
    assert _hub(1, HubState.ACTIVE, lease_until=moment + 1).pushes(moment)
    assert _hub(1, HubState.RENEWING, lease_until=moment + 1).pushes(moment)
    assert not _hub(1, HubState.ACTIVE, lease_until=moment).pushes(moment)
    assert not _hub(1, HubState.PENDING, lease_until=moment + 1).pushes(moment)


def test_pushes_are_counted(catalog: Catalog) -> None:
    with catalog.write() as connection:
        assert catalog_rows.hub_counts(connection) == {"pushes": 0, "refused": 0}
        hubs.count(connection, "refused")
        hubs.count(connection, "refused")
        hubs.count(connection, "pushes")
        assert catalog_rows.hub_counts(connection) == {"pushes": 1, "refused": 2}
