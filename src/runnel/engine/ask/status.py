"""Status: how a workspace is, at a glance, and what needs a person."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from runnel.catalog.access import consents
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.delivery import delivery_health, receipts
from runnel.catalog.logs import match_segments, plan_versions, quarantine
from runnel.catalog.polling import polls, source_files
from runnel.catalog.store import leases
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.ask.vitals import OperatorFigures, operator_figures
from runnel.engine.planning.ports import PlanFigures, read_figures
from runnel.engine.workspace import Workspace
from runnel.model.feed import FeedKind

_SHOWN = 5
_LITTLE_ROOM = 1 << 30
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a workspace: counts, lag, plan, runner, and problems that someone has to fix."""

    workspace: str
    sources: int
    virtual_feeds: int
    matched_feeds: int
    subscriptions: int
    accepted: int
    matched: int
    lag: int
    matches: int
    plan_version: int | None
    plan_queries: int
    runner: str
    messages: dict[str, int]
    put_aside: int
    failing_sources: list[dict[str, str]]
    dead_letters: list[dict[str, str]]
    disabled_subscriptions: list[dict[str, str]]
    unconfirmed_subscriptions: list[dict[str, str]]
    polls: dict[str, int]
    room_bytes: int
    operators: OperatorFigures
    distribution: PlanFigures
    """How the queries of the plan are distributed over workers."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        value = asdict(self)
        del value["distribution"]
        return value | self.distribution.to_json()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """For a terminal: what is always there, then what needs a person."""
        messages = ", ".join(f"{count:,} {state}" for state, count in sorted(self.messages.items())) or "none"
        plan = f"version {self.plan_version}, {self.plan_queries:,} queries" if self.plan_version else "none yet"
        virtual = f"{self.virtual_feeds:,} virtual ({self.matched_feeds:,} matched)"
        return [
            f"workspace      {self.workspace}",
            f"feeds          {self.sources:,} sources, {virtual}",
            f"subscriptions  {self.subscriptions:,}",
            f"items          {self.accepted:,} accepted, {self.matched:,} matched, {self.lag:,} waiting",
            f"matches        {self.matches:,}",
            f"plan           {plan}",
            *_wrapped("partitions", self.distribution.lines()),
            f"runner         {self.runner}",
            f"messages       {messages}",
            f"put aside      {self.put_aside:,}",
            *self._polling(),
            *self._operators(),
            *self._little_room(),
            *_some("failing", [_failing_line(one) for one in self.failing_sources], "runnel show quarantine"),
            *_some(
                "dead",
                [f"{one['message']}: {one['reason']}" for one in self.dead_letters],
                "runnel dead-letters list",
            ),
            *_some(
                "disabled",
                [f"subscription {one['subscription']}: {one['reason']}" for one in self.disabled_subscriptions],
                "runnel show subscriptions",
            ),
            *self._resuming(),
            *_some(
                "unconfirmed",
                [f"subscription {one['subscription']}: {one['reason']}" for one in self.unconfirmed_subscriptions],
                "runnel show subscriptions",
            ),
            *self._confirming(),
        ]

    def _resuming(self) -> list[str]:
        if not self.disabled_subscriptions:
            return []
        number = self.disabled_subscriptions[0]["subscription"]
        return [f"{'':<15}after the repair, `resume subscription {number};` sends the messages that wait"]

    def _confirming(self) -> list[str]:
        if not self.unconfirmed_subscriptions:
            return []
        number = self.unconfirmed_subscriptions[0]["subscription"]
        return [f"{'':<15}`send subscription {number} now;` asks again, `confirm subscription {number};` confirms it"]

    def _polling(self) -> list[str]:
        told = self.polls
        if not told["feeds"]:
            return []
        return [
            f"web feeds      {told['feeds']:,}, {told['due']:,} due, {told['failing']:,} failing, "
            f"{told['stopped']:,} stopped"
        ]

    def _operators(self) -> list[str]:
        told = self.operators
        if not told.are_used:
            return []
        some = [f"{told.registered:,}, {told.calls:,} calls, {told.known_answers:,} known answers"]
        some += [f"{told.unknown:,} left undecided"] if told.unknown else []
        some += [f"{told.waiting:,} items wait for another try"] if told.waiting else []
        return [f"operators      {', '.join(some)}"]

    def _little_room(self) -> list[str]:
        return [f"room           {self.room_bytes >> 20} MiB left"] if self.room_bytes < _LITTLE_ROOM else []


def _failing_line(one: Mapping[str, str]) -> str:
    since = f" (since {one['since']})" if one.get("since") else ""
    after = f"; next try {one['next_try']}" if one.get("next_try") else ""
    return f"{one['feed']}: {one['problem']}{since}{after}"


def _wrapped(label: str, facts: list[str]) -> list[str]:
    """Long lines under a label, none wider than a screen; what is cut off stands below, further in."""
    return [
        line
        for place, fact in enumerate(facts)
        for line in textwrap.wrap(
            fact,
            _WIDTH,
            initial_indent=f"{'' if place else label:<15}",
            subsequent_indent=" " * 19,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _some(label: str, lines: list[str], command: str) -> list[str]:
    """The first few lines under a label, and the command that lists all."""
    more = [f"{'':<15}and {len(lines) - _SHOWN:,} more; `{command}` lists all"] if len(lines) > _SHOWN else []
    return [*(f"{label:<15}{line}" for line in lines[:_SHOWN]), *more]


def read_status(workspace: Workspace) -> Status:
    """The status of a workspace, from one view of its catalog."""
    room = os.statvfs(workspace.folder)
    with workspace.catalog.read() as connection:
        declared = feeds.live_feeds(connection)
        accepted, matched = last_sequence(connection), match_segments.matched_upto(connection)
        plan = plan_versions.current_plan(connection)
        return Status(
            workspace=str(workspace.folder),
            sources=sum(feed.kind is FeedKind.SOURCE for feed in declared),
            virtual_feeds=sum(feed.kind is FeedKind.VIRTUAL for feed in declared),
            matched_feeds=len(feeds.since_of(connection)),
            subscriptions=len(subscriptions.live_subscriptions(connection)),
            accepted=accepted,
            matched=matched,
            lag=accepted - matched,
            matches=match_segments.match_count(connection),
            plan_version=plan.version if plan else None,
            plan_queries=plan.queries if plan else 0,
            runner=_runner(leases.state(connection)),
            messages=receipts.message_counts(connection),
            put_aside=quarantine.quarantined_count(connection),
            failing_sources=_failing(connection, {feed.id: feed.name for feed in declared}),
            dead_letters=[
                {"message": one.key, "reason": one.reason} for one in delivery_health.newest_dead(connection, 100)
            ],
            disabled_subscriptions=[
                {"subscription": str(number), "reason": reason}
                for number, reason in delivery_health.disabled_subscriptions(connection, 100)
            ],
            unconfirmed_subscriptions=[
                {"subscription": str(number), "reason": reason}
                for number, reason in consents.unconfirmed_subscriptions(connection, 100)
            ],
            polls=asdict(polls.poll_counts(connection)),
            room_bytes=room.f_bavail * room.f_frsize,
            operators=operator_figures(connection),
            distribution=read_figures(workspace, connection, plan),
        )


def _failing(connection: Connection, names: Mapping[int, str]) -> list[dict[str, str]]:
    """Files and web feeds that cannot be read."""
    files = [
        {"feed": names[file.feed], "problem": file.problem}
        for file in source_files.known_files(connection)
        if file.problem and file.feed in names
    ]
    web = [
        {
            "feed": one.name,
            "problem": one.problem,
            "since": _moment(one.since),
            "next_try": "never: the feed is gone" if one.stopped else _moment(one.next_try),
        }
        for one in polls.failing(connection)
    ]
    return files + web


def _moment(microseconds: int | None) -> str:
    if microseconds is None:
        return ""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(sep=" ", timespec="minutes")


def _runner(state: leases.LeaseState | None) -> str:
    if state is None or not state.alive:
        return "none"
    holder = json.loads(state.holder)
    return f"process {holder['process']} on {holder['host']}: {state.detail}"
