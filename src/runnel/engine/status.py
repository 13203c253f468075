"""Status: how a root is, at a glance."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from runnel.catalog import feeds, inspection, leases, ledger, matches, plans, subscriptions
from runnel.catalog.sequencer import last_sequence
from runnel.engine.root import Root
from runnel.model.feed import FeedKind

_FAILING_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Status:
    """What matters about a root: counts, lag, the plan, the runner, and what needs a person."""

    root: str
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

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For a terminal."""
        more = len(self.failing_sources) - _FAILING_SHOWN
        messages = ", ".join(f"{count} {state}" for state, count in sorted(self.messages.items())) or "none"
        plan = f"version {self.plan_version}, {self.plan_queries} queries" if self.plan_version else "none yet"
        return [
            f"root           {self.root}",
            f"feeds          {self.sources} sources, {self.virtual_feeds} virtual ({self.matched_feeds} matched)",
            f"subscriptions  {self.subscriptions}",
            f"items          {self.accepted} accepted, {self.matched} matched, {self.lag} waiting",
            f"matches        {self.matches}",
            f"plan           {plan}",
            f"runner         {self.runner}",
            f"messages       {messages}",
            f"put aside      {self.put_aside}",
            *(f"failing        {one['feed']}: {one['problem']}" for one in self.failing_sources[:_FAILING_SHOWN]),
            *([f"               and {more} more sources; `runnel show quarantine` lists all"] if more > 0 else []),
        ]


def read_status(root: Root) -> Status:
    """The status of a root, from one view of its catalog."""
    with root.catalog.read() as connection:
        declared = feeds.live_feeds(connection)
        names = {feed.id: feed.name for feed in declared}
        accepted, matched = last_sequence(connection), matches.matched_upto(connection)
        plan = plans.current_plan(connection)
        return Status(
            root=str(root.folder),
            sources=sum(feed.kind is FeedKind.SOURCE for feed in declared),
            virtual_feeds=sum(feed.kind is FeedKind.VIRTUAL for feed in declared),
            matched_feeds=len(feeds.since_of(connection)),
            subscriptions=len(subscriptions.live_subscriptions(connection)),
            accepted=accepted,
            matched=matched,
            lag=accepted - matched,
            matches=matches.match_count(connection),
            plan_version=plan.version if plan else None,
            plan_queries=plan.queries if plan else 0,
            runner=_runner(leases.state(connection)),
            messages=ledger.message_counts(connection),
            put_aside=inspection.put_aside_count(connection),
            failing_sources=[
                {"feed": names[file.feed], "problem": file.problem}
                for file in inspection.source_files(connection)
                if file.problem and file.feed in names
            ],
        )


def _runner(state: leases.LeaseState | None) -> str:
    if state is None or not state.alive:
        return "none"
    holder = json.loads(state.holder)
    return f"process {holder['process']} on {holder['host']}: {state.detail}"
