"""Which queries are matched: those that somebody subscribes to, directly or through views. The rest cost nothing.

RoSeS §4.1 compiles only publications with subscriptions. A change touches few feeds, so only those and what they
read are looked at. What a script has declared and not written yet is looked at as if it were written.
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
    """What a change means for the plan: queries to compile (new or redefined) and queries to take out.

    `fresh` are those that were not matched before.
    """

    compile: frozenset[int]
    remove: frozenset[int]
    fresh: frozenset[int] = frozenset()

    def write(self, connection: Connection, but: Set[int] = frozenset()) -> None:
        """Mark feeds in the catalog as matched from now on, or as not matched; all `but` those that are marked."""
        since = dict.fromkeys(self.fresh - but, last_sequence(connection))
        feeds.set_since(connection, {**since, **dict.fromkeys(self.remove)})


def find_activation(connection: Connection, pending: Pending) -> Activation:
    """The effects of a change; nothing is written."""
    region = pending.all_sources(pending.touched | pending.changed)
    before = feeds.since_of(connection, region - pending.feeds.keys())
    needed = _needed(connection, region, pending)
    fresh = needed - before.keys()
    gone = before.keys() - needed
    changed = feeds.all_readers(connection, pending.changed) if pending.changed else set()
    live = set(feeds.since_of(connection, changed)) - gone
    return Activation(frozenset(fresh | live), frozenset(gone), frozenset(fresh))


def _needed(connection: Connection, region: set[int], pending: Pending) -> set[int]:
    """The feeds of a region that must be matched. Readers outside the region stand as they are.

    A source feed is matched as it is only for a direct subscription; a view also for its readers' sake. So who reads
    a source is not asked: very many do.
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
