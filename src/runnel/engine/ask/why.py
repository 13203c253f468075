"""Answers to `why`: the evaluation of an accepted item, what the match log has of it, and what still waits.

Operators are asked again, in this process; what the variables were bound to is told as it was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternSearch, pattern_values
from runnel.algebra.nodes.query import Node, Read, conditions_of, reads
from runnel.algebra.semantics.bindings import Answers
from runnel.algebra.semantics.close_conditions import leaves
from runnel.algebra.semantics.trace import Trace, trace_node
from runnel.catalog.declared import feeds
from runnel.catalog.logs import item_segments, match_segments, undecided
from runnel.engine.actors import Actor, feed_named, names_for, sees_matches
from runnel.engine.answers import Answer, Rendering
from runnel.engine.trial.find_stops import MOST_ITEMS, GateStops, find_stops
from runnel.engine.trial.operator_session import answering
from runnel.engine.workspace import Workspace
from runnel.errors import NotFoundError
from runnel.logs.items.item_log import item_key
from runnel.model.item import Item, Value
from runnel.sinks.show_bindings import bindings_json


@dataclass(frozen=True, slots=True)
class Why(Answer):
    """The answer to `why`: whether an item is in a feed, and which conditions decide it.

    `holds` is the result of evaluating the query again. `recorded` says whether the match log contains the match; it
    is None if the item was not matched yet. `undecided` is set while operators are retried for the item. `failures`
    are the operator calls that failed during this evaluation.
    """

    item: str
    source: str
    version: int
    sequence: int
    feed: str
    holds: bool
    recorded: bool | None
    plan: int | None
    trace: tuple[str, ...]
    highlights: tuple[Mapping[str, Any], ...]
    stopped_by: Mapping[str, Mapping[str, Any]]
    bindings: tuple[Mapping[str, Any], ...]
    title: Value | None = None
    failures: tuple[str, ...] = ()
    searched: int | None = None
    undecided: str | None = None

    def render(self) -> Rendering:
        """The conditions one by one, and what was recorded."""
        data = {
            "item": self.item,
            "source": self.source,
            "version": self.version,
            "sequence": self.sequence,
            "feed": self.feed,
            "holds": self.holds,
            "recorded": self.recorded,
            "plan": self.plan,
            "trace": list(self.trace),
            "highlights": list(self.highlights),
            "stopped_by": dict(self.stopped_by),
            "bindings": list(self.bindings),
        }
        states = {None: "not matched yet", True: "recorded as a match", False: "not recorded as a match"}
        lines = (
            f"{self.source} item {self.item}, version {self.version}{f': {self.title}' if self.title else ''}",
            *self.trace,
            *self.failures,
            *([f"gates were evaluated on the {self.searched:,} items before it"] if self.searched else ()),
            self.undecided or states[self.recorded],
            *(f"  where {', '.join(f'?{name} = {value}' for name, value in row.items())}" for row in self.bindings),
        )
        return Rendering(f"item {self.item} {'is' if self.holds else 'is not'} in {self.feed}", data, lines)


def explain_match(workspace: Workspace, item_id: str, name: str, actor: Actor) -> Why:
    """Why an item is, or is not, in a feed: evaluated again, on the archived item, with the query as it was."""
    with workspace.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        names = names_for(connection, actor)
        current = feeds.definitions(connection, [feed.id], with_paused=True)
        read = {feed.id, *(source for node in current.values() for source in reads(node))}
        found = [one for one in item_segments.newest_sequences(connection, item_key(item_id)) if one[0] in names]
        near = [one for one in found if one[0] in read] or found
        if not near:
            raise NotFoundError(f"no item {item_id} was accepted", hint="ids are those that the publisher gave")
        source, sequence = near[-1]
        is_seen = sees_matches(connection, feed, sequence, actor)
        version = match_segments.plan_of_sequence(connection, sequence)
        if version is None:
            definitions = feeds.definitions(connection, [feed.id])
        else:
            definitions = feeds.definitions_at(connection, feed.id, version)
    item = item_at(workspace, sequence, names)
    again = _sequences_of(workspace, sequence)
    # What the match log has of a feed before the owner subscribed to it was recorded for others.
    recorded = None if version is None else is_seen and any(_recorded(workspace, one, feed.id) for one in again)
    gates = find_stops(workspace, feed.id, definitions, sequence, names, actor)
    with answering(workspace, item, definitions) as (answers, reasons):
        trace = _traced(feed.id, source, item, definitions, names, gates, answers)
        if recorded and gates.stops and not trace.holds:
            # The match log decides: a new history of the gate began after the earlier items.
            gates = replace(gates, stops={})
            trace = _traced(feed.id, source, item, definitions, names, gates, answers)
    # What an operator says of itself may speak of servers and files that are not everybody's.
    failures = (f"{name} failed: {reason}" for name, reason in reasons.items() if actor.is_admin)
    return Why(
        item=item_id,
        source=names[source],
        version=item.version,
        sequence=sequence,
        feed=feed.name,
        holds=trace.holds,
        recorded=recorded,
        plan=version if actor.is_admin else None,
        trace=tuple(trace.lines()),
        highlights=tuple(trace.highlights()),
        stopped_by=_stopped_by(gates, names),
        bindings=tuple(_bound(workspace, again, feed.id)) if recorded else (),
        title=item.first("title"),
        failures=tuple(failures),
        searched=None if gates.whole else MOST_ITEMS,
        undecided=_still(workspace, again, feed.id, actor) if is_seen else None,
    )


def _sequences_of(workspace: Workspace, sequence: int) -> list[int]:
    """The sequences under which the same version of an item is in the log: operators may have been asked again."""
    with workspace.catalog.read() as connection:
        return [sequence, *undecided.later_sequences(connection, sequence)]


def _still(workspace: Workspace, sequences: Sequence[int], feed: int, actor: Actor) -> str | None:
    """That operators have not decided yet, and to the admin why."""
    with workspace.catalog.read() as connection:
        reason = undecided.waits_for(connection, sequences, feed)
    if reason is None:
        return None
    return "not decided yet, operators are asked again later" + (f": {reason}" if actor.is_admin else "")


def _bound(workspace: Workspace, sequences: Sequence[int], feed: int) -> list[dict[str, Any]]:
    """What the variables were bound to when the item matched, as many as were kept."""
    found = workspace.matches.bindings(feed, sequences).values()
    return [row for one in found for row in bindings_json(one).get("bindings", ())]


def _stopped_by(gates: GateStops, names: Mapping[int, str]) -> dict[str, Any]:
    """The feeds whose gates stop the item, each with the earlier item that caused it, if the asker may read it."""
    causes = {feed: gates.earlier.get(stop.earlier or 0) for feed, stop in gates.stops.items()}
    return {
        names.get(feed, f"#{feed}"): {"source": item.feed, "item": item.id, "sequence": item.sequence}
        if item
        else None
        for feed, item in causes.items()
    }


def _traced(
    feed: int,
    source: int,
    item: Item,
    definitions: Mapping[int, Node],
    names: Mapping[int, str],
    gates: GateStops,
    answers: Answers,
) -> Trace:
    stopped = {feed: _cause(stop, gates.earlier) for feed, stop in gates.stops.items()}
    return trace_node(
        Read(feed),
        source,
        item.attributes,
        definitions,
        names,
        item.time,
        stopped=stopped,
        answers=answers,
        search=_search(item, definitions),
    )


def _search(item: Item, definitions: Mapping[int, Node]) -> PatternSearch | None:
    """The search of matching, so that its decisions are explained; None where no pattern reads the item."""
    every = (leaf for node in definitions.values() for one in conditions_of(node) for leaf in leaves(one))
    if not any(isinstance(leaf, ItemPattern) and pattern_values(leaf, item.attributes) for leaf in every):
        return None
    from runnel.matching.patterns.item_search import FamilySearch

    return FamilySearch(item.attributes)


def _cause(stop: Stop, earlier: Mapping[int, Item]) -> str:
    if stop.earlier is None:
        return ""
    item = earlier.get(stop.earlier)
    if item is None:
        return "an item of a feed that is not yours to read"
    when = "" if item.time is None else f", accepted {item.time.isoformat(sep=' ', timespec='seconds')}"
    return f"{item.feed} item {item.id}{when}"


def item_at(workspace: Workspace, sequence: int, names: dict[int, str]) -> Item:
    """The accepted item of a sequence."""
    for batch in workspace.items.get([sequence]):
        for item in batch.items(names):
            return item
    raise NotFoundError(f"the item with sequence {sequence} is not in the log")


def _recorded(workspace: Workspace, sequence: int, feed: int) -> bool:
    return any(len(rows.of_queries([feed])[0]) for rows in workspace.matches.read(sequence - 1, sequence))
