"""Slow queries: sample their costs, list them with hints, and log a warning when a query becomes slow.

In: the plan and a sample of the newest items. Out: the sampled cost of each query (`catalog.learned.query_costs`), a
list of the most expensive queries that an actor may see, and warnings in the application log.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from runnel.algebra.nodes.query import Gated
from runnel.catalog.access import owners
from runnel.catalog.declared import feeds
from runnel.catalog.learned import query_costs
from runnel.catalog.learned.query_costs import KnownCost
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.logs.join_work import work_of_joins
from runnel.catalog.store import leases
from runnel.catalog.store.connection import now
from runnel.engine.actors import Actor
from runnel.engine.workspace import Workspace
from runnel.model.learned.query_costs import MAX_PART, Cost, Costs, merged_costs
from runnel.model.learned.sampling import scattered
from runnel.plan.store import PlanVersion, load

logger = logging.getLogger("runnel")

_NEWEST_ITEMS = 4_096
"""The number of newest items from which samples are drawn."""

_SAMPLES = 8
"""The number of items that one call of `sample_costs` samples. Each takes a few milliseconds."""

_ADD_SELECTIVE = "add a condition that few items satisfy, such as `and title contains '…'`"
_EVALUATED = "on every item that satisfies the query's other conditions"

HINTS: Final[dict[str, str]] = {
    "RegularExpression": f"the regular expression is evaluated {_EVALUATED}: {_ADD_SELECTIVE}",
    "Similar": "leave frequent words out of the text that is compared, or raise `at least`",
    "ContainsPattern": f"begin the pattern with more letters, or {_ADD_SELECTIVE}",
    "ContainsStems": f"words are stemmed {_EVALUATED}: {_ADD_SELECTIVE}",
    "InNetwork": f"addresses are parsed {_EVALUATED}: {_ADD_SELECTIVE}",
    "References": f"links are extracted {_EVALUATED}: {_ADD_SELECTIVE}",
    "Extends": f"links are extracted {_EVALUATED}: {_ADD_SELECTIVE}",
    "Shares": f"links are extracted {_EVALUATED}: {_ADD_SELECTIVE}",
    "Formula": "the condition is too large for the index: split it into several feeds, and read those feeds",
    "Join": "items are compared with many items of the window: add a condition such as `title similar window.title`",
    "Walk": "the indexed condition of this query holds for many items: add a word or value that few items contain",
}
"""The hint for each kind of cost."""

EVERY_ITEM = "the query requires no word or value, so it is evaluated on every item: add one that items must contain"


@dataclass(frozen=True, slots=True)
class SlowQuery:
    """A query, its cost in milliseconds per thousand items, its most expensive condition, and a hint.

    `is_slow` means that the cost reaches the setting `slow_query_milliseconds`. `sampled` is the number of sampled
    items, in which older samples weigh less.
    """

    query: str
    owner: str
    milliseconds: float
    part: str
    hint: str
    is_slow: bool
    sampled: float

    def line(self) -> str:
        """Return a line for a terminal, without the hint."""
        label = "slow" if self.is_slow else "    "
        part = self.part or "evaluated on every item"
        return f"{self.milliseconds:>10.3f}  {label}  {self.query}  ({self.owner})  {part}"


def read_slow_queries(
    workspace: Workspace, actor: Actor, among: Collection[int] | None = None
) -> tuple[SlowQuery, ...]:
    """Return the actor's own queries, or all if the actor is the admin, most expensive first.

    If `among` is given, return only queries with these ids.
    """
    limit = workspace.settings.slow_query_milliseconds
    with workspace.catalog.read() as connection:
        costs = query_costs.known_costs(connection)
        owner_of = feeds.feed_owners(connection, [cost.query for cost in costs])
        names, owner_names = feeds.feed_names(connection), owners.owner_names(connection)
    return tuple(
        _describe(cost, names[cost.query], owner_names[owner_of[cost.query]], cost.is_slow(limit))
        for cost in costs
        if (actor.is_admin or owner_of[cost.query] == actor.owner) and (among is None or cost.query in among)
    )


def sample_costs(workspace: Workspace, epoch: int) -> None:
    """Measure what matching a sample of the newest items costs each query, and record the costs."""
    # Imported here because it compiles kernels, for which short commands should not wait.
    from runnel.matching.costs.sample_costs import CostSampler

    with workspace.catalog.read() as connection:
        moment, plan, upto = (
            now(connection),
            plan_versions.current_plan(connection),
            match_segments.matched_upto(connection),
        )
    if plan is None:
        return
    sampler = CostSampler(load(workspace.storage, PlanVersion.of(plan)))
    newest = list(workspace.items.read(max(0, upto - _NEWEST_ITEMS), upto))
    numbers = (scattered(upto + sample) for sample in range(_SAMPLES))
    costs = merged_costs([sampler.sample(newest[number % len(newest)], number >> 16) for number in numbers if newest])
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        costs = merged_costs([costs, _join_costs(connection, upto, costs.items)])
        query_costs.learn(connection, attribute_costs(connection, costs), moment)


def _join_costs(connection: Connection, upto: int, sampled: float) -> Costs:
    """Return what joins cost for as many items as were sampled.

    The time that all joins took is divided by the items that each compared, because joins share comparisons.
    """
    counted = [counted for counted in work_of_joins(connection).values() if counted.began < upto]
    spent = sum(each.work.nanoseconds / (upto - each.began) for each in counted)
    compared = {each.feed: (each.work.items + each.work.candidates) / (upto - each.began) for each in counted}
    total = sum(compared.values())
    definitions = feeds.own_definitions(connection, compared, with_paused=True)
    return Costs(
        0.0,
        {
            feed: Cost(sampled * spent * compared[feed] / total, "Join", node.rule.render()[:MAX_PART])
            for feed, node in definitions.items()
            if isinstance(node, Gated)
        },
    )


def attribute_costs(connection: Connection, costs: Costs) -> Costs:
    """Divide the costs of hidden feeds, such as windows, among the queries that read them."""
    hidden = feeds.hidden_among(connection, costs.queries)
    if not hidden:
        return costs
    own = {query: cost for query, cost in costs.queries.items() if query not in hidden}
    divided = []
    for feed in sorted(hidden):
        readers, cost = feeds.visible_queries(connection, feed), costs.queries[feed]
        share = cost._replace(nanoseconds=cost.nanoseconds / max(1, len(readers)))
        divided.append(Costs(0.0, dict.fromkeys(readers, share)))
    return merged_costs([Costs(costs.items, own), *divided])


def log_slow_queries(workspace: Workspace, epoch: int) -> int:
    """Log a warning for each query that has become slow since the last call, and return their number."""
    limit = workspace.settings.slow_query_milliseconds
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        costs = query_costs.newly_slow(connection, limit)
        if not costs:
            return 0
        owner_of = feeds.feed_owners(connection, [cost.query for cost in costs])
        names, owner_names = feeds.feed_names(connection), owners.owner_names(connection)
    for cost in costs:
        slow = _describe(cost, names[cost.query], owner_names[owner_of[cost.query]], True)
        logger.warning(
            "query %s takes about %.1f ms per 1,000 items; %shint: %s",
            slow.query,
            slow.milliseconds,
            f"most expensive condition: {slow.part}; " if slow.part else "",
            slow.hint,
            extra={"feed": slow.query, "owner": slow.owner},
        )
    return len(costs)


def _describe(known: KnownCost, name: str, owner: str, is_slow: bool) -> SlowQuery:
    _, kind, part = known.cost.cost
    hint = EVERY_ITEM if kind == "Walk" and not part else HINTS.get(kind, _ADD_SELECTIVE)
    return SlowQuery(name, owner, known.cost.milliseconds, part, hint, is_slow, known.cost.items)
