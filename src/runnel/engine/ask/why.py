"""The `why` statement: evaluate a query again on an accepted item, and compare with the match log.

Operators are called again, in this process. Bindings are shown as the match log recorded them.
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
from runnel.engine.actors import Actor, names_for, sees_matches, stream_named
from runnel.engine.answers import Answer, Rendering
from runnel.engine.ask.name_hidden_feeds import name_hidden_feeds
from runnel.engine.ask.why_joins import ExplainedJoin, explain_joins
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

    `holds` is the result of evaluating the query again. `recorded` is whether the match log contains the match, or
    None if the item has not been matched yet. `undecided` is a text if operators have not answered yet. `failures`
    lists the operators that failed. `searched` is the number of earlier items on which gates were evaluated, if these
    were not all. `joins` are the joins that the item reached.
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
    joins: tuple[ExplainedJoin, ...] = ()

    def render(self) -> Rendering:
        """Render one line per condition, and the recorded match."""
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
            "joins": [join.to_json() for join in self.joins],
        }
        states = {None: "not matched yet", True: "recorded as a match", False: "not recorded as a match"}
        lines = (
            f"{self.source} item {self.item}, version {self.version}{f': {self.title}' if self.title else ''}",
            *self.trace,
            *self.failures,
            *([self._describe_search()] if self.searched else ()),
            self.undecided or states[self.recorded],
            *(f"  where {', '.join(f'?{name} = {value}' for name, value in row.items())}" for row in self.bindings),
        )
        return Rendering(f"item {self.item} {'is' if self.holds else 'is not'} in {self.feed}", data, lines)

    def _describe_search(self) -> str:
        stored = ", and on the stored items of windows" if self.joins else ""
        return f"gates were evaluated only on the {self.searched:,} items before it{stored}"


def explain_match(workspace: Workspace, item_id: str, name: str, actor: Actor) -> Why:
    """Explain why an item is, or is not, in a feed.

    The query is evaluated again on the stored item, in the revision with which the item was matched.
    """
    with workspace.catalog.read() as connection:
        feed = stream_named(connection, name, actor)
        names = names_for(connection, actor)
        current = feeds.definitions(connection, [feed.id], with_paused=True)
        read = {feed.id, *(source for node in current.values() for source in reads(node))}
        newest = [pair for pair in item_segments.newest_sequences(connection, item_key(item_id)) if pair[0] in names]
        candidates = [pair for pair in newest if pair[0] in read] or newest
        if not candidates:
            raise NotFoundError(f"no item {item_id} was accepted", hint="use the id that the publisher gave the item")
        source, sequence = candidates[-1]
        is_seen = sees_matches(connection, feed, sequence, actor)
        version = match_segments.plan_of_sequence(connection, sequence)
        if version is None:
            definitions = feeds.definitions(connection, [feed.id])
        else:
            definitions = feeds.definitions_at(connection, feed.id, version)
    item = item_at(workspace, sequence, names)
    sequences = _sequences_of(workspace, sequence)
    # Matches from before the owner subscribed to the feed were recorded for other owners.
    recorded = None if version is None else is_seen and _is_recorded(workspace, sequences, feed.id)
    gates = find_stops(workspace, feed.id, definitions, sequence, names, actor)
    if recorded and gates.joins:
        recorded_annotations = workspace.matches.annotations_of({feed.id: sequences}).values()
        gates = gates.with_recorded(annotation for several in recorded_annotations for annotation in several)
    described = name_hidden_feeds(names, definitions)
    joins = explain_joins(workspace, item, gates.joins, definitions, described, names)
    with answering(workspace, item, definitions) as (answers, reasons):
        trace = _trace(feed.id, source, item, definitions, described, gates, joins, answers)
        if recorded and gates.stops and not trace.holds:
            # The match log decides: the gate's history was restarted after the earlier items.
            gates = replace(gates, stops={})
            trace = _trace(feed.id, source, item, definitions, described, gates, (), answers)
    # An operator's error text may contain server names and paths that only the admin may see.
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
        stopped_by=_stopped_by(gates, described),
        bindings=tuple(_recorded_bindings(workspace, sequences, feed.id)) if recorded else (),
        title=item.first("title"),
        failures=tuple(failures),
        searched=None if gates.whole else MOST_ITEMS,
        undecided=_describe_undecided(workspace, sequences, feed.id, actor) if is_seen else None,
        joins=tuple(joins),
    )


def _sequences_of(workspace: Workspace, sequence: int) -> list[int]:
    """Return all sequences of an item version. It has several if it was matched again to call operators again."""
    with workspace.catalog.read() as connection:
        return [sequence, *undecided.later_sequences(connection, sequence)]


def _describe_undecided(workspace: Workspace, sequences: Sequence[int], feed: int, actor: Actor) -> str | None:
    """Return a text, for the admin with the reason, if operators have not decided the match yet."""
    with workspace.catalog.read() as connection:
        reason = undecided.waits_for(connection, sequences, feed)
    if reason is None:
        return None
    return "not decided yet; operators will be called again" + (f": {reason}" if actor.is_admin else "")


def _recorded_bindings(workspace: Workspace, sequences: Sequence[int], feed: int) -> list[dict[str, Any]]:
    """Return the bindings that the match log recorded."""
    recorded = workspace.matches.bindings(feed, sequences).values()
    return [row for bindings in recorded for row in bindings_json(bindings).get("bindings", ())]


def _stopped_by(gates: GateStops, names: Mapping[int, str]) -> dict[str, Any]:
    """Return the feeds whose gates stop the item, each with the earlier item that caused it, or None if hidden."""
    causes = {feed: gates.earlier.get(stop.earlier or 0) for feed, stop in gates.stops.items()}
    return {
        names.get(feed, f"#{feed}"): {"source": item.feed, "item": item.id, "sequence": item.sequence}
        if item
        else None
        for feed, item in causes.items()
    }


def _trace(
    feed: int,
    source: int,
    item: Item,
    definitions: Mapping[int, Node],
    names: Mapping[int, str],
    gates: GateStops,
    joins: Sequence[ExplainedJoin],
    answers: Answers,
) -> Trace:
    stopped = {feed: _describe_cause(stop, gates.earlier) for feed, stop in gates.stops.items()}
    return trace_node(
        Read(feed),
        source,
        item.attributes,
        definitions,
        names,
        item.time,
        stopped=stopped,
        at_gates={join.gate: join.steps() for join in joins},
        answers=answers,
        search=_pattern_search(item, definitions),
    )


def _pattern_search(item: Item, definitions: Mapping[int, Node]) -> PatternSearch | None:
    """Return the same pattern search that matching uses, or None if no pattern reads the item."""
    every = (leaf for node in definitions.values() for one in conditions_of(node) for leaf in leaves(one))
    if not any(isinstance(leaf, ItemPattern) and pattern_values(leaf, item.attributes) for leaf in every):
        return None
    from runnel.matching.patterns.item_search import FamilySearch

    return FamilySearch(item.attributes)


def _describe_cause(stop: Stop, earlier: Mapping[int, Item]) -> str:
    if stop.earlier is None:
        return ""
    item = earlier.get(stop.earlier)
    if item is None:
        return "an item of a feed that you may not read"
    when = "" if item.time is None else f", accepted {item.time.isoformat(sep=' ', timespec='seconds')}"
    return f"{item.feed} item {item.id}{when}"


def item_at(workspace: Workspace, sequence: int, names: dict[int, str]) -> Item:
    """Return the accepted item with a sequence, or raise NotFoundError."""
    for batch in workspace.items.get([sequence]):
        for item in batch.items(names):
            return item
    raise NotFoundError(f"the item with sequence {sequence} is not in the item log")


def _is_recorded(workspace: Workspace, sequences: Sequence[int], feed: int) -> bool:
    return any(
        len(rows.of_queries([feed])[0])
        for sequence in sequences
        for rows in workspace.matches.read(sequence - 1, sequence)
    )
