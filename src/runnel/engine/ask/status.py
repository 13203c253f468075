"""The status of a workspace: counts, lag, plan and runner, and the problems that need attention."""

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
from runnel.catalog.declared import feeds, subscriptions, tables
from runnel.catalog.delivery import delivery_health, receipts
from runnel.catalog.logs import match_segments, plan_versions, quarantine
from runnel.catalog.polling import polls, source_files
from runnel.catalog.store import leases
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.ask.vitals import JoinFigures, OperatorFigures, join_figures, operator_figures
from runnel.engine.planning.ports import PlanFigures, read_figures
from runnel.engine.workspace import Workspace
from runnel.model.feed import FeedKind
from runnel.optimizer.describe import counted

_SHOWN = 5
_LOW_DISK_BYTES = 1 << 30
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a workspace: counts, lag, plan and runner, and the problems that need attention.

    `put_aside` is the number of quarantined documents, items and evaluations; `room_bytes` is the free disk space.
    """

    workspace: str
    sources: int
    virtual_feeds: int
    matched_feeds: int
    subscriptions: int
    accepted: int
    matched: int
    lag: int
    matches: int
    tables: int
    rows: int
    table_tail: int
    late_changes: int
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
    joins: JoinFigures
    distribution: PlanFigures
    """The distribution of the plan's queries over workers."""

    def to_json(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        value = asdict(self)
        del value["distribution"]
        return value | self.distribution.to_json()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return lines for a terminal: first the lines that are always present, then the problems."""
        messages = ", ".join(f"{count:,} {state}" for state, count in sorted(self.messages.items())) or "none"
        plan = f"version {self.plan_version}, {self.plan_queries:,} queries" if self.plan_version else "none yet"
        virtual = f"{self.virtual_feeds:,} virtual ({self.matched_feeds:,} matched)"
        return [
            f"workspace      {self.workspace}",
            f"feeds          {self.sources:,} sources, {virtual}",
            *self._table_lines(),
            f"subscriptions  {self.subscriptions:,}",
            f"items          {self.accepted:,} accepted, {self.matched:,} matched, {self.lag:,} waiting",
            f"matches        {self.matches:,}",
            f"plan           {plan}",
            *_wrapped("partitions", self.distribution.lines()),
            f"runner         {self.runner}",
            f"messages       {messages}",
            f"quarantined    {self.put_aside:,}",
            *self._poll_lines(),
            *self._operator_lines(),
            *self._join_lines(),
            *self._disk_lines(),
            *_first_lines(
                "failing", [_failing_line(source) for source in self.failing_sources], "runnel status --json"
            ),
            *_first_lines(
                "dead",
                [f"{letter['message']}: {letter['reason']}" for letter in self.dead_letters],
                "runnel dead-letters list",
            ),
            *_first_lines("disabled", _subscription_lines(self.disabled_subscriptions), "runnel show subscriptions"),
            *self._resume_lines(),
            *_first_lines(
                "unconfirmed", _subscription_lines(self.unconfirmed_subscriptions), "runnel show subscriptions"
            ),
            *self._confirm_lines(),
        ]

    def _resume_lines(self) -> list[str]:
        if not self.disabled_subscriptions:
            return []
        number = self.disabled_subscriptions[0]["subscription"]
        return [f"{'':<15}after the repair, `resume subscription {number};` sends the waiting messages"]

    def _confirm_lines(self) -> list[str]:
        if not self.unconfirmed_subscriptions:
            return []
        number = self.unconfirmed_subscriptions[0]["subscription"]
        send = f"`send subscription {number} now;` requests confirmation again"
        return [f"{'':<15}{send}, `confirm subscription {number};` confirms"]

    def _table_lines(self) -> list[str]:
        if not self.tables:
            return []
        late = f", {self.late_changes:,} late changes skipped" if self.late_changes else ""
        changes = f"{self.table_tail:,} changes not yet in a base"
        return [f"tables         {self.tables:,}, {self.rows:,} rows, {changes}{late}"]

    def _poll_lines(self) -> list[str]:
        counts = self.polls
        if not counts["feeds"]:
            return []
        return [
            f"web feeds      {counts['feeds']:,}, {counts['due']:,} due, {counts['failing']:,} failing, "
            f"{counts['stopped']:,} stopped"
        ]

    def _operator_lines(self) -> list[str]:
        figures = self.operators
        if not figures.are_used:
            return []
        parts = [f"{figures.registered:,}, {figures.calls:,} calls, {figures.known_answers:,} cached answers"]
        parts += [f"{figures.unknown:,} left undecided"] if figures.unknown else []
        parts += [f"{figures.waiting:,} items wait for a retry"] if figures.waiting else []
        return [f"operators      {', '.join(parts)}"]

    def _join_lines(self) -> list[str]:
        figures = self.joins
        if not figures.are_used:
            return []
        stored = f"{counted(figures.window_items, 'item')} in {figures.window_bytes:,} bytes"
        work = f"joins compared {counted(figures.items, 'item')} with {figures.candidates:,} candidates"
        return _wrapped("windows", [f"{figures.windows:,} with {stored}; {work}"])

    def _disk_lines(self) -> list[str]:
        return [f"free disk      {self.room_bytes >> 20} MiB"] if self.room_bytes < _LOW_DISK_BYTES else []


def _failing_line(source: Mapping[str, str]) -> str:
    since = f" (since {source['since']})" if source.get("since") else ""
    next_try = f"; next try {source['next_try']}" if source.get("next_try") else ""
    return f"{source['feed']}: {source['problem']}{since}{next_try}"


def _subscription_lines(rows: list[dict[str, str]]) -> list[str]:
    return [f"subscription {row['subscription']}: {row['reason']}" for row in rows]


def _wrapped(label: str, facts: list[str]) -> list[str]:
    """Wrap the lines under a label at the screen width, with continuation lines indented further."""
    return [
        line
        for index, fact in enumerate(facts)
        for line in textwrap.wrap(
            fact,
            _WIDTH,
            initial_indent=f"{'' if index else label:<15}",
            subsequent_indent=" " * 19,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _first_lines(label: str, lines: list[str], command: str) -> list[str]:
    """Return the first few lines under a label, and the command that lists all."""
    more = [f"{'':<15}and {len(lines) - _SHOWN:,} more; `{command}` lists all"] if len(lines) > _SHOWN else []
    return [*(f"{label:<15}{line}" for line in lines[:_SHOWN]), *more]


def read_status(workspace: Workspace) -> Status:
    """Read the status of a workspace from one snapshot of its catalog."""
    disk = os.statvfs(workspace.folder)
    with workspace.catalog.read() as connection:
        declared = feeds.live_feeds(connection)
        accepted, matched = last_sequence(connection), match_segments.matched_upto(connection)
        plan = plan_versions.current_plan(connection)
        of_tables = tables.table_counts(connection)
        return Status(
            workspace=str(workspace.folder),
            sources=sum(feed.kind is FeedKind.SOURCE for feed in declared),
            virtual_feeds=sum(feed.kind is FeedKind.VIRTUAL for feed in declared),
            matched_feeds=len(feeds.since_of(connection, [feed.id for feed in declared])),
            subscriptions=len(subscriptions.live_subscriptions(connection)),
            accepted=accepted,
            matched=matched,
            lag=accepted - matched,
            matches=match_segments.match_count(connection),
            tables=of_tables.tables,
            rows=of_tables.rows,
            table_tail=of_tables.tail,
            late_changes=of_tables.late,
            plan_version=plan.version if plan else None,
            plan_queries=plan.queries if plan else 0,
            runner=_describe_runner(leases.state(connection)),
            messages=receipts.message_counts(connection),
            put_aside=quarantine.quarantined_count(connection),
            failing_sources=_failing_sources(connection, {feed.id: feed.name for feed in declared}),
            dead_letters=[
                {"message": letter.key, "reason": letter.reason}
                for letter in delivery_health.newest_dead(connection, 100)
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
            room_bytes=disk.f_bavail * disk.f_frsize,
            operators=operator_figures(connection),
            joins=join_figures(connection),
            distribution=read_figures(workspace, connection, plan),
        )


def _failing_sources(connection: Connection, names: Mapping[int, str]) -> list[dict[str, str]]:
    """List the files and web feeds that cannot be read."""
    files = [
        {"feed": names[file.feed], "problem": file.problem}
        for file in source_files.known_files(connection)
        if file.problem and file.feed in names
    ]
    web = [
        {
            "feed": feed.name,
            "problem": feed.problem,
            "since": _format_time(feed.since),
            "next_try": "never: the feed is gone" if feed.stopped else _format_time(feed.next_try),
        }
        for feed in polls.failing(connection)
    ]
    return files + web


def _format_time(microseconds: int | None) -> str:
    if microseconds is None:
        return ""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(sep=" ", timespec="minutes")


def _describe_runner(state: leases.LeaseState | None) -> str:
    if state is None or not state.alive:
        return "none"
    holder = json.loads(state.holder)
    return f"process {holder['process']} on {holder['host']}: {state.detail}"
