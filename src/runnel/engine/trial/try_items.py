"""Trying queries on items: what some queries say to items of the caller, or to those of the past. No log is written.

In: a selection of queries, and items. Out: for each item the queries that match it. Nothing needs to be subscribed
to, and what the running plan has already is not compiled again where that would take longer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from runnel.algebra.nodes.query import Node, conditions_of
from runnel.algebra.semantics.close_conditions import has_calls
from runnel.catalog.declared import feeds
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.actors import Actor, check_actor, feed_named, names_for, operator_reason
from runnel.engine.answers import Answer, Rendering
from runnel.engine.ask.selection import Selection, select_for
from runnel.engine.trial.adhoc_matching import TogetherMatcher, chosen_matcher
from runnel.engine.trial.preview_cost import preview_cost
from runnel.engine.workspace import Workspace
from runnel.errors import InputError, TooExpensiveError
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.sinks.show_bindings import binding_lines, bindings_json

SHOWN = 20
"""How many items a trial shows, unless it is told."""

_PIECE = 2_000
_MOST_FAILURES = 20
_MOST_ASKING = 20


@dataclass(frozen=True, slots=True)
class TriedItem:
    """An item, the names of the queries that match it, in order, and the bindings of those that have some."""

    item: Item
    queries: tuple[str, ...]
    bindings: Mapping[str, Bindings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialResult(Answer):
    """What came of it: how many items were looked at, how many each query matched, and some of the items.

    `items` are those of the caller in their order, or the newest of the past that any query matched. `failures` tell
    of queries that could not be evaluated on an item, `refused` what was wrong with items of the caller.
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
    root: Workspace,
    actor: Actor,
    selection: Selection,
    feed: str | None,
    items: Iterable[Mapping[str, Any]],
    limit: int,
) -> TrialResult:
    """What the selected queries say to items given as mappings, as if they came into a source feed now."""
    from runnel.sources.documents.adapt import item_of_object

    source = _source(root, actor, selection, feed)
    adapted = [item_of_object(one, source.name, f"item {number}") for number, one in enumerate(items, 1)]
    return try_adapted(root, actor, selection, source, adapted, limit)


def try_adapted(
    root: Workspace,
    actor: Actor,
    selection: Selection,
    source: Feed,
    items: Sequence[Item],
    limit: int,
    refused: Sequence[InputError] = (),
) -> TrialResult:
    """As `try_items`, for items that were read already."""
    with root.catalog.read() as connection:
        accepted = moment_of(now(connection))
    batches = (
        ItemBatch.of(
            items[start : start + _PIECE], {source.name: source.id}, first_sequence=start + 1, accepted=accepted
        )
        for start in range(0, len(items), _PIECE)
    )
    found = _Found(actor, limit, newest=False)
    names = _chosen(root, actor, selection)
    with chosen_matcher(root, names, len(items)) as matcher:
        found.match(matcher, batches)
    shown = [(item, number) for number, item in enumerate(items[:limit], 1)]
    return found.trial(names, len(items), shown, tuple(str(one) for one in refused))


def try_past(root: Workspace, actor: Actor, selection: Selection, back: timedelta, limit: int) -> TrialResult:
    """What the selected queries say to the items that were accepted in the last so many days."""
    with root.catalog.read() as connection:
        begin = now(connection) - int(back.total_seconds() * 1e6)
        last = last_sequence(connection)
        readable = names_for(connection, actor)
    after = root.items.sequence_before(begin)
    found = _Found(actor, limit, newest=True)
    chosen = _chosen(root, actor, selection)
    _refuse_costly(root, chosen, after, last)
    with chosen_matcher(root, chosen, last - after) as matcher:
        found.match(matcher, root.items.read(after, last))
    items = [item for batch in root.items.get(found.sequences()) for item in batch.items(readable)]
    # How much comes in for others is nothing that an owner is told.
    looked_at = last - after if actor.is_admin else root.items.count(readable.keys(), after, last)
    return found.trial(chosen, looked_at, [(item, item.sequence or 0) for item in reversed(items)])


def source_for(root: Workspace, actor: Actor, selection: Selection, name: str | None) -> Feed:
    """The source feed that items of the caller come from: the one of a name, or the only one that is read."""
    return _source(root, actor, selection, name)


class _Found:
    """What was found so far: counts by query, and the rows that will be shown."""

    def __init__(self, actor: Actor, limit: int, *, newest: bool) -> None:
        self._actor = actor
        self._limit = limit
        self._newest = newest
        self._counts: Counter[int] = Counter()
        self._rows: deque[tuple[int, dict[int, Bindings]]] = deque(maxlen=limit)
        self._matched_items = 0
        self._failures: list[tuple[int, int, str]] = []

    def match(self, matcher: TogetherMatcher, batches: Iterable[ItemBatch]) -> None:
        for batch in batches:
            matches = matcher.match(batch)
            queries, counts = np.unique(matches.queries, return_counts=True)
            self._counts.update(dict(zip(queries.tolist(), counts.tolist(), strict=True)))
            self._keep(batch, matches, matcher)
            room = _MOST_FAILURES - len(self._failures)
            self._failures += [
                (int(batch.sequences[one.row]), one.query, self._reason(one)) for one in matches.failures[:room]
            ]

    def _reason(self, failure: Failure) -> str:
        return operator_reason(failure.reason, self._actor) if failure.by_operator else failure.reason

    def _keep(self, batch: ItemBatch, matches: Matches, matcher: TogetherMatcher) -> None:
        rows = np.flatnonzero(np.diff(matches.offsets))
        self._matched_items += len(rows)
        room = max(0, self._limit - len(self._rows))
        chosen = rows[-self._limit :] if self._newest else rows[:room]
        bound = matcher.bindings(chosen)
        for row in chosen.tolist():
            found = {query: bound.get((row, query), NO_BINDINGS) for query in matches.row(row).tolist()}
            self._rows.append((int(batch.sequences[row]), found))

    def sequences(self) -> list[int]:
        """The items that will be shown, ascending."""
        return [sequence for sequence, _ in self._rows]

    def trial(
        self,
        names: Mapping[int, str],
        looked_at: int,
        items: Sequence[tuple[Item, int]],
        refused: tuple[str, ...] = (),
    ) -> TrialResult:
        """The whole, with the names that the actor knows; `items` are those to show, with their sequences."""
        queries = dict(self._rows)
        counts = sorted(((names[one], self._counts[one]) for one in names), key=lambda pair: (-pair[1], pair[0]))
        shown = tuple(_tried(item, queries.get(at, {}), names) for item, at in items)
        failures = tuple(
            f"{names.get(query, 'a feed that is read')} on item {at}: {reason}"
            for at, query, reason in self._failures
        )
        whole = self._matched_items if self._newest else looked_at
        return TrialResult(looked_at, tuple(counts), shown, max(0, whole - len(shown)), failures, refused)


def _tried(item: Item, queries: Mapping[int, Bindings], names: Mapping[int, str]) -> TriedItem:
    bound = {names[query]: one for query, one in queries.items() if not one.is_empty}
    return TriedItem(item, tuple(names[one] for one in queries), bound)


def _chosen(root: Workspace, actor: Actor, selection: Selection) -> dict[int, str]:
    """The selected queries, with the names by which the actor knows them."""
    with root.catalog.read() as connection:
        check_actor(connection, actor)
        chosen = select_for(connection, actor, selection)
        names = names_for(connection, actor)
    return {one: names[one] for one in chosen}


def _refuse_costly(root: Workspace, chosen: Mapping[int, str], after: int, upto: int) -> None:
    """Refuse a test for which operators would be asked for longer than for a preview.

    Queries are judged one by one, and what they cost is added up: those that share calls cost less together.
    """
    if upto <= after:
        return
    most = root.settings.preview_operator_seconds
    hint = "take fewer days or fewer queries, or raise the setting preview_operator_seconds"
    seconds = 0.0
    for query, nodes in _asking(root, chosen).items():
        try:
            cost = preview_cost(root, query, nodes, after, upto)
        except TooExpensiveError as error:
            raise TooExpensiveError(
                f"for {chosen[query]} operators would be asked for longer than the {most:g} seconds of a test",
                hint=hint,
            ) from error
        seconds += 0.0 if cost is None else cost.seconds
        if seconds > most:
            raise TooExpensiveError(
                f"for these queries operators would be asked for longer than the {most:g} seconds of a test",
                hint=hint,
            )


def _asking(root: Workspace, chosen: Mapping[int, str]) -> dict[int, Mapping[int, Node]]:
    """Those of the chosen queries that ask operators, also through what they read; each with all it reads."""
    with root.catalog.read() as connection:
        nodes = feeds.definitions(connection, chosen, with_paused=True)
        asking = [feed for feed, node in nodes.items() if any(map(has_calls, conditions_of(node)))]
        found = sorted(feeds.all_readers(connection, asking) & chosen.keys()) if asking else []
        if len(found) > _MOST_ASKING:
            raise TooExpensiveError(
                f"{len(found)} of these queries ask operators; a test of the past takes at most {_MOST_ASKING} such",
                hint="name fewer queries, or choose a tag",
            )
        return {one: feeds.definitions(connection, [one], with_paused=True) for one in found}


def _source(root: Workspace, actor: Actor, selection: Selection, name: str | None) -> Feed:
    with root.catalog.read() as connection:
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
