"""Which queries are matched: those that somebody subscribes to, directly or through views. The rest cost nothing.

RoSeS §4.1 compiles only publications with subscriptions. A change touches few feeds, so only those and what they
read are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog import feeds
from runnel.catalog.sequencer import last_sequence
from runnel.catalog.subscriptions import subscribed_among
from runnel.model.feed import FeedKind


@dataclass(frozen=True, slots=True)
class Activation:
    """What a change means for the plan: queries to compile (new or redefined) and queries to take out."""

    compile: frozenset[int]
    remove: frozenset[int]


def activate(connection: Connection, touched: Iterable[int], redefined: Iterable[int]) -> Activation:
    """Mark feeds as matched or not after a change.

    `touched` are feeds whose subscriptions or readers changed, `redefined` those whose query did.
    """
    region = feeds.all_sources(connection, {*touched, *redefined})
    before = feeds.since_of(connection, region)
    needed = _needed(connection, region)
    fresh = needed - before.keys()
    gone = before.keys() - needed
    now = last_sequence(connection)
    feeds.set_since(connection, {**dict.fromkeys(fresh, now), **dict.fromkeys(gone)})
    changed = feeds.all_readers(connection, redefined) if redefined else set()
    live = set(feeds.since_of(connection, changed))
    return Activation(frozenset(fresh | live), frozenset(gone))


def _needed(connection: Connection, region: set[int]) -> set[int]:
    """The feeds of a region that must be matched. Readers outside the region stand as they are.

    A source feed is matched as it is only for a direct subscription; a view also for its readers' sake.
    """
    kinds = feeds.live_kinds(connection, region)
    views = {feed for feed, kind in kinds.items() if kind is FeedKind.VIRTUAL}
    pairs = feeds.reader_pairs(connection, region)
    outside = feeds.since_of(connection, {reader for reader, _ in pairs} - region)
    reads: dict[int, list[int]] = {}
    for reader, source in pairs:
        reads.setdefault(reader, []).append(source)
    needed = subscribed_among(connection, region) & kinds.keys()
    waiting = [*needed, *outside]
    while waiting:
        for source in reads.get(waiting.pop(), ()):
            if source in views and source not in needed:
                needed.add(source)
                waiting.append(source)
    return needed
