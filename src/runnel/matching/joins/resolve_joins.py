"""The gates `window` and `join` at work: workers read the attributes to compare, and the commit finds the pairs.

An item that reaches a window is stored for later batches. An item that reaches a join passes if it joins an item of
its window: one of an earlier batch, or an earlier one of this batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter_ns
from typing import cast

import numpy as np

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.semantics.joins import Join, Window
from runnel.algebra.semantics.window_conditions import atoms_of
from runnel.matching.gates.contract import Arrivals, GateAnswer, GateRun, Joined, Numbers
from runnel.matching.gates.item_attributes import attributes_named
from runnel.matching.joins.find_pairs import JoinItem, Pair, PairFinder, TooManyCandidatesError, WindowMembers
from runnel.matching.joins.window_items import Columns, Entry, WindowItem, WindowItems
from runnel.model.gate_work import GateWork
from runnel.model.item import Attributes
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate

MAX_ANNOTATION = 100
"""The number of joined items that an annotation names."""

_MICROSECOND = timedelta(microseconds=1)


class WindowResolver:
    """Lets every item pass, with the attributes that joins compare."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate]) -> list[bytes | None]:
        """Return the entry of each item, with the attributes that the windows of this call need."""
        return _entries(items, rows, {name for gate in gates for name, _ in _columns(gate)})

    def state_keys(self, gate: Gate, arrivals: Arrivals) -> Iterable[bytes]:
        """A window has no states: its items are in files."""
        return ()

    def resolve(self, gate: Gate, arrivals: Arrivals, run: GateRun) -> GateAnswer:
        """Let every item pass."""
        return GateAnswer(np.ones(len(arrivals), dtype=np.bool_))


class JoinResolver:
    """Decides which items join an item of a window."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate]) -> list[bytes | None]:
        """Return the attributes of each item that the conditions of these joins read."""
        return _entries(items, rows, {attribute.name for gate in gates for attribute in _compared(gate)})

    def state_keys(self, gate: Gate, arrivals: Arrivals) -> Iterable[bytes]:
        """A join has no states."""
        return ()

    def resolve(self, gate: Gate, arrivals: Arrivals, run: GateRun) -> GateAnswer:
        """Stop the items that join no item of the window; annotate the others with those that they join."""
        rule = _join(gate)
        windows = _windows_of(run)
        window = windows.open(gate.window, run)
        started = perf_counter_ns()
        passes = np.zeros(len(arrivals), dtype=np.bool_)
        candidates = 0
        annotations: dict[int, Joined] = {}
        failed: dict[int, str] = {}
        for number, item in enumerate(windows.items(arrivals)):
            try:
                pairs, compared = windows.pairs(rule.condition, item)
            except TooManyCandidatesError as error:
                failed[item.sequence] = str(error)
                continue
            candidates += compared
            joined = list(_select(pairs, item, rule, window, windows.members))
            if joined:
                passes[number] = True
                annotations[item.sequence] = _annotation(joined, windows.finder)
        stopped = dict.fromkeys(arrivals.sequences[~passes].tolist(), Stop())
        work = GateWork(
            items=len(arrivals),
            passed=len(annotations),
            candidates=candidates,
            joined=sum(joined.count for joined in annotations.values()),
            nanoseconds=perf_counter_ns() - started,
        )
        return GateAnswer(passes, (), stopped, annotations, failed, work)


@dataclass
class _Windows:
    """What the joins of one run share: the items of all windows, and the pairs that were found."""

    finder: PairFinder
    members: WindowMembers
    current: int
    """The part with the items of this run."""
    decoded: dict[int, JoinItem]
    compared: dict[tuple[Expression, int], int]
    """The number of window items that were compared with an item, by condition and sequence."""

    def pairs(self, condition: Expression, item: JoinItem) -> tuple[list[Pair], int]:
        """Return the pairs of an item, and the number of window items that were compared to find them."""
        before = self.finder.checked
        pairs = self.finder.pairs(condition, item)
        # The pairs of an item are found once for all joins with the same condition.
        return pairs, self.compared.setdefault((condition, item.sequence), self.finder.checked - before)

    def open(self, window: int | None, run: GateRun) -> int:
        """Note which items of this run are in a window, which was resolved before the join. Return its key."""
        if window is None:
            raise ValueError("a join needs a window")
        sequences = self.finder.parts[self.current].sequences
        passed = np.intersect1d(sequences, run.passed.get(window, sequences[:0]))
        key = run.window_keys.get(window, window)
        self.members.set_rows(key, self.current, np.searchsorted(sequences, passed))
        return key

    def items(self, arrivals: Arrivals) -> Iterator[JoinItem]:
        """Return the items that reach a join; an item that reaches several is decoded once."""
        rows = zip(arrivals.sequences.tolist(), arrivals.accepted.tolist(), arrivals.data, strict=True)
        for sequence, accepted, data in rows:
            if sequence not in self.decoded:
                attributes: Attributes = {} if data is None else Entry.decode(data).attributes
                self.decoded[sequence] = JoinItem(sequence, accepted, attributes)
            yield self.decoded[sequence]


def _windows_of(run: GateRun) -> _Windows:
    """Return the windows of a run, which are opened when the first join is resolved."""
    windows = run.shared.get(Join.kind)
    if windows is None:
        own = WindowItems.of(_window_items(run))
        parts = [*run.read_windows(), own]
        windows = run.shared[Join.kind] = _Windows(PairFinder(parts), WindowMembers(parts), len(parts) - 1, {}, {})
    return cast(_Windows, windows)


def _window_items(run: GateRun, passed: Mapping[int, Numbers] | None = None) -> list[WindowItem]:
    """Return the items that reach windows, by ascending sequences; with `passed`, only those that passed."""
    windows: dict[int, list[int]] = {}
    rows: dict[int, tuple[int, bytes]] = {}
    gates = {feed: gate for feed, gate in run.gates.items() if gate.rule.stores_items and feed in run.arrivals}
    for feed in sorted(gates):
        own = run.arrivals[feed]
        chosen = own if passed is None else own.select(np.isin(own.sequences, passed.get(feed, own.sequences[:0])))
        for sequence, accepted, data in zip(
            chosen.sequences.tolist(), chosen.accepted.tolist(), chosen.data, strict=True
        ):
            if data is not None:
                windows.setdefault(sequence, []).append(feed)
                rows[sequence] = accepted, data
    return [
        WindowItem(
            sequence,
            rows[sequence][0],
            rows[sequence][1],
            tuple(run.window_keys.get(feed, feed) for feed in feeds),
            tuple(sorted({column for feed in feeds for column in _columns(gates[feed])})),
        )
        for sequence, feeds in sorted(windows.items())
    ]


def new_window_items(run: GateRun) -> WindowItems | None:
    """Return the items that passed windows in a resolved run, for later batches. Return None if there are none."""
    items = _window_items(run, run.passed)
    return WindowItems.of(items) if items else None


def _select(pairs: Sequence[Pair], item: JoinItem, rule: Join, window: int, members: WindowMembers) -> Iterator[Pair]:
    """Yield the pairs whose window item is in the item's window."""
    for pair in pairs:
        if isinstance(rule.extent, int):
            is_inside = members.count_between(window, pair.sequence, item.sequence) < rule.extent
        else:
            is_inside = item.accepted - pair.accepted < rule.extent // _MICROSECOND
        if is_inside and members.has(window, pair):
            yield pair


def _annotation(pairs: Sequence[Pair], finder: PairFinder) -> Joined:
    """Return the joined items, the newest version of each."""
    newest: dict[tuple[int, str], int] = {}
    for pair in pairs:
        entry = finder.entry(pair)
        key = entry.feed, entry.id
        newest[key] = max(pair.sequence, newest.get(key, 0))
    sequences = sorted(newest.values(), reverse=True)
    return Joined(tuple(sequences[:MAX_ANNOTATION]), len(sequences))


def _entries(items: ItemBatch, rows: Numbers, names: set[str]) -> list[bytes | None]:
    """Return the entries of items with some attributes; items that occur several times are encoded once."""
    reached, positions = np.unique(rows, return_inverse=True)
    records = items.records.take(reached)
    if WHOLE.name in names:
        attributes: list[Attributes] = list(ItemBatch(records).attributes())
    else:
        attributes = attributes_named(records, names)
    feeds, ids = records.column("feed").to_pylist(), records.column("id").to_pylist()
    encoded = [Entry(*row).encode() for row in zip(feeds, ids, attributes, strict=True)]
    return [encoded[position] for position in positions.tolist()]


def _compared(gate: Gate) -> Iterator[Attribute]:
    """Yield the attributes of the joined item that a join's condition reads."""
    for atom in atoms_of(_join(gate).condition):
        attribute = getattr(atom, "attribute", None)  # `true` and `false` read none
        if attribute is not None:
            yield attribute


def _columns(gate: Gate) -> Columns:
    return cast(Window, gate.rule).columns


def _join(gate: Gate) -> Join:
    return cast(Join, gate.rule)


WINDOW = WindowResolver()
JOIN = JoinResolver()
