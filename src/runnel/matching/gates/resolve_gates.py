"""Resolve gates: decide which claims of consecutive items become matches.

In: the claims of consecutive items, and the states of the gates before the first item. Out: the matches of the items
that pass, and the states to store. Each gate is resolved after the gates it depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runnel.algebra.nodes.gate_rules import Stop
from runnel.matching.gates.claims import Claims
from runnel.matching.gates.contract import (
    Arrivals,
    Booleans,
    GateRun,
    Joined,
    Numbers,
    ReadStates,
    ReadWindows,
    resolver_of,
)
from runnel.model.gate_state import GateState
from runnel.plan.gates import NO_GATE, Gate, sort_gates

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems

NO_NUMBERS: Numbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class ResolvedGates:
    """The results of gates: the sequences that passed, by feed, the states to store, and the stopped items.

    `stopped` maps the feed of a gate and the sequence of an item to the reason why the item was stopped.
    `annotations` and `failures` have the same keys. `run` is what the gates shared.
    """

    gates: tuple[Gate, ...]
    passed: Mapping[int, Numbers]
    states: tuple[GateState, ...]
    stopped: Mapping[tuple[int, int], Stop]
    annotations: Mapping[tuple[int, int], Joined]
    failures: Mapping[tuple[int, int], str]
    run: GateRun

    def new_window_items(self) -> WindowItems | None:
        """Return the items that passed the gates of windows, for later runs. Return None if there are none."""
        if not any(gate.rule.stores_items for gate in self.gates):
            return None
        from runnel.matching.joins.resolve_joins import new_window_items

        return new_window_items(self.run)

    def matches(self, claims: Claims) -> tuple[Numbers, Numbers]:
        """Return the claims that become matches, as two columns: the items' sequences and the queries."""
        sequences, queries, gate_feeds = (
            claims.rows.column(name).to_numpy() for name in ("sequence", "query", "gate")
        )
        readers = np.flatnonzero(~np.isin(queries, [gate.feed for gate in self.gates]))
        readers = readers[_is_satisfied(sequences[readers], gate_feeds[readers], self.passed)]
        matches = [(sequences[readers], queries[readers])]
        for gate in self.gates:
            if gate.shown:
                arrived = np.unique(sequences[queries == gate.feed])
                passed = self.passed.get(gate.feed, NO_NUMBERS)
                matching = arrived[(arrived > gate.since) & np.isin(arrived, passed)]
                matches.append((matching, np.full(len(matching), gate.feed, dtype=np.int64)))
        return unique_pairs(*(np.concatenate(column) for column in zip(*matches, strict=True)))


def resolve_gates(claims: Claims, read_states: ReadStates, read_windows: ReadWindows = tuple) -> ResolvedGates:
    """Resolve the claims of consecutive items. The states of all gates are read with one call."""
    sequences, queries, gate_feeds = (claims.rows.column(name).to_numpy() for name in ("sequence", "query", "gate"))
    positions_by_feed = _group_by_query(queries, [gate.feed for gate in claims.gates])
    arrivals = {feed: _arrivals(claims, positions) for feed, positions in positions_by_feed.items()}
    reached = [gate for gate in claims.gates if gate.feed in arrivals]
    stored = read_states(
        {key for gate in reached for key in resolver_of(gate.rule.kind).state_keys(gate, arrivals[gate.feed])}
    )
    passed: dict[int, Numbers] = {}
    states: list[GateState] = []
    stopped: dict[tuple[int, int], Stop] = {}
    annotations: dict[tuple[int, int], Joined] = {}
    failures: dict[tuple[int, int], str] = {}
    run = GateRun(stored, arrivals, passed, {gate.feed: gate for gate in reached}, read_windows)
    for gate in sort_gates(reached, *unique_pairs(queries, gate_feeds)):
        positions = positions_by_feed[gate.feed]
        positions = positions[_is_satisfied(sequences[positions], gate_feeds[positions], passed)]
        items = arrivals[gate.feed]
        passes = np.isin(items.sequences, sequences[positions])
        is_counted = passes & (items.sequences > gate.since)
        answer = resolver_of(gate.rule.kind).resolve(gate, items.select(is_counted), run)
        passes[is_counted] = answer.passes
        passed[gate.feed] = items.sequences[passes]
        states += answer.states
        stopped |= {(gate.feed, sequence): stop for sequence, stop in answer.stopped.items()}
        annotations |= {(gate.feed, sequence): joined for sequence, joined in answer.annotations.items()}
        failures |= {(gate.feed, sequence): reason for sequence, reason in answer.failures.items()}
    return ResolvedGates(claims.gates, passed, tuple(states), stopped, annotations, failures, run)


def unique_pairs(first: Numbers, second: Numbers) -> tuple[Numbers, Numbers]:
    """Return the distinct pairs in ascending order.

    >>> [column.tolist() for column in unique_pairs(np.array([2, 1, 2, 2]), np.array([5, 6, 4, 5]))]
    [[1, 2, 2], [6, 4, 5]]
    """
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    is_new = np.ones(len(first), dtype=np.bool_)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[is_new], second[is_new]


def _group_by_query(queries: Numbers, selected: Collection[int]) -> dict[int, Numbers]:
    """Return the positions of the claims of each selected query that has claims."""
    positions = np.flatnonzero(np.isin(queries, list(selected)))
    positions = positions[np.argsort(queries[positions], kind="stable")]
    present, starts = np.unique(queries[positions], return_index=True)
    return dict(zip(present.tolist(), np.split(positions, starts[1:]), strict=True)) if len(present) else {}


def _arrivals(claims: Claims, positions: Numbers) -> Arrivals:
    """Return the items of the claims of a gated feed. The claims of an item have equal data, so it arrives once."""
    sequences, first = np.unique(claims.rows.column("sequence").to_numpy()[positions], return_index=True)
    first_claims = positions[first]
    accepted = claims.rows.column("accepted").to_numpy()[first_claims]
    return Arrivals(sequences, accepted, claims.rows.column("data").take(first_claims).to_pylist())


def _is_satisfied(sequences: Numbers, gate_feeds: Numbers, passed: Mapping[int, Numbers]) -> Booleans:
    """Return a mask of the claims that have no gate or whose item passed their gate."""
    is_satisfied = gate_feeds == NO_GATE
    for feed in np.unique(gate_feeds[~is_satisfied]).tolist():
        positions = np.flatnonzero(gate_feeds == feed)
        is_satisfied[positions] = np.isin(sequences[positions], passed.get(feed, NO_NUMBERS))
    return np.asarray(is_satisfied)
