"""Build the layout of a batch: the active disjuncts of each item, with their tests and calls.

In: a problem, an order, and the active disjuncts of each item. Out: the arrays of `batch_arrays`, whose size depends
on the tests of the active disjuncts and not on the problem. Pairs have the order's sequence of disjuncts, entries the
order of its chains, and slots the order of its ranks.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import IDENTIFIER, Array, read_only
from runnel.kernel import Number, inlined, kernel, lowest_bit
from runnel.matching.operators.orders.batch_arrays import NOTHING, BatchLayout
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem

_MAX_TESTS = np.iinfo(np.int16).max
_SORTED_DISJUNCTS = 1024
"""Items with fewer active disjuncts are not sorted for an adaptive order, because their arrays fit into the cache."""


def build_batch_layout(
    problem: OrderProblem, order: Order, active_offsets: Array, active_disjuncts: Array
) -> BatchLayout:
    """Build the layout of the active disjuncts of a batch for an order."""
    offsets = np.ascontiguousarray(active_offsets, dtype=np.int64)
    disjuncts = read_only(np.ascontiguousarray(active_disjuncts, dtype=IDENTIFIER))
    _check(problem, offsets, disjuncts)
    lengths = problem.disjunct_offsets[disjuncts + 1] - problem.disjunct_offsets[disjuncts]
    pairs, items, entries = len(disjuncts), len(offsets) - 1, int(lengths.sum())
    if entries >= np.iinfo(IDENTIFIER).max or (pairs and lengths.max() > _MAX_TESTS):
        raise ValueError("the active disjuncts of a batch have too many tests; use smaller batches")
    layout = BatchLayout(
        item_pairs=offsets.astype(IDENTIFIER),
        item_slots=np.zeros(items + 1, dtype=IDENTIFIER),
        pair_positions=_sequence(order, offsets, disjuncts),
        pair_entries=np.zeros(pairs + 1, dtype=IDENTIFIER),
        entry_pairs=np.empty(entries, dtype=IDENTIFIER),
        entry_slots=np.empty(entries, dtype=IDENTIFIER),
        entry_gains=np.empty(entries if order.kind.is_scored else 0, dtype=np.float32),
        slot_calls=np.empty(entries, dtype=IDENTIFIER),
        slot_offsets=np.zeros(entries + 1, dtype=IDENTIFIER),
        slot_pairs=np.empty(entries, dtype=IDENTIFIER),
        slot_tests=np.empty(entries, dtype=IDENTIFIER),
        slot_entries=np.empty(entries if order.kind.keeps_failures else 0, dtype=IDENTIFIER),
    )
    slots = _fill(
        problem.disjunct_offsets,
        order.chains,
        problem.test_calls,
        problem.test_positions,
        problem.gains,
        order.ranks,
        order.sequence,
        disjuncts,
        problem.calls,
        layout,
    )
    return layout._replace(
        slot_calls=layout.slot_calls[:slots].copy(), slot_offsets=layout.slot_offsets[: slots + 1].copy()
    )


def _sequence(order: Order, offsets: Array, disjuncts: Array) -> Array:
    """Return the positions of the pairs in the order's sequence of disjuncts, item by item."""
    lengths = np.diff(offsets)
    has_few = not len(lengths) or lengths.max() < _SORTED_DISJUNCTS
    if not len(order.positions) or (order.kind.is_scored and has_few):
        return np.arange(len(disjuncts), dtype=IDENTIFIER)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    return np.argsort(owners << 32 | order.positions[disjuncts]).astype(IDENTIFIER)


def _check(problem: OrderProblem, offsets: Array, disjuncts: Array) -> None:
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(disjuncts) or np.any(np.diff(offsets) < 0):
        raise ValueError("the offsets do not fit the number of active disjuncts")
    if len(disjuncts) and not 0 <= disjuncts.min() <= disjuncts.max() < problem.disjuncts:
        raise ValueError(f"active disjuncts must be between 0 and {problem.disjuncts - 1}")


@kernel
def _fill(
    disjunct_offsets: Array,
    chains: Array,
    test_calls: Array,
    test_positions: Array,
    gains: Array,
    ranks: Array,
    sequence: Array,
    active: Array,
    calls: int,
    layout: BatchLayout,
) -> int:
    """Fill the arrays of a layout, and return the number of slots."""
    item_pairs, pair_positions, pair_entries = layout.item_pairs, layout.pair_positions, layout.pair_entries
    entry_pairs, entry_slots, entry_gains = layout.entry_pairs, layout.entry_slots, layout.entry_gains
    slot_calls, tests = layout.slot_calls, np.empty(len(entry_slots), dtype=np.int32)
    slot_of = np.full(calls, NOTHING, dtype=np.int32)
    ranked = np.zeros((len(ranks) + 63) >> 6, dtype=np.uint64)
    filled = np.zeros(calls + 1, dtype=np.int32)
    entry, slot = 0, 0
    for item in range(len(item_pairs) - 1):
        first_entry, first_slot = entry, slot
        for pair in range(item_pairs[item], item_pairs[item + 1]):
            disjunct = active[pair_positions[pair]]
            for position in range(disjunct_offsets[disjunct], disjunct_offsets[disjunct + 1]):
                test = chains[position]
                call = test_calls[test]
                if slot_of[call] == NOTHING:
                    slot_of[call] = slot
                    slot_calls[slot] = call
                    slot += 1
                entry_pairs[entry] = pair
                entry_slots[entry] = call
                tests[entry] = test_positions[test]
                if len(entry_gains):
                    entry_gains[entry] = gains[test]
                entry += 1
            pair_entries[pair + 1] = entry
        if len(ranks):
            _sort_by_rank(ranks, sequence, ranked, slot_of, slot_calls, first_slot, slot)
        for position in range(first_entry, entry):
            entry_slots[position] = slot_of[entry_slots[position]]
        _list_entries(layout, tests, filled, first_entry, entry, first_slot, slot)
        for position in range(first_slot, slot):
            slot_of[slot_calls[position]] = NOTHING
        layout.item_slots[item + 1] = slot
    return slot


@inlined
def _sort_by_rank(
    ranks: Array, sequence: Array, ranked: Array, slot_of: Array, slot_calls: Array, first: Number, last: Number
) -> None:
    """Number the slots of an item by the ranks of their calls. Ranks are set as bits, then read in order."""
    low, high = len(ranked), -1
    for slot in range(first, last):
        rank = ranks[slot_calls[slot]]
        ranked[rank >> 6] |= np.uint64(1) << np.uint64(rank & 63)
        low, high = min(low, rank >> 6), max(high, rank >> 6)
    slot = first
    for word in range(low, high + 1):
        bits = ranked[word]
        ranked[word] = 0
        while bits != 0:
            call = sequence[(word << 6) + lowest_bit(bits)]
            bits &= bits - np.uint64(1)
            slot_calls[slot] = call
            slot_of[call] = slot
            slot += 1


@inlined
def _list_entries(
    layout: BatchLayout, tests: Array, filled: Array, start: Number, stop: Number, first: Number, last: Number
) -> None:
    """Fill the lists of entries of an item's slots."""
    entry_slots, slot_offsets = layout.entry_slots, layout.slot_offsets
    filled[: last - first] = 0
    for entry in range(start, stop):
        filled[entry_slots[entry] - first] += 1
    total = start
    for number in range(last - first):
        count = filled[number]
        filled[number] = total
        total += count
        slot_offsets[first + number + 1] = total
    for entry in range(start, stop):
        number = entry_slots[entry] - first
        position = filled[number]
        filled[number] = position + 1
        layout.slot_pairs[position] = layout.entry_pairs[entry]
        layout.slot_tests[position] = tests[entry]
        if len(layout.slot_entries):
            layout.slot_entries[position] = entry
