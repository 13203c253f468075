"""Create the delivery objects of a workspace, and pass in the plans and sources that they must not import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from runnel.catalog.declared import feeds
from runnel.catalog.logs.quarantine import ITEM
from runnel.delivery.dispatcher import Dispatcher
from runnel.delivery.match_reader import MatchReader
from runnel.delivery.shape_messages import own_attributes
from runnel.engine.trial.collect_matches import collect_from_log
from runnel.engine.trial.find_stops import first_sequence_needed, gates_in
from runnel.engine.trial.trial_matcher import open_matcher
from runnel.engine.workspace import Workspace
from runnel.errors import BacklogError, DeliveryError
from runnel.model.annotation import MatchDetails
from runnel.model.bindings import NO_BINDINGS
from runnel.model.item import Attributes, Item
from runnel.plan.logical_plan import PlanQuery
from runnel.sources.acquire import Acquirer
from runnel.sources.document_child import DocumentSource
from runnel.sources.document_pool import document_pool


def match_reader_of(workspace: Workspace) -> MatchReader:
    """Return a reader for the items of messages. For items from before a query was live, it evaluates the query."""

    def match_past_items(
        feed: int, after: int, upto: int, plan: int | None, detailed: bool
    ) -> dict[int, MatchDetails]:
        with workspace.catalog.read() as connection:
            nodes = (
                feeds.definitions(connection, [feed])
                if plan is None
                else feeds.definitions_at(connection, feed, plan)
            )
        start = first_sequence_needed(workspace, nodes, after + 1) if gates_in(nodes) else None
        with open_matcher(workspace, [PlanQuery(feed)], nodes) as matcher:
            past = collect_from_log(workspace, matcher, after, upto, start=start, limit=None if detailed else 0)
        bindings = {sequence: queries[feed] for sequence, queries in past.kept.items()}
        return {
            sequence: MatchDetails(bindings.get(sequence, NO_BINDINGS), matcher.annotations.get((feed, sequence), ()))
            for sequence in past.sequences.tolist()
        }

    return MatchReader(workspace.catalog, workspace.items, workspace.matches, match_past_items)


def dispatcher_of(workspace: Workspace, acquirer: Acquirer) -> Dispatcher:
    """Return the dispatcher of a workspace, which can apply stylesheets and create items of materialized feeds."""

    def accept(feed: int, data: bytes, place: str, bound: Mapping[str, Attributes]) -> str:
        return _accept(workspace, acquirer, feed, data, place, bound)

    return Dispatcher(
        workspace.catalog,
        match_reader_of(workspace),
        workspace.out,
        workspace.settings,
        storage=workspace.storage,
        accept=accept,
        decode=_read_entries,
    )


def _read_entries(data: bytes, place: str) -> Sequence[Item]:
    """Return the entries of a feed document that a stylesheet created."""
    return document_pool().read(data, DocumentSource(place, place)).items


def _with_attributes(items: Iterable[Item], bound: Mapping[str, Attributes]) -> list[Item]:
    """Remove the attributes that come from elements that Runnel added, and add the bindings as attributes."""
    return [replace(item, attributes={**own_attributes(item), **bound.get(item.id, {})}) for item in items]


def _accept(
    workspace: Workspace, acquirer: Acquirer, feed: int, data: bytes, place: str, bound: Mapping[str, Attributes]
) -> str:
    """Accept the output of a stylesheet into a materialized feed, within the lag limit."""
    with workspace.catalog.read() as connection:
        target = feeds.feed_by_id(connection, feed)
        is_live = bool(feeds.live_kinds(connection, [feed]))
    if target is None or not is_live:
        raise DeliveryError("the feed was dropped", permanent=True)
    if target.paused:
        raise BacklogError(f"{target.name} is paused", hint=f"`resume feed {target.name}`")
    lag = acquirer.lag()
    if lag >= workspace.settings.lag_limit:
        raise BacklogError(f"{lag} items wait for matching")
    adapted = acquirer.read_document(target, data, place)
    adapted = replace(adapted, items=_with_attributes(adapted.items, bound))
    accepted, problems = acquirer.accept_adapted(target, adapted), adapted.problems
    if problems:
        acquirer.quarantine(target, problems, ITEM, data)
    return f"{accepted.accepted} accepted, {accepted.unchanged} unchanged, {len(problems)} refused"
