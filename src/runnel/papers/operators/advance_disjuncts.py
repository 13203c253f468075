"""The loop of orders that go through disjuncts one after another (sections 4.1, 4.2.2 and 5.2)."""

from __future__ import annotations

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel
from runnel.matching.operators.orders.advance import apply_to_pairs
from runnel.matching.operators.orders.batch_arrays import NOTHING, UNDECIDED, BatchLayout, BatchState
from runnel.matching.operators.orders.order import OrderKind

_ENTRY_SECONDS = 50e-9


@inlined
def independent(
    item: Number,
    item_pairs: Array,
    pair_entries: Array,
    entry_pairs: Array,
    entry_slots: Array,
    done: Array,
    failed: Array,
    places: Array,
    touched: Array,
) -> Number:
    """Section 5.2, naive: each disjunct until a test of it fails; answers are remembered, rejections are not."""
    entry, stop, looked = places[item], pair_entries[item_pairs[item + 1]], 0
    while entry < stop and done[entry_slots[entry]]:
        looked += 1
        entry = pair_entries[entry_pairs[entry] + 1] if failed[entry] else entry + 1
    places[item] = entry
    touched[item] += looked
    return entry_slots[entry] if entry < stop else NOTHING


@inlined
def marked_disjunct(
    item: Number,
    item_pairs: Array,
    pair_entries: Array,
    entry_pairs: Array,
    entry_slots: Array,
    slot_offsets: Array,
    slot_pairs: Array,
    done: Array,
    outcomes: Array,
    places: Array,
    marked: Array,
    touched: Array,
) -> Number:
    """Section 4.1, lines 5 to 10: all of a marked disjunct that any undecided one needs, even once it is rejected."""
    entry, stop, looked = places[item], pair_entries[item_pairs[item + 1]], 0
    found: Number = NOTHING
    while entry < stop:
        pair, slot = entry_pairs[entry], entry_slots[entry]
        looked += 1
        if pair != marked[item]:
            if outcomes[pair] != UNDECIDED:
                entry = pair_entries[pair + 1]
                continue
            marked[item] = pair
        if done[slot] == 0:
            first, last = slot_offsets[slot], slot_offsets[slot + 1]
            place = first
            while place < last and outcomes[slot_pairs[place]] != UNDECIDED:
                place += 1
            looked += min(place + 1, last) - first
            if place < last:
                found = slot
                break
        entry += 1
    places[item] = entry
    touched[item] += looked
    return found


@inlined
def of_chain(
    item: Number,
    item_pairs: Array,
    pair_entries: Array,
    entry_pairs: Array,
    entry_slots: Array,
    done: Array,
    outcomes: Array,
    places: Array,
    touched: Array,
) -> Number:
    """Section 4.2.2: chains from left to right, each from top to bottom until it is decided."""
    entry, stop, looked = places[item], pair_entries[item_pairs[item + 1]], 0
    found: Number = NOTHING
    while entry < stop:
        pair = entry_pairs[entry]
        looked += 1
        if outcomes[pair] != UNDECIDED:
            entry = pair_entries[pair + 1]
        elif done[entry_slots[entry]]:
            entry += 1
        else:
            found = entry_slots[entry]
            break
    places[item] = entry
    touched[item] += looked
    return found


@inlined
def note_failures(
    first: Number,
    last: Number,
    answers: Array,
    start: Number,
    is_failed: Number,
    slot_tests: Array,
    slot_entries: Array,
    failed: Array,
) -> None:
    """Where rejections are not shared: note for every entry of a slot whether its test passed."""
    for place in range(first, last):
        failed[slot_entries[place]] = is_failed or answers[start + slot_tests[place]] == 0


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
    """Disjunct after disjunct, as the kind of order has it: its state has arrays for what only this kind keeps."""
    item_pairs, pair_entries, entry_pairs = layout.item_pairs, layout.pair_entries, layout.entry_pairs
    entry_slots, slot_calls, slot_offsets = layout.entry_slots, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests, slot_entries = layout.slot_pairs, layout.slot_tests, layout.slot_entries
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    places, asked, named, touched = state.places, state.asked, state.named, state.touched
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
                    note_failures(first, last, answers, start, is_failed, slot_tests, slot_entries, failed)
                undecided[item] -= apply_to_pairs(
                    first, last, answers, start, is_failed, slot_pairs, slot_tests, outcomes, remaining)
            slot = NOTHING
            if keeps_failures:
                slot = independent(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, done, failed, places, touched)
            elif undecided[item] and finishes_disjuncts:
                slot = marked_disjunct(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, slot_offsets, slot_pairs, done,
                    outcomes, places, marked, touched)
            elif undecided[item]:
                slot = of_chain(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, done, outcomes, places, touched)
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item] = slot
    # fmt: on


INDEPENDENT = OrderKind(advance_disjuncts, _ENTRY_SECONDS, keeps_failures=True)
MARKED = OrderKind(advance_disjuncts, _ENTRY_SECONDS, finishes_disjuncts=True)
CHAINS = OrderKind(advance_disjuncts, _ENTRY_SECONDS)
