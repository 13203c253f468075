"""The part of a problem that each item of a batch has to do with: its active ways, their tests and calls.

In: a problem, an order, and the active ways of each item. Out: arrays as large as those ways' tests, not as the
problem. A *pair* is an item and an active way of it, a *slot* an item and a call that one of its pairs needs, an
*entry* a test of a pair. Pairs come in the order's sequence of ways, entries in its chains, slots in its ranks.

The arrays are as narrow as they can be: what the loops cost is going to places that are not in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.kernel import kernel
from runnel.matching.operators.orders.order import Kind, Order
from runnel.matching.operators.orders.problem import Problem
from runnel.plan.arrays import IDENTIFIER, Array, read_only

UNDECIDED, REJECTED, ACCEPTED, UNKNOWN = 0, 1, 2, 3
"""What became of an active way. Unknown: a call that it needs has failed before it was decided."""

NOTHING = -1
INDEPENDENT, RANKS, ADAPTIVE = int(Kind.INDEPENDENT), int(Kind.RANKS), int(Kind.ADAPTIVE)
FREE = 1e-9
"""What a call costs at least, as a part of the mean cost: calls that cost nothing come first, the best first."""

_LONGEST = np.iinfo(np.int16).max


class Layout(NamedTuple):
    """Who needs what, item by item; nothing here changes while calls are answered."""

    item_pairs: Array
    item_slots: Array
    """Where the pairs and slots of each item begin."""
    pair_places: Array
    """Where the pair stands among the active ways as they were given."""
    pair_entries: Array
    entry_pairs: Array
    entry_slots: Array
    entry_gains: Array
    """The probability that the test fails, for a unit of cost; empty unless the order is adaptive."""
    slot_calls: Array
    slot_offsets: Array
    slot_pairs: Array
    """The pairs that need each slot, slot after slot."""
    slot_tests: Array
    """And for each of them which of the call's tests it needs, by number."""
    slot_entries: Array
    """And its entry; empty unless the order does not share rejections."""


def lay_out(problem: Problem, order: Order, active_offsets: Array, active_ways: Array) -> Layout:
    """Lay out the active ways of a batch of items for an order."""
    offsets = np.ascontiguousarray(active_offsets, dtype=np.int64)
    ways = read_only(np.ascontiguousarray(active_ways, dtype=IDENTIFIER))
    _check(problem, offsets, ways)
    lengths = problem.way_offsets[ways + 1] - problem.way_offsets[ways]
    pairs, items, entries = len(ways), len(offsets) - 1, int(lengths.sum())
    if entries >= np.iinfo(IDENTIFIER).max or (pairs and lengths.max() > _LONGEST):
        raise ValueError("the active ways of a batch have too many tests; take fewer items at once")
    is_adaptive, is_independent = order.kind is Kind.ADAPTIVE, order.kind is Kind.INDEPENDENT
    layout = Layout(
        item_pairs=offsets.astype(IDENTIFIER),
        item_slots=np.zeros(items + 1, dtype=IDENTIFIER),
        pair_places=np.empty(pairs, dtype=IDENTIFIER),
        pair_entries=np.zeros(pairs + 1, dtype=IDENTIFIER),
        entry_pairs=np.empty(entries, dtype=IDENTIFIER),
        entry_slots=np.empty(entries, dtype=IDENTIFIER),
        entry_gains=np.empty(entries if is_adaptive else 0, dtype=np.float32),
        slot_calls=np.empty(entries, dtype=IDENTIFIER),
        slot_offsets=np.zeros(entries + 1, dtype=IDENTIFIER),
        slot_pairs=np.empty(entries, dtype=IDENTIFIER),
        slot_tests=np.empty(entries, dtype=IDENTIFIER),
        slot_entries=np.empty(entries if is_independent else 0, dtype=IDENTIFIER),
    )
    slots = _fill(
        int(order.kind),
        problem.way_offsets,
        order.chains,
        problem.test_calls,
        read_only(_places_in_calls(problem)),
        read_only(gains(problem)),
        order.positions,
        order.ranks,
        ways,
        problem.calls,
        layout,
    )
    return layout._replace(
        slot_calls=layout.slot_calls[:slots].copy(), slot_offsets=layout.slot_offsets[: slots + 1].copy()
    )


def gains(problem: Problem) -> Array:
    """For every test the probability that it fails, for what its call costs; 1 is the mean cost."""
    mean = float(problem.costs.mean()) if problem.calls else 0.0
    costs = np.maximum(problem.costs / mean, FREE) if mean > 0.0 else np.ones(problem.calls)
    return np.asarray((1.0 - problem.chances) / costs[problem.test_calls])


def _places_in_calls(problem: Problem) -> Array:
    """For every test which one of its call's tests it is."""
    places = np.empty(problem.tests, dtype=IDENTIFIER)
    starts = problem.call_offsets[problem.test_calls[problem.call_tests]]
    places[problem.call_tests] = np.arange(problem.tests) - starts
    return places


def _check(problem: Problem, offsets: Array, ways: Array) -> None:
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(ways) or np.any(np.diff(offsets) < 0):
        raise ValueError("the offsets of active ways do not fit their number")
    if len(ways) and not 0 <= ways.min() <= ways.max() < problem.ways:
        raise ValueError("an active way is not one of the problem's")


@kernel
def _fill(
    kind: int,
    way_offsets: Array,
    chains: Array,
    test_calls: Array,
    test_places: Array,
    test_gains: Array,
    positions: Array,
    ranks: Array,
    active: Array,
    calls: int,
    layout: Layout,
) -> int:
    """Fill the arrays of a layout; gives how many slots there are."""
    slot_of = np.full(calls, NOTHING, dtype=np.int64)
    touched = np.empty(calls, dtype=np.int64)
    pair, entry, slot = 0, 0, 0
    for item in range(len(layout.item_pairs) - 1):
        start, stop = layout.item_pairs[item], layout.item_pairs[item + 1]
        sequence = np.arange(start, stop)
        if len(positions):
            sequence = sequence[np.argsort(positions[active[start:stop]])]
        count = 0
        for place in sequence:
            for test in chains[way_offsets[active[place]] : way_offsets[active[place] + 1]]:
                call = test_calls[test]
                if slot_of[call] == NOTHING:
                    slot_of[call] = slot + count
                    touched[count] = call
                    count += 1
        if kind == RANKS:
            touched[:count] = touched[:count][np.argsort(ranks[touched[:count]])]
        for number in range(count):
            slot_of[touched[number]] = slot + number
            layout.slot_calls[slot + number] = touched[number]
        first_entry = entry
        for place in sequence:
            layout.pair_places[pair] = place
            for test in chains[way_offsets[active[place]] : way_offsets[active[place] + 1]]:
                layout.entry_pairs[entry] = pair
                layout.entry_slots[entry] = slot_of[test_calls[test]]
                layout.slot_tests[entry] = test_places[test]
                if kind == ADAPTIVE:
                    layout.entry_gains[entry] = test_gains[test]
                entry += 1
            pair += 1
            layout.pair_entries[pair] = entry
        _list_entries(kind, layout, first_entry, entry, slot, count)
        for number in range(count):
            slot_of[touched[number]] = NOTHING
        slot += count
        layout.item_slots[item + 1] = slot
    return slot


@kernel
def _list_entries(kind: int, layout: Layout, start: int, stop: int, slot: int, count: int) -> None:
    """List the entries of each of an item's slots; `slot_tests` comes by entry and leaves by slot."""
    filled = np.zeros(count + 1, dtype=np.int64)
    for entry in range(start, stop):
        filled[layout.entry_slots[entry] - slot + 1] += 1
    for number in range(count):
        filled[number + 1] += filled[number]
        layout.slot_offsets[slot + number + 1] = start + filled[number + 1]
    tests = layout.slot_tests[start:stop].copy()
    for entry in range(start, stop):
        number = layout.entry_slots[entry] - slot
        place = start + filled[number]
        layout.slot_pairs[place] = layout.entry_pairs[entry]
        layout.slot_tests[place] = tests[entry - start]
        if kind == INDEPENDENT:
            layout.slot_entries[place] = entry
        filled[number] += 1
