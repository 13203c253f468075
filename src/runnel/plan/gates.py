"""The gates of a plan: where an item is stopped that a distinct feed has had already.

Whether an item is a duplicate depends on what came before it, so matchers cannot say. They say what they can: that
the item satisfies a query's conditions on a *way* that leads through a gate, the one of the nearest distinct feed
below. A way has an id like a query's, in a number space of its own, from which its query can be read. What the ways
say is settled in the order of the log, where a batch is committed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.encode import decode_attribute, encode_attribute
from runnel.algebra.semantics.distinct import DIGEST
from runnel.arrays import Array, Arrays, Texts
from runnel.errors import CorruptDataError, RunnelError

FIRST_DISJUNCT = 1 << 61
"""From here on ids are those of ways."""

FIRST_OPERATOR_DISJUNCT = (1 << 62) + (1 << 61)
"""From here on they are those of ways that operators decide."""

NO_GATE = -1 << 62
"""In place of a gate's feed: the way leads through none."""

_ORIGIN = 1 << 62
_OPERATED = FIRST_OPERATOR_DISJUNCT - _ORIGIN
_BITS = 20
_MICROSECOND = timedelta(microseconds=1)


def disjunct_id(query: int, place: int) -> int:
    """The id of a query's way; its ways are numbered.

    >>> query_of(np.array([7, disjunct_id(7, 0), disjunct_id(7, 3)])).tolist()
    [7, 7, 7]
    """
    if not (0 <= place < 1 << _BITS and 0 <= query < 1 << 41):
        raise RunnelError(f"the query {query} has too many ways", hint="read fewer distinct feeds in one query")
    return _ORIGIN + (query << _BITS) + place


def operator_disjunct_id(query: int, place: int) -> int:
    """The id of a way of a query that operators decide (see `operator_table`); these are numbered by themselves.

    >>> query_of(np.array([operator_disjunct_id(7, 0)])).tolist(), disjunct_id(7, 0) == operator_disjunct_id(7, 0)
    ([7], False)
    """
    return disjunct_id(query, place) + _OPERATED


def disjunct_position(one: int) -> tuple[int, str | None]:
    """The query that an id belongs to, and which of its ways it is, where it is one.

    >>> disjunct_position(7), disjunct_position(disjunct_id(7, 2)), disjunct_position(operator_disjunct_id(7, 0))
    ((7, None), (7, 'gate 2'), (7, 'operators 0'))
    """
    if one < FIRST_DISJUNCT:
        return one, None
    query = query_of_id(one)
    place = one & ((1 << _BITS) - 1)
    return query, f"operators {place}" if one >= FIRST_OPERATOR_DISJUNCT else f"gate {place}"


def query_of(ids: Array) -> Array:
    """The queries that ids belong to: their own, or those of which they are ways."""
    return np.where(ids >= FIRST_DISJUNCT, ((ids - _ORIGIN) & (_OPERATED - 1)) >> _BITS, ids)


def query_of_id(one: int) -> int:
    """The query that an id belongs to.

    >>> query_of_id(7), query_of_id(operator_disjunct_id(7, 3))
    (7, 7)
    """
    return one if one < FIRST_DISJUNCT else ((one - _ORIGIN) & (_OPERATED - 1)) >> _BITS


def visible(ids: Array) -> Array:
    """The ids, of those that ascend, that are queries and not ways."""
    return ids[: int(np.searchsorted(ids, FIRST_DISJUNCT))]


def gate_history(start: int, definition: bytes) -> bytes:
    """The history of a gate whose feed counts after a sequence."""
    return digest([start, definition.hex()])


def digest(value: Any) -> bytes:
    """A digest of a JSON value, of the size that gates use."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=DIGEST).digest()


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of a distinct feed: what it compares items by, and over how long.

    `history` stands for all that decides which items come to the gate and what counts there: another definition is
    another history. `shown` says whether the feed itself is among the queries that were compiled, or only read.
    `definition` is the digest of what the feed reads and asks, without where it starts; plans that were written by
    older versions do not have it.
    """

    feed: int
    by: tuple[Attribute, ...]
    window: timedelta
    since: int
    history: bytes
    shown: bool = True
    definition: bytes = b""

    def starting_after(self, sequence: int) -> Gate:
        """The gate of the same feed, if that counts after another sequence."""
        return replace(self, since=sequence, history=gate_history(sequence, self.definition))

    @property
    def microseconds(self) -> int:
        """The window in the log's time."""
        return self.window // _MICROSECOND

    def to_json(self) -> dict[str, Any]:
        """The gate as a JSON value."""
        return {
            "feed": self.feed,
            "by": [encode_attribute(one) for one in self.by],
            "within": self.window.total_seconds(),
            "since": self.since,
            "history": self.history.hex(),
            "shown": self.shown,
            "definition": self.definition.hex(),
        }

    @staticmethod
    def from_json(value: Any) -> Gate:
        """The gate of a JSON value, checked."""
        try:
            gate = Gate(
                int(value["feed"]),
                tuple(decode_attribute(one) for one in value["by"]),
                timedelta(seconds=value["within"]),
                int(value["since"]),
                bytes.fromhex(value["history"]),
                bool(value["shown"]),
                bytes.fromhex(value.get("definition", "")),
            )
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise CorruptDataError(f"this is not a gate of a plan: {str(value)[:200]}") from error
        if not gate.by or len(gate.history) != DIGEST or gate.microseconds <= 0:
            raise CorruptDataError(f"the gate of feed {gate.feed} cannot be right")
        return gate


@dataclass(frozen=True)
class GateTable:
    """The ways of a plan part, by ascending ids, each with the gate it leads through, and the gates as JSON texts."""

    way_ids: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    way_gates: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    texts: Texts = field(default_factory=lambda: Texts.of(()))

    def __len__(self) -> int:
        return len(self.texts)

    def gates(self) -> list[Gate]:
        """The gates, each after those that lead to it."""
        return [Gate.from_json(json.loads(self.texts.text(number))) for number in range(len(self.texts))]

    def arrays(self) -> dict[str, Array]:
        """The arrays to store; none where there are no gates."""
        if not len(self):
            return {}
        return {"ways.ids": self.way_ids, "ways.gates": self.way_gates, **self.texts.arrays("gates")}

    @staticmethod
    def stored(arrays: Arrays) -> GateTable:
        """The table of arrays made by `arrays`."""
        if "ways.ids" not in arrays:
            return GateTable()
        return GateTable(arrays["ways.ids"], arrays["ways.gates"], Texts.stored(arrays, "gates"))

    @staticmethod
    def of(ways: Mapping[int, int], gates: Iterable[Gate]) -> GateTable:
        """The table of ways (by id, with the feed of the gate, or NO_GATE) and gates."""
        ids = np.array(sorted(ways), dtype=np.int64)
        through = np.array([ways[one] for one in ids.tolist()], dtype=np.int64)
        return GateTable(ids, through, _texts(in_order(list(gates), ids, through)))

    def starting_after(self, sequence: int, feeds: Set[int]) -> GateTable:
        """This table, if some feeds count after another sequence."""
        moved = (gate.starting_after(sequence) if gate.feed in feeds else gate for gate in self.gates())
        return GateTable(self.way_ids, self.way_gates, _texts(moved))

    def without(self, queries: Array) -> GateTable:
        """This table without the ways of some queries."""
        kept = ~np.isin(query_of(self.way_ids), queries)
        return GateTable(self.way_ids[kept], self.way_gates[kept], self.texts)

    def with_delta(self, delta: GateTable, tombstones: Array) -> GateTable:
        """This table, of a base, as it is after a delta: what that has, and what it does not replace or remove."""
        kept = ~np.isin(query_of(self.way_ids), tombstones) & ~np.isin(self.way_ids, delta.way_ids)
        ids = np.concatenate([self.way_ids[kept], delta.way_ids])
        through = np.concatenate([self.way_gates[kept], delta.way_gates])[np.argsort(ids)]
        ids = np.sort(ids)
        found = {gate.feed: gate for gate in self.gates()}
        # A query that was added may read a distinct feed of the base: only that knows since when the feed counts.
        found |= {gate.feed: gate for gate in delta.gates() if gate.shown or gate.feed not in found}
        used = np.isin(list(found), np.concatenate([query_of(ids), through]))
        gates = [gate for gate, wanted in zip(found.values(), used.tolist(), strict=True) if wanted]
        return GateTable(ids, through, _texts(in_order(gates, ids, through)))


def _texts(gates: Iterable[Gate]) -> Texts:
    return Texts.of(json.dumps(gate.to_json(), separators=(",", ":")) for gate in gates)


def in_order(gates: list[Gate], ids: Array, through: Array) -> list[Gate]:
    """The gates, each after those through which a way leads to it; ways are given by id, or by their query."""
    by_feed = {gate.feed: gate for gate in gates}
    below: dict[int, set[int]] = {feed: set() for feed in by_feed}
    queries = query_of(ids)
    chosen = np.isin(queries, list(by_feed)) & (through != NO_GATE)
    for feed, gate in zip(queries[chosen].tolist(), through[chosen].tolist(), strict=True):
        below[feed].add(gate)
    ordered: dict[int, None] = {}
    entered: set[int] = set()
    stack = sorted(by_feed, reverse=True)
    while stack:  # a chain of distinct feeds may be longer than Python's stack is deep
        feed = stack[-1]
        missing = [one for one in below[feed] if one not in ordered and one in by_feed]
        if feed in ordered or not missing:
            ordered[feed] = None
            stack.pop()
        elif feed in entered:
            raise CorruptDataError("the gates of a plan lead to themselves")
        else:
            entered.add(feed)
            stack.extend(missing)
    return [by_feed[feed] for feed in ordered]
