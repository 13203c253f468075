"""Sampled query costs, and which slow queries have been reported.

In: costs that a runner sampled. Out: the cost of each query. Costs from before a query was replaced are dropped. The
number of rows is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.learned.query_costs import Cost, Costs, QueryCost

_MAX_QUERIES = 256
_ENOUGH_ITEMS = 20.0
"""Number of sampled items from which on a query may be reported as slow."""

_RESET_RATIO = 0.5
"""A query whose cost falls below this fraction of the limit is reported again if it rises."""

_DAY = 86_400 * 1_000_000
_c, _f, _r = schema.costs.c, schema.feeds.c, schema.revisions.c


@dataclass(frozen=True, slots=True)
class KnownCost:
    """The cost of a query. `noted` is when it was updated, `reported` when the query was reported as slow."""

    query: int
    cost: QueryCost
    noted: int
    reported: int | None = None

    def is_slow(self, milliseconds: float) -> bool:
        """Return whether a thousand items take at least `milliseconds`, if enough items were sampled."""
        return self.cost.items >= _ENOUGH_ITEMS and self.cost.milliseconds >= milliseconds


def learn(connection: Connection, costs: Costs, sampled: int) -> None:
    """Merge costs that were sampled at a time into the known costs."""
    if not costs.items:
        return
    moment = now(connection)
    sampled_costs = _as_declared(costs, sampled, _declared(connection, costs.queries))
    known = {cost.query: cost for cost in known_costs(connection)}
    rows = [
        KnownCost(
            query,
            known_cost.cost.then(
                sampled_costs, sampled_costs.queries.get(query), days=(moment - known_cost.noted) / _DAY
            ),
            moment,
            known_cost.reported,
        )
        for query, known_cost in known.items()
    ]
    new = [query for query in sampled_costs.queries if query not in known]
    rows += [KnownCost(query, QueryCost(sampled_costs.items, sampled_costs.queries[query]), moment) for query in new]
    connection.execute(delete(schema.costs))
    largest = nlargest(_MAX_QUERIES, rows, key=lambda cost: cost.cost.milliseconds)
    if largest:
        connection.execute(insert(schema.costs), [_row(cost) for cost in largest])


def known_costs(connection: Connection) -> list[KnownCost]:
    """Return the known costs, the most expensive first, without queries that were replaced or dropped since."""
    rows = connection.execute(select(schema.costs)).all()
    declared = _declared(connection, [row.query for row in rows])
    costs = [
        KnownCost(row.query, _cost(row.content), row.noted, row.told)
        for row in rows
        if row.noted >= declared.get(row.query, row.noted + 1)
    ]
    return sorted(costs, key=lambda cost: (-cost.cost.milliseconds, cost.query))


def newly_slow(connection: Connection, milliseconds: float) -> list[KnownCost]:
    """Return the slow queries that have not been reported yet, and mark them as reported."""
    known = known_costs(connection)
    slow = [cost for cost in known if cost.reported is None and cost.is_slow(milliseconds)]
    better = [
        cost for cost in known if cost.reported is not None and cost.cost.milliseconds < _RESET_RATIO * milliseconds
    ]
    for costs, reported in ((slow, now(connection)), (better, None)):
        if costs:
            queries = [cost.query for cost in costs]
            connection.execute(update(schema.costs).where(_c.query.in_(queries)).values(told=reported))
    return slow


def _declared(connection: Connection, queries: Iterable[int]) -> dict[int, int]:
    """Return when the current revisions of these live queries were declared."""
    query = (
        select(_f.id, _r.created)
        .join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
        .where(_f.dropped.is_(None))
    )
    rows = (row for ids in chunks(sorted(queries)) for row in connection.execute(query.where(_f.id.in_(ids))))
    return {row.id: row.created for row in rows}


def _as_declared(costs: Costs, sampled: int, declared: dict[int, int]) -> Costs:
    """Omit the costs of queries that were dropped or replaced since the sample."""
    current = {query: cost for query, cost in costs.queries.items() if sampled >= declared.get(query, sampled + 1)}
    return Costs(costs.items, current)


def _row(known: KnownCost) -> dict[str, Any]:
    nanoseconds, kind, part = known.cost.cost
    content = {"items": known.cost.items, "nanoseconds": nanoseconds, "kind": kind, "part": part}
    return {"query": known.query, "content": json.dumps(content), "noted": known.noted, "told": known.reported}


def _cost(content: str) -> QueryCost:
    """Decode a row, or return no cost if it is damaged."""
    try:
        cost = json.loads(content)
        spent = Costs.from_json(
            {"items": cost["items"], "queries": {"0": [cost["nanoseconds"], cost["kind"], cost["part"]]}}
        )
        return QueryCost(spent.items, spent.queries[0])
    except (KeyError, TypeError, ValueError):
        return QueryCost(0.0, Cost(0.0, "", ""))
