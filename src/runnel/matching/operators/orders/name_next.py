"""Which call an item needs next, for each kind of order. In: arrays of layout and state, an item. Out: a slot.

Each kind goes forward through its sequence and never back: over all rounds an item's entries are passed once. A
call is named only if an undecided way needs it, except by the order that does not share what others have learned.
The search for such a way is written out each time: a function that is given arrays counts the references to them.
"""

from __future__ import annotations

from runnel.arrays import Array
from runnel.kernel import Number, inlined
from runnel.matching.operators.orders.batch_layout import NOTHING, UNDECIDED
from runnel.matching.operators.orders.call_buckets import BUCKETS, bucket_of, put, take


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
def by_rank(
    item: Number,
    item_slots: Array,
    slot_offsets: Array,
    slot_pairs: Array,
    done: Array,
    outcomes: Array,
    places: Array,
    touched: Array,
) -> Number:
    """Slots are in the order of their ranks."""
    slot, stop, looked = places[item], item_slots[item + 1], 0
    while slot < stop:
        if done[slot] == 0:
            first, last = slot_offsets[slot], slot_offsets[slot + 1]
            place = first
            while place < last and outcomes[slot_pairs[place]] != UNDECIDED:
                place += 1
            looked += min(place + 1, last) - first
            if place < last:
                break
        slot += 1
    places[item] = slot
    touched[item] += looked
    return slot if slot < stop else NOTHING


@inlined
def by_score(
    item: Number,
    item_slots: Array,
    slot_offsets: Array,
    slot_pairs: Array,
    done: Array,
    outcomes: Array,
    scores: Array,
    touched: Array,
) -> Number:
    """The slot with the highest score of an item that has few."""
    first, last = item_slots[item], item_slots[item + 1]
    found, best = NOTHING, -1.0
    for slot in range(first, last):
        if done[slot] == 0 and max(scores[slot], 0.0) > best:
            place, stop = slot_offsets[slot], slot_offsets[slot + 1]
            while place < stop and outcomes[slot_pairs[place]] != UNDECIDED:
                place += 1
            if place < stop:
                found, best = slot, max(scores[slot], 0.0)
            else:
                done[slot] = 1
    touched[item] += last - first
    return found


@inlined
def by_bucket(
    item: Number,
    slot_offsets: Array,
    slot_pairs: Array,
    outcomes: Array,
    scores: Array,
    tops: Array,
    item_heads: Array,
    heads: Array,
    after: Array,
    before: Array,
    buckets: Array,
    places: Array,
    touched: Array,
) -> Number:
    """A slot of the highest bucket, after those that have fallen since, and without those that nobody needs.

    Scores also rise: a slot stays in its bucket until it is settled or nobody needs it.
    """
    base, top, bucket = item_heads[item], tops[item], places[item]
    looked, found = 0, NOTHING
    while bucket < BUCKETS:
        slot = heads[base + bucket]
        looked += 1
        if slot == NOTHING:
            bucket += 1
            continue
        place, stop = slot_offsets[slot], slot_offsets[slot + 1]
        while place < stop and outcomes[slot_pairs[place]] != UNDECIDED:
            place += 1
        now = bucket_of(scores[slot], top)
        if place < stop and now <= bucket:
            found = slot
            break
        take(slot, base, heads, after, before, buckets)
        if place < stop:
            put(slot, now, base, heads, after, before, buckets)
    places[item] = bucket
    touched[item] += looked
    return found
