"""Recording of operator calls and failures, in the transaction that commits a batch. Runs in the driver.

In: the reports of the tasks. Out: rows in the catalog: statistics of operators, files with cached answers, items to
be retried, and quarantine rows for items that stay undecided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from runnel.catalog.declared import feeds, operators
from runnel.catalog.learned import operator_cache, operator_statistics
from runnel.catalog.logs import undecided
from runnel.catalog.logs.quarantine import OPERATOR, Quarantined, add_quarantined
from runnel.catalog.store.connection import now
from runnel.model.learned.operator_statistics import OperatorStatistics, merged
from runnel.model.operator import OperatorDeclaration
from runnel.model.operator_cache import CacheSegment
from runnel.model.undecided import Supplement, Undecided

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class _UndecidedGroup:
    """The items that one operator left undecided for one reason, and for each item's sequence its queries.

    `passing` means that the failure is temporary.
    """

    operator: tuple[str, int]
    reason: str
    passing: bool
    queries: Mapping[int, tuple[int, ...]]


def note_operators(connection: Connection, reports: Sequence[Mapping[str, Any]], sequences: tuple[int, int]) -> None:
    """Record what tasks report about operators in a batch; `sequences` are the first and the last of the batch."""
    if not reports:
        return
    operator_statistics.note_operators(
        connection, merged(OperatorStatistics.from_json(report["learned"]) for report in reports)
    )
    operator_cache.add_segments(
        connection, (CacheSegment(**report["answers"]) for report in reports if report["answers"])
    )
    groups = [_parse_group(group) for report in reports for group in report["undecided"]]
    if groups:
        _note_undecided(connection, groups, sequences)


def _parse_group(value: Sequence[Any]) -> _UndecidedGroup:
    operator, reason, passing, rows = value
    queries_by_item = {sequence: tuple(queries) for sequence, queries in rows}
    return _UndecidedGroup((operator[0], operator[1]), reason, passing, queries_by_item)


def _note_undecided(connection: Connection, groups: Sequence[_UndecidedGroup], sequences: tuple[int, int]) -> None:
    """Schedule retries of undecided items, and quarantine those that are not retried.

    There is one quarantine row per group and owner of its queries. If several operators left a query undecided for an
    item and at least one of them may succeed later, the item is retried for the query and not quarantined.
    """
    declared = operators.operator_versions(connection, {group.operator for group in groups})
    supplements = {
        supplement.sequence: supplement
        for supplement in undecided.supplements_between(connection, sequences[0] - 1, sequences[1])
    }
    retries: dict[tuple[int, tuple[str, int]], Undecided] = {}
    for group in groups:
        for sequence, queries in group.queries.items():
            next_try = _next_try(connection, group, declared.get(group.operator), supplements.get(sequence))
            if next_try is not None:
                retry = retries.get((sequence, group.operator))
                all_queries = queries if retry is None else tuple(sorted({*retry.queries, *queries}))
                retries[sequence, group.operator] = Undecided(sequence, all_queries, group.reason, *next_try)
    undecided.postpone(connection, _without_duplicates(retries.values()))
    waiting = {(retry.sequence, query) for retry in retries.values() for query in retry.queries}
    all_undecided = {query for group in groups for queries in group.queries.values() for query in queries}
    owners = feeds.feed_owners(connection, all_undecided)
    for group in groups:
        given_up: dict[int, dict[int, list[int]]] = {}
        for sequence, queries in group.queries.items():
            for query in queries:
                if (sequence, query) not in waiting:
                    given_up.setdefault(owners.get(query, 0), {}).setdefault(sequence, []).append(query)
        for queries_by_item in given_up.values():
            add_quarantined(connection, _quarantine_row(group.operator, group.reason, queries_by_item))


def _without_duplicates(retries: Iterable[Undecided]) -> Iterator[Undecided]:
    """Keep one retry per item and query: the one that ends last, if several operators left the query undecided."""
    kept: set[tuple[int, int]] = set()
    for retry in sorted(retries, key=lambda retry: -retry.until):
        queries = tuple(query for query in retry.queries if (retry.sequence, query) not in kept)
        kept |= {(retry.sequence, query) for query in queries}
        if queries:
            yield replace(retry, queries=queries)


def _next_try(
    connection: Connection,
    group: _UndecidedGroup,
    declaration: OperatorDeclaration | None,
    supplement: Supplement | None,
) -> tuple[int, int] | None:
    """Return the number of attempts so far and the time when retries end, or None if the item is not retried.

    `supplement` describes the last retry of the item, or is None if this was the first attempt.
    """
    if declaration is None or declaration.on_error != "retry" or not group.passing:
        return None
    moment = now(connection)
    if supplement is None:
        return 1, moment + int(declaration.retry_for.total_seconds() * _MICROSECONDS)
    return None if moment >= supplement.until else (supplement.attempts + 1, supplement.until)


def _quarantine_row(
    operator: tuple[str, int], reason: str, queries_by_item: Mapping[int, Sequence[int]]
) -> Quarantined:
    first = min(queries_by_item)
    queries = {query for item_queries in queries_by_item.values() for query in item_queries}
    count = len(queries_by_item)
    items = "one item of this batch stays" if count == 1 else f"{count} items of this batch stay"
    query_count = "one query" if len(queries) == 1 else f"{len(queries)} queries"
    text = f"{reason}; {items} undecided for {query_count}, the first is item {first}"
    return Quarantined(OPERATOR, f"operator {operator[0]}", text, query=min(queries), sequence=first)
