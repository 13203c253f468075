"""Questions: show, explain and why, answered from the catalog and the logs. Nothing here changes anything.

Every answer is for an actor: what that one may not read is neither shown nor counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from runnel.algebra.durations import render_duration
from runnel.algebra.query import Node, Read
from runnel.algebra.why import Trace, trace_node
from runnel.catalog import feeds, inspection, items, ledger, matches, plans, polls, subscriptions
from runnel.catalog.people import owner_names
from runnel.catalog.polls import PollState
from runnel.catalog.subscriptions import INTERNAL, moment_of
from runnel.engine.adhoc import adhoc_plan
from runnel.engine.looking_back import MOST_ITEMS, Duplicates, find_duplicates
from runnel.engine.outcome import Outcome
from runnel.engine.people import Actor, feed_named, names_for
from runnel.engine.root import Root
from runnel.errors import NotFound
from runnel.log.item_log import item_key
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Item
from runnel.optimizer.explain import explain_query, part_of
from runnel.plan.logical import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load


def show_feeds(root: Root, actor: Actor) -> Outcome:
    """All feeds that the actor may read, a line each."""
    with root.catalog.read() as connection:
        declared = feeds.live_feeds(connection, actor.owner)
        live = feeds.since_of(connection)
        owners = owner_names(connection)
    rows = [_feed_row(feed, feed.id in live, owners[feed.owner]) for feed in declared]
    # Whose a feed is stands behind it as a comment: the lines are still a script.
    lines = tuple(
        row["statement"] if feed.owner == actor.owner else f"{row['statement']}  -- of {row['owner']}"
        for feed, row in zip(declared, rows, strict=True)
    )
    return Outcome(f"{len(rows)} feeds", {"feeds": rows}, lines)


def show_feed(root: Root, name: str, actor: Actor) -> Outcome:
    """One feed: its statement, what it reads, who reads it and who subscribes."""
    with root.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        names = names_for(connection, actor)
        reads = _named(names, feeds.direct_sources(connection, [feed.id]) | {feed.origin or 0})
        using = feeds.direct_readers(connection, [feed.id]) | feeds.materialised_from(connection, [feed.id])
        readers = _named(names, using)
        held = [
            one.id
            for one in subscriptions.live_subscriptions(connection, feed.id)
            if one.kind != INTERNAL and actor.holds(one)
        ]
        is_live = feed.id in feeds.since_of(connection, [feed.id])
        owner = owner_names(connection)[feed.owner]
        polled = polls.poll_states(connection, [feed.id])
    row = _feed_row(feed, is_live, owner) | {"reads": reads, "read_by": readers, "subscriptions": held}
    row |= {"poll": _poll_row(polled[0])} if polled else {}
    lines = (
        feed.statement,
        f"reads: {', '.join(reads) or '-'}",
        f"read by: {', '.join(readers) or '-'}",
        f"subscriptions: {', '.join(map(str, held)) or '-'}",
        _state_of(feed, is_live),
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


def _state_of(feed: Feed, is_live: bool) -> str:
    if feed.paused:
        return "paused"
    if feed.kind is FeedKind.SOURCE:
        return "source feed" if feed.origin is None else "materialised feed"
    return "matched" if is_live else "not matched: nobody subscribes to it"


def _feed_row(feed: Feed, is_live: bool, owner: str) -> dict[str, Any]:
    return {
        "id": feed.id,
        "name": feed.name,
        "owner": owner,
        "kind": feed.kind.value,
        "matched": is_live,
        "paused": feed.paused,
        "revision": feed.revision,
        "statement": feed.statement,
    }


def show_subscriptions(root: Root, actor: Actor) -> Outcome:
    """The actor's subscriptions (to the operator: everybody's), with what was sent."""
    with root.catalog.read() as connection:
        owner = None if actor.is_operator else actor.owner
        held = [one for one in subscriptions.live_subscriptions(connection, owner=owner) if one.kind != INTERNAL]
        names = names_for(connection, actor)
        owners = owner_names(connection)
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
    return f"{'  paused' if row['paused'] else ''}{disabled}"


def show_quarantine(root: Root, actor: Actor) -> Outcome:
    """What was put aside, newest first: of the actor's own feeds, or on the way to the actor's own queries."""
    with root.catalog.read() as connection:
        things = inspection.put_aside_things(connection, owner=None if actor.is_operator else actor.owner)
        names = names_for(connection, actor)
    rows = [
        {
            "id": one.id,
            "kind": one.kind,
            "feed": None if one.feed is None else names.get(one.feed),
            "query": None if one.query is None else names.get(one.query),
            "place": one.place,
            "reason": one.reason,
            "kept": one.path,
            "time": moment_of(one.created).isoformat(),
        }
        for one in things
    ]
    lines = tuple(f"{row['kind']} {row['place']}: {row['reason']}" for row in rows)
    return Outcome(f"{len(rows)} put aside", {"quarantine": rows}, lines)


def explain_feed(root: Root, name: str, actor: Actor) -> Outcome:
    """How a feed is matched: its part of the shared plan, its filter tree, and what it shares with others.

    A feed that nobody subscribes to is in no plan; it is compiled alone, to show what would become of it. So it is
    for everybody but the operator: what the plan shares tells what others want.
    """
    with _planned(root, name, actor) as planned:
        # Imported here, as the compiler of kernels takes a second to load.
        from runnel.matching.expected import part_anchors

        part, _ = part_of(planned.plan, planned.feed.id, planned.names)
        anchors = part_anchors(part).clauses
        explained = explain_query(planned.feed.id, planned.plan, planned.names, anchors=anchors)
        feed = planned.feed
        lines = (feed.statement, planned.state, *explained.lines())
        data = {"feed": feed.name, "statement": feed.statement, "matched": planned.is_live, **explained.to_json()}
    return Outcome(f"explain feed {feed.name}", data, lines)


def picture_feed(root: Root, name: str, actor: Actor) -> dict[str, str]:
    """The filter trees in which a feed is, as SVG pictures by the names of the sources.

    Sources of which the same is asked share a picture. What an actor may not know of others is in no picture.
    """
    from runnel.optimizer.explain_tree import MOST_PREDICATES, pictures

    with _planned(root, name, actor) as planned:
        drawn = pictures(planned.plan, planned.feed.id, planned.names)
    if not drawn:
        raise NotFound(
            f"there is no filter tree of {name} to draw",
            hint=f"it reads no source, or only sources with more than {MOST_PREDICATES:,} predicates",
        )
    return drawn


@dataclass(frozen=True, slots=True)
class _Planned:
    """A feed in a plan: the shared one, or one of its own."""

    feed: Feed
    is_live: bool
    names: Mapping[int, str]
    plan: Plan
    state: str


@contextmanager
def _planned(root: Root, name: str, actor: Actor) -> Iterator[_Planned]:
    with root.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        current = plans.current_plan(connection)
        is_live = feed.id in feeds.since_of(connection, [feed.id])
        names = names_for(connection, actor)
        definitions = feeds.definitions(connection, [feed.id], with_paused=True)
    if actor.is_operator and is_live and not feed.paused and current is not None:
        plan = load(root.storage, PlanVersion(current.version, current.base, current.delta))
        yield _Planned(feed, is_live, names, plan, f"plan version {current.version}")
        return
    state = f"{_state_of(feed, is_live)}; compiled alone it would be:"
    with adhoc_plan([PlanQuery(feed.id)], definitions) as alone:
        yield _Planned(feed, is_live, names, alone, state)


def why(root: Root, item_id: str, name: str, actor: Actor) -> Outcome:
    """Why an item is, or is not, in a feed: evaluated again, on the archived item, with the query as it was."""
    with root.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        names = names_for(connection, actor)
        reads = feeds.all_sources(connection, [feed.id])
        found = [one for one in items.newest_sequences(connection, item_key(item_id)) if one[0] in names]
        near = [one for one in found if one[0] in reads] or found
        if not near:
            raise NotFound(f"no item {item_id} was accepted", hint="ids are those that the publisher gave")
        source, sequence = near[-1]
        version = matches.plan_of_sequence(connection, sequence)
        if version is None:
            definitions = feeds.definitions(connection, [feed.id])
        else:
            definitions = feeds.definitions_at(connection, feed.id, version)
    item = item_at(root, sequence, names)
    recorded = None if version is None else bool(_recorded(root, sequence, feed.id))
    found_before = find_duplicates(root, feed.id, definitions, sequence, names)
    trace = _traced(feed.id, source, item, definitions, names, found_before)
    if recorded and found_before.earlier and not trace.holds:
        # The match log knows better: the feed's history began anew after the earlier item.
        found_before = replace(found_before, earlier={})
        trace = _traced(feed.id, source, item, definitions, names, found_before)
    data = {
        "item": item_id,
        "source": names[source],
        "version": item.version,
        "sequence": sequence,
        "feed": feed.name,
        "holds": trace.holds,
        "recorded": recorded,
        "plan": version,
        "trace": trace.lines(),
        "highlights": trace.highlights(),
        "duplicate_of": _duplicate_of(found_before, names),
    }
    title = item.first("title")
    head = f"{names[source]} item {item_id}, version {item.version}{f': {title}' if title else ''}"
    told = {None: "not matched yet", True: "recorded as a match", False: "not recorded as a match"}[recorded]
    verb = "is" if trace.holds else "is not"
    unsure = () if found_before.whole else (f"duplicates were looked for among the {MOST_ITEMS:,} items before it",)
    return Outcome(f"item {item_id} {verb} in {feed.name}", data, (head, *trace.lines(), *unsure, told))


def _duplicate_of(found: Duplicates, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        names.get(gate, f"#{gate}"): {"source": one.feed, "item": one.id, "sequence": one.sequence}
        for gate, one in found.earlier.items()
        if one is not None
    }


def _traced(
    feed: int, source: int, item: Item, definitions: Mapping[int, Node], names: Mapping[int, str], found: Duplicates
) -> Trace:
    repeated = {gate: _earlier(one) for gate, one in found.earlier.items()}
    return trace_node(Read(feed), source, item.attributes, definitions, names, item.time, duplicates=repeated)


def _earlier(item: Item | None) -> str:
    if item is None:
        return "an item of a feed that is not yours to read"
    when = "" if item.time is None else f", accepted {item.time.isoformat(sep=' ', timespec='seconds')}"
    return f"{item.feed} item {item.id}{when}"


def item_at(root: Root, sequence: int, names: dict[int, str]) -> Item:
    """The accepted item of a sequence."""
    for batch in root.items.get([sequence]):
        for item in batch.items(names):
            return item
    raise NotFound(f"the item with sequence {sequence} is not in the log")


def _recorded(root: Root, sequence: int, feed: int) -> bool:
    return any(len(rows.of_queries([feed])[0]) for rows in root.matches.read(sequence - 1, sequence))
