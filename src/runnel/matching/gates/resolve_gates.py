"""Resolve gates: decide which claims of consecutive items become matches.

In: the claims of consecutive items, and the states of the gates before the first item. Out: the matches of the items
that pass, and the states to store. Each gate is resolved after the gates it depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
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
from runnel.model.annotation import Annotation
from runnel.model.gate_state import GateState
from runnel.model.gate_work import GateWork
from runnel.plan.gates import NO_GATE, Gate, sort_gates

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems

NO_NUMBERS: Numbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class ResolvedGates:
    """The results of gates: the sequences that passed, by feed, the states to store, and the stopped items.

    `stopped` maps the feed of a gate and the sequence of an item to the reason why the item was stopped.
    `annotations` and `failures` have the same keys. So has `inherited`: the gates whose annotations an item has after
    it passed a gate, including those of earlier gates. `run` is what the gates shared, and `work` the work of joins.
    """

    gates: tuple[Gate, ...]
    passed: Mapping[int, Numbers]
    states: tuple[GateState, ...]
    stopped: Mapping[tuple[int, int], Stop]
    annotations: Mapping[tuple[int, int], Joined]
    failures: Mapping[tuple[int, int], str]
    inherited: Mapping[tuple[int, int], frozenset[int]]
    run: GateRun
    work: Mapping[int, GateWork]

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

    def annotations_of(self, claims: Claims) -> dict[int, dict[int, tuple[Annotation, ...]]]:
        """Return the annotations of the matches of these claims, by sequence and query.

        A query that satisfies several disjuncts has the annotations of all of them.
        """
        annotations: dict[int, dict[int, tuple[Annotation, ...]]] = {}
        if not self.inherited:
            return annotations
        starts = {gate.feed: gate.since for gate in self.gates if gate.shown}
        rules = {gate.feed: gate.rule for gate in self.gates}
        inherited: dict[tuple[int, int], frozenset[int]] = {}
        for sequence, query, gate in _rows_with(claims, {sequence for _, sequence in self.inherited}):
            if query not in rules:
                added = self.inherited.get((gate, sequence))
            else:
                added = self.inherited.get((query, sequence)) if sequence > starts.get(query, sequence) else None
            if added:
                inherited[sequence, query] = inherited.get((sequence, query), frozenset()) | added
        for (sequence, query), feeds in inherited.items():
            annotations.setdefault(sequence, {})[query] = tuple(
                Annotation(rules[feed].annotation_name, feed, joined.newest, joined.count)
                for feed in sorted(feeds)
                for joined in (self.annotations[feed, sequence],)
            )
        return annotations


def resolve_gates(
    claims: Claims,
    read_states: ReadStates,
    read_windows: ReadWindows = tuple,
    window_keys: Mapping[int, int] = MappingProxyType({}),
) -> ResolvedGates:
    """Resolve the claims of consecutive items. The states of all gates are read with one call.

    `window_keys` are the keys under which windows are stored, by feed (see `GateRun`).
    """
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
    inherited: dict[tuple[int, int], frozenset[int]] = {}
    work: dict[int, GateWork] = {}
    gates = {gate.feed: gate for gate in claims.gates}
    run = GateRun(stored, arrivals, passed, gates, read_windows, window_keys)
    for gate in sort_gates(reached, *unique_pairs(queries, gate_feeds)):
        positions = positions_by_feed[gate.feed]
        positions = positions[_is_satisfied(sequences[positions], gate_feeds[positions], passed)]
        items = arrivals[gate.feed]
        passes = np.isin(items.sequences, sequences[positions])
        is_counted = passes & (items.sequences > gate.counts_after)
        answer = resolver_of(gate.rule.kind).resolve(gate, items.select(is_counted), run)
        passes[is_counted] = answer.passes
        passed[gate.feed] = items.sequences[passes]
        states += answer.states
        stopped |= {(gate.feed, sequence): stop for sequence, stop in answer.stopped.items()}
        annotations |= {(gate.feed, sequence): joined for sequence, joined in answer.annotations.items()}
        failures |= {(gate.feed, sequence): reason for sequence, reason in answer.failures.items()}
        if answer.work is not None:
            work[gate.feed] = answer.work
        for sequence in answer.annotations:
            inherited[gate.feed, sequence] = frozenset([gate.feed])
        if inherited:
            earlier = zip(sequences[positions].tolist(), gate_feeds[positions].tolist(), strict=True)
            _inherit(inherited, gate.feed, set(passed[gate.feed].tolist()), earlier)
    return ResolvedGates(claims.gates, passed, tuple(states), stopped, annotations, failures, inherited, run, work)


def _inherit(
    inherited: dict[tuple[int, int], frozenset[int]], feed: int, passed: Set[int], claims: Iterable[tuple[int, int]]
) -> None:
    """Add the annotations that items had before they passed the gate of a feed, through the gates of `claims`."""
    for sequence, gate in claims:
        before = inherited.get((gate, sequence))
        if before and sequence in passed:
            inherited[feed, sequence] = inherited.get((feed, sequence), frozenset()) | before


def _rows_with(claims: Claims, sequences: Set[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the sequence, the query and the gate of the claims of some items."""
    columns = [claims.rows.column(name).to_numpy() for name in ("sequence", "query", "gate")]
    rows = np.flatnonzero(np.isin(columns[0], np.fromiter(sequences, dtype=np.int64, count=len(sequences))))
    yield from zip(*(column[rows].tolist() for column in columns), strict=True)


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
