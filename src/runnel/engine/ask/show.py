"""The `show` statements for feeds, subscriptions and the quarantine. They only read.

Each function answers for an actor: things that the actor may not see are neither shown nor counted (`engine.actors`).
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
    """List the feeds that the actor may read."""
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
    """Describe one feed: its statement, the feeds that it reads, the feeds that read it, and its subscriptions."""
    with workspace.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        names = names_for(connection, actor)
        definitions = feeds.own_definitions(connection, [feed.id], with_paused=True)
        read = {source for node in definitions.values() for source in sources_of(node)}
        tagged = tags_of(connection, [feed.id]).get(feed.id, ())
        readers = feeds.visible_readers(connection, [feed.id]) | feeds.materialised_from(connection, [feed.id])
        own_subscriptions = tuple(
            subscription.id
            for subscription in subscriptions.live_subscriptions(connection, feed.id)
            if not subscription.is_internal and actor.holds(subscription)
        )
        is_live = feed.id in matched_since(connection, actor, [feed.id])
        owner = owner_names(connection)[feed.owner]
        polled = polls.poll_states(connection, [feed.id]) if actor.sees_all_of(feed) else []
    return shown.FeedDetails(
        _feed_row(feed, is_live, owner, tagged, actor),
        _visible_names(names, read | {feed.origin or 0}),
        _visible_names(names, readers),
        own_subscriptions,
        feed_state(feed, is_live, actor),
        _poll_row(polled[0]) if polled else {},
    )


def _poll_row(state: PollState) -> dict[str, Any]:
    """Describe the polls of a web feed; `address` is its current URL, after permanent redirects."""
    return {
        "address": state.address,
        "last asked": _format_time(state.checked),
        "answered": state.status,
        "asked next": "never: the feed is gone" if state.stopped else _format_time(state.due),
        "problem": state.problem,
        "polls in which items were probably missed": state.memory.saturated or None,
    }


def _format_time(microseconds: int | None) -> str | None:
    return None if microseconds is None else moment_of(microseconds).isoformat(sep=" ", timespec="seconds")


def _visible_names(names: Mapping[int, str], ids: set[int]) -> tuple[str, ...]:
    return tuple(sorted(names[feed] for feed in ids if feed in names))


def feed_state(feed: Feed, is_live: bool, actor: Actor) -> str:
    """Describe whether a feed is matched, or why not, without revealing other owners' subscriptions."""
    if feed.paused:
        return "paused"
    if feed.kind is FeedKind.TABLE:
        return "table"
    if feed.kind is FeedKind.SOURCE:
        return "source feed" if feed.origin is None else "materialized feed"
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
    """List the actor's subscriptions, or all if the actor is the admin, with their numbers of messages."""
    with workspace.catalog.read() as connection:
        owner = None if actor.is_admin else actor.owner
        names = names_for(connection, actor)
        owners = owner_names(connection)
        consent_of, moment = consents.consents_by_key(connection, owner), now(connection)
        rows = tuple(
            shown.Subscription(
                subscription.id,
                names[subscription.feed],
                subscription.kind,
                subscription.target,
                subscription.every,
                subscription.expires,
                subscription.paused,
                subscription.disabled,
                _describe_confirmation(consent_of.get(consents.key_of(subscription)), moment),
                owners[subscription.owner],
                ledger.next_number(connection, subscription.id) - 1,
                subscription.owner == actor.owner,
            )
            for subscription in subscriptions.live_subscriptions(connection, owner=owner)
            if not subscription.is_internal
        )
    return Listing(f"{len(rows)} subscriptions", "subscriptions", rows)


def _describe_confirmation(consent: Consent | None, moment: int) -> str | None:
    """Describe the pending confirmation of a target, or return None if it is confirmed or not required."""
    return None if consent is None or consent.is_confirmed else consents.describe_consent(consent, moment)


def _reason_for(thing: quarantine.Quarantined, actor: Actor) -> str:
    """Return the reason of a quarantine entry, as far as the actor may see it."""
    return operator_reason(thing.reason, actor) if thing.kind == quarantine.OPERATOR else thing.reason


def show_quarantine(workspace: Workspace, actor: Actor) -> Listing[shown.Quarantined]:
    """List the quarantine, newest first: entries of the actor's own feeds and queries, or all for the admin."""
    with workspace.catalog.read() as connection:
        things = quarantine.quarantined_rows(connection, owner=None if actor.is_admin else actor.owner)
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
    return Listing(f"{len(rows)} quarantined", "quarantine", rows)
