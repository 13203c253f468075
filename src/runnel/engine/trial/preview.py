"""Preview: a trial of one query, declared or not, on the items of the past. Nothing is written.

Up to `preview_items` items are matched in this process, more as a Spark batch over the same slices.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.query import Node, reads
from runnel.catalog.declared import feeds
from runnel.catalog.declared.feed_groups import expand
from runnel.engine.actors import Actor, feed_named
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
"""The id of a query that is not declared: no feed has it."""


@dataclass(frozen=True, slots=True)
class PreviewResult(Answer):
    """The matches of a query among past items.

    `looked_at` is the number of past items that the actor may read, `matched` the number of matches among them, and
    `newest` are the newest matches.
    """

    name: str
    looked_at: int
    matched: int
    newest: tuple[Item, ...]
    bindings: Mapping[int, Bindings] = field(default_factory=dict)
    """The bindings of the newest items by sequence, where the query has variables."""
    used_spark: bool = False
    gates: tuple[str, ...] = ()
    """The clauses of gates, which knew only the items of that time."""
    cost: OperatorCost | None = None
    """What asking operators was expected to cost."""

    def render(self) -> Rendering:
        """As the answer to a statement."""
        shown = [
            {"feed": item.feed, "id": item.id, "version": item.version, "title": item.first("title")}
            | bindings_json(self._bound(item))
            for item in self.newest
        ]
        lines: tuple[str, ...] = ()
        for item in self.newest:
            lines += (f"{item.feed}  {item.first('title') or item.id}", *binding_lines(self._bound(item)))
        data = {"feed": self.name, "looked_at": self.looked_at, "matched": self.matched, "newest": shown}
        alone = "".join(f"; `{clause}` was applied to these items only" for clause in self.gates)
        if self.cost is not None:
            data["operators"] = asdict(self.cost)
            lines = (*lines, self.cost.told())
        return Rendering(
            f"{self.name} would have matched {self.matched} of the {self.looked_at} items accepted in that time"
            + alone,
            data,
            lines,
        )

    def _bound(self, item: Item) -> Bindings:
        return self.bindings.get(item.sequence or 0, NO_BINDINGS)


def _silently(text: str) -> None:
    """Tell nobody."""


def preview_query(
    workspace: Workspace,
    query: CreateFeed,
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell = _silently,
) -> PreviewResult:
    """Preview a `create feed` statement without declaring it; `tell` is told the cost before operators are asked."""
    with workspace.catalog.read() as connection:
        scope = DeclarationScope(workspace, connection, actor, {}, ahead=True)
        node = expand(connection, {_PREVIEWED: bind(query, scope, actor.owner).node})[_PREVIEWED]
        nodes = feeds.definitions(connection, set(reads(node)), with_paused=True)
    return _preview(workspace, query.name.text, _PREVIEWED, {**nodes, _PREVIEWED: node}, back, spark, actor, tell)


def preview_feed(
    workspace: Workspace,
    name: str,
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell = _silently,
) -> PreviewResult:
    """Preview a declared feed; `tell` is told the cost before operators are asked."""
    with workspace.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
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
    cost = _cost(workspace, query, nodes, past)
    if cost is not None:
        tell(cost.told())
    is_small = past.upto - past.after <= workspace.settings.preview_items
    sequences = None if is_small else _with_spark(workspace, query, nodes, past, spark())
    with open_matcher(workspace, [PlanQuery(query)], nodes) as matcher:
        if sequences is None:
            matches = collect_from_log(workspace, matcher, past.after, past.upto, limit=SHOWN)
            sequences = matches.sequences
        else:  # Spark gives sequences alone; the newest of them are bound here
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


def _cost(workspace: Workspace, query: int, nodes: Mapping[int, Node], past: PastItems) -> OperatorCost | None:
    """What asking operators would cost; too much is refused."""
    cost = estimate_cost(workspace, query, nodes, past.after, past.upto)
    most = workspace.settings.preview_operator_seconds
    if cost is not None and cost.seconds > most:
        raise TooExpensiveError(
            f"this preview would take longer than {most:g} seconds: {cost.told()}",
            hint="preview a shorter time (`over last 1 hours`), or raise the setting preview_operator_seconds",
        )
    return cost


def _with_spark(
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
            return match_past(spark, workspace.storage.url, slices, folder, _brief(workspace, spark, past))
    finally:
        for file in (*manifest.files, "manifest.json"):
            workspace.storage.delete(f"{folder}/{file}")


def _brief(workspace: Workspace, spark: Any, past: PastItems) -> str | None:
    """What workers need to know of operators, and which items are in the log again."""
    from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
    from runnel.streaming.operator_snapshot import OperatorSnapshots

    share = 1.0 / spark.sparkContext.defaultParallelism
    with workspace.catalog.read() as connection:
        snapshot = OperatorSnapshots(workspace.storage, share).create(connection, past.after, past.upto)
    if snapshot.declared is not None:
        OperatorEnvironment.of(workspace.settings).keep(workspace.storage)
    return snapshot.dump()
