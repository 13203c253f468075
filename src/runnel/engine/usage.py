"""Which queries match much and which nothing at all: counted in the newest part of the match log.

A query that never matches is often a misspelt one, and one that matches nearly everything is rarely what somebody
meant. Every answer is for an actor: the operator sees all queries, an owner only those of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from runnel.catalog import feeds, matches
from runnel.catalog.items import retained_upto
from runnel.engine.outcome import Outcome
from runnel.engine.people import Actor, names_for
from runnel.engine.root import Root
from runnel.errors import InputError
from runnel.plan.arrays import Array

ITEMS = 100_000
"""How many of the newest items are looked at, unless it is told."""

SHOWN = 20
"""How many queries a list shows, unless it is told."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Queries, the most frequent first, with how many of the items in (after, upto] they matched.

    `whole` says that nothing older is kept. `newer` are queries for which no item was matched yet.
    """

    after: int
    upto: int
    whole: bool
    counts: tuple[tuple[str, int], ...]
    newer: int

    @property
    def never(self) -> tuple[str, ...]:
        """The queries that matched nothing, by name."""
        return tuple(sorted(name for name, count in self.counts if not count))

    @property
    def busiest(self) -> tuple[tuple[str, int], ...]:
        """The queries that matched something, the most frequent first."""
        return tuple((name, count) for name, count in self.counts if count)

    def range(self) -> str:
        """What was looked at, in words."""
        if self.upto == self.after:
            return "no item was matched yet"
        kept = "all that is kept" if self.whole else "older ones were not looked at"
        return f"looked at the items {self.after + 1:,} to {self.upto:,}; {kept}"

    def outcome(self, *, never: bool, busiest: bool, limit: int) -> Outcome:
        """The lists that are wanted, as far as the limit goes."""
        lines = [self.range()]
        data: dict[str, Any] = {"after": self.after, "upto": self.upto, "whole": self.whole, "newer": self.newer}
        if busiest:
            found = self.busiest
            data["busiest"] = [{"feed": name, "matches": count} for name, count in found[:limit]]
            data["matched_something"] = len(found)
            told = [f"  {count:>10,}  {name}" for name, count in found[:limit]]
            lines += [f"{len(found):,} matched something, the most frequent first:", *told, *_more(len(found), limit)]
        if never:
            names = self.never
            data["never"] = list(names[:limit])
            data["matched_nothing"] = len(names)
            told = [f"  {name}" for name in names[:limit]]
            lines += [f"{len(names):,} matched nothing:", *told, *_more(len(names), limit)]
        if self.newer:
            lines.append(f"{self.newer:,} more are new: no item was matched since they were declared")
        return Outcome(f"{len(self.counts) + self.newer:,} queries", data, tuple(lines))


def _more(count: int, limit: int) -> list[str]:
    return [f"  and {count - limit:,} more"] if count > limit else []


def read_usage(root: Root, actor: Actor, items: int = ITEMS) -> Usage:
    """How often the actor's queries matched, among so many of the newest items that were matched."""
    if items < 1:
        raise InputError(f"{items} is no number of items to look at", hint="give 1 or more")
    with root.catalog.read() as connection:
        since = feeds.since_of(connection)
        owners = feeds.feed_owners(connection, since)
        names = names_for(connection, actor)
        upto, kept = matches.matched_upto(connection), retained_upto(connection)
    after = min(upto, max(kept, upto - items))
    mine = sorted(one for one in since if actor.is_operator or owners[one] == actor.owner)
    old = [one for one in mine if since[one] < upto]
    counts = _count(root, np.array(old, dtype=np.int64), after, upto)
    named = [(names[one], count) for one, count in zip(old, counts.tolist(), strict=True)]
    ranked = tuple(sorted(named, key=lambda one: (-one[1], one[0])))
    return Usage(after, upto, after <= kept, ranked, len(mine) - len(old))


def _count(root: Root, queries: Array, after: int, upto: int) -> Array:
    """How many items of a range each query matched; the queries ascend."""
    counts = np.zeros(len(queries), dtype=np.int64)
    if not len(queries) or after >= upto:
        return counts
    for rows in root.matches.read(after, upto):
        places = np.minimum(np.searchsorted(queries, rows.queries), len(queries) - 1)
        counts += np.bincount(places[queries[places] == rows.queries], minlength=len(queries))
    return counts
