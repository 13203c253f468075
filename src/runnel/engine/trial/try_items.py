"""Test: a trial of declared queries, subscribed to or not, on items of the caller or of the past. Nothing is written.

In: a selection of queries, and items. Out: for each item the queries that match it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from runnel.algebra.nodes.query import Node, conditions_of
from runnel.algebra.semantics.close_conditions import has_calls
from runnel.catalog.declared import feeds
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.store.connection import now
from runnel.engine.actors import Actor, check_actor, feed_named, names_for, operator_reason
from runnel.engine.answers import Answer, Rendering
from runnel.engine.ask.selection import Selection, select_for
from runnel.engine.trial.collect_matches import SHOWN, PastItems, TrialMatches, collect_from_log, collect_matches
from runnel.engine.trial.operator_cost import estimate_cost
from runnel.engine.trial.trial_matcher import open_declared
from runnel.engine.workspace import Workspace
from runnel.errors import InputError, TooExpensiveError
from runnel.model.bindings import Bindings
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.sinks.show_bindings import binding_lines, bindings_json

_BATCH_ITEMS = 2_000
_MOST_ASKING = 20


@dataclass(frozen=True, slots=True)
class TriedItem:
    """An item, the names of the queries that match it, in order, and the bindings of those that have some."""

    item: Item
    queries: tuple[str, ...]
    bindings: Mapping[str, Bindings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialResult(Answer):
    """The result of `Engine.test`: the number of items, the number of matches per query, and some of the items.

    `items` are the first of the given items or, if past items were matched, the newest with a match. `more` is the
    number of omitted items. `failures` are queries that could not be evaluated on an item, `refused` the errors of
    invalid items.
    """

    looked_at: int
    counts: tuple[tuple[str, int], ...]
    items: tuple[TriedItem, ...]
    more: int = 0
    failures: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def render(self) -> Rendering:
        """As the answer to a command."""
        matched = [name for name, count in self.counts if count]
        never = [name for name, count in self.counts if not count]
        rows: list[dict[str, Any]] = [
            {
                "feed": one.item.feed,
                "id": one.item.id,
                "title": one.item.first("title"),
                "queries": list(one.queries),
            }
            | (
                {"bindings": {name: bindings_json(bound) for name, bound in one.bindings.items()}}
                if one.bindings
                else {}
            )
            for one in self.items
        ]
        data: dict[str, Any] = {
            "looked_at": self.looked_at,
            "queries": len(self.counts),
            "matched": [{"feed": name, "matches": count} for name, count in self.counts if count],
            "never": never,
            "items": rows,
            "failures": list(self.failures),
            "refused": list(self.refused),
        }
        lines = []
        for one in self.items:
            lines.append(f"{one.item.first('title') or one.item.id}: {', '.join(one.queries) or '-'}")
            for name, bound in one.bindings.items():
                lines += [f"  {name}:", *(f"  {line}" for line in binding_lines(bound))]
        lines += [f"and {self.more:,} more items"] if self.more else []
        lines += [f"{count:>8,}  {name}" for name, count in self.counts[:SHOWN] if count]
        lines += [f"matched nothing: {', '.join(never[:SHOWN])}{' …' if len(never) > SHOWN else ''}"] if never else []
        lines += [f"failed: {one}" for one in self.failures] + [f"refused: {one}" for one in self.refused]
        queries = "1 query" if len(self.counts) == 1 else f"{len(self.counts):,} queries"
        items = "1 item" if self.looked_at == 1 else f"{self.looked_at:,} items"
        return Rendering(f"{len(matched):,} of {queries} matched something in {items}", data, tuple(lines))


def try_items(
    workspace: Workspace,
    actor: Actor,
    selection: Selection,
    feed: str | None,
    items: Iterable[Mapping[str, Any]],
    limit: int,
) -> TrialResult:
    """Match the selected queries with items given as mappings, as if they came into a source feed now."""
    from runnel.sources.documents.adapt import item_of_object

    source = source_for(workspace, actor, selection, feed)
    adapted = [item_of_object(one, source.name, f"item {number}") for number, one in enumerate(items, 1)]
    return try_adapted(workspace, actor, selection, source, adapted, limit)


def try_adapted(
    workspace: Workspace,
    actor: Actor,
    selection: Selection,
    source: Feed,
    items: Sequence[Item],
    limit: int,
    refused: Sequence[InputError] = (),
) -> TrialResult:
    """As `try_items`, for items that were read already."""
    with workspace.catalog.read() as connection:
        accepted = moment_of(now(connection))
    ids = {source.name: source.id}
    batches = (
        ItemBatch.of(items[start : start + _BATCH_ITEMS], ids, first_sequence=start + 1, accepted=accepted)
        for start in range(0, len(items), _BATCH_ITEMS)
    )
    names = _chosen(workspace, actor, selection)
    with open_declared(workspace, names, len(items)) as matcher:
        matches = collect_matches(matcher, batches, limit=limit, newest=False)
    shown = [(item, number) for number, item in enumerate(items[:limit], 1)]
    more = len(items) - len(shown)
    return _result(actor, names, matches, len(items), shown, more, tuple(str(problem) for problem in refused))


def try_past(workspace: Workspace, actor: Actor, selection: Selection, back: timedelta, limit: int) -> TrialResult:
    """Match the selected queries with the items that were accepted during the last `back`."""
    past = PastItems.of(workspace, actor, back)
    names = _chosen(workspace, actor, selection)
    _refuse_costly(workspace, names, past)
    with open_declared(workspace, names, past.upto - past.after) as matcher:
        matches = collect_from_log(workspace, matcher, past.after, past.upto, limit=limit)
    shown = [(item, item.sequence or 0) for item in past.newest_first(matches.kept)]
    return _result(actor, names, matches, past.count(), shown, len(matches.sequences) - len(shown))


def _result(
    actor: Actor,
    names: Mapping[int, str],
    matches: TrialMatches,
    looked_at: int,
    shown: Sequence[tuple[Item, int]],
    more: int,
    refused: tuple[str, ...] = (),
) -> TrialResult:
    """The result with the names that the actor knows; `shown` are the items to show, with their sequences."""
    counts = [(name, matches.counts.get(query, 0)) for query, name in names.items()]
    failures = [
        f"{names.get(failure.query, 'a feed that is read')} on item {sequence}: "
        + (operator_reason(failure.reason, actor) if failure.by_operator else failure.reason)
        for sequence, failure in matches.failures
    ]
    return TrialResult(
        looked_at,
        tuple(sorted(counts, key=lambda count: (-count[1], count[0]))),
        tuple(_tried(item, matches.kept.get(sequence, {}), names) for item, sequence in shown),
        more,
        tuple(failures),
        refused,
    )


def _tried(item: Item, queries: Mapping[int, Bindings], names: Mapping[int, str]) -> TriedItem:
    bound = {names[query]: one for query, one in queries.items() if not one.is_empty}
    return TriedItem(item, tuple(names[one] for one in queries), bound)


def _chosen(workspace: Workspace, actor: Actor, selection: Selection) -> dict[int, str]:
    """The selected queries, with the names by which the actor knows them."""
    with workspace.catalog.read() as connection:
        check_actor(connection, actor)
        chosen = select_for(connection, actor, selection)
        names = names_for(connection, actor)
    return {one: names[one] for one in chosen}


def _refuse_costly(workspace: Workspace, names: Mapping[int, str], past: PastItems) -> None:
    """Refuse a test for which operators would be asked for longer than for a preview.

    The cost of each query is estimated alone, and the estimates are added: queries that share calls cost less.
    """
    if past.upto <= past.after:
        return
    most = workspace.settings.preview_operator_seconds
    seconds = 0.0
    for query, nodes in _asking(workspace, names).items():
        cost = estimate_cost(workspace, query, nodes, past.after, past.upto)
        own_seconds = 0.0 if cost is None else cost.seconds
        seconds += own_seconds
        if seconds > most:
            expensive = names[query] if own_seconds > most else "these queries"
            raise TooExpensiveError(
                f"for {expensive} operators would be asked for longer than the {most:g} seconds of a test",
                hint="take fewer days or fewer queries, or raise the setting preview_operator_seconds",
            )


def _asking(workspace: Workspace, chosen: Mapping[int, str]) -> dict[int, Mapping[int, Node]]:
    """Those of the chosen queries that ask operators, also through what they read; each with all it reads."""
    with workspace.catalog.read() as connection:
        nodes = feeds.definitions(connection, chosen, with_paused=True)
        asking = [feed for feed, node in nodes.items() if any(map(has_calls, conditions_of(node)))]
        found = sorted(feeds.all_readers(connection, asking) & chosen.keys()) if asking else []
        if len(found) > _MOST_ASKING:
            raise TooExpensiveError(
                f"{len(found)} of these queries ask operators; a test of the past takes at most {_MOST_ASKING} such",
                hint="name fewer queries, or choose a tag",
            )
        return {one: feeds.definitions(connection, [one], with_paused=True) for one in found}


def source_for(workspace: Workspace, actor: Actor, selection: Selection, name: str | None) -> Feed:
    """The source feed that items of the caller come from: the named one, or the only one that the queries read."""
    with workspace.catalog.read() as connection:
        check_actor(connection, actor)
        if name is None:
            chosen = select_for(connection, actor, selection)
            kinds = feeds.live_kinds(connection, feeds.all_sources(connection, chosen))
            sources = [one for one, kind in kinds.items() if kind is FeedKind.SOURCE]
            names = names_for(connection, actor)
            if len(sources) != 1:
                known = ", ".join(sorted(names[one] for one in sources if one in names)[:5])
                raise InputError(
                    "from which source feed do the items come?", hint=f"these are read: {known}" if known else None
                )
            found = feeds.feed_by_id(connection, sources[0])
        else:
            found = feed_named(connection, name, actor)
    if found is None or found.kind is not FeedKind.SOURCE:
        raise InputError(f"{name} is a virtual feed", hint="say from which source feed the items come")
    return found
