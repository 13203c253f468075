"""Taking an answer in: which pairs it decides, and for the adaptive orders what other calls are worth then.

In: the places of a slot that was asked, which of its call's tests passed, and arrays of layout and state. Out: how
many pairs it has decided. Looked at are the pairs that need that slot; adaptive orders look at the other slots of
those pairs, too.
"""

from __future__ import annotations

from runnel.arrays import Array
from runnel.kernel import Number, inlined
from runnel.matching.operators.orders.batch_layout import ACCEPTED, NOTHING, REJECTED, UNDECIDED, UNKNOWN
from runnel.matching.operators.orders.call_buckets import bucket_of, put, take


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


@inlined
def apply_to_pairs(
    first: Number,
    last: Number,
    answers: Array,
    start: Number,
    is_failed: Number,
    slot_pairs: Array,
    slot_tests: Array,
    outcomes: Array,
    remaining: Array,
) -> Number:
    """The undecided pairs of a slot: `answers` from `start` on say for every test of the call whether it passed."""
    decided = 0
    for place in range(first, last):
        pair = slot_pairs[place]
        if outcomes[pair] != UNDECIDED:
            continue
        if not is_failed and answers[start + slot_tests[place]] != 0:
            remaining[pair] -= 1
            if remaining[pair] == 0:
                outcomes[pair] = ACCEPTED
                decided += 1
        else:
            outcomes[pair] = UNKNOWN if is_failed else REJECTED
            decided += 1
    return decided


@inlined
def apply_weighted(
    slot: Number,
    first: Number,
    last: Number,
    answers: Array,
    start: Number,
    is_failed: Number,
    item: Number,
    slot_pairs: Array,
    slot_tests: Array,
    pair_entries: Array,
    entry_slots: Array,
    entry_gains: Array,
    outcomes: Array,
    remaining: Array,
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
    """Where a way counts as one over its remaining tests: one with a test less to go makes its calls worth more."""
    base, top, highest = item_heads[item], tops[item], places[item]
    decided, looked = 0, 0
    if buckets[slot] != NOTHING:
        take(slot, base, heads, after, before, buckets)
    for place in range(first, last):
        pair = slot_pairs[place]
        if outcomes[pair] != UNDECIDED:
            continue
        left = remaining[pair]
        if is_failed or answers[start + slot_tests[place]] == 0:
            outcomes[pair] = UNKNOWN if is_failed else REJECTED
            more = -1.0 / left
        else:
            remaining[pair] = left - 1
            more = 1.0 / max(left - 1, 1) - 1.0 / left
            if left == 1:
                outcomes[pair] = ACCEPTED
        decided += outcomes[pair] != UNDECIDED
        looked += pair_entries[pair + 1] - pair_entries[pair]
        for entry in range(pair_entries[pair], pair_entries[pair + 1]):
            other = entry_slots[entry]
            scores[other] += entry_gains[entry] * more
            if more > 0.0 and buckets[other] != NOTHING:
                bucket = bucket_of(scores[other], top)
                if bucket < buckets[other]:
                    take(other, base, heads, after, before, buckets)
                    put(other, bucket, base, heads, after, before, buckets)
                    highest = min(highest, bucket)
    places[item] = highest
    touched[item] += looked
    return decided
