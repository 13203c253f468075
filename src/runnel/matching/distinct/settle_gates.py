"""Settling claims: which items pass the gates of distinct feeds, in the order of the log.

In: the claims of a run of items, and which keys were seen before them. Out: the matches that have passed, and the
keys to remember. An item is stopped at a gate if the last item with its key that came to that gate, stopped or not,
was accepted less than the gate's window before; so the answer depends on the log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.matching.contract import Matcher
from runnel.matching.distinct.claims import Claims, GateKeeper
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.model.seen_key import SeenKey
from runnel.plan.gates import NO_GATE, Gate, in_order
from runnel.plan.store import Plan

SeenKeys = Callable[[Collection[bytes]], Mapping[bytes, SeenKey]]
"""Of some keys those that were seen, and when last."""

_ENOUGH = 100_000
"""Keys that are remembered before those are looked for that count no more."""

Numbers = npt.NDArray[np.int64]
NOTHING: Numbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class SettledGates:
    """What came of items at gates: those that each let pass, keys to remember, and what was stopped by what.

    `stopped` has, by gate and sequence, the sequence of the last item before with the same key.
    """

    gates: tuple[Gate, ...]
    passed: Mapping[int, Numbers]
    keys: tuple[SeenKey, ...] = ()
    stopped: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def matches(self, claims: Claims) -> tuple[Numbers, Numbers]:
        """Pairs of an item's sequence and a query, of the items that have these claims."""
        rows = claims.rows
        sequences, queries, gates = (rows.column(name).to_numpy() for name in ("sequence", "query", "gate"))
        readers = np.flatnonzero(~np.isin(queries, [gate.feed for gate in self.gates]))
        readers = readers[_reached(sequences[readers], gates[readers], self.passed)]
        found = [(sequences[readers], queries[readers])]
        for gate in self.gates:
            if gate.shown:
                own = np.unique(sequences[queries == gate.feed])
                own = own[(own > gate.since) & np.isin(own, self.passed.get(gate.feed, NOTHING))]
                found.append((own, np.full(len(own), gate.feed, dtype=np.int64)))
        return unique_pairs(*(np.concatenate(column) for column in zip(*found, strict=True)))


def settle_gates(claims: Claims, seen: SeenKeys) -> SettledGates:
    """Settle what consecutive items claim at gates; `seen` knows what came before the first of them."""
    rows = claims.rows
    sequences, accepted, queries, gates = (
        rows.column(name).to_numpy() for name in ("sequence", "accepted", "query", "gate")
    )
    keys = rows.column("key")
    known = seen(set(keys.drop_null().to_pylist()))
    passed: dict[int, Numbers] = {}
    fresh: list[SeenKey] = []
    stopped: dict[tuple[int, int], int] = {}
    claimed = _by_query(queries, [gate.feed for gate in claims.gates])
    for gate in in_order(list(claims.gates), *unique_pairs(queries, gates)):
        chosen = claimed.get(gate.feed, NOTHING)
        chosen = chosen[_reached(sequences[chosen], gates[chosen], passed)]
        # An item that comes by several ways comes once; all its claims have the same key.
        order, first = np.unique(sequences[chosen], return_index=True)
        chosen = chosen[first]
        turn = _Turn(gate, known)
        came = zip(order.tolist(), accepted[chosen].tolist(), keys.take(chosen).to_pylist(), strict=True)
        passed[gate.feed] = order[np.fromiter((turn.passes(*one) for one in came), dtype=bool, count=len(order))]
        fresh += turn.keys()
        stopped |= turn.stopped
    return SettledGates(claims.gates, passed, tuple(fresh), stopped)


def unique_pairs(first: Numbers, second: Numbers) -> tuple[Numbers, Numbers]:
    """Pairs in order, each once.

    >>> [column.tolist() for column in unique_pairs(np.array([2, 1, 2, 2]), np.array([5, 6, 4, 5]))]
    [[1, 2, 2], [6, 4, 5]]
    """
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    fresh = np.ones(len(first), dtype=bool)
    fresh[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[fresh], second[fresh]


def _by_query(queries: Numbers, wanted: Collection[int]) -> dict[int, Numbers]:
    """The claims of each wanted query, by their places."""
    places = np.flatnonzero(np.isin(queries, list(wanted)))
    places = places[np.argsort(queries[places], kind="stable")]
    found, starts = np.unique(queries[places], return_index=True)
    return dict(zip(found.tolist(), np.split(places, starts[1:]), strict=True)) if len(found) else {}


def _reached(sequences: Numbers, gates: Numbers, passed: Mapping[int, Numbers]) -> npt.NDArray[np.bool_]:
    """Which claims hold: their gate, if they have one, has let the item pass."""
    reached = gates == NO_GATE
    for gate in np.unique(gates[~reached]).tolist():
        here = np.flatnonzero(gates == gate)
        reached[here] = np.isin(sequences[here], passed.get(gate, sequences[:0]))
    return np.asarray(reached)


class _Turn:
    """One gate, item after item."""

    def __init__(self, gate: Gate, seen: Mapping[bytes, SeenKey]) -> None:
        self._gate = gate
        self._seen = seen
        self._fresh: dict[bytes, SeenKey] = {}
        self.stopped: dict[tuple[int, int], int] = {}

    def passes(self, sequence: int, accepted: int, key: bytes | None) -> bool:
        """Whether an item passes; it is remembered either way."""
        if key is None:
            return True
        window = self._gate.microseconds
        last = self._fresh.get(key) or self._seen.get(key)
        self._fresh[key] = SeenKey(self._gate.feed, key, sequence, accepted, accepted + window)
        if last is None or accepted - last.accepted >= window:
            return True
        self.stopped[self._gate.feed, sequence] = last.sequence
        return False

    def keys(self) -> list[SeenKey]:
        """The keys that came by, with the last item that had each."""
        return list(self._fresh.values())


class OrderedMatcher:
    """A plan's matcher for those who have no log: batches are matched in the order in which they are given.

    What a distinct feed has had is remembered from batch to batch, and forgotten with this object.
    """

    def __init__(self, plan: Plan, matcher: Matcher) -> None:
        self._matcher = matcher
        self.statistics = matcher.statistics
        self._keeper = GateKeeper(plan)
        self._seen: dict[bytes, SeenKey] = {}
        self._enough = _ENOUGH
        self.stopped: dict[tuple[int, int], int] = {}

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches, duplicates left out."""
        matches = self._matcher.match(items)
        if not self._keeper.is_needed:
            return matches
        kept, claims = self._keeper.take_out(items, matches)
        sequences, found = self._settled(items, claims)
        rows = np.repeat(np.arange(len(items)), np.diff(kept.offsets))
        places = np.searchsorted(items.sequences, sequences)
        rows, queries = unique_pairs(np.concatenate([rows, places]), np.concatenate([kept.queries, found]))
        offsets = np.searchsorted(rows, np.arange(len(items) + 1))
        return Matches(offsets.astype(np.int64), queries, kept.failures)

    def _settled(self, items: ItemBatch, claims: Claims) -> tuple[Numbers, Numbers]:
        """The matches of claims, which are remembered; what makes nothing a duplicate any more is forgotten."""
        gates = settle_gates(claims.at_gates(), lambda keys: self._seen)
        self._seen |= {one.key: one for one in gates.keys}
        self.stopped |= gates.stopped
        if len(self._seen) > self._enough:
            newest = int(pc.max(items.records.column("accepted").cast(pa.int64())).as_py())
            self._seen = {key: one for key, one in self._seen.items() if one.expires > newest}
            self._enough = max(_ENOUGH, 2 * len(self._seen))
        return gates.matches(claims)
