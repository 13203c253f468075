"""Questions: show, explain and why, answered from the catalog and the logs. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from runnel.algebra.query import Read
from runnel.algebra.why import trace_node
from runnel.catalog import feeds, inspection, items, ledger, matches, plans, subscriptions
from runnel.catalog.subscriptions import moment_of
from runnel.engine.adhoc import adhoc_plan
from runnel.engine.declare import Outcome
from runnel.engine.root import Root
from runnel.errors import NotFound
from runnel.language.nearest import did_you_mean
from runnel.language.printing import print_duration
from runnel.log.item_log import item_key
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Item
from runnel.optimizer.explain import explain_query
from runnel.plan.logical import PlanQuery
from runnel.plan.store import PlanVersion, load


def feed_named(connection: Connection, name: str) -> Feed:
    """The live feed of a name; raises NotFound with a near one."""
    found = feeds.feed_by_name(connection, name)
    if found is None:
        near = did_you_mean(name, feeds.live_names(connection))
        raise NotFound(f"there is no feed {name}", hint=near or "`show feeds` lists what there is")
    return found


def show_feeds(root: Root) -> Outcome:
    """All feeds, a line each."""
    with root.catalog.read() as connection:
        declared = feeds.live_feeds(connection)
        live = feeds.since_of(connection)
    rows = [_feed_row(feed, feed.id in live) for feed in declared]
    return Outcome(f"{len(rows)} feeds", {"feeds": rows}, tuple(row["statement"] for row in rows))


def show_feed(root: Root, name: str) -> Outcome:
    """One feed: its statement, what it reads, who reads it and who subscribes."""
    with root.catalog.read() as connection:
        feed = feed_named(connection, name)
        names = feeds.feed_names(connection)
        reads = sorted(names[one] for one in feeds.direct_sources(connection, [feed.id]))
        readers = sorted(names[one] for one in feeds.direct_readers(connection, [feed.id]))
        held = [one.id for one in subscriptions.live_subscriptions(connection, feed.id)]
        is_live = feed.id in feeds.since_of(connection, [feed.id])
    row = _feed_row(feed, is_live) | {"reads": reads, "read_by": readers, "subscriptions": held}
    lines = (
        feed.statement,
        f"reads: {', '.join(reads) or '-'}",
        f"read by: {', '.join(readers) or '-'}",
        f"subscriptions: {', '.join(map(str, held)) or '-'}",
        _state_of(feed, is_live),
    )
    return Outcome(f"feed {feed.name}", row, lines)


def _state_of(feed: Feed, is_live: bool) -> str:
    if feed.paused:
        return "paused"
    if feed.kind is FeedKind.SOURCE:
        return "source feed"
    return "matched" if is_live else "not matched: nobody subscribes to it"


def _feed_row(feed: Feed, is_live: bool) -> dict[str, Any]:
    return {
        "id": feed.id,
        "name": feed.name,
        "kind": feed.kind.value,
        "matched": is_live,
        "paused": feed.paused,
        "revision": feed.revision,
        "statement": feed.statement,
    }


def show_subscriptions(root: Root) -> Outcome:
    """All subscriptions, with what was sent."""
    with root.catalog.read() as connection:
        held = subscriptions.live_subscriptions(connection)
        names = feeds.feed_names(connection)
        rows = [
            {
                "subscription": one.id,
                "feed": names[one.feed],
                "kind": one.kind,
                "target": one.target,
                "every_seconds": None if one.every is None else one.every.total_seconds(),
                "expires": None if one.expires is None else one.expires.isoformat(),
                "paused": one.paused,
                "messages": ledger.next_number(connection, one.id) - 1,
            }
            for one in held
        ]
    lines = tuple(
        f"{row['subscription']:>6}  {row['feed']}  {row['kind']}  {row['target'] or '-'}"
        f"{_timing(row)}{'  paused' if row['paused'] else ''}  messages: {row['messages']}"
        for row in rows
    )
    return Outcome(f"{len(rows)} subscriptions", {"subscriptions": rows}, lines)


def _timing(row: Mapping[str, Any]) -> str:
    every = f"  every {print_duration(timedelta(seconds=row['every_seconds']))}" if row["every_seconds"] else ""
    return every + (f"  until {row['expires'][:16]}" if row["expires"] else "")


def show_quarantine(root: Root) -> Outcome:
    """What was put aside, newest first."""
    with root.catalog.read() as connection:
        things = inspection.put_aside_things(connection)
        names = feeds.feed_names(connection)
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


def explain_feed(root: Root, name: str) -> Outcome:
    """How a feed is matched: its part of the shared plan, and what it shares with others.

    A feed that nobody subscribes to is in no plan; it is compiled alone, to show what would become of it.
    """
    with root.catalog.read() as connection:
        feed = feed_named(connection, name)
        current = plans.current_plan(connection)
        is_live = feed.id in feeds.since_of(connection, [feed.id])
        names = feeds.feed_names(connection)
        definitions = feeds.definitions(connection, [feed.id], with_paused=True)
    if is_live and not feed.paused and current is not None:
        plan = load(root.storage, PlanVersion(current.version, current.base, current.delta))
        explained = explain_query(feed.id, plan, names)
        state = f"plan version {current.version}"
    else:
        with adhoc_plan([PlanQuery(feed.id)], definitions) as alone:
            explained = explain_query(feed.id, alone, names)
        state = f"{_state_of(feed, False)}; compiled alone it would be:"
    lines = (feed.statement, state, *explained.lines())
    data = {"feed": feed.name, "statement": feed.statement, "matched": is_live, **explained.to_json()}
    return Outcome(f"explain feed {feed.name}", data, lines)


def why(root: Root, item_id: str, name: str) -> Outcome:
    """Why an item is, or is not, in a feed: evaluated again, on the archived item, with the query as it was."""
    with root.catalog.read() as connection:
        feed = feed_named(connection, name)
        names = feeds.feed_names(connection)
        readable = feeds.all_sources(connection, [feed.id])
        found = items.newest_sequences(connection, item_key(item_id))
        near = [one for one in found if one[0] in readable] or found
        if not near:
            raise NotFound(f"no item {item_id} was accepted", hint="ids are those that the publisher gave")
        source, sequence = near[-1]
        version = matches.plan_of_sequence(connection, sequence)
        if version is None:
            definitions = feeds.definitions(connection, [feed.id])
        else:
            definitions = feeds.definitions_at(connection, feed.id, version)
    item = item_at(root, sequence, names)
    trace = trace_node(Read(feed.id), source, item.attributes, definitions, names)
    recorded = None if version is None else bool(_recorded(root, sequence, feed.id))
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
    }
    title = item.first("title")
    head = f"{names[source]} item {item_id}, version {item.version}{f': {title}' if title else ''}"
    told = {None: "not matched yet", True: "recorded as a match", False: "not recorded as a match"}[recorded]
    verb = "is" if trace.holds else "is not"
    return Outcome(f"item {item_id} {verb} in {feed.name}", data, (head, *trace.lines(), told))


def item_at(root: Root, sequence: int, names: dict[int, str]) -> Item:
    """The accepted item of a sequence."""
    for batch in root.items.get([sequence]):
        for item in batch.items(names):
            return item
    raise NotFound(f"the item with sequence {sequence} is not in the log")


def _recorded(root: Root, sequence: int, feed: int) -> bool:
    return any(len(rows.of_queries([feed])[0]) for rows in root.matches.read(sequence - 1, sequence))
