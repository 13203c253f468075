"""The vital signs of a workspace: the few figures that say whether it keeps up, read in one cheap look."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.access.consents import unconfirmed_count
from runnel.catalog.declared import operators
from runnel.catalog.delivery.delivery_health import open_work
from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import match_segments, plan_versions, undecided
from runnel.catalog.store import counters, leases
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.planning.ports import plan_port
from runnel.engine.workspace import Workspace


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """What operators have done in a workspace so far.

    `calls` were answered, by operators or from known answers; `unknown` counts how often a query was left undecided
    for an item, and `waiting` the items that are tried again.
    """

    registered: int
    calls: int
    unknown: int
    waiting: int
    known_answers: int
    known_bytes: int

    @property
    def are_used(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.registered or self.calls or self.waiting)


@dataclass(frozen=True, slots=True)
class Vitals:
    """What an operator watches; None where there is nothing to say yet."""

    accepted: int
    matched: int
    lag: int
    plan_version: int | None
    plan_queries: int
    batch_seconds: float | None
    messages_open: int
    messages_dead: int
    subscriptions_disabled: int
    subscriptions_unconfirmed: int
    feeds_failing: int
    feeds_stopped: int
    quarantine_last: int
    lease_epoch: int
    room_bytes: int
    operators: OperatorFigures
    distribution: Mapping[str, float | None]
    """How the plan is distributed over workers, by the names of metrics."""


def read_vitals(workspace: Workspace) -> Vitals:
    """The vital signs of a workspace, from one view of its catalog."""
    with workspace.catalog.read() as connection:
        accepted, matched = last_sequence(connection), match_segments.matched_upto(connection)
        plan, lease = plan_versions.current_plan(connection), leases.state(connection)
        waiting = open_work(connection)
        committed = waiting.batch_committed
        return Vitals(
            accepted=accepted,
            matched=matched,
            lag=accepted - matched,
            plan_version=plan.version if plan else None,
            plan_queries=plan.queries if plan else 0,
            batch_seconds=None if committed is None else max(0.0, (now(connection) - committed) / 1e6),
            messages_open=waiting.messages_open,
            messages_dead=waiting.messages_dead,
            subscriptions_disabled=waiting.subscriptions_disabled,
            subscriptions_unconfirmed=unconfirmed_count(connection),
            feeds_failing=waiting.feeds_failing,
            feeds_stopped=waiting.feeds_stopped,
            quarantine_last=waiting.quarantine_last,
            lease_epoch=lease.epoch if lease else 0,
            room_bytes=_room(workspace),
            operators=operator_figures(connection),
            distribution={} if plan is None else plan_port(plan.distribution).gauges(connection, plan),
        )


def operator_figures(connection: Connection) -> OperatorFigures:
    """The figures of operators: totals, and counts of what is short-lived or merged."""
    known = operator_cache.cache_totals(connection)
    return OperatorFigures(
        registered=len(operators.live_operators(connection)),
        calls=counters.read_counter(connection, counters.OPERATOR_CALLS),
        unknown=counters.read_counter(connection, counters.OPERATOR_UNKNOWN),
        waiting=undecided.undecided_count(connection),
        known_answers=known.answers,
        known_bytes=known.bytes,
    )


def _room(workspace: Workspace) -> int:
    status = os.statvfs(workspace.folder)
    return status.f_bavail * status.f_frsize
