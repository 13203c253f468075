"""Tags of queries, and queries by owner and tag.

In: the tags in a declaration. Out: the queries that have them. A feed has the tags of its newest statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks
from runnel.model.feed import HIDDEN, FeedKind

_f, _t = schema.feeds.c, schema.tags.c
_LIVE_QUERY = (_f.kind == FeedKind.VIRTUAL.value) & _f.dropped.is_(None) & (_f.owner != HIDDEN)


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A declared query with its owner, and whether it is paused."""

    id: int
    name: str
    owner: int
    paused: bool


def set_tags(connection: Connection, feed: int, tags: Sequence[str]) -> None:
    """Replace the tags of a feed."""
    connection.execute(delete(schema.tags).where(_t.feed == feed))
    if tags:
        connection.execute(insert(schema.tags), [{"feed": feed, "tag": tag} for tag in tags])


def tags_of(connection: Connection, feeds: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Return the ascending tags of these feeds. Feeds without tags are omitted."""
    by_feed: dict[int, list[str]] = {}
    query = select(_t.feed, _t.tag).order_by(_t.feed, _t.tag)
    for ids in chunks(sorted(feeds)):
        for row in connection.execute(query.where(_t.feed.in_(ids))):
            by_feed.setdefault(row.feed, []).append(row.tag)
    return {feed: tuple(tags) for feed, tags in by_feed.items()}


def known_tags(connection: Connection, owner: int | None = None) -> list[str]:
    """Return the tags of live queries of an owner, or of all owners."""
    query = select(_t.tag).join(schema.feeds, _f.id == _t.feed).where(_LIVE_QUERY).distinct().order_by(_t.tag)
    if owner is not None:
        query = query.where(_f.owner == owner)
    return list(connection.execute(query).scalars())


def live_queries(connection: Connection, *, owner: int | None = None, tag: str | None = None) -> list[QueryRow]:
    """Return the declared queries in order of declaration, of an owner, with a tag, or all."""
    query = select(_f.id, _f.name, _f.owner, _f.paused).where(_LIVE_QUERY).order_by(_f.id)
    if owner is not None:
        query = query.where(_f.owner == owner)
    if tag is not None:
        query = query.where(_f.id.in_(select(_t.feed).where(_t.tag == tag)))
    return [QueryRow(row.id, row.name, row.owner, bool(row.paused)) for row in connection.execute(query)]


def held_queries(connection: Connection) -> set[int]:
    """Return the paused queries."""
    return set(connection.execute(select(_f.id).where(_LIVE_QUERY, _f.paused != 0)).scalars())


def forget_tags(connection: Connection, feeds: Iterable[int]) -> None:
    """Delete the tags of dropped feeds."""
    for ids in chunks(sorted(feeds)):
        connection.execute(delete(schema.tags).where(_t.feed.in_(ids)))
