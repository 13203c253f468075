"""The loops of orders that go through disjuncts one after another (sections 4.1, 4.2.2 and 5.2)."""

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
    """Section 5.2, naive: each way for itself, until a test of it fails; answers are remembered, rejections not."""
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
    """Section 4.1, lines 5 to 10: all of a marked way that some undecided way needs, even after it is rejected."""
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
def apply_to_one(
    first: Number,
    last: Number,
    answers: Array,
    start: Number,
    is_failed: Number,
    slot_pairs: Array,
    slot_tests: Array,
    slot_entries: Array,
    outcomes: Array,
    remaining: Array,
    failed: Array,
) -> Number:
    """Where rejections are not shared: note for every entry whether its test passed, too."""
    for place in range(first, last):
        holds = not is_failed and answers[start + slot_tests[place]] != 0
        failed[slot_entries[place]] = not holds
    return apply_to_pairs(first, last, answers, start, is_failed, slot_pairs, slot_tests, outcomes, remaining)


@kernel
def advance_independent(
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
    """Disjunct after disjunct, test after test until one fails, whatever other disjuncts have learned."""
    item_pairs, pair_entries, entry_pairs = layout.item_pairs, layout.pair_entries, layout.entry_pairs
    entry_slots, slot_calls, slot_offsets = layout.entry_slots, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests, slot_entries = layout.slot_pairs, layout.slot_tests, layout.slot_entries
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    places, asked, named, touched = state.places, state.asked, state.named, state.touched
    failed = state.failed
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
                undecided[item] -= apply_to_one(
                    first, last, answers, start, is_failed, slot_pairs, slot_tests, slot_entries, outcomes,
                    remaining, failed)
            slot = independent(
                item, item_pairs, pair_entries, entry_pairs, entry_slots, done, failed, places, touched)
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item] = slot
    # fmt: on


@kernel
def advance_marked(
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
    """Disjunct after disjunct; of one that was begun, every call that any undecided disjunct needs."""
    item_pairs, pair_entries, entry_pairs = layout.item_pairs, layout.pair_entries, layout.entry_pairs
    entry_slots, slot_calls, slot_offsets = layout.entry_slots, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests = layout.slot_pairs, layout.slot_tests
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    places, asked, named, touched = state.places, state.asked, state.named, state.touched
    marked = state.marked
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
                undecided[item] -= apply_to_pairs(
                    first, last, answers, start, is_failed, slot_pairs, slot_tests, outcomes, remaining)
            slot = NOTHING
            if undecided[item]:
                slot = marked_disjunct(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, slot_offsets, slot_pairs, done,
                    outcomes, places, marked, touched)
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item] = slot
    # fmt: on


@kernel
def advance_chains(
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
    """Disjunct after disjunct, test after test, until the disjunct is decided."""
    item_pairs, pair_entries, entry_pairs = layout.item_pairs, layout.pair_entries, layout.entry_pairs
    entry_slots, slot_calls, slot_offsets = layout.entry_slots, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests = layout.slot_pairs, layout.slot_tests
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    places, asked, named, touched = state.places, state.asked, state.named, state.touched
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
                undecided[item] -= apply_to_pairs(
                    first, last, answers, start, is_failed, slot_pairs, slot_tests, outcomes, remaining)
            slot = NOTHING
            if undecided[item]:
                slot = of_chain(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, done, outcomes, places, touched)
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item] = slot
    # fmt: on


INDEPENDENT = OrderKind(advance_independent, _ENTRY_SECONDS, keeps_failures=True)
MARKED = OrderKind(advance_marked, _ENTRY_SECONDS)
CHAINS = OrderKind(advance_chains, _ENTRY_SECONDS)
