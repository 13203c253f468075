"""Which queries match much, which nothing at all, and which cost most.

Matches are counted in the newest part of the match log, costs are sampled (see `slow_queries`). A query that never
matches is often a misspelt one, and one that matches nearly everything is rarely what somebody meant. Every answer is
for an actor: the operator sees all queries, an owner only those of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from runnel.arrays import Array
from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments
from runnel.catalog.logs.item_segments import retained_upto
from runnel.engine.actors import Actor, names_for
from runnel.engine.answers import Answer, Rendering
from runnel.engine.ask.selection import Selection, select_for
from runnel.engine.ask.slow_queries import SlowQuery, read_slow_queries
from runnel.engine.workspace import Workspace
from runnel.errors import InputError

ITEMS = 100_000
"""How many of the newest items are read by default."""

SHOWN = 20
"""How many queries of each list are shown by default."""


@dataclass(frozen=True, slots=True)
class QueryUsage(Answer):
    """The number of items with sequences in (`after`, `upto`] that each query matched, highest numbers first.

    `whole` is true if no older items are retained. `newer` is the number of queries that were declared after the last
    matched item. `idle` are queries without a subscription, `slow` the most expensive queries. Text and JSON contain
    the lists named in `shown`, with up to `limit` entries each.
    """

    after: int
    upto: int
    whole: bool
    counts: tuple[tuple[str, int], ...]
    newer: int
    idle: tuple[str, ...] = ()
    slow: tuple[SlowQuery, ...] = ()
    shown: frozenset[str] = frozenset({"busiest", "never"})
    limit: int = SHOWN

    @property
    def never(self) -> tuple[str, ...]:
        """The names of the queries that matched no item."""
        return tuple(sorted(name for name, count in self.counts if not count))

    @property
    def busiest(self) -> tuple[tuple[str, int], ...]:
        """The names of the queries that matched items, with the number of items, highest numbers first."""
        return tuple((name, count) for name, count in self.counts if count)

    def range(self) -> str:
        """Return a sentence that says which items were counted."""
        if self.upto == self.after:
            return "no item was matched yet"
        kept = "all that is kept" if self.whole else "older ones were not looked at"
        return f"looked at the items {self.after + 1:,} to {self.upto:,}; {kept}"

    def render(self) -> Rendering:
        """The lists that are shown, as far as the limit goes."""
        limit = self.limit
        lines = [self.range()] if self.shown & {"busiest", "never"} else []
        data: dict[str, Any] = {"after": self.after, "upto": self.upto, "whole": self.whole, "newer": self.newer}
        if "busiest" in self.shown:
            busiest = self.busiest
            data["busiest"] = [{"feed": name, "matches": count} for name, count in busiest[:limit]]
            data["matched_something"] = len(busiest)
            lines.append(f"{len(busiest):,} matched something, the most frequent first:")
            lines += [f"  {count:>10,}  {name}" for name, count in busiest[:limit]] + _more(len(busiest), limit)
        if "never" in self.shown:
            data["never"] = list(self.never[:limit])
            data["matched_nothing"] = len(self.never)
            lines += _list_names("matched nothing", self.never, limit)
        if "slow" in self.shown:
            data["slow"] = [asdict(query) for query in self.slow[:limit]]
            lines += self._slow_lines(limit)
        if "idle" in self.shown:
            data["idle"] = list(self.idle[:limit])
            lines += _list_names("without a subscription, so not matched", self.idle, limit)
        if self.newer:
            lines.append(f"{self.newer:,} more are new: no item was matched since they were declared")
        count = len(self.counts) + self.newer + (len(self.idle) if "idle" in self.shown else 0)
        return Rendering(f"{count:,} queries", data, tuple(lines))

    def _slow_lines(self, limit: int) -> list[str]:
        if not self.slow:
            return ["what queries cost is not known yet: some items must be matched and a minute must pass"]
        lines = ["milliseconds for 1,000 items, the dearest first, and the part of each that costs most:"]
        for one in self.slow[:limit]:
            lines += [one.line(), *([f"                  {one.hint}"] if one.is_slow else [])]
        return lines + _more(len(self.slow), limit)


def _list_names(heading: str, names: Sequence[str], limit: int) -> list[str]:
    return [f"{len(names):,} {heading}:", *(f"  {name}" for name in names[:limit]), *_more(len(names), limit)]


def _more(count: int, limit: int) -> list[str]:
    return [f"  and {count - limit:,} more"] if count > limit else []


def read_usage(workspace: Workspace, actor: Actor, items: int = ITEMS, tag: str | None = None) -> QueryUsage:
    """How often the actor's queries, or those with a tag, matched among so many of the newest items; their costs."""
    if items < 1:
        raise InputError(f"{items} is no number of items to look at", hint="give 1 or more")
    with workspace.catalog.read() as connection:
        tagged = None if tag is None else select_for(connection, actor, Selection(tag=tag)).keys()
        since = feeds.since_of(connection)
        owners = feeds.feed_owners(connection, since)
        names = names_for(connection, actor)
        upto, kept = match_segments.matched_upto(connection), retained_upto(connection)
    after = min(upto, max(kept, upto - items))
    mine = sorted(one for one in since if actor.is_admin or owners[one] == actor.owner)
    if tagged is not None:
        mine = [one for one in mine if one in tagged]
    idle = sorted(names[one] for one in (tagged or ()) if one not in since)
    old = [one for one in mine if since[one] < upto]
    counts = _count(workspace, np.array(old, dtype=np.int64), after, upto)
    named = [(names[one], count) for one, count in zip(old, counts.tolist(), strict=True)]
    ranked = tuple(sorted(named, key=lambda one: (-one[1], one[0])))
    slow = read_slow_queries(workspace, actor, tagged)
    return QueryUsage(after, upto, after <= kept, ranked, len(mine) - len(old), tuple(idle), slow)


def _count(workspace: Workspace, queries: Array, after: int, upto: int) -> Array:
    """How many items of a range each query matched; the queries ascend."""
    counts = np.zeros(len(queries), dtype=np.int64)
    if not len(queries) or after >= upto:
        return counts
    for rows in workspace.matches.read(after, upto):
        places = np.minimum(np.searchsorted(queries, rows.queries), len(queries) - 1)
        counts += np.bincount(places[queries[places] == rows.queries], minlength=len(queries))
    return counts
