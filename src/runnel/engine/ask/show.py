"""Answers to `show`: what there is, from the catalog and the logs. Nothing here changes anything.

Every answer is for an actor: what the actor may not see is neither shown nor counted (`engine.actors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from runnel.engine.answers import Listing
from runnel.engine.ask import shown
from runnel.engine.workspace import Workspace
from runnel.model.consent import Consent
from runnel.model.feed import Feed, FeedKind


def show_feeds(workspace: Workspace, actor: Actor) -> Listing[shown.Feed]:
    """All feeds that the actor may read."""
    with workspace.catalog.read() as connection:
        declared = readable_feeds(connection, actor)
        live = matched_since(connection, actor)
        owners = owner_names(connection)
        tagged = tags_of(connection, [feed.id for feed in declared])
    rows = tuple(
        _feed_row(feed, feed.id in live, owners[feed.owner], tagged.get(feed.id, ()), actor) for feed in declared
    )
    return Listing(f"{len(rows)} feeds", "feeds", rows)


def show_feed(workspace: Workspace, name: str, actor: Actor) -> shown.FeedDetails:
    """One feed: its statement, what it reads, who reads it and who subscribes."""
    with workspace.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        names = names_for(connection, actor)
        definitions = feeds.own_definitions(connection, [feed.id], with_paused=True)
        read = {source for node in definitions.values() for source in sources_of(node)}
        tagged = tags_of(connection, [feed.id]).get(feed.id, ())
        using = feeds.direct_readers(connection, [feed.id]) | feeds.materialised_from(connection, [feed.id])
        held = tuple(
            subscription.id
            for subscription in subscriptions.live_subscriptions(connection, feed.id)
            if not subscription.is_internal and actor.holds(subscription)
        )
        is_live = feed.id in matched_since(connection, actor, [feed.id])
        owner = owner_names(connection)[feed.owner]
        polled = polls.poll_states(connection, [feed.id]) if actor.sees_all_of(feed) else []
    return shown.FeedDetails(
        _feed_row(feed, is_live, owner, tagged, actor),
        _named(names, read | {feed.origin or 0}),
        _named(names, using),
        held,
        feed_state(feed, is_live, actor),
        _poll_row(polled[0]) if polled else {},
    )


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


def _named(names: Mapping[int, str], ids: set[int]) -> tuple[str, ...]:
    return tuple(sorted(names[feed] for feed in ids if feed in names))


def feed_state(feed: Feed, is_live: bool, actor: Actor) -> str:
    """Whether a feed is matched, or why not, as far as an actor may know."""
    if feed.paused:
        return "paused"
    if feed.kind is FeedKind.SOURCE:
        return "source feed" if feed.origin is None else "materialised feed"
    if is_live:
        return "matched"
    return f"not matched: {'nobody subscribes' if actor.sees_all_of(feed) else 'you do not subscribe'} to it"


def _feed_row(feed: Feed, is_live: bool, owner: str, tags: Sequence[str], actor: Actor) -> shown.Feed:
    return shown.Feed(
        feed.id,
        feed.name,
        owner,
        feed.kind.value,
        is_live,
        feed.paused,
        feed.revision,
        feed.statement,
        tuple(tags),
        feed.title,
        feed.home,
        feed.open_items is not None,
        feed.owner == actor.owner,
    )


def show_subscriptions(workspace: Workspace, actor: Actor) -> Listing[shown.Subscription]:
    """The actor's subscriptions, or to the admin everybody's, with the number of messages."""
    with workspace.catalog.read() as connection:
        owner = None if actor.is_admin else actor.owner
        names = names_for(connection, actor)
        owners = owner_names(connection)
        asked, moment = consents.consents_by_key(connection, owner), now(connection)
        rows = tuple(
            shown.Subscription(
                held.id,
                names[held.feed],
                held.kind,
                held.target,
                held.every,
                held.expires,
                held.paused,
                held.disabled,
                _confirmation(asked.get(consents.key_of(held)), moment),
                owners[held.owner],
                ledger.next_number(connection, held.id) - 1,
                held.owner == actor.owner,
            )
            for held in subscriptions.live_subscriptions(connection, owner=owner)
            if not held.is_internal
        )
    return Listing(f"{len(rows)} subscriptions", "subscriptions", rows)


def _confirmation(consent: Consent | None, moment: int) -> str | None:
    """What a subscription waits for; None if its target confirmed, or need not."""
    return None if consent is None or consent.is_confirmed else consents.describe_consent(consent, moment)


def _reason_for(one: quarantine.Quarantined, actor: Actor) -> str:
    """Why something was quarantined."""
    return operator_reason(one.reason, actor) if one.kind == quarantine.OPERATOR else one.reason


def show_quarantine(workspace: Workspace, actor: Actor) -> Listing[shown.Quarantined]:
    """The quarantine, newest first: of the actor's own feeds, or on the way to the actor's own queries."""
    with workspace.catalog.read() as connection:
        things = quarantine.quarantined_things(connection, owner=None if actor.is_admin else actor.owner)
        names = names_for(connection, actor)
    rows = tuple(
        shown.Quarantined(
            thing.id,
            thing.kind,
            None if thing.feed is None else names.get(thing.feed),
            None if thing.query is None else names.get(thing.query),
            thing.place,
            _reason_for(thing, actor),
            thing.path,
            moment_of(thing.created),
        )
        for thing in things
    )
    return Listing(f"{len(rows)} put aside", "quarantine", rows)
