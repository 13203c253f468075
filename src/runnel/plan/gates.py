"""The gates of a plan: checks between matching and commit whose result depends on earlier items.

A matcher sees only one batch, so it cannot decide whether an item passes a gate. It reports that the item satisfies
a *disjunct* of a query instead: the query's conditions on the items that pass one gate, that of the nearest gated
feed that the query reads. A disjunct has an id in a number range of its own, from which the id of its query can be
computed. The commit resolves the gates in the order of the item log. This module is independent of the kinds of gate;
the rule of a gate determines its kind.
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
"""Ids from this one on identify disjuncts; lower ids identify queries."""

FIRST_OPERATOR_DISJUNCT = (1 << 62) + (1 << 61)
"""Ids from this one on identify disjuncts that operators decide."""

NO_GATE = -1 << 62
"""The value in place of a gate's feed if a disjunct has no gate."""

_ORIGIN = 1 << 62
_OPERATOR_OFFSET = FIRST_OPERATOR_DISJUNCT - _ORIGIN
_NUMBER_BITS = 20
_QUERY_BITS = 41
_HISTORY_BYTES = 16


def disjunct_id(query: int, number: int) -> int:
    """Return the id of the disjunct with this number of a query.

    >>> query_of(np.array([7, disjunct_id(7, 0), disjunct_id(7, 3)])).tolist()
    [7, 7, 7]
    """
    if not 0 <= query < 1 << _QUERY_BITS:
        raise RunnelError(f"query id {query} is outside the range 0 to 2**{_QUERY_BITS} - 1")
    if not 0 <= number < 1 << _NUMBER_BITS:
        raise RunnelError(
            f"query {query} has more than {1 << _NUMBER_BITS:,} disjuncts",
            hint="split the query: read fewer gated feeds and use fewer alternatives with operators in each",
        )
    return _ORIGIN + (query << _NUMBER_BITS) + number


def operator_disjunct_id(query: int, number: int) -> int:
    """Return the id of the disjunct with this number among those that operators decide (see `operator_table`).

    These disjuncts are numbered separately from those of `disjunct_id`.

    >>> query_of(np.array([operator_disjunct_id(7, 0)])).tolist(), disjunct_id(7, 0) == operator_disjunct_id(7, 0)
    ([7], False)
    """
    return disjunct_id(query, number) + _OPERATOR_OFFSET


def disjunct_position(identifier: int) -> tuple[int, str | None]:
    """Return the query that an id belongs to, and the kind and number of the disjunct, or None for a query's id.

    >>> disjunct_position(7), disjunct_position(disjunct_id(7, 2)), disjunct_position(operator_disjunct_id(7, 0))
    ((7, None), (7, 'gate 2'), (7, 'operators 0'))
    """
    if identifier < FIRST_DISJUNCT:
        return identifier, None
    number = identifier & ((1 << _NUMBER_BITS) - 1)
    kind = "operators" if identifier >= FIRST_OPERATOR_DISJUNCT else "gate"
    return query_of_id(identifier), f"{kind} {number}"


def query_of(ids: Array) -> Array:
    """Return for each id, of a query or a disjunct, the id of the query that it belongs to."""
    return np.where(ids >= FIRST_DISJUNCT, ((ids - _ORIGIN) & (_OPERATOR_OFFSET - 1)) >> _NUMBER_BITS, ids)


def query_of_id(identifier: int) -> int:
    """Return the id of the query that an id, of a query or a disjunct, belongs to.

    >>> query_of_id(7), query_of_id(operator_disjunct_id(7, 3))
    (7, 7)
    """
    return (
        identifier
        if identifier < FIRST_DISJUNCT
        else ((identifier - _ORIGIN) & (_OPERATOR_OFFSET - 1)) >> _NUMBER_BITS
    )


def visible(ids: Array) -> Array:
    """Return the ids that identify queries, not disjuncts. `ids` must be in ascending order."""
    return ids[: int(np.searchsorted(ids, FIRST_DISJUNCT))]


def gate_history(rule: GateRule, start: int, definition: bytes) -> bytes:
    """Return the history of a gate with this definition that starts after this sequence (see `Gate`)."""
    return digest([0 if rule.reaches_back else start, definition.hex()])


def digest(value: Any) -> bytes:
    """Return a digest of a JSON value, as long as a history."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=_HISTORY_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of a feed.

    `definition` is the digest of the feed's definition and of the definitions it reads. `history` is a digest of
    `definition` and of the start `since`, so the gate starts without state if either changes. The history of a gate
    that reaches back does not depend on its start. `shown` is false if the feed is not a query of this plan part and
    only its queries read it. `window` is the feed whose earlier items the gate compares with, if it does.
    """

    feed: int
    rule: GateRule
    since: int
    history: bytes
    shown: bool
    definition: bytes
    window: int | None = None

    def starting_after(self, sequence: int) -> Gate:
        """Return this gate with another start."""
        return replace(self, since=sequence, history=gate_history(self.rule, sequence, self.definition))

    @property
    def counts_after(self) -> int:
        """The sequence after which the gate decides about items. Earlier items pass."""
        return -1 if self.rule.reaches_back else self.since

    def to_json(self) -> dict[str, Any]:
        """Return the gate as a JSON value."""
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
        """Build a gate from a JSON value. Raise CorruptDataError if the value is invalid."""
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
            raise CorruptDataError(f"the plan contains an invalid gate: {str(value)[:200]}") from error
        if not len(gate.history) == len(gate.definition) == _HISTORY_BYTES:
            raise CorruptDataError(
                f"the plan contains an invalid gate of feed {gate.feed}: history and definition must have "
                f"{_HISTORY_BYTES} bytes each"
            )
        return gate


@dataclass(frozen=True)
class GateTable:
    """The disjuncts of a plan part in ascending order of ids, each with the feed of its gate, and the gates as JSON.

    `gate_feeds` contains NO_GATE for a disjunct without a gate.
    """

    disjuncts: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    gate_feeds: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    texts: Texts = field(default_factory=lambda: Texts.of(()))

    def __len__(self) -> int:
        return len(self.texts)

    def gates(self) -> list[Gate]:
        """Return the gates, each after the gates it depends on."""
        return [Gate.from_json(json.loads(self.texts.text(number))) for number in range(len(self.texts))]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to store by name; there are none without gates."""
        if not len(self):
            return {}
        return {
            "disjuncts.ids": self.disjuncts,
            "disjuncts.gates": self.gate_feeds,
            **self.texts.arrays("gates"),
        }

    @staticmethod
    def stored(arrays: Arrays) -> GateTable:
        """Build the table from the arrays that `arrays` returned."""
        if "disjuncts.ids" not in arrays:
            return GateTable()
        return GateTable(arrays["disjuncts.ids"], arrays["disjuncts.gates"], Texts.stored(arrays, "gates"))

    @staticmethod
    def of(feeds: Mapping[int, int], gates: Iterable[Gate]) -> GateTable:
        """Build a table. `feeds` maps the id of each disjunct to the feed of its gate, or to NO_GATE."""
        disjuncts = np.array(sorted(feeds), dtype=np.int64)
        gate_feeds = np.array([feeds[disjunct] for disjunct in disjuncts.tolist()], dtype=np.int64)
        return GateTable(disjuncts, gate_feeds, _encode_gates(sort_gates(list(gates), disjuncts, gate_feeds)))

    def starting_after(self, sequence: int, feeds: Set[int]) -> GateTable:
        """Return this table with the gates of these feeds starting after `sequence`."""
        gates = (gate.starting_after(sequence) if gate.feed in feeds else gate for gate in self.gates())
        return GateTable(self.disjuncts, self.gate_feeds, _encode_gates(gates))

    def without(self, queries: Array) -> GateTable:
        """Return this table without the disjuncts of these queries."""
        is_kept = ~np.isin(query_of(self.disjuncts), queries)
        return GateTable(self.disjuncts[is_kept], self.gate_feeds[is_kept], self.texts)

    def with_delta(self, delta: GateTable, tombstones: Array) -> GateTable:
        """Return this table of a base with a delta applied: without the tombstones, with the table of the delta."""
        is_kept = ~np.isin(query_of(self.disjuncts), tombstones) & ~np.isin(self.disjuncts, delta.disjuncts)
        disjuncts = np.concatenate([self.disjuncts[is_kept], delta.disjuncts])
        order = np.argsort(disjuncts)
        gate_feeds = np.concatenate([self.gate_feeds[is_kept], delta.gate_feeds])[order]
        disjuncts = disjuncts[order]
        added = {gate.feed: gate for gate in delta.gates()}
        # A gated feed of the base may have been redefined: it has no gate any more, but reads another gated feed.
        redefined = set(query_of(delta.disjuncts).tolist()) - added.keys()
        gates = {gate.feed: gate for gate in self.gates() if gate.feed not in redefined}
        # A query of the delta may read a gated feed of the base; only the base knows where the gate starts.
        gates |= {feed: gate for feed, gate in added.items() if gate.shown or feed not in gates}
        used = set(np.concatenate([query_of(disjuncts), gate_feeds]).tolist())
        used |= {gate.window for feed, gate in gates.items() if feed in used and gate.window is not None}
        used_gates = [gate for feed, gate in gates.items() if feed in used]
        return GateTable(disjuncts, gate_feeds, _encode_gates(sort_gates(used_gates, disjuncts, gate_feeds)))


def _encode_gates(gates: Iterable[Gate]) -> Texts:
    return Texts.of(json.dumps(gate.to_json(), separators=(",", ":")) for gate in gates)


def sort_gates(gates: list[Gate], disjuncts: Array, gate_feeds: Array) -> list[Gate]:
    """Sort gates topologically: each after the gates of the disjuncts of its feed, and after its window.

    `disjuncts` are ids of disjuncts, or ids of the queries they belong to; `gate_feeds` are the feeds of their gates.
    """
    by_feed = {gate.feed: gate for gate in gates}
    dependencies: dict[int, set[int]] = {feed: set() for feed in by_feed}
    queries = query_of(disjuncts)
    is_dependency = np.isin(queries, list(by_feed)) & (gate_feeds != NO_GATE)
    for feed, gate_feed in zip(queries[is_dependency].tolist(), gate_feeds[is_dependency].tolist(), strict=True):
        dependencies[feed].add(gate_feed)
    for gate in gates:
        if gate.window is not None:
            dependencies[gate.feed].add(gate.window)
    ordered: dict[int, None] = {}
    entered: set[int] = set()
    stack = sorted(by_feed, reverse=True)
    while stack:  # an explicit stack: a chain of gated feeds may be longer than Python's recursion limit
        feed = stack[-1]
        missing = [other for other in dependencies[feed] if other not in ordered and other in by_feed]
        if feed in ordered or not missing:
            ordered[feed] = None
            stack.pop()
        elif feed in entered:
            raise CorruptDataError(f"the gates of the plan have a cyclic dependency through feed {feed}")
        else:
            entered.add(feed)
            stack.extend(missing)
    return [by_feed[feed] for feed in ordered]
