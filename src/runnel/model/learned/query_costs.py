"""Costs of queries, estimated from sampled items. All queries share one plan, so a query cannot be timed alone.

In: the time spent on sampled items, and the queries that caused it. Out: the time that a query costs per thousand
items. Time caused by several queries is divided among them, so the costs of all queries add up to the total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, NamedTuple

HALF_LIFE_ITEMS = 2_000.0
"""Number of sampled items after which a cost has half its weight."""
HALF_LIFE_DAYS = 7.0

MAX_PART = 200
"""Maximum number of characters of a condition that are kept."""

_GUESS_ITEMS = 20.0
"""Weight of the initial guess of zero cost, in items, so that one slow item does not make a slow query."""


class Cost(NamedTuple):
    """The time spent on a query, and the kind and text of its most expensive part."""

    nanoseconds: float
    kind: str
    part: str

    def and_then(self, other: Cost) -> Cost:
        """Add the times, and keep the part of the larger one."""
        costlier = self if self.nanoseconds >= other.nanoseconds else other
        return Cost(self.nanoseconds + other.nanoseconds, costlier.kind, costlier.part)


@dataclass(frozen=True)
class Costs:
    """The number of sampled items, and the costs of queries by id.

    >>> some = Costs(1, {7: Cost(500.0, "words", "a")}).merge(Costs(1, {7: Cost(900.0, "regular", "b")}))
    >>> some.items, some.queries[7]
    (2.0, Cost(nanoseconds=1400.0, kind='regular', part='b'))
    """

    items: float = 0.0
    queries: Mapping[int, Cost] = field(default_factory=dict)

    def merge(self, other: Costs) -> Costs:
        """Combine both."""
        return merged_costs((self, other))

    def bounded(self, limit: int) -> Costs:
        """Keep only the most expensive queries."""
        if len(self.queries) <= limit:
            return self
        return Costs(self.items, dict(nlargest(limit, self.queries.items(), key=lambda entry: entry[1].nanoseconds)))

    def to_json(self) -> dict[str, Any]:
        """Return a short JSON value, which is empty if nothing was sampled."""
        if not self.items:
            return {}
        queries = {
            str(query): [round(cost.nanoseconds), cost.kind, cost.part] for query, cost in self.queries.items()
        }
        return {"items": self.items, "queries": queries}

    @staticmethod
    def from_json(value: object) -> Costs:
        """Read the output of `to_json`. Ignore invalid values.

        >>> Costs.from_json({"items": 1, "queries": {"7": [500, "words", "a"]}}).queries[7].nanoseconds
        500.0
        >>> Costs.from_json({"items": "many"}) == Costs.from_json(None) == Costs()
        True
        """
        if not isinstance(value, dict):
            return Costs()
        try:
            queries = {
                int(query): Cost(_weight(spent), str(kind), str(part)[:MAX_PART])
                for query, (spent, kind, part) in value.get("queries", {}).items()
            }
            return Costs(_weight(value.get("items", 0)), queries)
        except (AttributeError, TypeError, ValueError):
            return Costs()


def merged_costs(several: Iterable[Costs]) -> Costs:
    """Combine all costs."""
    items = 0.0
    queries: dict[int, Cost] = {}
    for costs in several:
        items += costs.items
        for query, cost in costs.queries.items():
            queries[query] = queries[query].and_then(cost) if query in queries else cost
    return Costs(items, queries)


@dataclass(frozen=True, slots=True)
class QueryCost:
    """The cost of one query, and the number of sampled items on which it is based."""

    items: float
    cost: Cost

    def then(self, fresh: Costs, cost: Cost | None, *, days: float) -> QueryCost:
        """Return the cost after further samples. Older samples lose weight."""
        left = 0.5 ** (fresh.items / HALF_LIFE_ITEMS + max(0.0, days) / HALF_LIFE_DAYS)
        faded = self.cost._replace(nanoseconds=self.cost.nanoseconds * left)
        return QueryCost(self.items * left + fresh.items, faded if cost is None else faded.and_then(cost))

    @property
    def milliseconds(self) -> float:
        """The milliseconds per thousand items.

        >>> round(QueryCost(80.0, Cost(1e6, "regular", "a")).milliseconds, 3)
        10.0
        """
        return self.cost.nanoseconds / (self.items + _GUESS_ITEMS) / 1e3


def _weight(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
        raise ValueError("not a weight")
    return float(number)
