"""What operators did in a batch, noted in the transaction that commits it: in the driver.

In: what the tasks tell. Out: rows in the catalog: what was learned, files of answers, items to be tried again, and
for the rest that stays unknown what a person should see.
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
class _Left:
    """What one operator left undecided for one reason: queries by the sequences of items."""

    operator: tuple[str, int]
    reason: str
    passing: bool
    queries: Mapping[int, tuple[int, ...]]


def note_operators(connection: Connection, told: Sequence[Mapping[str, Any]], sequences: tuple[int, int]) -> None:
    """Note what the tasks tell of operators, in a batch from the first to the last of these sequences."""
    if not told:
        return
    operator_statistics.note_operators(
        connection, merged(OperatorStatistics.from_json(one["learned"]) for one in told)
    )
    operator_cache.add_segments(connection, (CacheSegment(**one["answers"]) for one in told if one["answers"]))
    left = [_left(one) for task in told for one in task["undecided"]]
    if left:
        _note_undecided(connection, left, sequences)


def _left(told: Sequence[Any]) -> _Left:
    operator, reason, passing, rows = told
    return _Left((operator[0], operator[1]), reason, passing, {one: tuple(queries) for one, queries in rows})


def _note_undecided(connection: Connection, left: Sequence[_Left], sequences: tuple[int, int]) -> None:
    """Have tried again what may be decided later; tell of the rest, once for each operator, reason and owner.

    Where several operators left a query undecided, and one of them may answer later, that one decides.
    """
    declared = operators.operator_versions(connection, {one.operator for one in left})
    again = {one.sequence: one for one in undecided.supplements_between(connection, sequences[0] - 1, sequences[1])}
    later: dict[tuple[int, tuple[str, int]], Undecided] = {}
    for one in left:
        for sequence, queries in one.queries.items():
            next_try = _next_try(connection, one, declared.get(one.operator), again.get(sequence))
            if next_try is not None:
                known = later.get((sequence, one.operator))
                both = queries if known is None else tuple(sorted({*known.queries, *queries}))
                later[sequence, one.operator] = Undecided(sequence, both, one.reason, *next_try)
    undecided.put_off(connection, _each_once(later.values()))
    waiting = {(one.sequence, query) for one in later.values() for query in one.queries}
    owners = feeds.feed_owners(connection, {query for one in left for some in one.queries.values() for query in some})
    for one in left:
        given_up: dict[int, dict[int, list[int]]] = {}
        for sequence, queries in one.queries.items():
            for query in queries:
                if (sequence, query) not in waiting:
                    given_up.setdefault(owners.get(query, 0), {}).setdefault(sequence, []).append(query)
        for by_sequence in given_up.values():
            add_quarantined(connection, _unknown(one.operator, one.reason, by_sequence))


def _each_once(later: Iterable[Undecided]) -> Iterator[Undecided]:
    """No item is tried again for a query on behalf of two operators: the one that is tried longer stands for both."""
    taken: set[tuple[int, int]] = set()
    for one in sorted(later, key=lambda one: -one.until):
        queries = tuple(query for query in one.queries if (one.sequence, query) not in taken)
        taken |= {(one.sequence, query) for query in queries}
        if queries:
            yield replace(one, queries=queries)


def _next_try(
    connection: Connection, one: _Left, declaration: OperatorDeclaration | None, was: Supplement | None
) -> tuple[int, int] | None:
    """How often an item will have been tried, and until when it is; None: no more."""
    if declaration is None or declaration.on_error != "retry" or not one.passing:
        return None
    moment = now(connection)
    if was is None:
        return 1, moment + int(declaration.retry_for.total_seconds() * _MICROSECONDS)
    return None if moment >= was.until else (was.attempts + 1, was.until)


def _unknown(operator: tuple[str, int], reason: str, by_sequence: Mapping[int, Sequence[int]]) -> Quarantined:
    first = min(by_sequence)
    queries = {query for some in by_sequence.values() for query in some}
    items = (
        "one item of this batch stays" if len(by_sequence) == 1 else f"{len(by_sequence)} items of this batch stay"
    )
    asked = "one query" if len(queries) == 1 else f"{len(queries)} queries"
    told = f"{reason}; {items} undecided for {asked}, the first is item {first}"
    return Quarantined(OPERATOR, f"operator {operator[0]}", told, query=min(queries), sequence=first)
