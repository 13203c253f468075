"""What queries cost, as sampled items show it: all share one plan, so nobody can time a query by itself.

In: what the work for a few sampled items took, and which queries caused it. Out: the time that a query costs for a
thousand items. Work that several queries cause is shared among them, so the costs of all add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, NamedTuple

HALF_LIFE_ITEMS = 2_000.0
"""Sampled items after which a cost counts half."""
HALF_LIFE_DAYS = 7.0

MAX_PART = 200
"""Characters that are kept of a condition."""

_GUESS_ITEMS = 20.0
"""That a query costs nothing weighs as much as so many items: one slow item makes no slow query."""


class Cost(NamedTuple):
    """The time that was spent for a query, and what kind of part of it costs most, with its text for a person."""

    nanoseconds: float
    kind: str
    part: str

    def and_then(self, other: Cost) -> Cost:
        """Both times, and the part of the larger."""
        dearer = self if self.nanoseconds >= other.nanoseconds else other
        return Cost(self.nanoseconds + other.nanoseconds, dearer.kind, dearer.part)


@dataclass(frozen=True)
class Costs:
    """The sampled items, and the costs of queries among them by the queries' ids.

    >>> some = Costs(1, {7: Cost(500.0, "words", "a")}).merge(Costs(1, {7: Cost(900.0, "regular", "b")}))
    >>> some.items, some.queries[7]
    (2.0, Cost(nanoseconds=1400.0, kind='regular', part='b'))
    """

    items: float = 0.0
    queries: Mapping[int, Cost] = field(default_factory=dict)

    def merge(self, other: Costs) -> Costs:
        """Both together."""
        return merged_costs((self, other))

    def bounded(self, most: int) -> Costs:
        """The same with the dearest queries alone."""
        if len(self.queries) <= most:
            return self
        return Costs(self.items, dict(nlargest(most, self.queries.items(), key=lambda one: one[1].nanoseconds)))

    def to_json(self) -> dict[str, Any]:
        """As a JSON value, short; empty where nothing was sampled."""
        if not self.items:
            return {}
        told = {str(query): [round(one.nanoseconds), one.kind, one.part] for query, one in self.queries.items()}
        return {"items": self.items, "queries": told}

    @staticmethod
    def from_json(told: object) -> Costs:
        """Read what `to_json` gave; nothing is learned from anything else.

        >>> Costs.from_json({"items": 1, "queries": {"7": [500, "words", "a"]}}).queries[7].nanoseconds
        500.0
        >>> Costs.from_json({"items": "many"}) == Costs.from_json(None) == Costs()
        True
        """
        if not isinstance(told, dict):
            return Costs()
        try:
            queries = {
                int(query): Cost(_weight(spent), str(kind), str(part)[:MAX_PART])
                for query, (spent, kind, part) in told.get("queries", {}).items()
            }
            return Costs(_weight(told.get("items", 0)), queries)
        except (AttributeError, TypeError, ValueError):
            return Costs()


def merged_costs(several: Iterable[Costs]) -> Costs:
    """All costs together."""
    items = 0.0
    queries: dict[int, Cost] = {}
    for one in several:
        items += one.items
        for query, cost in one.queries.items():
            queries[query] = queries[query].and_then(cost) if query in queries else cost
    return Costs(items, queries)


@dataclass(frozen=True, slots=True)
class QueryCost:
    """What is known of one query: how many sampled items were looked at for it, and the cost among them."""

    items: float
    cost: Cost

    def then(self, fresh: Costs, cost: Cost | None, *, days: float) -> QueryCost:
        """The same after more was sampled: what was known fades."""
        left = 0.5 ** (fresh.items / HALF_LIFE_ITEMS + max(0.0, days) / HALF_LIFE_DAYS)
        faded = self.cost._replace(nanoseconds=self.cost.nanoseconds * left)
        return QueryCost(self.items * left + fresh.items, faded if cost is None else faded.and_then(cost))

    @property
    def milliseconds(self) -> float:
        """The time for a thousand items.

        >>> round(QueryCost(80.0, Cost(1e6, "regular", "a")).milliseconds, 3)
        10.0
        """
        return self.cost.nanoseconds / (self.items + _GUESS_ITEMS) / 1e3


def _weight(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
        raise ValueError("no weight")
    return float(number)
