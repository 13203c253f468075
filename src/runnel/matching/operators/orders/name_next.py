"""Which call an item needs next, for each kind of order. In: layout, state and an item. Out: a slot, or nothing.

Each kind goes forward through its sequence and never back: over all rounds an item's entries are passed once. A
call is named only if an undecided way needs it, except by the order that does not share what others have learned.
"""

from __future__ import annotations

from runnel.kernel import Number, kernel, step
from runnel.matching.operators.orders.buckets import BUCKETS, bucket_of, put, take
from runnel.matching.operators.orders.layout import NOTHING, UNDECIDED, Layout
from runnel.matching.operators.orders.order import Kind
from runnel.matching.operators.orders.state import State
from runnel.plan.arrays import Array

INDEPENDENT, MARKED, CHAINS, RANKS, ADAPTIVE = (int(kind) for kind in Kind)


@kernel
def next_slot(kind: int, layout: Layout, state: State, item: Number) -> Number:
    """The slot that an item needs next, or nothing."""
    if kind == INDEPENDENT:
        return _independent(layout, state, item)
    if state.undecided[item] == 0:
        return NOTHING
    if kind == MARKED:
        return _marked(layout, state, item)
    if kind == CHAINS:
        return _of_chain(layout, state, item)
    if kind == RANKS:
        return _by_rank(layout, state, item)
    if state.item_heads[item] == state.item_heads[item + 1]:
        return _by_score(layout, state, item)
    return _by_bucket(layout, state, item)


@kernel
def _independent(layout: Layout, state: State, item: Number) -> Number:
    """Section 5.2, naive: each way for itself, until a test of it fails; answers are remembered, rejections not."""
    entry_slots, entry_pairs, pair_entries = layout.entry_slots, layout.entry_pairs, layout.pair_entries
    done, failed = state.done, state.failed
    entry, stop = state.places[item], pair_entries[layout.item_pairs[item + 1]]
    touched = 0
    while entry < stop and done[entry_slots[entry]]:
        touched += 1
        entry = pair_entries[entry_pairs[entry] + 1] if failed[entry] else entry + 1
    state.places[item] = entry
    state.touched[item] += touched
    return entry_slots[entry] if entry < stop else NOTHING


@kernel
def _marked(layout: Layout, state: State, item: Number) -> Number:
    """Section 4.1, lines 5 to 10: all of a marked way that some undecided way needs, even after it is rejected."""
    entry_slots, entry_pairs, pair_entries = layout.entry_slots, layout.entry_pairs, layout.pair_entries
    slot_offsets, slot_pairs = layout.slot_offsets, layout.slot_pairs
    done, outcomes = state.done, state.outcomes
    entry, stop = state.places[item], pair_entries[layout.item_pairs[item + 1]]
    marked, touched = state.marked[item], 0
    found: Number = NOTHING
    while entry < stop:
        pair, slot = entry_pairs[entry], entry_slots[entry]
        touched += 1
        if pair != marked:
            if outcomes[pair] != UNDECIDED:
                entry = pair_entries[pair + 1]
                continue
            marked = pair
        if done[slot] == 0:
            looked = undecided_place(outcomes, slot_pairs, slot_offsets[slot], slot_offsets[slot + 1])
            touched += min(looked + 1, slot_offsets[slot + 1]) - slot_offsets[slot]
            if looked < slot_offsets[slot + 1]:
                found = slot
                break
        entry += 1
    state.places[item] = entry
    state.marked[item] = marked
    state.touched[item] += touched
    return found


@kernel
def _of_chain(layout: Layout, state: State, item: Number) -> Number:
    """Section 4.2.2: chains from left to right, each from top to bottom until it is decided."""
    entry_slots, entry_pairs, pair_entries = layout.entry_slots, layout.entry_pairs, layout.pair_entries
    done, outcomes = state.done, state.outcomes
    entry, stop = state.places[item], pair_entries[layout.item_pairs[item + 1]]
    touched = 0
    found: Number = NOTHING
    while entry < stop:
        pair = entry_pairs[entry]
        touched += 1
        if outcomes[pair] != UNDECIDED:
            entry = pair_entries[pair + 1]
        elif done[entry_slots[entry]]:
            entry += 1
        else:
            found = entry_slots[entry]
            break
    state.places[item] = entry
    state.touched[item] += touched
    return found


@kernel
def _by_rank(layout: Layout, state: State, item: Number) -> Number:
    """Slots are in the order of their ranks."""
    slot_offsets, slot_pairs, done, outcomes = layout.slot_offsets, layout.slot_pairs, state.done, state.outcomes
    slot, stop = state.places[item], layout.item_slots[item + 1]
    touched = 0
    while slot < stop:
        if done[slot] == 0:
            looked = undecided_place(outcomes, slot_pairs, slot_offsets[slot], slot_offsets[slot + 1])
            touched += min(looked + 1, slot_offsets[slot + 1]) - slot_offsets[slot]
            if looked < slot_offsets[slot + 1]:
                break
        slot += 1
    state.places[item] = slot
    state.touched[item] += touched
    return slot if slot < stop else NOTHING


@kernel
def _by_score(layout: Layout, state: State, item: Number) -> Number:
    """The slot with the highest score of an item that has few."""
    slot_offsets, slot_pairs, done, outcomes = layout.slot_offsets, layout.slot_pairs, state.done, state.outcomes
    scores, first, last = state.scores, layout.item_slots[item], layout.item_slots[item + 1]
    found, best = NOTHING, -1.0
    for slot in range(first, last):
        if done[slot] == 0 and max(scores[slot], 0.0) > best:
            stop = slot_offsets[slot + 1]
            if undecided_place(outcomes, slot_pairs, slot_offsets[slot], stop) < stop:
                found, best = slot, max(scores[slot], 0.0)
            else:
                done[slot] = 1
    state.touched[item] += last - first
    return found


@kernel
def _by_bucket(layout: Layout, state: State, item: Number) -> Number:
    """A slot of the highest bucket, after those that have fallen since, and without those that nobody needs."""
    slot_offsets, slot_pairs, scores, outcomes = layout.slot_offsets, layout.slot_pairs, state.scores, state.outcomes
    heads, after, before, buckets = state.heads, state.after, state.before, state.buckets
    base, top, bucket = state.item_heads[item], state.tops[item], state.places[item]
    touched, found = 0, NOTHING
    while bucket < BUCKETS:
        slot = heads[base + bucket]
        touched += 1
        if slot == NOTHING:
            bucket += 1
            continue
        stop = slot_offsets[slot + 1]
        is_needed = undecided_place(outcomes, slot_pairs, slot_offsets[slot], stop) < stop
        now = bucket_of(scores[slot], top)
        if is_needed and now <= bucket:
            found = slot
            break
        take(slot, base, heads, after, before, buckets)
        if is_needed:
            put(slot, now, base, heads, after, before, buckets)
    state.places[item] = bucket
    state.touched[item] += touched
    return found


@step
def undecided_place(outcomes: Array, slot_pairs: Array, start: Number, stop: Number) -> Number:
    """The place of the first undecided pair that needs a slot, or the end of its places."""
    place = start
    while place < stop and outcomes[slot_pairs[place]] != UNDECIDED:
        place += 1
    return place
