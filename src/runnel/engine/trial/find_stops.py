"""Evaluate gates again on past items: how far back they depend on items, and what they decide about an item.

In: the definitions of feeds, and an item. Out: the sequence from which items are needed, the gates that stop the item
with the earlier items that caused it, and the items of the windows of its joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.nodes.query import Gated, Node, Read
from runnel.algebra.semantics.joins import Join
from runnel.catalog.declared import feeds
from runnel.catalog.logs import item_segments
from runnel.engine.actors import Actor, matched_since
from runnel.engine.trial.stored_windows import StoredWindows, read_stored_windows
from runnel.engine.trial.trial_matcher import TrialMatcher, open_matcher
from runnel.engine.workspace import Workspace
from runnel.model.annotation import Annotation
from runnel.model.item import Item
from runnel.plan.logical_plan import PlanQuery

MOST_ITEMS = 100_000
"""The maximum number of earlier items that are matched again to find the gates that stop an item."""


@dataclass(frozen=True, slots=True)
class ReachedJoin:
    """A join that an item reached: the sequences of the items in its window, and of those that it joins.

    `members` are in ascending order. `joined` is None if the item joins nothing.
    """

    members: npt.NDArray[np.int64]
    joined: Annotation | None


@dataclass(frozen=True, slots=True)
class GateStops:
    """The feeds whose gates stop an item, and the joins that it reached, by the feed of each gate.

    `earlier` contains the items that caused it, by sequence, as far as the actor may read them. If `whole` is false,
    only the last MOST_ITEMS before the item were matched again, in addition to the stored items of windows.
    """

    stops: Mapping[int, Stop]
    earlier: Mapping[int, Item]
    whole: bool = True
    joins: Mapping[int, ReachedJoin] = field(default_factory=dict)

    def with_recorded(self, annotations: Iterable[Annotation]) -> GateStops:
        """Return these stops with the joined items that the match log recorded, which decide."""
        recorded = {annotation.gate: annotation for annotation in annotations}
        return replace(
            self,
            stops={feed: stop for feed, stop in self.stops.items() if feed not in recorded},
            joins={feed: replace(join, joined=recorded.get(feed, join.joined)) for feed, join in self.joins.items()},
        )


def gates_in(definitions: Mapping[int, Node]) -> dict[int, Gated]:
    """Return the feeds that have gates."""
    return {feed: node for feed, node in definitions.items() if isinstance(node, Gated)}


def first_sequence_needed(workspace: Workspace, definitions: Mapping[int, Node], sequence: int) -> int:
    """Return the last sequence before `sequence` that cannot affect the gates' decisions from `sequence` on.

    A gated feed may read another gated feed, so their lookbacks are added. Deleted items have no effect.
    """
    lookback = sum((node.rule.lookback for node in gates_in(definitions).values()), timedelta())
    start = workspace.items.sequence_before(_accepted(workspace, sequence) - lookback // timedelta(microseconds=1))
    with workspace.catalog.read() as connection:
        return min(sequence - 1, max(start, item_segments.retained_upto(connection)))


def begin_windows(workspace: Workspace, definitions: Mapping[int, Node], after: int, upto: int) -> int | None:
    """Return the sequence after which items are needed so that windows are right from the first item after `after`.

    Return None if no gate reaches back, or if there are no items.
    """
    with workspace.catalog.read() as connection:
        first = max(after, item_segments.retained_upto(connection)) + 1
    if first > upto or not any(node.rule.reaches_back for node in gates_in(definitions).values()):
        return None
    return first_sequence_needed(workspace, definitions, first)


def find_stops(
    workspace: Workspace,
    feed: int,
    definitions: Mapping[int, Node],
    sequence: int,
    names: dict[int, str],
    actor: Actor,
) -> GateStops:
    """Find the gates of a feed, and of the feeds that it reads, that stop an item, and the joins that it reaches.

    A feed that is matched only because of other owners' subscriptions is evaluated as if it had no subscription.
    """
    gates = gates_in(definitions)
    if not gates:
        return GateStops({}, {})
    start = first_sequence_needed(workspace, definitions, sequence)
    begin = max(start, sequence - MOST_ITEMS)
    with workspace.catalog.read() as connection:
        visibly_matched = matched_since(connection, actor, {feed, *gates})
        since = feeds.since_of(connection, visibly_matched)
    reaching_back = {gate for gate, node in gates.items() if node.rule.reaches_back}
    queries = [
        PlanQuery(query, 0 if query in reaching_back else since.get(query, 0)) for query in sorted({feed, *gates})
    ]
    stored = None if begin == start else _stored_windows(workspace, feed, definitions)
    with open_matcher(workspace, queries, definitions, stored) as matcher:
        for batch in workspace.items.read(begin, sequence):
            matcher.match(batch)
        joins = _reached_joins(workspace, matcher, gates, sequence)
    stops = {gate: stop for (gate, at), stop in matcher.stopped.items() if at == sequence}
    causes = sorted({stop.earlier for stop in stops.values() if stop.earlier is not None})
    readable = set(names.values())
    earlier = {
        item.sequence or 0: item
        for batch in workspace.items.get(causes)
        for item in batch.items(names)
        if item.feed in readable
    }
    return GateStops(stops, earlier, begin == start, joins)


def _stored_windows(workspace: Workspace, feed: int, definitions: Mapping[int, Node]) -> StoredWindows | None:
    """Return the stored items of windows, or None if the feed has other definitions now."""
    with workspace.catalog.read() as connection:
        current = feeds.definitions(connection, [feed], with_paused=True)
    return read_stored_windows(workspace) if current == definitions else None


def _reached_joins(
    workspace: Workspace, matcher: TrialMatcher, gates: Mapping[int, Gated], sequence: int
) -> dict[int, ReachedJoin]:
    """Return the joins among the gates that an item reached, by the feed of the join."""
    joins: dict[int, ReachedJoin] = {}
    for feed, node in gates.items():
        if not isinstance(node.window, Read):
            continue
        annotations = matcher.annotations.get((feed, sequence), ())
        joined = next((annotation for annotation in annotations if annotation.gate == feed), None)
        if joined is not None or (feed, sequence) in matcher.stopped:
            members = matcher.window_members(
                node.window.feed, sequence, _accepted(workspace, sequence), cast(Join, node.rule).extent
            )
            joins[feed] = ReachedJoin(members, joined)
    return joins


def _accepted(workspace: Workspace, sequence: int) -> int:
    """Return when an item was accepted, in microseconds."""
    (batch,) = workspace.items.get([sequence])
    return int(batch.records.column("accepted").cast(pa.int64())[0].as_py())
