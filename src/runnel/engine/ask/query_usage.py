"""Query usage: list the busiest queries, those without a match, and the most expensive ones.

Matches are counted in the newest part of the match log. Costs are sampled (see `slow_queries`). A query that never
matches is often misspelled, and a query that matches nearly everything is probably too broad. The admin sees all
queries, an owner only their own.
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
"""Default number of newest items whose matches are counted."""

SHOWN = 20
"""Default number of queries per list."""


@dataclass(frozen=True, slots=True)
class QueryUsage(Answer):
    """Queries with the number of items in (after, upto] that they matched, highest numbers first.

    `whole` means that no older item is retained. `newer` is the number of queries with which no item has been matched
    yet, `idle` are queries without a subscription, and `slow` are the most expensive queries. Text and JSON contain
    the lists named in `shown`, each with at most `limit` queries.
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
        """The names of queries without a match, sorted."""
        return tuple(sorted(name for name, count in self.counts if not count))

    @property
    def busiest(self) -> tuple[tuple[str, int], ...]:
        """Queries with at least one match and their numbers of matches, highest first."""
        return tuple((name, count) for name, count in self.counts if count)

    def range(self) -> str:
        """Describe which items were counted."""
        if self.upto == self.after:
            return "no retained item has been matched"
        older = "no older item is retained" if self.whole else "older items were not counted"
        return f"matches in items {self.after + 1:,} to {self.upto:,}; {older}"

    def render(self) -> Rendering:
        """Render the lists named in `shown`, each up to the limit."""
        limit = self.limit
        lines = [self.range()] if self.shown & {"busiest", "never"} else []
        data: dict[str, Any] = {"after": self.after, "upto": self.upto, "whole": self.whole, "newer": self.newer}
        if "busiest" in self.shown:
            busiest = self.busiest
            data["busiest"] = [{"feed": name, "matches": count} for name, count in busiest[:limit]]
            data["matched_something"] = len(busiest)
            lines.append(f"{len(busiest):,} with matches, most matches first:")
            lines += [f"  {count:>10,}  {name}" for name, count in busiest[:limit]] + _more(len(busiest), limit)
        if "never" in self.shown:
            data["never"] = list(self.never[:limit])
            data["matched_nothing"] = len(self.never)
            lines += _list_names("without a match", self.never, limit)
        if "slow" in self.shown:
            data["slow"] = [asdict(query) for query in self.slow[:limit]]
            lines += self._slow_lines(limit)
        if "idle" in self.shown:
            data["idle"] = list(self.idle[:limit])
            lines += _list_names("without a subscription, so not matched", self.idle, limit)
        if self.newer:
            lines.append(f"{self.newer:,} more are new: no item has been matched with them yet")
        count = len(self.counts) + self.newer + (len(self.idle) if "idle" in self.shown else 0)
        return Rendering(f"{count:,} queries", data, tuple(lines))

    def _slow_lines(self, limit: int) -> list[str]:
        if not self.slow:
            return ["no costs of these queries are known yet: the runner samples costs about once per minute"]
        lines = ["milliseconds per 1,000 items, most expensive first, with the most expensive condition of each:"]
        for query in self.slow[:limit]:
            lines += [query.line(), *([f"                  {query.hint}"] if query.is_slow else [])]
        return lines + _more(len(self.slow), limit)


def _list_names(heading: str, names: Sequence[str], limit: int) -> list[str]:
    return [f"{len(names):,} {heading}:", *(f"  {name}" for name in names[:limit]), *_more(len(names), limit)]


def _more(count: int, limit: int) -> list[str]:
    return [f"  and {count - limit:,} more"] if count > limit else []


def read_usage(workspace: Workspace, actor: Actor, items: int = ITEMS, tag: str | None = None) -> QueryUsage:
    """Count the matches of the actor's queries in the newest `items` items, and read the queries' costs.

    If `tag` is given, include only queries with this tag.
    """
    if items < 1:
        raise InputError(f"the number of items must be at least 1, not {items}", hint="pass a positive number")
    with workspace.catalog.read() as connection:
        tagged = None if tag is None else select_for(connection, actor, Selection(tag=tag)).keys()
        since = feeds.since_of(connection)
        owners = feeds.feed_owners(connection, since)
        names = names_for(connection, actor)
        upto, deleted_upto = match_segments.matched_upto(connection), retained_upto(connection)
    after = min(upto, max(deleted_upto, upto - items))
    # Hidden feeds, such as windows, have no name.
    visible = [query for query in since if query in names]
    selected = sorted(query for query in visible if actor.is_admin or owners[query] == actor.owner)
    if tagged is not None:
        selected = [query for query in selected if query in tagged]
    idle = sorted(names[query] for query in (tagged or ()) if query not in since)
    matched = [query for query in selected if since[query] < upto]
    counts = _count_matches(workspace, np.array(matched, dtype=np.int64), after, upto)
    named = [(names[query], count) for query, count in zip(matched, counts.tolist(), strict=True)]
    ranked = tuple(sorted(named, key=lambda pair: (-pair[1], pair[0])))
    slow = read_slow_queries(workspace, actor, tagged)
    newer = len(selected) - len(matched)
    return QueryUsage(after, upto, after <= deleted_upto, ranked, newer, tuple(idle), slow)


def _count_matches(workspace: Workspace, queries: Array, after: int, upto: int) -> Array:
    """Return the number of items in (after, upto] that each query matched. `queries` must be sorted."""
    counts = np.zeros(len(queries), dtype=np.int64)
    if not len(queries) or after >= upto:
        return counts
    for rows in workspace.matches.read(after, upto):
        positions = np.minimum(np.searchsorted(queries, rows.queries), len(queries) - 1)
        counts += np.bincount(positions[queries[positions] == rows.queries], minlength=len(queries))
    return counts
