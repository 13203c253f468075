"""Resolving gates: which claims of a run of items become matches.

In: the claims of consecutive items, and the states that gates had before the first of them. Out: the matches of the
items that passed, and the states to store. A gate is resolved after all gates that it depends on.
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
from runnel.plan.gates import NO_GATE, Gate, in_order

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems

NOTHING: Numbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class ResolvedGates:
    """The items that each gate let pass, by feed; the states to store; and stops, annotations and failures.

    Stops, annotations and failures are given by feed and sequence. `run` is what the gates shared.
    """

    gates: tuple[Gate, ...]
    passed: Mapping[int, Numbers]
    states: tuple[GateState, ...]
    stopped: Mapping[tuple[int, int], Stop]
    annotations: Mapping[tuple[int, int], Joined]
    failures: Mapping[tuple[int, int], str]
    run: GateRun

    def new_window_items(self) -> WindowItems | None:
        """Return the items that passed the gates of windows, to be stored for later runs; None if there are none."""
        if not any(gate.rule.stores_items for gate in self.gates):
            return None
        from runnel.matching.joins.resolve_joins import new_window_items

        return new_window_items(self.run)

    def matches(self, claims: Claims) -> tuple[Numbers, Numbers]:
        """Pairs of an item's sequence and a query, of the items that have these claims."""
        sequences, queries, gate_feeds = (
            claims.rows.column(name).to_numpy() for name in ("sequence", "query", "gate")
        )
        readers = np.flatnonzero(~np.isin(queries, [gate.feed for gate in self.gates]))
        readers = readers[_reaches(sequences[readers], gate_feeds[readers], self.passed)]
        found = [(sequences[readers], queries[readers])]
        for gate in self.gates:
            if gate.shown:
                own = np.unique(sequences[queries == gate.feed])
                own = own[(own > gate.since) & np.isin(own, self.passed.get(gate.feed, NOTHING))]
                found.append((own, np.full(len(own), gate.feed, dtype=np.int64)))
        return unique_pairs(*(np.concatenate(column) for column in zip(*found, strict=True)))


def resolve_gates(claims: Claims, read_states: ReadStates, read_windows: ReadWindows = tuple) -> ResolvedGates:
    """Resolve the claims of consecutive items; the states are read once, for all gates."""
    sequences, queries, gate_feeds = (claims.rows.column(name).to_numpy() for name in ("sequence", "query", "gate"))
    claimed = _by_query(queries, [gate.feed for gate in claims.gates])
    arrivals = {feed: _arrivals(claims, own) for feed, own in claimed.items()}
    reached = [gate for gate in claims.gates if gate.feed in arrivals]
    known = read_states(
        {key for gate in reached for key in resolver_of(gate.rule.kind).state_keys(gate, arrivals[gate.feed])}
    )
    passed: dict[int, Numbers] = {}
    states: list[GateState] = []
    stopped: dict[tuple[int, int], Stop] = {}
    annotations: dict[tuple[int, int], Joined] = {}
    failures: dict[tuple[int, int], str] = {}
    run = GateRun(known, arrivals, passed, {gate.feed: gate for gate in reached}, read_windows)
    for gate in in_order(reached, *unique_pairs(queries, gate_feeds)):
        own = claimed[gate.feed]
        own = own[_reaches(sequences[own], gate_feeds[own], passed)]
        items = arrivals[gate.feed]
        passes = np.isin(items.sequences, sequences[own])
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
    """Pairs in order, each once.

    >>> [column.tolist() for column in unique_pairs(np.array([2, 1, 2, 2]), np.array([5, 6, 4, 5]))]
    [[1, 2, 2], [6, 4, 5]]
    """
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    is_new = np.ones(len(first), dtype=np.bool_)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[is_new], second[is_new]


def _by_query(queries: Numbers, wanted: Collection[int]) -> dict[int, Numbers]:
    """The positions of the claims of each wanted query."""
    positions = np.flatnonzero(np.isin(queries, list(wanted)))
    positions = positions[np.argsort(queries[positions], kind="stable")]
    present, starts = np.unique(queries[positions], return_index=True)
    return dict(zip(present.tolist(), np.split(positions, starts[1:]), strict=True)) if len(present) else {}


def _arrivals(claims: Claims, positions: Numbers) -> Arrivals:
    """The items of the claims of a gated feed. An item with several claims arrives once: their data is the same."""
    sequences, first = np.unique(claims.rows.column("sequence").to_numpy()[positions], return_index=True)
    chosen = positions[first]
    accepted = claims.rows.column("accepted").to_numpy()[chosen]
    return Arrivals(sequences, accepted, claims.rows.column("data").take(chosen).to_pylist())


def _reaches(sequences: Numbers, gate_feeds: Numbers, passed: Mapping[int, Numbers]) -> Booleans:
    """Which claims hold: they have no gate, or their gate has let the item pass."""
    holds = gate_feeds == NO_GATE
    for feed in np.unique(gate_feeds[~holds]).tolist():
        own = np.flatnonzero(gate_feeds == feed)
        holds[own] = np.isin(sequences[own], passed.get(feed, NOTHING))
    return np.asarray(holds)
