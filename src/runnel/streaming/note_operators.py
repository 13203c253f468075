"""What operators did in a batch, noted in the transaction that commits it: in the driver.

In: what the tasks tell. Out: rows in the catalog: what was learned, files of answers, items to be tried again, and
for the rest that stays unknown what a person should see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from runnel.catalog import operator_cache, operator_learning, operators, undecided
from runnel.catalog.connection import now
from runnel.catalog.inspection import OPERATOR, Quarantined, put_aside
from runnel.model.operator import OperatorDeclaration
from runnel.model.operator_cache import CacheSegment
from runnel.model.operator_learning import Learned, merged
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
    operator_learning.note_operators(connection, merged(Learned.from_json(one["learned"]) for one in told))
    operator_cache.add_segments(connection, (CacheSegment(**one["answers"]) for one in told if one["answers"]))
    left = [_left(one) for task in told for one in task["undecided"]]
    if left:
        _note_undecided(connection, left, sequences)


def _left(told: Sequence[Any]) -> _Left:
    operator, reason, passing, rows = told
    return _Left((operator[0], operator[1]), reason, passing, {one: tuple(queries) for one, queries in rows})


def _note_undecided(connection: Connection, left: Sequence[_Left], sequences: tuple[int, int]) -> None:
    """Have tried again what may be decided later; tell of the rest, once for each operator and reason."""
    declared = operators.operator_versions(connection, {one.operator for one in left})
    again = {one.sequence: one for one in undecided.supplements_between(connection, sequences[0] - 1, sequences[1])}
    later: dict[int, Undecided] = {}
    given_up: dict[tuple[tuple[str, int], str], dict[int, tuple[int, ...]]] = {}
    for one in left:
        declaration = declared.get(one.operator)
        for sequence, queries in one.queries.items():
            next_try = _next_try(connection, one, declaration, sequence, again.get(sequence))
            if next_try is None:
                given_up.setdefault((one.operator, one.reason), {})[sequence] = queries
                continue
            known = later.get(sequence)
            both = queries if known is None else tuple(sorted({*known.queries, *queries}))
            later[sequence] = Undecided(sequence, both, one.reason, *next_try)
    undecided.put_off(connection, later.values())
    for (operator, reason), by_sequence in given_up.items():
        put_aside(connection, _unknown(operator, reason, by_sequence))


def _next_try(
    connection: Connection, one: _Left, declaration: OperatorDeclaration | None, sequence: int, was: Supplement | None
) -> tuple[int, int] | None:
    """How often an item will have been tried, and until when it is; None: no more."""
    if declaration is None or declaration.on_error != "retry" or not one.passing:
        return None
    moment = now(connection)
    if was is None:
        return 1, moment + int(declaration.retry_for.total_seconds() * _MICROSECONDS)
    return None if moment >= was.until else (was.attempts + 1, was.until)


def _unknown(operator: tuple[str, int], reason: str, by_sequence: Mapping[int, tuple[int, ...]]) -> Quarantined:
    first = min(by_sequence)
    queries = {query for some in by_sequence.values() for query in some}
    items = "one item" if len(by_sequence) == 1 else f"{len(by_sequence)} items"
    asked = "one query" if len(queries) == 1 else f"{len(queries)} queries"
    told = f"{reason}; {items} of this batch stay undecided for {asked}, the first is item {first}"
    only = next(iter(queries)) if len(queries) == 1 else None
    return Quarantined(OPERATOR, f"operator {operator[0]}", told, query=only, sequence=first)
