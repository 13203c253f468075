"""Test: match declared queries, with or without subscriptions, with the caller's items or with past items.

In: a selection of queries, and items. Out: the queries that match each item. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from runnel.algebra.nodes.query import Gated, Node, conditions_of
from runnel.algebra.semantics.close_conditions import has_calls
from runnel.catalog.declared import feeds
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.store.connection import now
from runnel.engine.actors import Actor, check_actor, names_for, operator_reason, stream_named
from runnel.engine.answers import Answer, Rendering
from runnel.engine.ask.selection import Selection, select_for
from runnel.engine.trial.collect_matches import SHOWN, PastItems, TrialMatches, collect_from_log, collect_matches
from runnel.engine.trial.find_stops import begin_windows
from runnel.engine.trial.load_joined import load_joined_items
from runnel.engine.trial.operator_cost import estimate_cost
from runnel.engine.trial.trial_matcher import open_declared
from runnel.engine.workspace import Workspace
from runnel.errors import InputError, TooExpensiveError
from runnel.model.annotation import JoinedItems, unite_annotations
from runnel.model.bindings import Bindings
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.sinks.show_annotations import annotation_lines, annotations_json
from runnel.sinks.show_bindings import binding_lines, bindings_json

_BATCH_ITEMS = 2_000
_MAX_OPERATOR_QUERIES = 20
"""The maximum number of queries with operators in a test of past items."""


@dataclass(frozen=True, slots=True)
class TriedItem:
    """An item, the names of the queries that match it, and by name their bindings and joined items, if any."""

    item: Item
    queries: tuple[str, ...]
    bindings: Mapping[str, Bindings] = field(default_factory=dict)
    annotations: Mapping[str, tuple[JoinedItems, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialResult(Answer):
    """The result of a test: the number of items (`looked_at`), the matches per query, and some of the items.

    `items` are the caller's items in their order, or the newest past items that any query matched; `more` is the
    number of items that are not shown. `failures` describe queries that could not be evaluated on an item, and
    `refused` describes invalid items of the caller.
    """

    looked_at: int
    counts: tuple[tuple[str, int], ...]
    items: tuple[TriedItem, ...]
    more: int = 0
    failures: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def render(self) -> Rendering:
        """Render the items with their queries, and the number of matches per query."""
        matched = [name for name, count in self.counts if count]
        never = [name for name, count in self.counts if not count]
        rows: list[dict[str, Any]] = [
            {
                "feed": tried.item.feed,
                "id": tried.item.id,
                "title": tried.item.first("title"),
                "queries": list(tried.queries),
            }
            | (
                {"bindings": {name: bindings_json(bound) for name, bound in tried.bindings.items()}}
                if tried.bindings
                else {}
            )
            | (
                {"joined": {name: annotations_json(own)["annotations"] for name, own in tried.annotations.items()}}
                if tried.annotations
                else {}
            )
            for tried in self.items
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
        for tried in self.items:
            lines.append(f"{tried.item.first('title') or tried.item.id}: {', '.join(tried.queries) or '-'}")
            for name, bound in tried.bindings.items():
                lines += [f"  {name}:", *(f"  {line}" for line in binding_lines(bound))]
            for name, joined in tried.annotations.items():
                lines += [f"  {name}:", *(f"  {line}" for line in annotation_lines(joined))]
        lines += [f"and {self.more:,} more items"] if self.more else []
        lines += [f"{count:>8,}  {name}" for name, count in self.counts[:SHOWN] if count]
        lines += [f"without a match: {', '.join(never[:SHOWN])}{' …' if len(never) > SHOWN else ''}"] if never else []
        lines += [f"failed: {failure}" for failure in self.failures]
        lines += [f"refused: {problem}" for problem in self.refused]
        queries = "1 query" if len(self.counts) == 1 else f"{len(self.counts):,} queries"
        items = "1 item" if self.looked_at == 1 else f"{self.looked_at:,} items"
        return Rendering(f"{len(matched):,} of {queries} matched at least one of {items}", data, tuple(lines))


def try_items(
    workspace: Workspace,
    actor: Actor,
    selection: Selection,
    feed: str | None,
    items: Iterable[Mapping[str, Any]],
    limit: int,
) -> TrialResult:
    """Match the selected queries with items given as mappings, as if they arrived in a source feed now."""
    from runnel.sources.documents.adapt import item_of_object

    source = source_for(workspace, actor, selection, feed)
    adapted = [item_of_object(item, source.name, f"item {number}") for number, item in enumerate(items, 1)]
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
    """Match the selected queries with items of a source feed, as if they arrived now."""
    with workspace.catalog.read() as connection:
        accepted = moment_of(now(connection))
    ids = {source.name: source.id}
    batches = (
        ItemBatch.of(items[start : start + _BATCH_ITEMS], ids, first_sequence=start + 1, accepted=accepted)
        for start in range(0, len(items), _BATCH_ITEMS)
    )
    names = _selected_names(workspace, actor, selection)
    joined = _joined_queries(workspace, names)
    if joined and (selection.queries or len(joined) == len(names)):
        raise InputError(_cannot_test(names[joined[0]]), hint=_TEST_PAST)
    untested = tuple(f"{_cannot_test(names.pop(query))}; {_TEST_PAST}" for query in joined)
    with open_declared(workspace, names, len(items)) as matcher:
        matches = collect_matches(matcher, batches, limit=limit, newest=False)
    shown = [(item, number) for number, item in enumerate(items[:limit], 1)]
    more = len(items) - len(shown)
    problems = tuple(str(problem) for problem in refused)
    return _result(workspace, actor, names, matches, len(items), shown, more, problems, untested)


_TEST_PAST = "`runnel test --days 7` tests it on past items, and `runnel preview` shows what it would have matched"


def _cannot_test(name: str) -> str:
    return f"{name} cannot be tested on given items: its joins compare them with earlier items of the log"


def _joined_queries(workspace: Workspace, names: Collection[int]) -> list[int]:
    """Return the queries that compare items with earlier ones of the log, directly or through feeds they read."""
    with workspace.catalog.read() as connection:
        nodes = feeds.own_definitions(connection, feeds.live_hidden(connection))
        windows = [feed for feed, node in nodes.items() if isinstance(node, Gated) and node.rule.stores_items]
        return sorted(feeds.all_readers(connection, windows) & set(names)) if windows else []


def try_past(workspace: Workspace, actor: Actor, selection: Selection, back: timedelta, limit: int) -> TrialResult:
    """Match the selected queries with the items that were accepted during the last `back`."""
    past = PastItems.of(workspace, actor, back)
    names = _selected_names(workspace, actor, selection)
    _refuse_costly(workspace, names, past)
    with open_declared(workspace, names, past.upto - past.after, past.after) as matcher:
        start = begin_windows(workspace, matcher.definitions, past.after, past.upto)
        matches = collect_from_log(workspace, matcher, past.after, past.upto, limit=limit, start=start)
    shown = [(item, item.sequence or 0) for item in past.newest_first(matches.kept)]
    return _result(workspace, actor, names, matches, past.count(), shown, len(matches.sequences) - len(shown))


def _result(
    workspace: Workspace,
    actor: Actor,
    names: Mapping[int, str],
    matches: TrialMatches,
    looked_at: int,
    shown: Sequence[tuple[Item, int]],
    more: int,
    refused: tuple[str, ...] = (),
    untested: tuple[str, ...] = (),
) -> TrialResult:
    """Build the result with the names that the actor can see. `shown` are the items to show, with their sequences."""
    with workspace.catalog.read() as connection:
        readable = names_for(connection, actor)
    joined = load_joined_items(workspace, matches.annotations.values(), readable)
    annotations = {key: unite_annotations(several, joined) for key, several in matches.annotations.items()}
    counts = [(name, matches.counts.get(query, 0)) for query, name in names.items()]
    failures = [
        f"{names.get(failure.query, 'a feed that a query reads')} on item {sequence}: "
        + (operator_reason(failure.reason, actor) if failure.by_operator else failure.reason)
        for sequence, failure in matches.failures
    ]
    return TrialResult(
        looked_at,
        tuple(sorted(counts, key=lambda count: (-count[1], count[0]))),
        tuple(
            _tried_item(item, sequence, matches.kept.get(sequence, {}), names, annotations)
            for item, sequence in shown
        ),
        more,
        (*failures, *untested),
        refused,
    )


def _tried_item(
    item: Item,
    sequence: int,
    queries: Mapping[int, Bindings],
    names: Mapping[int, str],
    annotations: Mapping[tuple[int, int], tuple[JoinedItems, ...]],
) -> TriedItem:
    bound = {names[query]: bindings for query, bindings in queries.items() if not bindings.is_empty}
    joined = {names[query]: own for query in queries if (own := annotations.get((query, sequence)))}
    return TriedItem(item, tuple(names[query] for query in queries), bound, joined)


def _selected_names(workspace: Workspace, actor: Actor, selection: Selection) -> dict[int, str]:
    """Return the ids of the selected queries, with the names that the actor sees."""
    with workspace.catalog.read() as connection:
        check_actor(connection, actor)
        selected = select_for(connection, actor, selection)
        names = names_for(connection, actor)
    return {query: names[query] for query in selected}


def _refuse_costly(workspace: Workspace, names: Mapping[int, str], past: PastItems) -> None:
    """Raise TooExpensiveError if the operators of a test would take longer than `preview_operator_seconds`.

    The costs of the queries are estimated separately and added, although queries that share calls cost less.
    """
    if past.upto <= past.after:
        return
    limit = workspace.settings.preview_operator_seconds
    seconds = 0.0
    for query, nodes in _operator_queries(workspace, names).items():
        cost = estimate_cost(workspace, query, nodes, past.after, past.upto)
        own_seconds = 0.0 if cost is None else cost.seconds
        seconds += own_seconds
        if seconds > limit:
            expensive = names[query] if own_seconds > limit else "these queries"
            raise TooExpensiveError(
                f"the operators of {expensive} would take longer than the limit of {limit:g} seconds",
                hint="test fewer days or fewer queries, or raise the setting preview_operator_seconds",
            )


def _operator_queries(workspace: Workspace, selected: Mapping[int, str]) -> dict[int, Mapping[int, Node]]:
    """Return the selected queries that use operators, directly or indirectly, with the definitions that they read."""
    with workspace.catalog.read() as connection:
        nodes = feeds.definitions(connection, selected, with_paused=True)
        callers = [feed for feed, node in nodes.items() if any(map(has_calls, conditions_of(node)))]
        queries = sorted(feeds.all_readers(connection, callers) & selected.keys()) if callers else []
        if len(queries) > _MAX_OPERATOR_QUERIES:
            raise TooExpensiveError(
                f"{len(queries)} of these queries use operators; a test of past items can have at most"
                f" {_MAX_OPERATOR_QUERIES} of them",
                hint="name fewer queries, or choose a tag",
            )
        return {query: feeds.definitions(connection, [query], with_paused=True) for query in queries}


def source_for(workspace: Workspace, actor: Actor, selection: Selection, name: str | None) -> Feed:
    """Return the source feed of the caller's items: the named feed, or the only source that the queries read."""
    with workspace.catalog.read() as connection:
        check_actor(connection, actor)
        if name is None:
            selected = select_for(connection, actor, selection)
            kinds = feeds.live_kinds(connection, feeds.all_sources(connection, selected))
            sources = [source for source, kind in kinds.items() if kind is FeedKind.SOURCE]
            names = names_for(connection, actor)
            if len(sources) != 1:
                readable = ", ".join(sorted(names[source] for source in sources if source in names)[:5])
                raise InputError(
                    f"the source feed of the items must be named: the queries read {len(sources)} source feeds",
                    hint=f"name one of: {readable}" if readable else None,
                )
            feed = feeds.feed_by_id(connection, sources[0])
        else:
            feed = stream_named(connection, name, actor)
    if feed is None or feed.kind is not FeedKind.SOURCE:
        raise InputError(f"{name} is a virtual feed", hint="name the source feed from which the items come")
    return feed
