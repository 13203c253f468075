"""Selection of queries by owner, tag or name, limited to the queries that an actor may see.

In: a selection. Out: the selected queries by id.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.access import owners
from runnel.catalog.declared import tags
from runnel.catalog.declared.tags import QueryRow
from runnel.engine.actors import Actor, stream_named
from runnel.errors import InputError, NotAllowedError, NotFoundError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.tag_names import fold_tag
from runnel.model.feed import FeedKind


@dataclass(frozen=True, slots=True)
class Selection:
    """Criteria for queries. A query must meet all that are given."""

    owner: str | None = None
    tag: str | None = None
    queries: tuple[str, ...] = ()


def select_for(connection: Connection, actor: Actor, selection: Selection) -> dict[int, QueryRow]:
    """Return the selected queries by id. Without criteria, return all queries of the owner, or of all for the admin.

    Raise NotFoundError if no query is selected, because a test of no queries would seem to succeed.
    """
    owner = _selected_owner(connection, actor, selection.owner)
    tag = None if selection.tag is None else fold_tag(selection.tag)
    if selection.queries:
        selected = _queries_by_name(connection, owner or actor, selection.queries)
        if tag is not None:
            tagged = tags.tags_of(connection, selected)
            selected = {query: row for query, row in selected.items() if tag in tagged.get(query, ())}
        if owner is not None:
            selected = {query: row for query, row in selected.items() if row.owner == owner.owner}
    else:
        is_for_all_owners = actor.is_admin and owner is None
        owner_id = None if is_for_all_owners else (owner or actor).owner
        selected = {row.id: row for row in tags.live_queries(connection, owner=owner_id, tag=tag)}
    if not selected:
        raise _no_query_error(connection, owner or actor, selection, tag)
    return selected


def _selected_owner(connection: Connection, actor: Actor, name: str | None) -> Actor | None:
    """Return the owner with this name. Raise NotAllowedError unless the actor is that owner or the admin."""
    if name is None:
        return None
    if not actor.is_admin and name != actor.name:
        raise NotAllowedError("only the admin can see the queries of other owners")
    owner = owners.owner_by_name(connection, name)
    return Actor(owner.id, owner.name)


def _queries_by_name(connection: Connection, actor: Actor, names: tuple[str, ...]) -> dict[int, QueryRow]:
    rows: dict[int, QueryRow] = {}
    for name in names:
        feed = stream_named(connection, name, actor)
        if feed.kind is not FeedKind.VIRTUAL:
            raise InputError(
                f"{name} is a source feed and has no query", hint="name a feed that was declared with `create feed`"
            )
        rows[feed.id] = QueryRow(feed.id, feed.name, feed.owner, feed.paused)
    return rows


def _no_query_error(connection: Connection, actor: Actor, selection: Selection, tag: str | None) -> NotFoundError:
    of_owner = f" of {selection.owner}" if selection.owner else ""
    if tag is None:
        if selection.queries:
            return NotFoundError(
                f"none of the named queries belongs to {selection.owner}", hint="leave out the owner or the names"
            )
        return NotFoundError(f"there is no query{of_owner}", hint="declare one with `create feed … from … where …`")
    known_tags = tags.known_tags(connection, None if actor.is_admin and not selection.owner else actor.owner)
    among_named = " among the named ones" if selection.queries else ""
    return NotFoundError(
        f"no query{of_owner}{among_named} has the tag {tag}",
        hint=did_you_mean(tag, known_tags) or "declare tags with `create feed Name tagged tag from …`",
    )
