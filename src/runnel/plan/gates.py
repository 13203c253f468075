"""The gates of a plan: steps between matching and commit whose answer depends on the items before.

Whether an item passes a gate depends on earlier items, so matchers cannot decide it. They report that the item
satisfies a *disjunct* of a query: the query's conditions behind one gate, that of the nearest gated feed below it. A
disjunct has an id like a query's, in a number space of its own, from which its query can be computed. The commit
resolves the gates in the order of the log. Nothing here depends on the kind of a gate, which is that of its rule.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from runnel.algebra.nodes.gate_rules import GateRule, decode_rule, encode_rule
from runnel.arrays import Array, Arrays, Texts
from runnel.errors import CorruptDataError, RunnelError

FIRST_DISJUNCT = 1 << 61
"""From here on, ids are those of disjuncts."""

FIRST_OPERATOR_DISJUNCT = (1 << 62) + (1 << 61)
"""From here on, ids are those of disjuncts that operators decide."""

NO_GATE = -1 << 62
"""Stands for the feed of a gate where a disjunct has no gate."""

_ORIGIN = 1 << 62
_OPERATED = FIRST_OPERATOR_DISJUNCT - _ORIGIN
_BITS = 20
_HISTORY_BYTES = 16


def disjunct_id(query: int, number: int) -> int:
    """The id of a disjunct of a query, by its number.

    >>> query_of(np.array([7, disjunct_id(7, 0), disjunct_id(7, 3)])).tolist()
    [7, 7, 7]
    """
    if not (0 <= number < 1 << _BITS and 0 <= query < 1 << 41):
        raise RunnelError(f"query {query} has too many disjuncts", hint="read fewer gated feeds in one query")
    return _ORIGIN + (query << _BITS) + number


def operator_disjunct_id(query: int, number: int) -> int:
    """The id of a disjunct of a query that operators decide (see `operator_table`); these have their own numbers.

    >>> query_of(np.array([operator_disjunct_id(7, 0)])).tolist(), disjunct_id(7, 0) == operator_disjunct_id(7, 0)
    ([7], False)
    """
    return disjunct_id(query, number) + _OPERATED


def disjunct_position(identifier: int) -> tuple[int, str | None]:
    """The query that an id belongs to, and, if it is the id of a disjunct, which one it is.

    >>> disjunct_position(7), disjunct_position(disjunct_id(7, 2)), disjunct_position(operator_disjunct_id(7, 0))
    ((7, None), (7, 'gate 2'), (7, 'operators 0'))
    """
    if identifier < FIRST_DISJUNCT:
        return identifier, None
    number = identifier & ((1 << _BITS) - 1)
    step = "operators" if identifier >= FIRST_OPERATOR_DISJUNCT else "gate"
    return query_of_id(identifier), f"{step} {number}"


def query_of(ids: Array) -> Array:
    """The queries that ids belong to; the id of a query is its own."""
    return np.where(ids >= FIRST_DISJUNCT, ((ids - _ORIGIN) & (_OPERATED - 1)) >> _BITS, ids)


def query_of_id(identifier: int) -> int:
    """The query that an id belongs to.

    >>> query_of_id(7), query_of_id(operator_disjunct_id(7, 3))
    (7, 7)
    """
    return identifier if identifier < FIRST_DISJUNCT else ((identifier - _ORIGIN) & (_OPERATED - 1)) >> _BITS


def visible(ids: Array) -> Array:
    """Those of ascending ids that are ids of queries, not of disjuncts."""
    return ids[: int(np.searchsorted(ids, FIRST_DISJUNCT))]


def gate_history(start: int, definition: bytes) -> bytes:
    """The history of a gate that starts after a sequence."""
    return digest([start, definition.hex()])


def digest(value: Any) -> bytes:
    """A digest of a JSON value, of the size of histories."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=_HISTORY_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of a feed.

    `history` identifies everything that decides which items reach the gate and how it counts them: another
    definition, or another start, is another history. `shown` is false for the gate of a feed that is only read by
    the queries that were compiled. `definition` is the digest of what the feed reads and asks, without its start.
    `window` is the feed whose earlier items the gate compares with, if it does.
    """

    feed: int
    rule: GateRule
    since: int
    history: bytes
    shown: bool
    definition: bytes
    window: int | None = None

    def starting_after(self, sequence: int) -> Gate:
        """The gate of the same feed with another start."""
        return replace(self, since=sequence, history=gate_history(sequence, self.definition))

    def to_json(self) -> dict[str, Any]:
        """The gate as a JSON value."""
        return {
            "feed": self.feed,
            "rule": encode_rule(self.rule),
            "since": self.since,
            "history": self.history.hex(),
            "shown": self.shown,
            "definition": self.definition.hex(),
            **({} if self.window is None else {"window": self.window}),
        }

    @staticmethod
    def from_json(value: Any) -> Gate:
        """The gate of a JSON value, checked."""
        try:
            gate = Gate(
                int(value["feed"]),
                decode_rule(value["rule"]),
                int(value["since"]),
                bytes.fromhex(value["history"]),
                bool(value["shown"]),
                bytes.fromhex(value["definition"]),
                int(value["window"]) if "window" in value else None,
            )
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise CorruptDataError(f"this is not a gate of a plan: {str(value)[:200]}") from error
        if not len(gate.history) == len(gate.definition) == _HISTORY_BYTES:
            raise CorruptDataError(f"a digest of the gate of feed {gate.feed} does not have {_HISTORY_BYTES} bytes")
        return gate


@dataclass(frozen=True)
class GateTable:
    """The disjuncts of a plan part by ascending ids, each with the feed of its gate, and the gates as JSON texts."""

    disjuncts: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    gate_feeds: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    texts: Texts = field(default_factory=lambda: Texts.of(()))

    def __len__(self) -> int:
        return len(self.texts)

    def gates(self) -> list[Gate]:
        """The gates, each after those that it depends on."""
        return [Gate.from_json(json.loads(self.texts.text(number))) for number in range(len(self.texts))]

    def arrays(self) -> dict[str, Array]:
        """The arrays to store; empty if there are no gates."""
        if not len(self):
            return {}
        return {
            "disjuncts.ids": self.disjuncts,
            "disjuncts.gates": self.gate_feeds,
            **self.texts.arrays("gates"),
        }

    @staticmethod
    def stored(arrays: Arrays) -> GateTable:
        """The table of arrays made by `arrays`."""
        if "disjuncts.ids" not in arrays:
            return GateTable()
        return GateTable(arrays["disjuncts.ids"], arrays["disjuncts.gates"], Texts.stored(arrays, "gates"))

    @staticmethod
    def of(feeds: Mapping[int, int], gates: Iterable[Gate]) -> GateTable:
        """The table of disjuncts (by id, with the feed of the gate, or NO_GATE) and gates."""
        disjuncts = np.array(sorted(feeds), dtype=np.int64)
        gate_feeds = np.array([feeds[disjunct] for disjunct in disjuncts.tolist()], dtype=np.int64)
        return GateTable(disjuncts, gate_feeds, _texts(in_order(list(gates), disjuncts, gate_feeds)))

    def starting_after(self, sequence: int, feeds: Set[int]) -> GateTable:
        """This table with another start for the gates of some feeds."""
        moved = (gate.starting_after(sequence) if gate.feed in feeds else gate for gate in self.gates())
        return GateTable(self.disjuncts, self.gate_feeds, _texts(moved))

    def without(self, queries: Array) -> GateTable:
        """This table without the disjuncts of some queries."""
        kept = ~np.isin(query_of(self.disjuncts), queries)
        return GateTable(self.disjuncts[kept], self.gate_feeds[kept], self.texts)

    def with_delta(self, delta: GateTable, tombstones: Array) -> GateTable:
        """This table, which is that of a base, with the additions and removals of a delta."""
        kept = ~np.isin(query_of(self.disjuncts), tombstones) & ~np.isin(self.disjuncts, delta.disjuncts)
        disjuncts = np.concatenate([self.disjuncts[kept], delta.disjuncts])
        order = np.argsort(disjuncts)
        gate_feeds = np.concatenate([self.gate_feeds[kept], delta.gate_feeds])[order]
        disjuncts = disjuncts[order]
        added = {gate.feed: gate for gate in delta.gates()}
        # A feed of the base may have been redefined without a gate, and read a gated feed instead.
        redefined = set(query_of(delta.disjuncts).tolist()) - added.keys()
        gates = {gate.feed: gate for gate in self.gates() if gate.feed not in redefined}
        # A query that was added may read a gated feed of the base, and only the base knows where that one starts.
        gates |= {feed: gate for feed, gate in added.items() if gate.shown or feed not in gates}
        used = np.isin(list(gates), np.concatenate([query_of(disjuncts), gate_feeds]))
        needed = [gate for gate, is_used in zip(gates.values(), used.tolist(), strict=True) if is_used]
        return GateTable(disjuncts, gate_feeds, _texts(in_order(needed, disjuncts, gate_feeds)))


def _texts(gates: Iterable[Gate]) -> Texts:
    return Texts.of(json.dumps(gate.to_json(), separators=(",", ":")) for gate in gates)


def in_order(gates: list[Gate], disjuncts: Array, gate_feeds: Array) -> list[Gate]:
    """The gates, each after those that it depends on: those of the disjuncts of its feed, and its window.

    Disjuncts are given by id, or by their query.
    """
    by_feed = {gate.feed: gate for gate in gates}
    below: dict[int, set[int]] = {feed: set() for feed in by_feed}
    queries = query_of(disjuncts)
    chosen = np.isin(queries, list(by_feed)) & (gate_feeds != NO_GATE)
    for feed, gate_feed in zip(queries[chosen].tolist(), gate_feeds[chosen].tolist(), strict=True):
        below[feed].add(gate_feed)
    for gate in gates:
        if gate.window is not None:
            below[gate.feed].add(gate.window)
    ordered: dict[int, None] = {}
    entered: set[int] = set()
    stack = sorted(by_feed, reverse=True)
    while stack:  # a chain of gated feeds may be longer than Python's stack is deep
        feed = stack[-1]
        missing = [gate_feed for gate_feed in below[feed] if gate_feed not in ordered and gate_feed in by_feed]
        if feed in ordered or not missing:
            ordered[feed] = None
            stack.pop()
        elif feed in entered:
            raise CorruptDataError("the gates of a plan depend on themselves")
        else:
            entered.add(feed)
            stack.extend(missing)
    return [by_feed[feed] for feed in ordered]
