"""The loop of the orders that process disjuncts one after another (sections 4.1, 4.2.2 and 5.2)."""

from __future__ import annotations

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel
from runnel.matching.operators.orders.advance import apply_to_pairs
from runnel.matching.operators.orders.batch_arrays import NOTHING, UNDECIDED, BatchLayout, BatchState
from runnel.matching.operators.orders.order import OrderKind

_ENTRY_SECONDS = 50e-9


@inlined
def next_of_independent(
    item: Number,
    item_pairs: Array,
    pair_entries: Array,
    entry_pairs: Array,
    entry_slots: Array,
    done: Array,
    failed: Array,
    positions: Array,
    touched: Array,
) -> Number:
    """Return the next slot of the naive order (section 5.2).

    It evaluates each disjunct until one of its tests fails. Answers are reused, rejections are not.
    """
    entry, stop, steps = positions[item], pair_entries[item_pairs[item + 1]], 0
    while entry < stop and done[entry_slots[entry]]:
        steps += 1
        entry = pair_entries[entry_pairs[entry] + 1] if failed[entry] else entry + 1
    positions[item] = entry
    touched[item] += steps
    return entry_slots[entry] if entry < stop else NOTHING


@inlined
def next_of_marked(
    item: Number,
    item_pairs: Array,
    pair_entries: Array,
    entry_pairs: Array,
    entry_slots: Array,
    slot_offsets: Array,
    slot_pairs: Array,
    done: Array,
    outcomes: Array,
    positions: Array,
    marked: Array,
    touched: Array,
) -> Number:
    """Return the next slot of a marked disjunct that an undecided disjunct needs (section 4.1, lines 5 to 10).

    A marked disjunct is finished even after it is rejected.
    """
    entry, stop, steps = positions[item], pair_entries[item_pairs[item + 1]], 0
    chosen: Number = NOTHING
    while entry < stop:
        pair, slot = entry_pairs[entry], entry_slots[entry]
        steps += 1
        if pair != marked[item]:
            if outcomes[pair] != UNDECIDED:
                entry = pair_entries[pair + 1]
                continue
            marked[item] = pair
        if done[slot] == 0:
            first, last = slot_offsets[slot], slot_offsets[slot + 1]
            index = first
            while index < last and outcomes[slot_pairs[index]] != UNDECIDED:
                index += 1
            steps += min(index + 1, last) - first
            if index < last:
                chosen = slot
                break
        entry += 1
    positions[item] = entry
    touched[item] += steps
    return chosen


@inlined
def next_of_chain(
    item: Number,
    item_pairs: Array,
    pair_entries: Array,
    entry_pairs: Array,
    entry_slots: Array,
    done: Array,
    outcomes: Array,
    positions: Array,
    touched: Array,
) -> Number:
    """Return the next slot: chains from left to right, each from top to bottom until decided (section 4.2.2)."""
    entry, stop, steps = positions[item], pair_entries[item_pairs[item + 1]], 0
    chosen: Number = NOTHING
    while entry < stop:
        pair = entry_pairs[entry]
        steps += 1
        if outcomes[pair] != UNDECIDED:
            entry = pair_entries[pair + 1]
        elif done[entry_slots[entry]]:
            entry += 1
        else:
            chosen = entry_slots[entry]
            break
    positions[item] = entry
    touched[item] += steps
    return chosen


@inlined
def record_failures(
    first: Number,
    last: Number,
    answers: Array,
    start: Number,
    is_failed: Number,
    slot_tests: Array,
    slot_entries: Array,
    failed: Array,
) -> None:
    """Record for every entry of a slot whether its test failed, for orders that do not share rejections."""
    for index in range(first, last):
        failed[slot_entries[index]] = is_failed or answers[start + slot_tests[index]] == 0


@kernel
def advance_disjuncts(
    layout: BatchLayout,
    state: BatchState,
    items: Array,
    answers: Array,
    starts: Array,
    failures: Array,
    is_known: bool,
    call_costs: Array,
    calls: Array,
    costs: Array,
) -> None:
    """Process one disjunct after another.

    The state shows the kind of order: it has the array `failed` or `marked` only if the kind needs it.
    """
    item_pairs, pair_entries, entry_pairs = layout.item_pairs, layout.pair_entries, layout.entry_pairs
    entry_slots, slot_calls, slot_offsets = layout.entry_slots, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests, slot_entries = layout.slot_pairs, layout.slot_tests, layout.slot_entries
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    positions, asked, named, touched = state.positions, state.asked, state.named, state.touched
    failed, marked = state.failed, state.marked
    keeps_failures, finishes_disjuncts = len(failed) > 0, len(marked) > 0
    # fmt: off
    for number in range(len(items)):
        item = items[number]
        slot = asked[item]
        asked[item] = NOTHING
        while True:
            if slot != NOTHING:
                start = starts[slot_calls[slot]] if is_known else starts[number]
                is_failed = not is_known and failures[number] != 0
                first, last = slot_offsets[slot], slot_offsets[slot + 1]
                done[slot] = 1
                touched[item] += last - first
                if keeps_failures:
                    record_failures(first, last, answers, start, is_failed, slot_tests, slot_entries, failed)
                undecided[item] -= apply_to_pairs(
                    first, last, answers, start, is_failed, slot_pairs, slot_tests, outcomes, remaining)
            slot = NOTHING
            if keeps_failures:
                slot = next_of_independent(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, done, failed, positions, touched)
            elif undecided[item] and finishes_disjuncts:
                slot = next_of_marked(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, slot_offsets, slot_pairs, done,
                    outcomes, positions, marked, touched)
            elif undecided[item]:
                slot = next_of_chain(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, done, outcomes, positions, touched)
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item] = slot
    # fmt: on


INDEPENDENT = OrderKind(advance_disjuncts, _ENTRY_SECONDS, keeps_failures=True)
MARKED = OrderKind(advance_disjuncts, _ENTRY_SECONDS, finishes_disjuncts=True)
CHAINS = OrderKind(advance_disjuncts, _ENTRY_SECONDS)
