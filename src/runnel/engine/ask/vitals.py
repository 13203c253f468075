"""The figures of a workspace that the metrics endpoint exports, read in one inexpensive catalog transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.access.consents import unconfirmed_count
from runnel.catalog.declared import operators
from runnel.catalog.delivery.delivery_health import open_work
from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import match_segments, plan_versions, undecided, windows
from runnel.catalog.store import counters, leases
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.planning.ports import plan_port
from runnel.engine.workspace import Workspace


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """Totals of the operators of a workspace.

    `calls` counts answered calls, including those answered from the cache. `unknown` counts the pairs of item and
    query that were left undecided, and `waiting` the items that wait for a retry. `known_answers` and `known_bytes`
    measure the cache.
    """

    registered: int
    calls: int
    unknown: int
    waiting: int
    known_answers: int
    known_bytes: int

    @property
    def are_used(self) -> bool:
        """Whether operators are registered, were called, or have waiting items."""
        return bool(self.registered or self.calls or self.waiting)


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """Totals of the joins of a workspace.

    `windows` are filled, and have `window_items` in files of `window_bytes`. `items` counts how often an item reached
    a join, and `candidates` the window items with which it was compared.
    """

    windows: int
    window_items: int
    window_bytes: int
    items: int
    candidates: int

    @property
    def are_used(self) -> bool:
        """Whether a window is filled, or an item reached a join."""
        return bool(self.windows or self.items)


@dataclass(frozen=True, slots=True)
class Vitals:
    """The figures of a workspace. A figure is None until it has a value."""

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
    joins: JoinFigures
    distribution: Mapping[str, float | None]
    """Figures of the plan's distribution over workers, by metric name."""


def read_vitals(workspace: Workspace) -> Vitals:
    """Read the figures of a workspace from one snapshot of its catalog."""
    with workspace.catalog.read() as connection:
        accepted, matched = last_sequence(connection), match_segments.matched_upto(connection)
        plan, lease = plan_versions.current_plan(connection), leases.state(connection)
        work = open_work(connection)
        committed = work.batch_committed
        return Vitals(
            accepted=accepted,
            matched=matched,
            lag=accepted - matched,
            plan_version=plan.version if plan else None,
            plan_queries=plan.queries if plan else 0,
            batch_seconds=None if committed is None else max(0.0, (now(connection) - committed) / 1e6),
            messages_open=work.messages_open,
            messages_dead=work.messages_dead,
            subscriptions_disabled=work.subscriptions_disabled,
            subscriptions_unconfirmed=unconfirmed_count(connection),
            feeds_failing=work.feeds_failing,
            feeds_stopped=work.feeds_stopped,
            quarantine_last=work.quarantine_last,
            lease_epoch=lease.epoch if lease else 0,
            room_bytes=_free_bytes(workspace),
            operators=operator_figures(connection),
            joins=join_figures(connection),
            distribution={} if plan is None else plan_port(plan.distribution).gauges(connection, plan),
        )


def operator_figures(connection: Connection) -> OperatorFigures:
    """Read the totals of the operators."""
    cache = operator_cache.cache_totals(connection)
    return OperatorFigures(
        registered=len(operators.live_operators(connection)),
        calls=counters.read_counter(connection, counters.OPERATOR_CALLS),
        unknown=counters.read_counter(connection, counters.OPERATOR_UNKNOWN),
        waiting=undecided.undecided_count(connection),
        known_answers=cache.answers,
        known_bytes=cache.bytes,
    )


def join_figures(connection: Connection) -> JoinFigures:
    """Read the totals of the joins."""
    totals = windows.window_totals(connection)
    return JoinFigures(
        windows=totals.windows,
        window_items=totals.items,
        window_bytes=totals.bytes,
        items=counters.read_counter(connection, counters.JOIN_ITEMS),
        candidates=counters.read_counter(connection, counters.JOIN_CANDIDATES),
    )


def _free_bytes(workspace: Workspace) -> int:
    status = os.statvfs(workspace.folder)
    return status.f_bavail * status.f_frsize
