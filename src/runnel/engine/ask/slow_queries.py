"""Slow queries: what costs most, which part of it, and how to make it cheaper.

In: the plan and the newest items, some of which are looked at closely. Out: what queries cost
(`catalog.learned.query_costs`), a list for an actor, who sees only what is theirs, and a line in the journal when a
query becomes slow.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from runnel.catalog.access import owners
from runnel.catalog.declared import feeds
from runnel.catalog.learned import query_costs
from runnel.catalog.learned.query_costs import KnownCost
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.store import leases
from runnel.catalog.store.connection import now
from runnel.engine.actors import Actor
from runnel.engine.workspace import Workspace
from runnel.model.learned.query_costs import merged_costs
from runnel.model.learned.sampling import scattered
from runnel.plan.store import PlanVersion, load

logger = logging.getLogger("runnel")

_NEWEST = 4_096
_SAMPLES = 8
"""Items that are looked at closely each time, and out of how many: some milliseconds each."""

_NARROW = "add a word or a value that few items have: `and title contains '…'`; it is then tried on those alone"

HINTS: Final[dict[str, str]] = {
    "RegularExpression": f"a regular expression is tried on every item that the rest lets through: {_NARROW}",
    "Similar": "leave frequent words out of the text that is compared, or raise `at least`",
    "ContainsPattern": f"begin the pattern with more letters, or {_NARROW}",
    "ContainsStems": f"stems are made of every item that the rest lets through: {_NARROW}",
    "InNetwork": f"addresses are read in every item that the rest lets through: {_NARROW}",
    "References": f"links are looked for in every item that the rest lets through: {_NARROW}",
    "Extends": f"links are looked for in every item that the rest lets through: {_NARROW}",
    "Shares": f"links are looked for in every item that the rest lets through: {_NARROW}",
    "Formula": "the condition is too large for the index: divide it into several feeds and read those",
    "Walk": "it is found by something that many items have: add a word or a value that few have",
}
"""What to do about each kind of cost."""

EVERY_ITEM = "nothing in it must be there, so every item is looked at: add a word or a value that an item must have"


@dataclass(frozen=True, slots=True)
class SlowQuery:
    """A query with its cost: milliseconds for a thousand items, its dearest part, and a hint.

    `is_slow` says that it takes longer than the setting slow_query_milliseconds; `sampled` how many items showed it.
    """

    query: str
    owner: str
    milliseconds: float
    part: str
    hint: str
    is_slow: bool
    sampled: float

    def line(self) -> str:
        """For a person, without the hint."""
        mark = "slow" if self.is_slow else "    "
        return (
            f"{self.milliseconds:>10.3f}  {mark}  {self.query}  ({self.owner})  {self.part or 'asked of every item'}"
        )


def read_slow_queries(
    workspace: Workspace, actor: Actor, among: Collection[int] | None = None
) -> tuple[SlowQuery, ...]:
    """The queries that cost most, of those that are the actor's own (to the operator: all), the dearest first."""
    limit = workspace.settings.slow_query_milliseconds
    with workspace.catalog.read() as connection:
        known = query_costs.known_costs(connection)
        owner_of = feeds.feed_owners(connection, [one.query for one in known])
        names, owner_names = feeds.feed_names(connection), owners.owner_names(connection)
    return tuple(
        _described(one, names[one.query], owner_names[owner_of[one.query]], one.is_slow(limit))
        for one in known
        if (actor.is_admin or owner_of[one.query] == actor.owner) and (among is None or one.query in among)
    )


def sample_costs(workspace: Workspace, epoch: int) -> None:
    """Look closely at some of the items that were matched last, and learn what they cost each query."""
    from runnel.matching.costs.sample_costs import CostSampler  # compiles loops: not for commands that end at once

    with workspace.catalog.read() as connection:
        moment, plan, upto = (
            now(connection),
            plan_versions.current_plan(connection),
            match_segments.matched_upto(connection),
        )
    if plan is None:
        return
    sampler = CostSampler(load(workspace.storage, PlanVersion.of(plan)))
    newest = list(workspace.items.read(max(0, upto - _NEWEST), upto))
    chances = (scattered(upto + turn) for turn in range(_SAMPLES))
    found = merged_costs([sampler.sample(newest[chance % len(newest)], chance >> 16) for chance in chances if newest])
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        query_costs.learn(connection, found, moment)


def log_slow_queries(workspace: Workspace, epoch: int) -> int:
    """Write a line into the journal for every query that has become slow; gives how many. Each is told of once."""
    limit = workspace.settings.slow_query_milliseconds
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        found = query_costs.newly_slow(connection, limit)
        if not found:
            return 0
        owner_of = feeds.feed_owners(connection, [one.query for one in found])
        names, owner_names = feeds.feed_names(connection), owners.owner_names(connection)
    for one in found:
        told = _described(one, names[one.query], owner_names[owner_of[one.query]], True)
        logger.warning(
            "the query %s takes about %.1f ms for 1,000 items, mostly for: %s; %s",
            told.query,
            told.milliseconds,
            told.part or "being evaluated for every item",
            told.hint,
            extra={"feed": told.query, "owner": told.owner},
        )
    return len(found)


def _described(one: KnownCost, name: str, owner: str, is_slow: bool) -> SlowQuery:
    _, kind, part = one.cost.cost
    hint = EVERY_ITEM if kind == "Walk" and not part else HINTS.get(kind, _NARROW)
    return SlowQuery(name, owner, one.cost.milliseconds, part, hint, is_slow, one.cost.items)
