"""Groups of feeds: the source feeds of `all feeds [tagged …]`, and the queries that read them.

In: the groups of query nodes. Out: their members now, or in an earlier plan version. A member is a registered feed of
the query's owner or of the admin that has all tags of the group. Materialized feeds are not members: their items come
from items that a group already contains, and a query could read itself through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from runnel.algebra.nodes.query import Node, Read, ReadAll, Union, expand_groups, group_view, groups_of
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks
from runnel.model.feed import ADMIN, FeedKind

_f, _r, _t, _g = schema.feeds.c, schema.revisions.c, schema.tags.c, schema.reads_groups.c
_REGISTERED = (_f.kind == FeedKind.SOURCE.value) & _f.origin.is_(None)
_SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class SourceFeed:
    """A registered feed, or one that is about to be registered, with the data that groups need."""

    id: int
    owner: int
    tags: frozenset[str]

    def is_in(self, group: ReadAll) -> bool:
        """Return whether the feed is a member of a group.

        >>> SourceFeed(3, ADMIN, frozenset({"news"})).is_in(ReadAll(7, ("news",)))
        True
        """
        return self.owner in (group.owner, ADMIN) and self.tags.issuperset(group.tags)


def note_groups(connection: Connection, nodes: Mapping[int, Node]) -> None:
    """Record which groups new queries read."""
    rows = group_rows(nodes)
    if rows:
        connection.execute(insert(schema.reads_groups), rows)


def group_rows(nodes: Mapping[int, Node]) -> list[dict[str, Any]]:
    """Return the rows that record which groups queries read."""
    return [
        {"feed": feed, "owner": group.owner, "tags": _SEPARATOR.join(group.tags)}
        for feed, node in nodes.items()
        for group in dict.fromkeys(groups_of(node))
    ]


def forget_groups(connection: Connection, feeds: Iterable[int]) -> None:
    """Delete the groups of queries that were dropped or replaced."""
    for ids in chunks(sorted(feeds)):
        connection.execute(delete(schema.reads_groups).where(_g.feed.in_(ids)))


def group_readers(connection: Connection, feed: SourceFeed) -> set[int]:
    """Return the queries that read a group of which a feed is a member."""
    rows = select(_g.feed, _g.owner, _g.tags)
    if feed.owner != ADMIN:
        rows = rows.where(_g.owner == feed.owner)
    return {
        row.feed
        for row in connection.execute(rows)
        if feed.is_in(ReadAll(row.owner, tuple(row.tags.split(_SEPARATOR)) if row.tags else ()))
    }


def source_feed(connection: Connection, feed: int) -> SourceFeed | None:
    """Return the registered feed of an id, or None."""
    registered = _registered(connection, select(_f.id, _f.owner).where(_REGISTERED, _f.id == feed))
    return registered[0] if registered else None


def expand(connection: Connection, nodes: Mapping[int, Node], plan: int | None = None) -> dict[int, Node]:
    """Replace all groups in query nodes by their members, now or in a plan version."""
    groups = {group for node in nodes.values() for group in groups_of(node)}
    if not groups:
        return dict(nodes)
    feeds = _live(connection) if plan is None else _in_plan(connection, plan)
    meaning = _unions(groups, feeds)
    return {feed: expand_groups(node, meaning.__getitem__) for feed, node in nodes.items()}


def expand_as_views(
    connection: Connection, nodes: Mapping[int, Node], new: Iterable[SourceFeed] = ()
) -> dict[int, Node]:
    """Replace all groups by views, one per group, which many queries can share. `new` feeds are members, too.

    The result contains the views, under the ids of `group_view`.
    """
    groups = {group for node in nodes.values() for group in groups_of(node)}
    if not groups:
        return dict(nodes)
    views = {group_view(group): union for group, union in _unions(groups, [*_live(connection), *new]).items()}
    return views | {feed: expand_groups(node, lambda group: Read(group_view(group))) for feed, node in nodes.items()}


def _unions(groups: Iterable[ReadAll], feeds: Sequence[SourceFeed]) -> dict[ReadAll, Node]:
    return {group: Union(tuple(Read(feed.id) for feed in feeds if feed.is_in(group))) for group in groups}


def _live(connection: Connection) -> list[SourceFeed]:
    return _registered(connection, select(_f.id, _f.owner).where(_REGISTERED, _f.dropped.is_(None)))


def _in_plan(connection: Connection, plan: int) -> list[SourceFeed]:
    """Return the registered feeds of a plan version: declared before it and not dropped before it."""
    published = select(schema.plans.c.created).where(schema.plans.c.version == plan).scalar_subquery()
    first = (
        select(_f.id, _f.owner)
        .join(schema.revisions, (_r.feed == _f.id) & (_r.revision == 1))
        .where(_REGISTERED, _r.plan < plan, _f.dropped.is_(None) | (_f.dropped > published))
    )
    return _registered(connection, first)


def _registered(connection: Connection, query: Any) -> list[SourceFeed]:
    rows = connection.execute(query).all()
    tags: dict[int, set[str]] = {}
    for ids in chunks(sorted(row.id for row in rows)):
        for row in connection.execute(select(_t.feed, _t.tag).where(_t.feed.in_(ids))):
            tags.setdefault(row.feed, set()).add(row.tag)
    return [SourceFeed(row.id, row.owner, frozenset(tags.get(row.id, ()))) for row in rows]
