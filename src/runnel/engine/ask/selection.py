"""A selection of queries: one owner's, those with a tag, or some by name; only what an actor may see.

In: what somebody asks for. Out: the queries that are meant, by id.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.access import owners
from runnel.catalog.declared import tags
from runnel.catalog.declared.tags import QueryRow
from runnel.engine.actors import Actor, feed_named
from runnel.errors import InputError, NotAllowedError, NotFoundError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.tag_names import fold_tag
from runnel.model.feed import FeedKind


@dataclass(frozen=True, slots=True)
class Selection:
    """What is asked for; several together mean the queries for which all of it is true."""

    owner: str | None = None
    tag: str | None = None
    queries: tuple[str, ...] = ()


def select_for(connection: Connection, actor: Actor, selection: Selection) -> dict[int, QueryRow]:
    """The queries that an actor means. Without any wish: all of one's own, to the operator all there are.

    NotFound where nothing is meant: a test of nothing would seem to have gone well.
    """
    asked = _owner(connection, actor, selection.owner)
    tag = None if selection.tag is None else fold_tag(selection.tag)
    if selection.queries:
        found = _named(connection, asked or actor, selection.queries)
        if tag is not None:
            tagged = tags.tags_of(connection, found)
            found = {one: row for one, row in found.items() if tag in tagged.get(one, ())}
        if asked is not None:
            found = {one: row for one, row in found.items() if row.owner == asked.owner}
    else:
        whose = asked or actor
        everybody = actor.is_admin and asked is None
        rows = tags.live_queries(connection, owner=None if everybody else whose.owner, tag=tag)
        found = {row.id: row for row in rows}
    if not found:
        raise _nothing(connection, asked or actor, selection, tag)
    return found


def _owner(connection: Connection, actor: Actor, name: str | None) -> Actor | None:
    """The owner whose queries are asked for; others' are the operator's to see."""
    if name is None:
        return None
    if not actor.is_admin and name != actor.name:
        raise NotAllowedError("only the admin can see the queries of other owners")
    owner = owners.owner_by_name(connection, name)
    return Actor(owner.id, owner.name)


def _named(connection: Connection, actor: Actor, names: tuple[str, ...]) -> dict[int, QueryRow]:
    found: dict[int, QueryRow] = {}
    for name in names:
        feed = feed_named(connection, name, actor)
        if feed.kind is not FeedKind.VIRTUAL:
            raise InputError(f"{name} is a source feed: it has no query", hint="name a feed that `create feed` made")
        found[feed.id] = QueryRow(feed.id, feed.name, feed.owner, feed.paused)
    return found


def _nothing(connection: Connection, actor: Actor, selection: Selection, tag: str | None) -> NotFoundError:
    whose = f" of {selection.owner}" if selection.owner else ""
    if tag is None:
        return NotFoundError(f"there is no query{whose}", hint="`create feed … from … where …` declares one")
    known = tags.known_tags(connection, None if actor.is_admin and not selection.owner else actor.owner)
    named = " among those that are named" if selection.queries else ""
    near = did_you_mean(tag, known)
    return NotFoundError(
        f"no query{whose}{named} is tagged {tag}", hint=near or "`create feed Name tagged tag from …` gives tags"
    )
