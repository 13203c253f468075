"""Determine which queries must be matched: those with a direct subscription, and the views that they read.

Queries without a subscription are not compiled and cost nothing (RoSeS §4.1). A change affects few feeds, so only
those and the feeds that they read are checked. Pending rows of a script are treated as if they were written.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.declared import feeds
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.declare.scope import Pending
from runnel.model.feed import FeedKind


@dataclass(frozen=True, slots=True)
class Activation:
    """The effect of a change on the plan: queries to compile because they are new or redefined, and to remove.

    `fresh` are the queries that were not matched before.
    """

    compile: frozenset[int]
    remove: frozenset[int]
    fresh: frozenset[int] = frozenset()

    def write(self, connection: Connection, but: Set[int] = frozenset()) -> None:
        """Mark feeds in the catalog as matched from now on, or as not matched. Skip fresh feeds that are in `but`."""
        since = dict.fromkeys(self.fresh - but, last_sequence(connection))
        feeds.set_since(connection, {**since, **dict.fromkeys(self.remove)})


def find_activation(connection: Connection, pending: Pending) -> Activation:
    """Determine the effect of a change on the plan, without writing anything."""
    region = pending.all_sources(pending.touched | pending.changed)
    matched_before = feeds.since_of(connection, region - pending.feeds.keys())
    needed = _needed_feeds(connection, region, pending)
    fresh = needed - matched_before.keys()
    removed = matched_before.keys() - needed
    changed = feeds.all_readers(connection, pending.changed) if pending.changed else set()
    live = set(feeds.since_of(connection, changed)) - removed
    return Activation(frozenset(fresh | live), frozenset(removed), frozenset(fresh))


def _needed_feeds(connection: Connection, region: set[int], pending: Pending) -> set[int]:
    """Return the feeds of a region that must be matched. Readers outside the region do not change.

    A source feed is matched as a query only for a direct subscription, a view also for its readers. So the readers of
    source feeds, which may be many, are not read.
    """
    kinds = pending.live_kinds(region)
    views = {feed for feed, kind in kinds.items() if kind is FeedKind.VIRTUAL}
    pairs = pending.reader_pairs(views)
    outside = feeds.since_of(connection, {reader for reader, _ in pairs} - region)
    reads: dict[int, list[int]] = {}
    for reader, source in pairs:
        reads.setdefault(reader, []).append(source)
    needed = pending.subscribed_among(region) & kinds.keys()
    waiting = [*needed, *outside]
    while waiting:
        for source in reads.get(waiting.pop(), ()):
            if source not in needed:
                needed.add(source)
                waiting.append(source)
    return needed
