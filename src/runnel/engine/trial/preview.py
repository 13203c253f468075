"""Preview: match one query, declared or not, with past items. Nothing is written.

Up to `preview_items` items are matched in this process. More items are matched by a Spark job.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.query import Node, reads, with_hidden_feeds
from runnel.catalog.declared import feeds
from runnel.catalog.declared.feed_groups import expand
from runnel.engine.actors import Actor, stream_named
from runnel.engine.answers import Answer, Rendering
from runnel.engine.declare.bind_statement import bind
from runnel.engine.declare.scope import DeclarationScope
from runnel.engine.trial.collect_matches import SHOWN, PastItems, collect_from_log, collect_matches
from runnel.engine.trial.find_stops import gates_in
from runnel.engine.trial.operator_cost import OperatorCost, estimate_cost
from runnel.engine.trial.trial_matcher import open_matcher
from runnel.engine.workspace import Workspace
from runnel.errors import TooExpensiveError
from runnel.language.syntax.statements import CreateFeed
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.plan.logical_plan import PlanQuery
from runnel.sinks.show_bindings import binding_lines, bindings_json

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
    used_spark: bool = False
    gates: tuple[str, ...] = ()
    """The clauses of gates. They were evaluated on the items of that time only."""
    cost: OperatorCost | None = None
    """The estimated cost of calling operators, or None if none is called."""

    def render(self) -> Rendering:
        """Render the counts and the newest items."""
        shown = [
            {"feed": item.feed, "id": item.id, "version": item.version, "title": item.first("title")}
            | bindings_json(self._bound(item))
            for item in self.newest
        ]
        lines: tuple[str, ...] = ()
        for item in self.newest:
            lines += (f"{item.feed}  {item.first('title') or item.id}", *binding_lines(self._bound(item)))
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
    is_small = past.upto - past.after <= workspace.settings.preview_items
    sequences = None if is_small else _match_with_spark(workspace, query, nodes, past, spark())
    with open_matcher(workspace, [PlanQuery(query)], nodes) as matcher:
        if sequences is None:
            matches = collect_from_log(workspace, matcher, past.after, past.upto, limit=SHOWN)
            sequences = matches.sequences
        else:  # the Spark job returns only sequences; compute the bindings of the newest here
            matches = collect_matches(matcher, workspace.items.get(sequences[-SHOWN:].tolist()), limit=None)
    return PreviewResult(
        name,
        past.count(),
        len(sequences),
        tuple(past.newest_first(sequences[-SHOWN:].tolist())),
        {sequence: queries[query] for sequence, queries in matches.kept.items() if not queries[query].is_empty},
        not is_small,
        tuple(dict.fromkeys(node.rule.render() for node in gates_in(nodes).values())),
        cost,
    )


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
    workspace: Workspace, query: int, nodes: Mapping[int, Node], past: PastItems, spark: Any
) -> npt.NDArray[np.int64]:
    from runnel.streaming.jvm import noticing_loss
    from runnel.streaming.match_past import match_past

    folder = f"plans/preview-{uuid.uuid4().hex}"
    from runnel.matching.compile.compile_plan import compile_base

    manifest = compile_base(workspace.storage, folder, [PlanQuery(query, 0)], nodes)
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
