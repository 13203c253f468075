"""Feeds in the catalog: names, revisions, and which feeds read which. Ids are never reused; dropped feeds keep their
rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from runnel.algebra.nodes.encode import decode_node, encode_node
from runnel.algebra.nodes.query import Node, reads
from runnel.catalog.declared.feed_groups import SourceFeed, expand, expand_as_views, forget_groups, note_groups
from runnel.catalog.declared.operators import forget_uses, note_uses
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.feed import ADMIN, HIDDEN, Feed, FeedKind

_f, _r, _o = schema.feeds.c, schema.revisions.c, schema.owners.c
_FEEDS = (
    select(schema.feeds, _r.statement, _o.disabled.label("owner_disabled"))
    .join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
    .outerjoin(schema.owners, _o.id == _f.owner)
)
_LIVE = _f.dropped.is_(None)
_NODES = (
    select(_f.id, _r.node, _f.paused)
    .join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
    .where(_f.kind == FeedKind.VIRTUAL.value)
)


def replace_feed(connection: Connection, feed: Feed, statement: str, node: Node, encoded: str | None = None) -> None:
    """Replace the query of a virtual feed. Its id, subscriptions and readers stay. `encoded` is the encoded node."""
    revision = feed.revision + 1
    connection.execute(update(schema.feeds).where(_f.id == feed.id).values(revision=revision))
    connection.execute(delete(schema.reads).where(schema.reads.c.feed == feed.id))
    forget_groups(connection, [feed.id])
    forget_uses(connection, [feed.id])
    encoded = encoded or json.dumps(encode_node(node), separators=(",", ":"))
    _add_revision(connection, feed.id, revision, statement, encoded, paused=feed.paused)
    rows = [{"feed": feed.id, "source": source} for source in sorted(set(reads(node)))]
    if rows:
        connection.execute(insert(schema.reads), rows)
    note_groups(connection, {feed.id: node})
    note_uses(connection, {feed.id: node})


def _add_revision(
    connection: Connection, feed: int, revision: int, statement: str, node: str | None, *, paused: bool
) -> None:
    """Add a revision. It stores the plan that was current before it and applies to all later plans."""
    connection.execute(
        insert(schema.revisions).values(
            feed=feed,
            revision=revision,
            statement=statement,
            node=node,
            paused=int(paused),
            plan=select(func.coalesce(func.max(schema.plans.c.version), 0)).scalar_subquery(),
            created=now(connection),
        )
    )


def drop_feed(connection: Connection, feed: int) -> None:
    """Drop a feed. Its name becomes available again, but its id does not."""
    connection.execute(update(schema.feeds).where(_f.id == feed).values(dropped=now(connection), since=None))
    connection.execute(delete(schema.reads).where(schema.reads.c.feed == feed))
    forget_groups(connection, [feed])
    forget_uses(connection, [feed])


def set_statement(connection: Connection, feed: Feed, statement: str) -> None:
    """Store another text of a feed's statement, which must not change its items."""
    connection.execute(
        update(schema.revisions).where(_r.feed == feed.id, _r.revision == feed.revision).values(statement=statement)
    )


def pause_feed(connection: Connection, feed: Feed, paused: bool) -> None:
    """Pause or resume a feed. This is a revision, because it changes the feed's items."""
    revision = feed.revision + 1
    current = select(_r.node).where(_r.feed == feed.id, _r.revision == feed.revision)
    node = connection.execute(current).scalar_one()
    connection.execute(update(schema.feeds).where(_f.id == feed.id).values(paused=int(paused), revision=revision))
    _add_revision(connection, feed.id, revision, feed.statement, node, paused=paused)


def feed_by_name(connection: Connection, name: str, owner: int = ADMIN) -> Feed | None:
    """Return the live feed that a name denotes for an owner: the owner's own feed, or else the admin's."""
    rows = connection.execute(_FEEDS.where(_f.name == name, _f.owner.in_({owner, ADMIN}), _LIVE)).all()
    candidates = [_feed(row) for row in rows]
    return max(candidates, key=lambda feed: feed.owner == owner, default=None)


def feeds_by_names(connection: Connection, names: Iterable[str], owner: int = ADMIN) -> dict[str, Feed]:
    """Return the feeds of many names, found as by `feed_by_name`. Unknown names are omitted."""
    by_name: dict[str, Feed] = {}
    for chunk in chunks(sorted(set(names))):
        query = _FEEDS.where(_f.name.in_(chunk), _f.owner.in_({owner, ADMIN}), _LIVE)
        for feed in map(_feed, connection.execute(query)):
            if feed.name not in by_name or feed.owner == owner:
                by_name[feed.name] = feed
    return by_name


def feed_by_id(connection: Connection, feed: int) -> Feed | None:
    """Return the feed of an id, even if dropped."""
    row = connection.execute(_FEEDS.where(_f.id == feed)).one_or_none()
    return None if row is None else _feed(row)


def live_feeds(connection: Connection, owner: int = ADMIN) -> list[Feed]:
    """Return the live feeds that an owner may read, in order of declaration. The admin may read all.

    Hidden feeds are left out.
    """
    query = _FEEDS.where(_LIVE, _f.owner != HIDDEN).order_by(_f.id)
    if owner != ADMIN:
        query = query.where(_f.owner.in_((owner, ADMIN)))
    return [_feed(row) for row in connection.execute(query)]


def feed_names(connection: Connection) -> dict[int, str]:
    """Return names by id, including dropped feeds, because logs still refer to them."""
    return {row.id: row.name for row in connection.execute(select(_f.id, _f.name))}


def live_hidden(connection: Connection) -> list[int]:
    """Return the live hidden feeds."""
    return list(connection.execute(select(_f.id).where(_f.owner == HIDDEN, _LIVE)).scalars())


def hidden_among(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return those of these feeds that are hidden and live."""
    query = select(_f.id.label("found")).where(_f.owner == HIDDEN, _LIVE)
    return _gather(connection, feeds, lambda ids: query.where(_f.id.in_(ids)))


def feed_owners(connection: Connection, feeds: Iterable[int]) -> dict[int, int]:
    """Return the owners of feeds, even if dropped."""
    query = select(_f.id, _f.owner)
    rows = (row for ids in chunks(sorted(feeds)) for row in connection.execute(query.where(_f.id.in_(ids))))
    return {row.id: row.owner for row in rows}


def readable_names(connection: Connection, owner: int) -> dict[int, str]:
    """Return names by id of the feeds that an owner may read: the admin's and the owner's own, including dropped
    ones.
    """
    query = select(_f.id, _f.name).where(_f.owner.in_((owner, ADMIN)))
    return {row.id: row.name for row in connection.execute(query)}


def live_names(connection: Connection, owner: int = ADMIN) -> list[str]:
    """Return the names that denote a feed for an owner."""
    query = select(_f.name).where(_LIVE, _f.owner.in_((owner, ADMIN))).distinct()
    return [row.name for row in connection.execute(query.order_by(_f.name))]


def origins(connection: Connection) -> dict[int, int]:
    """Return the live materialized feeds, each with the feed from which its items are created."""
    query = select(_f.id, _f.origin).where(_f.origin.is_not(None), _LIVE)
    return {row.id: row.origin for row in connection.execute(query)}


def materialised_from(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return the live materialized feeds of these feeds."""
    return _gather(connection, feeds, lambda ids: select(_f.id.label("found")).where(_f.origin.in_(ids), _LIVE))


def all_dependents(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return these feeds and all feeds that depend on them, directly or indirectly: readers and
    materialized feeds.
    """

    def step(connection: Connection, feeds: Iterable[int]) -> set[int]:
        return direct_readers(connection, feeds) | materialised_from(connection, feeds)

    return _closure(connection, feeds, step)


def direct_readers(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return the feeds whose queries read one of these feeds directly."""
    column = schema.reads.c
    return _gather(connection, feeds, lambda ids: select(column.feed.label("found")).where(column.source.in_(ids)))


def visible_readers(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return the feeds whose queries read one of these feeds directly or through hidden feeds."""
    readers = direct_readers(connection, feeds)
    while hidden := hidden_among(connection, readers):
        readers = (readers - hidden) | direct_readers(connection, hidden)
    return readers


def visible_queries(connection: Connection, feed: int) -> list[int]:
    """Return the queries to attribute the work and failures of a feed to: itself or, if it is hidden, its readers."""
    return sorted(visible_readers(connection, [feed])) if hidden_among(connection, [feed]) else [feed]


def direct_sources(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return the feeds that the queries of these feeds read directly."""
    column = schema.reads.c
    return _gather(connection, feeds, lambda ids: select(column.source.label("found")).where(column.feed.in_(ids)))


def reader_pairs(connection: Connection, feeds: Iterable[int]) -> list[tuple[int, int]]:
    """Return the pairs (reader, feed) of these feeds and their direct readers."""
    column = schema.reads.c
    query = select(column.feed, column.source)
    rows = (row for ids in chunks(sorted(feeds)) for row in connection.execute(query.where(column.source.in_(ids))))
    return [(row.feed, row.source) for row in rows]


def live_kinds(connection: Connection, feeds: Iterable[int]) -> dict[int, FeedKind]:
    """Return the kinds of these feeds, without dropped ones."""
    query = select(_f.id, _f.kind).where(_LIVE)
    rows = (row for ids in chunks(sorted(feeds)) for row in connection.execute(query.where(_f.id.in_(ids))))
    return {row.id: FeedKind(row.kind) for row in rows}


def all_readers(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return these feeds and all feeds that read them, directly or indirectly."""
    return _closure(connection, feeds, direct_readers)


def all_sources(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return these feeds and all feeds that they read, directly or indirectly."""
    return _closure(connection, feeds, direct_sources)


def definitions(
    connection: Connection, feeds: Iterable[int] | None = None, *, with_paused: bool = False
) -> dict[int, Node]:
    """Return the query nodes of these virtual feeds and all feeds that they read, or of all live ones.

    A paused virtual feed reads nothing, so its readers get no items through it.
    """
    if feeds is not None:
        return own_definitions(connection, all_sources(connection, feeds), with_paused=with_paused)
    return expand(connection, _nodes(connection.execute(_NODES.where(_LIVE)), with_paused))


def planned_definitions(
    connection: Connection, feeds: Iterable[int] | None = None, new: Iterable[SourceFeed] = ()
) -> dict[int, Node]:
    """Return the nodes for a plan of these feeds, or of all live ones, with views for the groups that they read.

    The `new` source feeds are members of the groups too.
    """
    if feeds is None:
        return expand_as_views(connection, _nodes(connection.execute(_NODES.where(_LIVE)), False), new)
    return expand_as_views(connection, _own_nodes(connection, feeds, False), new)


def own_definitions(connection: Connection, feeds: Iterable[int], *, with_paused: bool = False) -> dict[int, Node]:
    """Return the definitions of these feeds, without those of the feeds that they read."""
    return expand(connection, _own_nodes(connection, feeds, with_paused))


def _own_nodes(connection: Connection, feeds: Iterable[int], with_paused: bool) -> dict[int, Node]:
    ids = sorted(feeds)
    rows = (row for chunk in chunks(ids) for row in connection.execute(_NODES.where(_f.id.in_(chunk))))
    return _nodes(rows, with_paused)


def _nodes(rows: Iterable[Any], with_paused: bool) -> dict[int, Node]:
    return {row.id: decode_node(json.loads(row.node)) for row in rows if with_paused or not row.paused}


def definitions_at(connection: Connection, feed: int, plan: int) -> dict[int, Node]:
    """Return the query nodes of a feed and all feeds that it read, as of a plan version."""
    nodes: dict[int, Node] = {}
    waiting = [feed]
    while waiting:
        current = waiting.pop()
        node = None if current in nodes else _node_in(connection, current, plan)
        if node is not None:
            nodes[current] = node
            waiting.extend(reads(node))
    return expand(connection, nodes, plan=plan)


def _node_in(connection: Connection, feed: int, plan: int) -> Node | None:
    """Return a feed's node in a plan version, or its first one if it was declared later. None while it was paused."""
    query = select(_r.node, _r.paused).where(_r.feed == feed).order_by(_r.revision)
    rows = connection.execute(query.where(_r.plan < plan)).all() or connection.execute(query).all()[:1]
    if not rows or rows[-1].paused or rows[-1].node is None:
        return None
    return decode_node(json.loads(rows[-1].node))


def since_of(connection: Connection, feeds: Iterable[int] | None = None) -> dict[int, int]:
    """Return the feeds that are matched now, each with the sequence after which it is matched."""
    query = select(_f.id, _f.since).where(_f.since.is_not(None), _LIVE)
    if feeds is None:
        return {row.id: row.since for row in connection.execute(query)}
    return {
        row.id: row.since
        for chunk in chunks(sorted(feeds))
        for row in connection.execute(query.where(_f.id.in_(chunk)))
    }


def set_since(connection: Connection, since: Mapping[int, int | None]) -> None:
    """Set the sequence after which feeds are matched, or mark them as not matched."""
    if since:
        connection.execute(
            update(schema.feeds).where(_f.id == bindparam("of")).values(since=bindparam("after")),
            [{"of": feed, "after": sequence} for feed, sequence in since.items()],
        )


def _closure(connection: Connection, feeds: Iterable[int], step: Any) -> set[int]:
    closure = set(feeds)
    added = set(closure)
    while added:
        added = step(connection, added) - closure
        closure |= added
    return closure


def _gather(connection: Connection, feeds: Iterable[int], query: Any) -> set[int]:
    return {row.found for chunk in chunks(sorted(feeds)) for row in connection.execute(query(chunk))}


def _feed(row: Any) -> Feed:
    return Feed(
        id=row.id,
        name=row.name,
        kind=FeedKind(row.kind),
        statement=row.statement,
        address=row.address,
        revision=row.revision,
        # Sources and tables of a disabled owner count as paused: they are not read and accept no items.
        paused=bool(row.paused) or (row.kind != FeedKind.VIRTUAL.value and row.owner_disabled is not None),
        owner=row.owner,
        every=None if row.period is None else timedelta(microseconds=row.period),
        origin=row.origin,
        sheet=row.sheet,
        title=row.title,
        home=row.home,
        open_items=row.open_items,
    )
