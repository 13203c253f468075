"""Preview: what a query would have matched, on the items of the past. It writes to no log.

Up to some thousand items it runs here; beyond that as a Spark batch over the same slices, with the same matcher.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.query import Node, reads
from runnel.catalog.declared import feeds, operators
from runnel.catalog.declared.feed_groups import expand
from runnel.catalog.declared.prefixes import all_prefixes
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.actors import Actor, feed_named, names_for
from runnel.engine.answers import Answer, Rendering
from runnel.engine.trial.adhoc_matching import past_bindings, past_matches
from runnel.engine.trial.find_duplicates import gates_in
from runnel.engine.trial.preview_cost import PreviewCost, preview_cost
from runnel.engine.workspace import Workspace
from runnel.language.binding.bind_query import bind_query
from runnel.language.graphs.iri_prefixes import write_out
from runnel.language.syntax.statements import CreateFeed
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.plan.logical_plan import PlanQuery
from runnel.sinks.show_bindings import binding_lines, bindings_json

Tell = Callable[[str], None]

DEFAULT_SPAN = timedelta(days=7)
_SHOWN = 20
_PREVIEWED = 1 << 40
"""The id of a query that is not declared: no feed has it."""


@dataclass(frozen=True, slots=True)
class PreviewResult(Answer):
    """What a query would have matched: how many of the items that the asker may read, and the newest of them."""

    name: str
    looked_at: int
    matched: int
    newest: tuple[Item, ...]
    bindings: Mapping[int, Bindings] = field(default_factory=dict)
    """The bindings of the newest items by sequence, where the query has variables."""
    used_spark: bool = False
    distinct: bool = False
    """Whether duplicates were left out; they were looked for among the items of that time alone."""
    cost: PreviewCost | None = None
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
        without = "; duplicates were looked for among these items" if self.distinct else ""
        if self.cost is not None:
            data["operators"] = asdict(self.cost)
            lines = (*lines, self.cost.told())
        return Rendering(
            f"{self.name} would have matched {self.matched} of the {self.looked_at} items accepted in that time"
            + without,
            data,
            lines,
        )

    def _bound(self, item: Item) -> Bindings:
        return self.bindings.get(item.sequence or 0, NO_BINDINGS)


def _silently(text: str) -> None:
    """Tell nobody."""


def preview_query(
    root: Workspace,
    query: CreateFeed,
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell = _silently,
) -> PreviewResult:
    """Preview a `create feed` statement without declaring it; `tell` is told the cost before operators are asked."""
    with root.catalog.read() as connection:

        def resolve(name: str) -> int | None:
            found = feeds.feed_by_name(connection, name, actor.owner)
            return None if found is None else found.id

        known = operators.live_operators(connection)
        names = partial(feeds.live_names, connection, actor.owner)
        written = write_out(query.query, partial(all_prefixes, connection))
        node = bind_query(written, resolve, names, known.get, lambda: known, actor.owner)
        node = expand(connection, {_PREVIEWED: node})[_PREVIEWED]
        nodes = feeds.definitions(connection, set(reads(node)))
    return _preview(root, query.name.text, _PREVIEWED, {**nodes, _PREVIEWED: node}, back, spark, actor, tell)


def preview_feed(
    root: Workspace,
    name: str,
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell = _silently,
) -> PreviewResult:
    """Preview a declared feed; `tell` is told the cost before operators are asked."""
    with root.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        nodes = feeds.definitions(connection, [feed.id], with_paused=True)
    return _preview(root, feed.name, feed.id, nodes, back, spark, actor, tell)


def _preview(
    root: Workspace,
    name: str,
    query: int,
    nodes: Mapping[int, Node],
    back: timedelta | None,
    spark: Callable[[], Any],
    actor: Actor,
    tell: Tell,
) -> PreviewResult:
    span = int((back or DEFAULT_SPAN).total_seconds() * 1e6)
    with root.catalog.read() as connection:
        begin = now(connection) - span
        last = last_sequence(connection)
        names = names_for(connection, actor)
    after = root.items.sequence_before(begin)
    is_small = last - after <= root.settings.preview_items
    cost = preview_cost(root, query, nodes, after, last)
    if cost is not None:
        tell(cost.told())
    if is_small:
        found = past_matches(root, query, nodes, after, last, bound=_SHOWN)
        sequences, bindings = found.sequences, found.bindings
    else:
        sequences = _with_spark(root, query, nodes, after, last, spark())
        bindings = past_bindings(root, query, nodes, sequences[-_SHOWN:].tolist())
    newest = [item for batch in root.items.get(sequences[-_SHOWN:].tolist()) for item in batch.items(names)]
    # How much comes in for others is nothing that an owner is told.
    looked_at = last - after if actor.is_admin else root.items.count(names.keys(), after, last)
    return PreviewResult(
        name,
        looked_at,
        len(sequences),
        tuple(reversed(newest)),
        {item.sequence or 0: bindings[item.sequence or 0] for item in newest if item.sequence in bindings},
        not is_small,
        bool(gates_in(nodes)),
        cost,
    )


def _with_spark(
    root: Workspace, query: int, nodes: Mapping[int, Node], after: int, last: int, spark: Any
) -> npt.NDArray[np.int64]:
    from runnel.streaming.jvm import noticing_loss
    from runnel.streaming.match_past import match_past

    folder = f"plans/preview-{uuid.uuid4().hex}"
    from runnel.matching.compile.compile_plan import compile_base

    manifest = compile_base(root.storage, folder, [PlanQuery(query, 0)], nodes)
    try:
        slices = root.items.slices(after, last, rows=root.settings.slice_items)
        with noticing_loss():
            return match_past(spark, root.storage.url, slices, folder, _brief(root, spark, after, last))
    finally:
        for file in (*manifest.files, "manifest.json"):
            root.storage.delete(f"{folder}/{file}")


def _brief(root: Workspace, spark: Any, after: int, last: int) -> str | None:
    """What workers need to know of operators, and which items are in the log again."""
    from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
    from runnel.streaming.operator_snapshot import OperatorSnapshots

    share = 1.0 / spark.sparkContext.defaultParallelism
    with root.catalog.read() as connection:
        brief = OperatorSnapshots(root.storage, share).brief(connection, after, last)
    if brief.declarations:
        OperatorEnvironment.of(root.settings).keep(root.storage)
    return brief.dump()
