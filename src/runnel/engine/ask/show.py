"""Answers to `show`: what there is, from the catalog and the logs. Nothing here changes anything.

Every answer is for an actor: what the actor may not see is neither shown nor counted (`engine.actors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.query import reads as sources_of
from runnel.catalog.access import consents
from runnel.catalog.access.owners import owner_names
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.declared.tags import tags_of
from runnel.catalog.delivery import ledger
from runnel.catalog.logs import quarantine
from runnel.catalog.polling import polls
from runnel.catalog.polling.polls import PollState
from runnel.catalog.store.connection import now
from runnel.engine.actors import Actor, feed_named, matched_since, names_for, operator_reason, readable_feeds
from runnel.engine.outcome import Outcome
from runnel.engine.workspace import Workspace
from runnel.model.consent import Consent
from runnel.model.feed import Feed, FeedKind
from runnel.optimizer.describe import shortened


def show_feeds(root: Workspace, actor: Actor) -> Outcome:
    """All feeds that the actor may read, a line each."""
    with root.catalog.read() as connection:
        declared = readable_feeds(connection, actor)
        live = matched_since(connection, actor)
        owners = owner_names(connection)
        tagged = tags_of(connection, [feed.id for feed in declared])
    rows = [_feed_row(feed, feed.id in live, owners[feed.owner], tagged.get(feed.id, ())) for feed in declared]
    # Whose a feed is stands behind it as a comment: the lines are still a script.
    lines = tuple(
        row["statement"] if feed.owner == actor.owner else f"{row['statement']}  -- of {row['owner']}"
        for feed, row in zip(declared, rows, strict=True)
    )
    return Outcome(f"{len(rows)} feeds", {"feeds": rows}, lines)


def show_feed(root: Workspace, name: str, actor: Actor) -> Outcome:
    """One feed: its statement, what it reads, who reads it and who subscribes."""
    with root.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        names = names_for(connection, actor)
        definitions = feeds.own_definitions(connection, [feed.id], with_paused=True)
        read = {source for node in definitions.values() for source in sources_of(node)}
        reads = _named(names, read | {feed.origin or 0})
        tagged = tags_of(connection, [feed.id]).get(feed.id, ())
        using = feeds.direct_readers(connection, [feed.id]) | feeds.materialised_from(connection, [feed.id])
        readers = _named(names, using)
        held = [
            one.id
            for one in subscriptions.live_subscriptions(connection, feed.id)
            if not one.is_internal and actor.holds(one)
        ]
        is_live = feed.id in matched_since(connection, actor, [feed.id])
        owner = owner_names(connection)[feed.owner]
        polled = polls.poll_states(connection, [feed.id]) if actor.sees_all_of(feed) else []
    row = _feed_row(feed, is_live, owner, tagged) | {"reads": reads, "read_by": readers, "subscriptions": held}
    row |= {"poll": _poll_row(polled[0])} if polled else {}
    lines = (
        feed.statement,
        f"reads: {shortened(reads) or '-'}",
        f"read by: {shortened(readers) or '-'}",
        f"subscriptions: {', '.join(map(str, held)) or '-'}",
        feed_state(feed, is_live, actor),
        *(f"{name}: {value}" for name, value in row.get("poll", {}).items() if value not in (None, "")),
    )
    return Outcome(f"feed {feed.name}", row, lines)


def _poll_row(state: PollState) -> dict[str, Any]:
    """What is known of a web feed's polls; `address` is where it is now, after permanent redirects."""
    return {
        "address": state.address,
        "last asked": _moment(state.checked),
        "answered": state.status,
        "asked next": "never: the feed is gone" if state.stopped else _moment(state.due),
        "problem": state.problem,
        "polls in which items were probably missed": state.memory.saturated or None,
    }


def _moment(microseconds: int | None) -> str | None:
    return None if microseconds is None else moment_of(microseconds).isoformat(sep=" ", timespec="seconds")


def _named(names: Mapping[int, str], ids: set[int]) -> list[str]:
    return sorted(names[one] for one in ids if one in names)


def feed_state(feed: Feed, is_live: bool, actor: Actor) -> str:
    """Whether a feed is matched, or why not, as far as an actor may know."""
    if feed.paused:
        return "paused"
    if feed.kind is FeedKind.SOURCE:
        return "source feed" if feed.origin is None else "materialised feed"
    if is_live:
        return "matched"
    return f"not matched: {'nobody subscribes' if actor.sees_all_of(feed) else 'you do not subscribe'} to it"


def _feed_row(feed: Feed, is_live: bool, owner: str, tags: Sequence[str]) -> dict[str, Any]:
    described = {"title": feed.title, "home": feed.home, "open": feed.open_items is not None}
    return {
        "id": feed.id,
        "name": feed.name,
        "owner": owner,
        "kind": feed.kind.value,
        "matched": is_live,
        "paused": feed.paused,
        "revision": feed.revision,
        "statement": feed.statement,
        "tags": list(tags),
        **(described if feed.kind is FeedKind.SOURCE else {}),
    }


def show_subscriptions(root: Workspace, actor: Actor) -> Outcome:
    """The actor's subscriptions (to the operator: everybody's), with what was sent."""
    with root.catalog.read() as connection:
        owner = None if actor.is_admin else actor.owner
        held = [one for one in subscriptions.live_subscriptions(connection, owner=owner) if not one.is_internal]
        names = names_for(connection, actor)
        owners = owner_names(connection)
        asked, moment = consents.consents_by_key(connection, owner), now(connection)
        rows: list[dict[str, Any]] = [
            {
                "subscription": one.id,
                "feed": names[one.feed],
                "kind": one.kind,
                "target": one.target,
                "every_seconds": None if one.every is None else one.every.total_seconds(),
                "expires": None if one.expires is None else one.expires.isoformat(),
                "paused": one.paused,
                "disabled": one.disabled,
                "confirmation": _confirmation(asked.get(consents.key_of(one)), moment),
                "owner": owners[one.owner],
                "messages": ledger.next_number(connection, one.id) - 1,
            }
            for one in held
        ]
    lines = tuple(
        f"{row['subscription']:>6}  {row['feed']}  {row['kind']}  {row['target'] or '-'}"
        f"{_timing(row)}{_standing(row)}{'' if row['owner'] == actor.name else '  of ' + row['owner']}"
        f"  messages: {row['messages']}"
        for row in rows
    )
    return Outcome(f"{len(rows)} subscriptions", {"subscriptions": rows}, lines)


def _timing(row: Mapping[str, Any]) -> str:
    every = f"  every {render_duration(timedelta(seconds=row['every_seconds']))}" if row["every_seconds"] else ""
    return every + (f"  until {row['expires'][:16]}" if row["expires"] else "")


def _standing(row: Mapping[str, Any]) -> str:
    disabled = f"  disabled: {row['disabled']}" if row["disabled"] else ""
    waiting = f"  {row['confirmation']}" if row["confirmation"] else ""
    return f"{'  paused' if row['paused'] else ''}{disabled}{waiting}"


def _confirmation(consent: Consent | None, moment: int) -> str | None:
    """What a subscription waits for; None if its target confirmed, or need not."""
    return None if consent is None or consent.is_confirmed else consents.describe_consent(consent, moment)


def _reason_for(one: quarantine.Quarantined, actor: Actor) -> str:
    """Why something was quarantined."""
    return operator_reason(one.reason, actor) if one.kind == quarantine.OPERATOR else one.reason


def show_quarantine(root: Workspace, actor: Actor) -> Outcome:
    """What was put aside, newest first: of the actor's own feeds, or on the way to the actor's own queries."""
    with root.catalog.read() as connection:
        things = quarantine.quarantined_things(connection, owner=None if actor.is_admin else actor.owner)
        names = names_for(connection, actor)
    rows = [
        {
            "id": one.id,
            "kind": one.kind,
            "feed": None if one.feed is None else names.get(one.feed),
            "query": None if one.query is None else names.get(one.query),
            "place": one.place,
            "reason": _reason_for(one, actor),
            "kept": one.path,
            "time": moment_of(one.created).isoformat(),
        }
        for one in things
    ]
    lines = tuple(f"{row['kind']} {row['place']}: {row['reason']}" for row in rows)
    return Outcome(f"{len(rows)} put aside", {"quarantine": rows}, lines)
