"""Polls in the catalog: the state of every web feed, when it is due, and its problems.

In: results of polls, many in one transaction. Out: the feeds that are due, and the figures for status and metrics. A
row is created when the poller first sees a feed (`adopt`) and deleted after the feed was dropped (`maintain_polls`).
Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from runnel.catalog.polling.poll_memory import PollMemory
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.feed import Feed, FeedKind

GONE = "gone"
"""The reason for which a feed is no longer polled: its publisher ended it (410)."""

_TOTALS = {name: f"polls_{name}" for name in ("requests", "unchanged", "saturated")}
_p, _f, _r, _c, _o = schema.polls.c, schema.feeds.c, schema.revisions.c, schema.counters.c, schema.owners.c


@dataclass(frozen=True, slots=True)
class PollState:
    """The state of a polled feed. `address` is its current URL after permanent redirects."""

    feed: int
    address: str
    etag: str | None = None
    modified: str | None = None
    due: int = 0
    checked: int | None = None
    changed: int | None = None
    status: int | None = None
    failures: int = 0
    problem: str | None = None
    stopped: str | None = None
    learned: str | None = None
    requests: int = 0
    unchanged: int = 0

    @property
    def memory(self) -> PollMemory:
        """The poller's further memory."""
        return PollMemory.from_text(self.learned)


@dataclass(frozen=True, slots=True)
class DuePoll:
    """A feed that is due, and its state."""

    feed: Feed
    state: PollState


@dataclass(frozen=True, slots=True)
class PollCounts:
    """Figures of all live web feeds. `requests`, `unchanged` and `saturated` are totals of all time."""

    feeds: int = 0
    due: int = 0
    failing: int = 0
    stopped: int = 0
    requests: int = 0
    unchanged: int = 0
    saturated: int = 0


@dataclass(frozen=True, slots=True)
class FailingPoll:
    """A web feed that cannot be read: why, since when, and when it is tried again (never, if it is `stopped`)."""

    feed: int
    name: str
    address: str
    problem: str
    status: int | None
    failures: int
    since: int | None
    next_try: int | None
    stopped: str | None


_LIVE_WEB = and_(
    _f.kind == FeedKind.SOURCE.value,
    _f.dropped.is_(None),
    or_(func.lower(_f.address).like("http://%"), func.lower(_f.address).like("https://%")),
)
_DUE = (
    select(
        schema.polls,
        _f.name,
        _f.address.label("declared"),
        _f.owner,
        _f.period,
        _f.revision,
        _r.statement,
    )
    .join(schema.feeds, _f.id == _p.feed)
    .join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
    .join(schema.owners, _o.id == _f.owner)
    .where(_f.dropped.is_(None), _f.paused == 0, _p.stopped.is_(None), _o.disabled.is_(None))
)


def adopt(connection: Connection, after: int = 0) -> int:
    """Create rows for web feeds with ids above `after`, due at once. Return the highest id.

    Ids increase with every declaration, so a poller that calls this in every round checks only new feeds.
    """
    highest = int(connection.execute(select(func.max(_f.id))).scalar() or 0)
    if highest <= after:
        return highest
    known = select(_p.feed).where(_p.feed == _f.id).exists()
    rows = connection.execute(select(_f.id, _f.address).where(_f.id > after, _LIVE_WEB, ~known)).all()
    moment = now(connection)
    fresh = [
        {"feed": row.id, "address": row.address, "due": moment, "failures": 0, "requests": 0, "unchanged": 0}
        for row in rows
    ]
    if fresh:
        connection.execute(insert(schema.polls), fresh)
    return highest


def needs_maintenance(connection: Connection, after: int) -> bool:
    """Return whether there are new feeds, dropped feeds, or stopped feeds that were resumed."""
    highest = connection.execute(select(func.max(_f.id))).scalar() or 0
    gone = select(_p.feed).join(schema.feeds, _f.id == _p.feed).where(_f.dropped.is_not(None))
    return (
        int(highest) > after
        or connection.execute(gone.limit(1)).first() is not None
        or connection.execute(_resumed().limit(1)).first() is not None
    )


def maintain_polls(connection: Connection) -> None:
    """Delete the polls of dropped feeds, and restart stopped feeds that were resumed.

    `resume feed` creates a revision of the feed even if it was not paused. A revision after the last poll means that
    the feed should be polled again.
    """
    dropped = select(_f.id).where(_f.id == _p.feed, _f.dropped.is_not(None)).exists()
    connection.execute(delete(schema.polls).where(dropped))
    for row in connection.execute(_resumed()).all():
        resume_poll(connection, row.feed)


def resume_poll(connection: Connection, feed: int) -> None:
    """Poll a stopped feed again now, at its declared address."""
    declared = select(_f.address).where(_f.id == feed).scalar_subquery()
    connection.execute(
        update(schema.polls)
        .where(_p.feed == feed)
        .values(stopped=None, problem=None, failures=0, due=now(connection), address=declared)
    )


def _resumed() -> Select[Any]:
    return (
        select(_p.feed)
        .join(schema.feeds, _f.id == _p.feed)
        .join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
        .where(
            _p.stopped == GONE,
            _f.dropped.is_(None),
            _f.paused == 0,
            _r.created > func.coalesce(_p.checked, 0),
        )
    )


def due_polls(connection: Connection, limit: int = 100_000) -> list[DuePoll]:
    """Return the feeds that are due, longest waiting first. Paused feeds wait."""
    query = _DUE.where(_p.due <= now(connection)).order_by(_p.due, _p.feed).limit(limit)
    return [DuePoll(_feed(row), _state(row)) for row in connection.execute(query)]


def record_polls(connection: Connection, done: Sequence[PollState], saturated: int = 0) -> None:
    """Write the results of polls. In these states, `requests` and `unchanged` are added to the counters."""
    if not done:
        return
    connection.execute(_RECORD, [_parameters(state) for state in done])
    _count(connection, "requests", sum(state.requests for state in done))
    _count(connection, "unchanged", sum(state.unchanged for state in done))
    _count(connection, "saturated", saturated)


def poll_states(connection: Connection, feeds: Sequence[int] | None = None) -> list[PollState]:
    """Return the states of these polled feeds, or of all, in order of ids."""
    query = select(schema.polls).order_by(_p.feed)
    if feeds is None:
        return [_state(row) for row in connection.execute(query)]
    return [
        _state(row) for chunk in chunks(sorted(feeds)) for row in connection.execute(query.where(_p.feed.in_(chunk)))
    ]


def live_of(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return the feeds that are neither dropped nor paused."""
    query = (
        select(_f.id)
        .join(schema.owners, _o.id == _f.owner)
        .where(_f.dropped.is_(None), _f.paused == 0, _o.disabled.is_(None))
    )
    return {row.id for chunk in chunks(sorted(feeds)) for row in connection.execute(query.where(_f.id.in_(chunk)))}


def failing(connection: Connection) -> list[FailingPoll]:
    """Return the live web feeds with a problem, longest failing first."""
    query = (
        select(schema.polls, _f.name)
        .join(schema.feeds, _f.id == _p.feed)
        .where(_p.problem.is_not(None), _f.dropped.is_(None))
        .order_by(_p.feed)
    )
    failing_polls = [
        FailingPoll(
            feed=row.feed,
            name=row.name,
            address=row.address,
            problem=row.problem,
            status=row.status,
            failures=row.failures,
            since=PollMemory.from_text(row.learned).since,
            next_try=None if row.stopped else row.due,
            stopped=row.stopped,
        )
        for row in connection.execute(query)
    ]
    return sorted(failing_polls, key=lambda poll: (poll.since or 0, poll.feed))


def poll_counts(connection: Connection) -> PollCounts:
    """Return the figures of all web feeds, with one scan of the table of polls."""
    live = _f.dropped.is_(None)
    polled = and_(live, _p.stopped.is_(None))
    row = connection.execute(
        select(
            func.count().filter(live).label("feeds"),
            func.count().filter(and_(polled, _f.paused == 0, _p.due <= now(connection))).label("due"),
            func.count().filter(and_(polled, _p.problem.is_not(None))).label("failing"),
            func.count().filter(and_(live, _p.stopped.is_not(None))).label("stopped"),
        ).select_from(schema.polls.join(schema.feeds, _f.id == _p.feed))
    ).one()
    counted = connection.execute(select(schema.counters).where(_c.name.in_(_TOTALS.values())))
    totals = {counter.name: int(counter.value) for counter in counted}
    return PollCounts(
        feeds=int(row.feeds),
        due=int(row.due),
        failing=int(row.failing),
        stopped=int(row.stopped),
        **{name: totals.get(stored, 0) for name, stored in _TOTALS.items()},
    )


_KEPT = ("address", "etag", "modified", "due", "checked", "changed", "status", "failures", "problem", "stopped")
_RECORD = (
    update(schema.polls)
    .where(_p.feed == bindparam("of_feed"))
    .values(
        {name: bindparam(f"new_{name}") for name in (*_KEPT, "learned")}
        | {
            "requests": _p.requests + bindparam("more_requests"),
            "unchanged": _p.unchanged + bindparam("more_unchanged"),
        }
    )
)


def _parameters(state: PollState) -> dict[str, Any]:
    return {f"new_{name}": getattr(state, name) for name in (*_KEPT, "learned")} | {
        "of_feed": state.feed,
        "more_requests": state.requests,
        "more_unchanged": state.unchanged,
    }


def _count(connection: Connection, name: str, by: int) -> None:
    if not by:
        return
    build = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
    statement = build(schema.counters).values(name=_TOTALS[name], value=by)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": _c.value + by}))


def _feed(row: Any) -> Feed:
    return Feed(
        id=row.feed,
        name=row.name,
        kind=FeedKind.SOURCE,
        statement=row.statement,
        address=row.declared,
        revision=row.revision,
        owner=row.owner,
        every=None if row.period is None else timedelta(microseconds=row.period),
    )


def _state(row: Any) -> PollState:
    return PollState(
        feed=row.feed,
        address=row.address,
        etag=row.etag,
        modified=row.modified,
        due=row.due,
        checked=row.checked,
        changed=row.changed,
        status=row.status,
        failures=row.failures,
        problem=row.problem,
        stopped=row.stopped,
        learned=row.learned,
        requests=row.requests,
        unchanged=row.unchanged,
    )
