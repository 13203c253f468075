"""Resolve the gates `window` and `join`: workers prepare the attributes to compare, and the commit finds the pairs.

An item that reaches a window is stored for later batches. An item that reaches a join passes if it joins an item of
its window: one of an earlier batch, or an earlier one of this batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, cast

import numpy as np
import pyarrow as pa

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.semantics.joins import NO_INDEX, Join, Window
from runnel.arrays import Rows, offsets_of
from runnel.matching.gates.contract import (
    AnnotatedArrivals,
    Arrivals,
    Booleans,
    Comparisons,
    GateAnswer,
    GateRun,
    Numbers,
    Prepared,
)
from runnel.matching.gates.gate_columns import GateColumns
from runnel.matching.joins.find_pairs import TOO_MANY, JoinItems, PairFinder, Pairs, has_index
from runnel.matching.joins.item_values import unite_values
from runnel.matching.joins.prepare_items import column_name, list_rows, prepare_joined_items, prepare_window_items
from runnel.matching.joins.select_members import MemberSelection, Selected
from runnel.matching.joins.window_items import Column, ListedTexts, NewItems, WindowItems, index_items, no_items
from runnel.matching.joins.window_members import WindowMembers
from runnel.matching.joins.window_terms import EXACT
from runnel.model.item_batch import ItemBatch

MAX_ANNOTATION = 100
"""The number of joined items that an annotation names."""


class WindowResolver:
    """Lets every item pass, with the attributes that joins compare."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: GateColumns, positions: Numbers) -> Prepared:
        """Return the attributes of each item that the windows of this call need."""
        return prepare_window_items(items, rows, _columns_of(gates))

    def state_keys(self, arrivals: Arrivals) -> Iterable[bytes]:
        """A window has no states: its items are in files."""
        return ()

    def resolve(self, arrivals: Arrivals, run: GateRun) -> GateAnswer:
        """Let every item pass."""
        return GateAnswer(np.ones(len(arrivals), dtype=np.bool_))


class JoinResolver:
    """Decides which items join an item of a window."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: GateColumns, positions: Numbers) -> Prepared:
        """Return the attributes of each item that the conditions of these joins read."""
        return prepare_joined_items(items, rows, {cast(Join, rule).condition for rule in gates.rules})

    def state_keys(self, arrivals: Arrivals) -> Iterable[bytes]:
        """A join has no states."""
        return ()

    def resolve(self, arrivals: Arrivals, run: GateRun) -> GateAnswer:
        """Stop the items that join no item of the window; annotate the others with those that they join."""
        windows = _windows_of(run)
        started = perf_counter_ns()
        keys_of_windows = windows.keys_of(arrivals.columns)
        keys = keys_of_windows[arrivals.columns.window_positions]
        selection = windows.selection(run)
        numbers_of_gates = selection.numbers_of(keys_of_windows)[arrivals.columns.window_positions]
        passes = np.zeros(len(arrivals), dtype=np.bool_)
        failures: dict[int, str] = {}
        annotated = []
        candidates = np.zeros(len(arrivals), dtype=np.int64)
        groups = list(_by_condition(arrivals, keys))
        while groups:
            condition, window, chosen = groups.pop()
            own = arrivals.select(chosen)
            items, numbers = _distinct_items(own)
            gates = own.gates
            extents = own.columns.numbers[gates]
            # The number of a join is its extent: items, or microseconds as a negative number.
            last = int(extents.max()) if (extents > 0).all() else None
            members = None if window is None else [part.rows_of(window) for part in selection.parts]
            pairs = windows.finder.find(condition, items, members, last)
            if members is None and pairs.failed.any():
                # An item may have many candidates in the windows of other joins, so each window is searched alone.
                is_failed = pairs.failed[numbers]
                groups += _by_window(condition, keys, arrivals, chosen[is_failed])
                if not is_failed.all():
                    groups.append((condition, None, chosen[~is_failed]))
                continue
            selected = selection.select(items, pairs, numbers, numbers_of_gates[gates], extents, windows.finder)
            failures |= dict.fromkeys(chosen[pairs.failed[numbers]].tolist(), TOO_MANY)
            annotated.append(_annotate(selected, pairs, chosen, windows.finder))
            passes[annotated[-1].positions] = True
            candidates[chosen] = np.where(pairs.failed, 0, pairs.candidates)[numbers]
        return GateAnswer(
            passes,
            annotations=_concatenate(annotated),
            failures=failures,
            comparisons=Comparisons(candidates, perf_counter_ns() - started),
        )


def _by_condition(arrivals: Arrivals, keys: Numbers) -> Iterable[tuple[Expression, int | None, Numbers]]:
    """Yield the arrivals of the joins with each condition; without an index, those with the same window, too.

    `keys` are the keys of the windows of all gates.
    """
    conditions: dict[Expression, int] = {}
    numbers = [
        conditions.setdefault(rule.condition, len(conditions)) if isinstance(rule, Join) else -1
        for rule in arrivals.columns.rules
    ]
    of_gates = np.array(numbers, dtype=np.int64)[arrivals.columns.rule_numbers]
    of_arrivals = of_gates[arrivals.gates]
    for condition, number in conditions.items():
        chosen = np.flatnonzero(of_arrivals == number)
        if not len(chosen):
            continue
        if has_index(condition):
            yield condition, None, chosen
        else:
            yield from _by_window(condition, keys, arrivals, chosen)


def _by_window(
    condition: Expression, keys: Numbers, arrivals: Arrivals, chosen: Numbers
) -> Iterable[tuple[Expression, int | None, Numbers]]:
    """Yield those of the chosen arrivals that have the same window."""
    of_chosen = keys[arrivals.gates[chosen]]
    for window in np.unique(of_chosen).tolist():
        yield condition, window, chosen[of_chosen == window]


def _distinct_items(arrivals: Arrivals) -> tuple[JoinItems, Numbers]:
    """Return the items of arrivals, and for each arrival the position of its item."""
    is_new = np.ones(len(arrivals), dtype=np.bool_)
    is_new[1:] = arrivals.items[1:] != arrivals.items[:-1]
    first = arrivals.items[is_new]
    items = JoinItems(
        arrivals.sequences[first], arrivals.accepted[first], arrivals.table, arrivals.data[is_new].astype(np.int64)
    )
    return items, np.cumsum(is_new) - 1


def _annotate(selected: Selected, pairs: Pairs, arrivals: Numbers, finder: PairFinder) -> AnnotatedArrivals:
    """Return the joined items of each arrival that has any, the newest version of each, newest first.

    The pairs of an item are in descending order of sequences. `arrivals` has the position of each selecting arrival.
    """
    used, positions = np.unique(selected.pairs, return_inverse=True)
    rows = pairs.rows[used]
    identities = _identities(rows, finder)[positions.reshape(-1)]
    order = np.lexsort((selected.pairs, selected.claims))
    claims, identities, chosen = selected.claims[order], identities[order], selected.pairs[order]
    _, first = np.unique(claims * (int(identities.max(initial=0)) + 1) + identities, return_index=True)
    first.sort()
    claims, chosen = claims[first], chosen[first]
    owners, counts = np.unique(claims, return_counts=True)
    starts = offsets_of(counts)
    is_named = np.arange(len(claims)) - np.repeat(starts[:-1], counts) < MAX_ANNOTATION
    newest = finder.sequences_of(rows)[np.searchsorted(used, chosen[is_named])]
    return AnnotatedArrivals(arrivals[owners], Rows(offsets_of(np.minimum(counts, MAX_ANNOTATION)), newest), counts)


def _identities(rows: Numbers, finder: PairFinder) -> Numbers:
    """Return a number for the item of each row. All versions of an item have the same number."""
    numbers: dict[tuple[int, bytes], int] = {}
    identities = np.empty(len(rows), dtype=np.int64)
    for part, positions, own in finder.split(rows):
        for position, row in zip(positions.tolist(), own.tolist(), strict=True):
            identities[position] = numbers.setdefault(finder.parts[part].identity(row), len(numbers))
    return identities


def _concatenate(several: list[AnnotatedArrivals]) -> AnnotatedArrivals | None:
    if len(several) <= 1:
        return several[0] if several else None
    newest = Rows(
        offsets_of(np.concatenate([each.newest.lengths for each in several])),
        np.concatenate([each.newest.values for each in several]),
    )
    return AnnotatedArrivals(
        np.concatenate([each.positions for each in several]),
        newest,
        np.concatenate([each.counts for each in several]),
    )


@dataclass
class _Windows:
    """What the joins of one run share: the items of all windows, of which those of this run are the last part."""

    finder: PairFinder
    window_keys: Mapping[int, int]

    def keys_of(self, gates: GateColumns) -> Numbers:
        """Return the key of each gate that is the window of another one. The last number stands for no window."""
        keys = np.full(len(gates) + 1, -1, dtype=np.int64)
        windows = np.flatnonzero(np.bincount(gates.window_positions + 1, minlength=len(gates) + 1)[1:])
        keys[windows] = [self.window_keys.get(feed, feed) for feed in gates.feeds[windows].tolist()]
        return keys

    def selection(self, run: GateRun) -> MemberSelection:
        """Return the members of all windows, including those of gates that were resolved in the meantime."""
        *earlier, own = self.finder.parts
        arrivals = run.arrivals.get(Window.kind)
        rows = keys = np.empty(0, dtype=np.int64)
        if arrivals is not None:
            passed = arrivals.select(run.passed[Window.kind])
            sequences = passed.sequences[passed.items]
            rows, keys = np.searchsorted(own.sequences, sequences), _window_keys(passed, run)
            inside = passed.data >= 0
            rows, keys = rows[inside], keys[inside]
        return MemberSelection.of([*(part.members for part in earlier), WindowMembers.of(len(own), rows, keys)])


def _windows_of(run: GateRun) -> _Windows:
    """Return the windows of a run, which are opened when the first join is resolved."""
    windows = run.shared.get(Join.kind)
    if windows is None:
        own = _collect_items(run, None)
        windows = run.shared[Join.kind] = _Windows(PairFinder([*run.read_windows(), own]), run.window_keys)
    return cast(_Windows, windows)


def new_window_items(run: GateRun) -> WindowItems | None:
    """Return the items that passed windows in a resolved run, for later batches. Return None if there are none."""
    passed = run.passed.get(Window.kind)
    if passed is None or not passed.any():
        return None
    items = _collect_items(run, passed)
    return items if len(items) else None


def _collect_items(run: GateRun, passed: Booleans | None) -> WindowItems:
    """Index the items that reach windows; with `passed`, only those that passed."""
    arrivals = run.arrivals.get(Window.kind)
    if arrivals is None or not len(arrivals):
        return no_items()
    arrivals = arrivals.select((arrivals.data >= 0) & (True if passed is None else passed))
    reached, first, rows = np.unique(arrivals.items, return_index=True, return_inverse=True)
    rows = rows.reshape(-1)
    data = pa.array(arrivals.data[first])
    rules = arrivals.columns.rule_numbers[arrivals.gates]
    texts: dict[Column, ListedTexts] = {}
    for column in sorted(
        {column for rule in set(rules.tolist()) for column in _columns(arrivals.columns.rules[rule])}
    ):
        has_column = np.array([column in _columns(rule) for rule in arrivals.columns.rules], dtype=np.bool_)[rules]
        own, where = np.unique(rows[has_column], return_index=True)
        if column[1] != NO_INDEX:
            prepared = arrivals.table.column(column_name(Attribute(column[0]), column[1]))
            owners, listed = list_rows(prepared, arrivals.data[has_column][where].astype(np.int64))
            texts[column] = ListedTexts(own[owners], listed)
    return index_items(
        NewItems(
            arrivals.sequences[reached],
            arrivals.accepted[reached],
            _take(arrivals.table, "feed", data).to_numpy(),
            _take(arrivals.table, "id", data),
            _stored_values(arrivals, rows, len(reached)),
            rows,
            _window_keys(arrivals, run),
            texts,
        )
    )


def _stored_values(arrivals: Arrivals, items: Numbers, count: int) -> Any:
    """Return the values that windows store of some items, as JSON. `items` has the number of each arrival's item.

    The windows of a partition of a plan are prepared together, so an item may have the values of several partitions.
    """
    needs_values = [any(kind not in EXACT for _, kind in _columns(rule)) for rule in arrivals.columns.rules]
    needed = np.array(needs_values, dtype=np.bool_)[arrivals.columns.rule_numbers[arrivals.gates]]
    size = max(1, arrivals.table.num_rows)
    prepared = np.unique(items[needed] * size + arrivals.data[needed])
    owners, data = prepared // size, prepared % size
    first = np.full(count, -1, dtype=np.int64)
    first[owners[::-1]] = data[::-1]
    values = _take(arrivals.table, "values", pa.array(first, mask=first < 0))
    several = np.flatnonzero(np.bincount(owners, minlength=count) > 1).tolist()
    if not several:
        return values
    united = values.to_pylist()
    for item in several:
        parts = _take(arrivals.table, "values", pa.array(data[owners == item])).to_pylist()
        united[item] = unite_values(parts)
    return pa.array(united, values.type)


def _take(table: Any, name: str, rows: Any) -> Any:
    """Return the values of some rows of a column as one array."""
    taken = table.column(name).take(rows)
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _columns_of(gates: GateColumns) -> set[Column]:
    return {column for rule in gates.rules for column in _columns(rule)}


def _columns(rule: Any) -> tuple[Column, ...]:
    return rule.columns if isinstance(rule, Window) else ()


def _window_keys(arrivals: Arrivals, run: GateRun) -> Numbers:
    """Return the key of the window that each arrival reaches."""
    gates, positions = np.unique(arrivals.gates, return_inverse=True)
    feeds = arrivals.columns.feeds[gates].tolist()
    return np.array([run.window_keys.get(feed, feed) for feed in feeds], dtype=np.int64)[positions.reshape(-1)]


WINDOW = WindowResolver()
JOIN = JoinResolver()
