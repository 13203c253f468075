"""Preview: match one query, declared or not, with past items. Nothing is written.

Up to `preview_items` items are matched in this process. More items are matched by a Spark job.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runnel.algebra.nodes.query import Node, reads, with_hidden_feeds
from runnel.catalog.declared import feeds
from runnel.catalog.declared.feed_groups import expand
from runnel.engine.actors import Actor, stream_named
from runnel.engine.answers import Answer, Rendering
from runnel.engine.declare.bind_statement import bind
from runnel.engine.declare.scope import DeclarationScope
from runnel.engine.trial.collect_matches import SHOWN, PastItems, collect_from_log, collect_matches
from runnel.engine.trial.find_stops import begin_windows, gates_in
from runnel.engine.trial.load_joined import load_joined_items
from runnel.engine.trial.operator_cost import OperatorCost, estimate_cost
from runnel.engine.trial.trial_matcher import open_matcher
from runnel.engine.workspace import Workspace
from runnel.errors import TooExpensiveError
from runnel.language.syntax.statements import CreateFeed
from runnel.model.annotation import Annotation, JoinedItems, unite_annotations
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.plan.logical_plan import PlanQuery
from runnel.sinks.show_annotations import annotation_lines, annotations_json
from runnel.sinks.show_bindings import binding_lines, bindings_json

if TYPE_CHECKING:
    from runnel.streaming.match_past import PastMatches

Tell = Callable[[str], None]

DEFAULT_SPAN = timedelta(days=7)
_PREVIEWED = 1 << 40
"""The id of a query that is not declared, followed by those of its hidden feeds. No feed has these ids."""


@dataclass(frozen=True, slots=True)
class PreviewResult(Answer):
    """The past items that a query would have matched: their number, and the newest of them.

    `looked_at` is the number of items in that time that the actor may read.
    """

    name: str
    looked_at: int
    matched: int
    newest: tuple[Item, ...]
    bindings: Mapping[int, Bindings] = field(default_factory=dict)
    """The bindings of the newest items by sequence, if the query has variables."""
    annotations: Mapping[int, tuple[JoinedItems, ...]] = field(default_factory=dict)
    """The items that the newest items join, by sequence, if the query has joins."""
    used_spark: bool = False
    gates: tuple[str, ...] = ()
    """The clauses of gates that were evaluated on the items of that time only. Windows reach back before it."""
    cost: OperatorCost | None = None
    """The estimated cost of calling operators, or None if none is called."""

    def render(self) -> Rendering:
        """Render the counts and the newest items."""
        shown = [
            {"feed": item.feed, "id": item.id, "version": item.version, "title": item.first("title")}
            | bindings_json(self._bound(item))
            | annotations_json(self._joined(item))
            for item in self.newest
        ]
        lines: tuple[str, ...] = ()
        for item in self.newest:
            lines += (f"{item.feed}  {item.first('title') or item.id}", *binding_lines(self._bound(item)))
            lines += tuple(annotation_lines(self._joined(item)))
        data = {"feed": self.name, "looked_at": self.looked_at, "matched": self.matched, "newest": shown}
        gate_notes = "".join(f"; `{clause}` was applied to these items only" for clause in self.gates)
        if self.cost is not None:
            data["operators"] = asdict(self.cost)
            lines = (*lines, self.cost.describe())
        return Rendering(
            f"{self.name} would have matched {self.matched} of the {self.looked_at} items accepted in that time"
            + gate_notes,
            data,
            lines,
        )

    def _bound(self, item: Item) -> Bindings:
        return self.bindings.get(item.sequence or 0, NO_BINDINGS)

    def _joined(self, item: Item) -> tuple[JoinedItems, ...]:
        return self.annotations.get(item.sequence or 0, ())


def _discard(text: str) -> None:
    """Discard a text."""


def preview_query(
    workspace: Workspace,
    query: CreateFeed,
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell = _discard,
) -> PreviewResult:
    """Preview a `create feed` statement without declaring it.

    If the query uses operators, `tell` is called with a description of the cost before they are called.
    """
    with workspace.catalog.read() as connection:
        scope = DeclarationScope(workspace, connection, actor, {}, is_read_only=True)
        bound = expand(connection, {_PREVIEWED: bind(query, scope, actor.owner).node})
        own = with_hidden_feeds(bound, _PREVIEWED + 1)
        sources = {source for node in own.values() for source in reads(node)} - own.keys()
        nodes = feeds.definitions(connection, sources, with_paused=True)
    return _preview(workspace, query.name.text, _PREVIEWED, {**nodes, **own}, back, spark, actor, tell)


def preview_feed(
    workspace: Workspace,
    name: str,
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell = _discard,
) -> PreviewResult:
    """Preview a declared feed. `tell` is called as by `preview_query`."""
    with workspace.catalog.read() as connection:
        feed = stream_named(connection, name, actor)
        nodes = feeds.definitions(connection, [feed.id], with_paused=True)
    return _preview(workspace, feed.name, feed.id, nodes, back, spark, actor, tell)


def _preview(
    workspace: Workspace,
    name: str,
    query: int,
    nodes: Mapping[int, Node],
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell,
) -> PreviewResult:
    past = PastItems.of(workspace, actor, back or DEFAULT_SPAN)
    cost = _affordable_cost(workspace, query, nodes, past)
    if cost is not None:
        tell(cost.describe())
    start = begin_windows(workspace, nodes, past.after, past.upto)
    begin = past.after if start is None else start
    is_small = past.upto - begin <= workspace.settings.preview_items
    own = PlanQuery(query, past.after)
    found = None if is_small else _match_with_spark(workspace, own, nodes, replace(past, after=begin), spark())
    with open_matcher(workspace, [own], nodes) as matcher:
        if found is None:
            matches = collect_from_log(workspace, matcher, past.after, past.upto, limit=SHOWN, start=start)
            sequences = matches.sequences
            annotations = {sequence: several for (_, sequence), several in matches.annotations.items()}
        else:  # the Spark job returns no bindings; compute those of the newest here
            sequences = found.sequences
            matches = collect_matches(matcher, workspace.items.get(sequences[-SHOWN:].tolist()), limit=None)
            newest = sequences[-SHOWN:].tolist()
            annotations = {sequence: found.annotations.get(sequence, {}).get(query, ()) for sequence in newest}
    return PreviewResult(
        name,
        past.count(),
        len(sequences),
        tuple(past.newest_first(sequences[-SHOWN:].tolist())),
        {sequence: queries[query] for sequence, queries in matches.kept.items() if not queries[query].is_empty},
        _load_joined(past, annotations),
        not is_small,
        _clauses_from_here(query, nodes, start is not None),
        cost,
    )


def _load_joined(
    past: PastItems, annotations: Mapping[int, tuple[Annotation, ...]]
) -> dict[int, tuple[JoinedItems, ...]]:
    """Return the joined items by sequence, as far as the actor may read them."""
    items = load_joined_items(past.workspace, annotations.values(), past.names)
    return {sequence: unite_annotations(several, items) for sequence, several in annotations.items() if several}


def _clauses_from_here(query: int, nodes: Mapping[int, Node], begins_earlier: bool) -> tuple[str, ...]:
    """Return the clauses of the gates that counted only the items of the preview.

    If windows reach back, so do the gates below them. Only the gate of the query itself starts with the preview.
    """
    gates = {feed: node.rule for feed, node in gates_in(nodes).items() if feed == query or not begins_earlier}
    return tuple(dict.fromkeys(rule.render() for rule in gates.values() if not rule.reaches_back))


def _affordable_cost(
    workspace: Workspace, query: int, nodes: Mapping[int, Node], past: PastItems
) -> OperatorCost | None:
    """Estimate the cost of operators, or return None if none is called. Raise TooExpensiveError if it is too high."""
    cost = estimate_cost(workspace, query, nodes, past.after, past.upto)
    limit = workspace.settings.preview_operator_seconds
    if cost is not None and cost.seconds > limit:
        raise TooExpensiveError(
            f"this preview would take longer than {limit:g} seconds: {cost.describe()}",
            hint="preview a shorter time (`over last 1 hours`), or raise the setting preview_operator_seconds",
        )
    return cost


def _match_with_spark(
    workspace: Workspace, query: PlanQuery, nodes: Mapping[int, Node], past: PastItems, spark: Any
) -> PastMatches:
    from runnel.streaming.jvm import noticing_loss
    from runnel.streaming.match_past import match_past

    folder = f"plans/preview-{uuid.uuid4().hex}"
    from runnel.matching.compile.compile_plan import compile_base

    manifest = compile_base(workspace.storage, folder, [query], nodes)
    try:
        slices = workspace.items.slices(past.after, past.upto, rows=workspace.settings.slice_items)
        with noticing_loss():
            return match_past(
                spark, workspace.storage.url, slices, folder, _operator_snapshot(workspace, spark, past)
            )
    finally:
        for file in (*manifest.files, "manifest.json"):
            workspace.storage.delete(f"{folder}/{file}")


def _operator_snapshot(workspace: Workspace, spark: Any, past: PastItems) -> str | None:
    """Return the serialized operator declarations and supplements that workers need."""
    from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
    from runnel.streaming.operator_snapshot import OperatorSnapshots

    share = 1.0 / spark.sparkContext.defaultParallelism
    with workspace.catalog.read() as connection:
        snapshot = OperatorSnapshots(workspace.storage, share).create(connection, past.after, past.upto)
    if snapshot.declared is not None:
        OperatorEnvironment.of(workspace.settings).keep(workspace.storage)
    return snapshot.dump()
