"""Counts of open work, each from a partial index, so that they are fast however old the catalog is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BindParameter, Connection, bindparam, func, or_, select

from runnel.catalog.store import schema
from runnel.model.message import MessageState


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Counts of waiting, failing and quarantined work."""

    messages_open: int
    messages_dead: int
    subscriptions_disabled: int
    feeds_failing: int
    feeds_stopped: int
    quarantine_last: int
    batch_committed: int | None
    """When the last batch was committed, in microseconds since 1970."""


def open_work(connection: Connection) -> OpenWork:
    """Count the open work, for status and metrics."""
    messages, subscriptions = schema.messages.c, schema.subscriptions.c
    polls, files = schema.polls.c, schema.source_files.c
    counted = {
        "open": select(func.count()).where(messages.state == _literal(MessageState.OPEN)),
        "dead": select(func.count()).where(messages.state == _literal(MessageState.DEAD)),
        "disabled": select(func.count()).where(subscriptions.disabled.is_not(None), subscriptions.ended.is_(None)),
        "polls": select(func.count()).where(or_(polls.failures > _literal(0), polls.stopped.is_not(None))),
        "stopped": select(func.count()).where(polls.stopped.is_not(None)),
        "files": select(func.count(func.distinct(files.feed))).where(files.problem.is_not(None)),
        "aside": select(func.max(schema.quarantine.c.id)),
    }
    segments = schema.match_segments.c
    last = select(segments.committed).order_by(segments.last_sequence.desc()).limit(1)
    counts = {name: int(connection.execute(query).scalar() or 0) for name, query in counted.items()}
    return OpenWork(
        messages_open=counts["open"],
        messages_dead=counts["dead"],
        subscriptions_disabled=counts["disabled"],
        feeds_failing=counts["polls"] - counts["stopped"] + counts["files"],
        feeds_stopped=counts["stopped"],
        quarantine_last=counts["aside"],
        batch_committed=connection.execute(last).scalar_one_or_none(),
    )


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead letter and the reason."""

    key: str
    reason: str


def newest_dead(connection: Connection, limit: int) -> list[DeadMessage]:
    """Return the newest dead letters."""
    message = schema.messages.c
    query = (
        select(message.key, message.outcome)
        .where(message.state == _literal(MessageState.DEAD))
        .order_by(message.finished.desc())
        .limit(limit)
    )
    return [DeadMessage(row.key, row.outcome or "no reason was recorded") for row in connection.execute(query)]


def disabled_subscriptions(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """Return live subscriptions that are disabled, with the reason."""
    column = schema.subscriptions.c
    query = select(column.id, column.disabled).where(column.disabled.is_not(None), column.ended.is_(None))
    return [(row.id, row.disabled) for row in connection.execute(query.order_by(column.id).limit(limit))]


def _literal(value: str | int) -> BindParameter[str | int]:
    # A literal, not a parameter: only then does a database use a partial index.
    return bindparam(None, value, literal_execute=True)
