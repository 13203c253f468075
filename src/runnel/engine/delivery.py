"""Delivery as a root does it: sinks know nothing of plans and sources, so what they need of those is given here."""

from __future__ import annotations

from collections.abc import Sequence

from runnel.catalog import feeds
from runnel.catalog.inspection import ITEM
from runnel.engine.adhoc import past_matches
from runnel.engine.looking_back import gates_in, sequence_looking_back
from runnel.engine.root import Root
from runnel.errors import Backlogged, DeliveryFailed
from runnel.model.item import Item
from runnel.sinks.dispatch import Dispatcher
from runnel.sinks.shares import Shares
from runnel.sources.acquire import Acquirer
from runnel.sources.adapt import adapt
from runnel.sources.decode import decode


def shares_of(root: Root) -> Shares:
    """Finds the items of messages; what was before a query was live is found by evaluating it on the past."""

    def history(feed: int, after: int, upto: int, plan: int | None) -> list[int]:
        with root.catalog.read() as connection:
            nodes = (
                feeds.definitions(connection, [feed])
                if plan is None
                else feeds.definitions_at(connection, feed, plan)
            )
        start = sequence_looking_back(root, nodes, after + 1) if gates_in(nodes) else None
        return [int(one) for one in past_matches(root, feed, nodes, after, upto, start=start)]

    return Shares(root.catalog, root.items, root.matches, history)


def dispatcher_of(root: Root, acquirer: Acquirer) -> Dispatcher:
    """The dispatcher of a root, able to apply stylesheets and to make items of materialised feeds."""

    def accept(feed: int, data: bytes, place: str) -> str:
        return _accept(root, acquirer, feed, data, place)

    return Dispatcher(
        root.catalog, shares_of(root), root.out, root.settings, storage=root.storage, accept=accept, decode=_entries
    )


def _entries(data: bytes, place: str) -> Sequence[Item]:
    """The entries of a feed document that a stylesheet made."""
    return adapt(decode(data, place), place).items


def _accept(root: Root, acquirer: Acquirer, feed: int, data: bytes, place: str) -> str:
    """Accept what a stylesheet made into a materialised feed, within the lag limit."""
    with root.catalog.read() as connection:
        found = feeds.feed_by_id(connection, feed)
        is_live = bool(feeds.live_kinds(connection, [feed]))
    if found is None or not is_live:
        raise DeliveryFailed("the feed was dropped", permanent=True)
    if found.paused:
        raise Backlogged(f"{found.name} is paused", hint=f"`resume feed {found.name}`")
    lag = acquirer.lag()
    if lag >= root.settings.lag_limit:
        raise Backlogged(f"{lag} items wait for matching")
    accepted, problems = acquirer.take_document(found, data, place)
    if problems:
        acquirer.keep_aside(found, problems, ITEM, data)
    return f"{accepted.accepted} accepted, {accepted.unchanged} known already, {len(problems)} refused"
