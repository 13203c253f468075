"""Resolve gates: decide which claims of consecutive items become matches.

In: the claims of consecutive items, and the states of the gates before the first item. Out: the matches of the items
that pass, and the states to store. Gates are resolved level by level: first those that depend on no other, then those
that depend only on them, and so on. All gates of a kind on one level are resolved together.

An *arrival* is a pair of an item and a gate that it may reach: it claims the gate's feed. Arrivals are numbered by
ascending items, then gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.gate_rules import Stop
from runnel.arrays import Rows, offsets_of
from runnel.errors import CorruptDataError
from runnel.gc_paused import gc_paused
from runnel.matching.gates.claims import Claims
from runnel.matching.gates.contract import (
    AnnotatedArrivals,
    Arrivals,
    Booleans,
    GateRun,
    Numbers,
    ReadStates,
    ReadWindows,
    WorkOfGates,
    resolver_of,
)
from runnel.matching.gates.gate_columns import GateColumns
from runnel.model.annotation import Annotation
from runnel.model.gate_state import GateState
from runnel.model.gate_work import GateWork
from runnel.plan.gates import NO_GATE

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems

NO_NUMBERS: Numbers = np.empty(0, dtype=np.int64)
_NO_ARRIVAL = -2
_NO_DEPENDENCY = -1


@dataclass(frozen=True)
class ResolvedGates:
    """The results of gates: which arrivals passed, and the states to store.

    `counted` masks the arrivals that gates decided about. Others pass, if the gates on the way to theirs let them.
    `causes`, `annotations` and `failures` are by arrival. `inherited` has for some arrivals those whose annotations
    their items have, including those of earlier gates. `run` is what the gates shared.
    """

    arrivals: _Arrivals
    passed: Booleans
    counted: Booleans
    states: tuple[GateState, ...]
    causes: Mapping[int, Stop]
    annotations: Mapping[int, tuple[list[int], int]]
    failures_by_arrival: Mapping[int, str]
    inherited: _Inherited
    run: GateRun
    work_of_gates: Sequence[WorkOfGates]
    _last: list[tuple[Claims, tuple[Numbers, Numbers]]] = field(default_factory=list)
    """The claims whose matches were asked for last, and the answer, because their annotations are asked for next."""

    @property
    def gates(self) -> GateColumns:
        """The gates, resolved or not."""
        return self.arrivals.gates

    @cached_property
    def stopped(self) -> dict[tuple[int, int], Stop]:
        """The reasons why items were stopped, by the feed of the gate and the sequence of the item."""
        positions = np.flatnonzero(self.counted & ~self.passed)
        keys = zip(*(column.tolist() for column in self.arrivals.keys(positions)), strict=True)
        return {
            key: self.causes.get(position, Stop()) for position, key in zip(positions.tolist(), keys, strict=True)
        }

    @cached_property
    def work(self) -> dict[int, GateWork]:
        """The work of joins, by their feeds."""
        return {
            feed: GateWork(*counts)
            for several in self.work_of_gates
            for feed, counts in zip(self.gates.feeds[several.gates].tolist(), several.counts.tolist(), strict=True)
        }

    @property
    def failures(self) -> dict[tuple[int, int], str]:
        """The reasons why gates failed, by the feed of the gate and the sequence of the item."""
        positions = np.array(sorted(self.failures_by_arrival), dtype=np.int64)
        keys = zip(*(column.tolist() for column in self.arrivals.keys(positions)), strict=True)
        return {
            key: self.failures_by_arrival[position] for position, key in zip(positions.tolist(), keys, strict=True)
        }

    def new_window_items(self) -> WindowItems | None:
        """Return the items that passed the gates of windows, for later runs. Return None if there are none."""
        if not any(rule.stores_items for rule in self.gates.rules):
            return None
        from runnel.matching.joins.resolve_joins import new_window_items

        return new_window_items(self.run)

    def matches(self, claims: Claims) -> tuple[Numbers, Numbers]:
        """Return the claims that become matches, as two columns: the items' sequences and the queries."""
        own, _ = self._matching(claims)
        sequences = claims.sequences[claims.item_numbers[own]]
        queries = claims.routes.column("query").to_numpy()[claims.route_numbers[own]]
        return unique_pairs(sequences, queries)

    def _matching(self, claims: Claims) -> tuple[Numbers, Numbers]:
        """Return the claims that become matches, and the arrival on which each depends, or -1."""
        if not self._last or self._last[0][0] is not claims:
            self._last[:] = [(claims, self._find_matching(claims))]
        return self._last[0][1]

    def _find_matching(self, claims: Claims) -> tuple[Numbers, Numbers]:
        at_gate, needed = self.arrivals.locate(claims)
        decisive = np.where(at_gate == _NO_DEPENDENCY, needed, at_gate)
        is_match = decisive == _NO_DEPENDENCY
        decided = np.flatnonzero(decisive >= 0)
        decided = decided[self.passed[decisive[decided]]]
        own = decided[at_gate[decided] >= 0]
        # An arrival may have several claims.
        gates = self.arrivals.gate_numbers[at_gate[own]]
        sequences = self.arrivals.sequences[self.arrivals.item_numbers[at_gate[own]]]
        own = own[self.gates.shown[gates] & (sequences > self.gates.since[gates])]
        is_match[own] = is_match[decided[at_gate[decided] < 0]] = True
        chosen = np.flatnonzero(is_match)
        return chosen, decisive[chosen]

    def annotations_of(self, claims: Claims) -> dict[int, dict[int, tuple[Annotation, ...]]]:
        """Return the annotations of the matches of these claims, by sequence and query.

        A query that satisfies several disjuncts has the annotations of all of them.
        """
        annotations: dict[int, dict[int, tuple[Annotation, ...]]] = {}
        if not len(self.inherited):
            return annotations
        own, decisive = self._matching(claims)
        owners, sources = self.inherited.of(decisive)
        sequences = claims.sequences[claims.item_numbers[own[owners]]]
        queries = claims.routes.column("query").to_numpy()[claims.route_numbers[own[owners]]]
        gates = self.arrivals.gate_numbers[sources]
        order = np.lexsort((gates, queries, sequences))
        rows = np.stack([sequences, queries, sources], axis=1)[order]
        is_new = np.ones(len(rows), dtype=np.bool_)
        is_new[1:] = np.any(rows[1:] != rows[:-1], axis=1)
        names = [rule.annotation_name for rule in self.gates.rules]
        feeds, rules = self.gates.feeds[gates[order]].tolist(), self.gates.rule_numbers[gates[order]].tolist()
        with gc_paused():
            for (sequence, query, source), feed, rule, new in zip(
                rows.tolist(), feeds, rules, is_new.tolist(), strict=True
            ):
                if new:
                    newest, count = self.annotations[source]
                    by_query = annotations.setdefault(sequence, {})
                    added = Annotation(names[rule], feed, tuple(newest), count)
                    by_query[query] = (*by_query.get(query, ()), added)
        return annotations


@dataclass(frozen=True)
class _Arrivals:
    """The arrivals of claims: the numbers of items, by ascending `sequences`, and of gates."""

    gates: GateColumns
    sequences: Numbers
    accepted: Numbers
    item_numbers: Numbers
    gate_numbers: Numbers
    data: npt.NDArray[np.integer]
    codes: Numbers

    def __len__(self) -> int:
        return len(self.codes)

    @staticmethod
    def of(claims: Claims) -> tuple[_Arrivals, Numbers, Numbers]:
        """Return the arrivals of claims at gates; the arrival of each claim; and the one it depends on.

        The latter is `_NO_DEPENDENCY` or `_NO_ARRIVAL` if there is none.
        """
        sequences, first, numbers = np.unique(claims.sequences, return_index=True, return_inverse=True)
        accepted = claims.items.column("accepted").to_numpy()[first]
        at_gate = claims.route_gates[0][claims.route_numbers]
        items = numbers.reshape(-1)[claims.item_numbers]
        claimed = items * max(1, len(claims.gates)) + at_gate
        if len(claimed) > 1 and not (claimed[1:] > claimed[:-1]).all():
            codes, first, owners = np.unique(claimed, return_index=True, return_inverse=True)
            owners = owners.reshape(-1)
            arrived = items[first], at_gate[first], claims.datum_numbers[first]
        else:
            codes, owners = claimed, np.arange(len(claimed))
            arrived = items, at_gate, claims.datum_numbers
        arrived_items, gates, data = arrived
        own = _Arrivals(
            claims.gates, sequences, accepted, arrived_items.astype(np.int64, copy=False), gates, data, codes
        )
        return own, owners, own.needed(claims, items)

    def needed(self, claims: Claims, items: Numbers) -> Numbers:
        """Return the arrival on which each claim depends. `items` are the items of the claims, or -1."""
        feeds = claims.routes.column("gate").to_numpy()
        found = np.full(len(claims), _NO_DEPENDENCY, dtype=np.int64)
        has_gate = feeds != NO_GATE
        if has_gate.any():
            dependent = np.flatnonzero(has_gate[claims.route_numbers])
            gates = self.gates.positions(feeds)[claims.route_numbers[dependent]]
            found[dependent] = self._find(items[dependent], gates)
        return found

    def _find(self, items: Numbers, gates: Numbers) -> Numbers:
        """Return the arrival of each pair of an item and a gate, or `_NO_ARRIVAL`."""
        if not len(self.codes):
            return np.full(len(items), _NO_ARRIVAL, dtype=np.int64)
        codes = items * max(1, len(self.gates)) + gates
        if np.array_equal(codes, self.codes):
            return np.arange(len(codes))
        positions = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        is_found = (self.codes[positions] == codes) & (items >= 0) & (gates >= 0)
        return np.where(is_found, positions, _NO_ARRIVAL)

    def locate(self, claims: Claims) -> tuple[Numbers, Numbers]:
        """Return the arrival of each claim and the one it depends on, or `_NO_DEPENDENCY` if there is no gate."""
        positions = np.searchsorted(self.sequences, claims.sequences)
        positions[positions == len(self.sequences)] = 0
        is_known = self.sequences[positions] == claims.sequences if len(self.sequences) else np.zeros(0, np.bool_)
        numbers = np.where(is_known, positions, -1) if len(self.sequences) else np.full(len(positions), -1)
        items = numbers[claims.item_numbers]
        if claims.gates is self.gates:
            gates = claims.route_gates[0]
        else:
            gates = self.gates.positions(claims.routes.column("query").to_numpy())
        at_gate = np.full(len(claims), _NO_DEPENDENCY, dtype=np.int64)
        gated = (gates >= 0)[claims.route_numbers]
        if gated.all():
            at_gate = self._find(items, gates[claims.route_numbers])
        else:
            at_gate[gated] = self._find(items[gated], gates[claims.route_numbers[gated]])
        return at_gate, self.needed(claims, items)

    def keys(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        """Return the feeds of the gates and the sequences of the items of some arrivals."""
        return self.gates.feeds[self.gate_numbers[positions]], self.sequences[self.item_numbers[positions]]

    def of_kind(self, chosen: Numbers, table: object) -> Arrivals:
        """Return some arrivals for a resolver."""
        arrivals = Arrivals(
            self.item_numbers, self.gate_numbers, self.data, self.sequences, self.accepted, self.gates, table
        )
        return arrivals.select(chosen)


@dataclass
class _Inherited:
    """Pairs of an arrival and the arrival of an annotation that its item has."""

    owners: list[Numbers] = field(default_factory=list)
    sources: list[Numbers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.owners)

    def add(self, owners: Numbers, sources: Numbers) -> None:
        """Add pairs."""
        if len(owners):
            self.owners.append(owners)
            self.sources.append(sources)

    def of(self, arrivals: Numbers) -> tuple[Numbers, Numbers]:
        """Return the positions in `arrivals` and the annotations of the items there."""
        if not self.owners:
            return NO_NUMBERS, NO_NUMBERS
        owners, sources = np.concatenate(self.owners), np.concatenate(self.sources)
        self.owners, self.sources = [owners], [sources]
        order = np.argsort(owners, kind="stable")
        present, counts = np.unique(owners, return_counts=True)
        rows = np.minimum(np.searchsorted(present, arrivals), len(present) - 1)
        known = np.flatnonzero(present[rows] == arrivals)
        positions, values = Rows(offsets_of(counts), sources[order]).expand(rows[known])
        return known[positions], values


def resolve_gates(
    claims: Claims,
    read_states: ReadStates,
    read_windows: ReadWindows = tuple,
    window_keys: Mapping[int, int] = MappingProxyType({}),
) -> ResolvedGates:
    """Resolve the claims of consecutive items. The states of all gates are read with one call.

    `window_keys` are the keys under which windows are stored, by feed (see `GateRun`).
    """
    return _Resolution(claims, read_states, read_windows, window_keys).resolve()


class _Resolution:
    """The resolution of the gates that some claims reach."""

    def __init__(
        self, claims: Claims, read_states: ReadStates, read_windows: ReadWindows, keys: Mapping[int, int]
    ) -> None:
        self.claims, self.gates = claims, claims.gates
        self.arrivals, self.owners, self.needed = _Arrivals.of(claims)
        kinds = self.gates.kinds[self.arrivals.gate_numbers] if len(claims) else NO_NUMBERS
        self.of_kind = {kind: np.flatnonzero(kinds == number) for number, kind in enumerate(self.gates.kind_names)}
        self.kind_arrivals = {
            kind: self.arrivals.of_kind(chosen, claims.data.get(kind)) for kind, chosen in self.of_kind.items()
        }
        self.passed_by_kind = {kind: np.zeros(len(chosen), np.bool_) for kind, chosen in self.of_kind.items()}
        states = read_states(
            {key for kind, reached in self.kind_arrivals.items() for key in resolver_of(kind).state_keys(reached)}
        )
        self.run = GateRun(states, self.kind_arrivals, self.passed_by_kind, read_windows, keys)
        self.passed = np.zeros(len(self.arrivals), dtype=np.bool_)
        self.counted = np.zeros(len(self.arrivals), dtype=np.bool_)
        self.reached = np.zeros(len(self.arrivals), dtype=np.bool_)
        is_free = self.needed == _NO_DEPENDENCY
        self.reached[self.owners if is_free.all() else self.owners[is_free]] = True
        self.states: list[GateState] = []
        self.causes: dict[int, Stop] = {}
        self.annotations: dict[int, tuple[list[int], int]] = {}
        self.failures: dict[int, str] = {}
        self.inherited = _Inherited()
        self.work: list[WorkOfGates] = []

    def resolve(self) -> ResolvedGates:
        """Resolve all levels."""
        levels = self._levels()
        dependent = np.flatnonzero(self.needed >= 0)
        count = int(levels.max(initial=-1)) + 1
        of_claims = Rows.grouped(levels[self.arrivals.gate_numbers[self.owners[dependent]]], dependent, count)
        of_kinds = {kind: self._by_level(levels, chosen, count) for kind, chosen in self.of_kind.items()}
        for level in range(count):
            self._reach(of_claims.row(level))
            for kind, due in of_kinds.items():
                self._resolve_kind(kind, due.row(level))
            self._inherit(of_claims.row(level))
        return ResolvedGates(
            self.arrivals,
            self.passed,
            self.counted,
            tuple(self.states),
            self.causes,
            self.annotations,
            self.failures,
            self.inherited,
            self.run,
            self.work,
        )

    def _by_level(self, levels: Numbers, chosen: Numbers, count: int) -> Rows:
        """Return the positions of arrivals of a kind by the level of their gates."""
        of_arrivals = levels[self.arrivals.gate_numbers[chosen]]
        lowest = int(of_arrivals.min(initial=count))
        if lowest == int(of_arrivals.max(initial=lowest)):
            sizes = [len(chosen) if level == lowest else 0 for level in range(count)]
            return Rows(offsets_of(sizes), np.arange(len(chosen)))
        return Rows.grouped(of_arrivals, np.arange(len(chosen)), count)

    def _reach(self, dependent: Numbers) -> None:
        """Note which arrivals are reached by these claims, whose gates are resolved."""
        satisfied = dependent[self.passed[self.needed[dependent]]]
        self.reached[self.owners[satisfied]] = True

    def _resolve_kind(self, kind: str, due: Numbers) -> None:
        """Resolve gates of a kind. `due` are positions among the arrivals of the kind."""
        if not len(due):
            return
        counted = self.of_kind[kind][due]
        is_reached = self.reached[counted]
        if not is_reached.all():
            counted, due = counted[is_reached], due[is_reached]
        if (self.gates.counts_after >= self.arrivals.sequences[0]).any():
            sequences = self.arrivals.sequences[self.arrivals.item_numbers[counted]]
            is_counted = sequences > self.gates.counts_after[self.arrivals.gate_numbers[counted]]
            self.passed[counted[~is_counted]] = True
            self.passed_by_kind[kind][due[~is_counted]] = True
            counted, due = counted[is_counted], due[is_counted]
        if not len(counted):
            return
        self.counted[counted] = True
        answer = resolver_of(kind).resolve(self.kind_arrivals[kind].select(due), self.run)
        self.passed[counted] = self.passed_by_kind[kind][due] = answer.passes
        self.states += answer.states
        self.causes |= {int(counted[position]): stop for position, stop in answer.causes.items()}
        self.failures |= {int(counted[position]): reason for position, reason in answer.failures.items()}
        if answer.work is not None:
            self.work.append(answer.work)
        if answer.annotations is not None:
            self._annotate(counted, answer.annotations)

    def _annotate(self, counted: Numbers, annotated: AnnotatedArrivals) -> None:
        owners = counted[annotated.positions]
        with gc_paused():
            joined = zip(annotated.newest.lists(), annotated.counts.tolist(), strict=True)
            self.annotations.update(zip(owners.tolist(), joined, strict=True))
        self.inherited.add(owners, owners)

    def _inherit(self, dependent: Numbers) -> None:
        """Add the annotations that items had before they passed the gates of these claims."""
        if len(self.inherited) and len(dependent):
            passing = dependent[self.passed[self.owners[dependent]] & self.passed[self.needed[dependent]]]
            claims, sources = self.inherited.of(self.needed[passing])
            self.inherited.add(self.owners[passing[claims]], sources)

    def _levels(self) -> Numbers:
        """Return for each gate the level on which it is resolved: after its window and all gates it depends on."""
        count = len(self.gates)
        queries, feeds = self.claims.route_gates
        is_used = np.zeros(len(queries), dtype=np.bool_)
        is_used[self.claims.route_numbers] = True
        used = np.flatnonzero(is_used & (queries >= 0) & (feeds >= 0))
        windows = self.gates.window_positions
        joins = np.flatnonzero(windows >= 0)
        later, earlier = np.concatenate([queries[used], joins]), np.concatenate([feeds[used], windows[joins]])
        # Gates on which no other depends, usually most of them, come after all others.
        has_followers = np.zeros(count, dtype=np.bool_)
        has_followers[earlier] = True
        is_inner = has_followers[later]
        followers = Rows.grouped(earlier[is_inner], later[is_inner], count)
        missing = np.bincount(later[is_inner], minlength=count)
        levels = np.full(count, -1, dtype=np.int64)
        level, due = 0, np.flatnonzero(missing == 0)
        while len(due):
            levels[due] = level
            reached, times = np.unique(followers.expand(due)[1], return_counts=True)
            missing[reached] -= times
            level, due = level + 1, reached[missing[reached] == 0]
        if (levels < 0).any():
            feed = int(self.gates.feeds[np.flatnonzero(levels < 0)[0]])
            raise CorruptDataError(f"the gates of the plan have a cyclic dependency through feed {feed}")
        np.maximum.at(levels, later[~is_inner], levels[earlier[~is_inner]] + 1)
        return levels


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
