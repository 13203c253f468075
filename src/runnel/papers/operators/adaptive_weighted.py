"""The adaptive order with weights: a disjunct counts as one over its remaining tests.

Scores also rise, so buckets are lists that are linked in both directions, and a slot whose score has risen moves at
once.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel
from runnel.matching.operators.orders.batch_arrays import (
    ACCEPTED,
    NOTHING,
    REJECTED,
    UNDECIDED,
    UNKNOWN,
    BatchLayout,
    BatchState,
)
from runnel.matching.operators.orders.call_buckets import BUCKETS, bucket_of, step_of
from runnel.matching.operators.orders.order import Order, OrderKind
from runnel.matching.operators.orders.problem import OrderProblem


def adaptive_weighted(problem: OrderProblem) -> Order:
    """Always the call with the most worth for its cost, where a disjunct counts as one over its remaining tests.

    The fewer there are, the less likely others are to reject it. That often saves a few calls in a hundred. But every
    test that passes changes what other calls are worth, so the bookkeeping takes longer.
    """
    return Order.by_scores("adaptive_weighted", WEIGHTED, problem)


@inlined
def put(
    slot: Number, bucket: Number, base: Number, heads: Array, after: Array, before: Array, buckets: Array
) -> None:
    """Put a slot into a bucket from where it can be taken."""
    first = heads[base + bucket]
    after[slot] = first
    before[slot] = NOTHING
    if first != NOTHING:
        before[first] = slot
    heads[base + bucket] = slot
    buckets[slot] = bucket


@inlined
def take(slot: Number, base: Number, heads: Array, after: Array, before: Array, buckets: Array) -> None:
    """Take a slot out of its bucket."""
    following, previous = after[slot], before[slot]
    if previous == NOTHING:
        heads[base + buckets[slot]] = following
    else:
        after[previous] = following
    if following != NOTHING:
        before[following] = previous
    buckets[slot] = NOTHING


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
    """A disjunct counts as one over its remaining tests: the fewer tests remain, the more its calls are worth."""
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


@kernel
def advance_weighted(
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
    """The call that is worth most for its cost, as things stand."""
    item_slots, pair_entries, entry_slots = layout.item_slots, layout.pair_entries, layout.entry_slots
    entry_gains, slot_calls, slot_offsets = layout.entry_gains, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests = layout.slot_pairs, layout.slot_tests
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    places, asked, named, touched = state.places, state.asked, state.named, state.touched
    scores, tops, item_heads, heads = state.scores, state.tops, state.item_heads, state.heads
    after, before, buckets = state.after, state.before, state.buckets
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
                undecided[item] -= apply_weighted(
                    slot, first, last, answers, start, is_failed, item, slot_pairs, slot_tests, pair_entries,
                    entry_slots, entry_gains, outcomes, remaining, scores, tops, item_heads, heads, after, before,
                    buckets, places, touched)
            if undecided[item] == 0:
                slot = NOTHING
            elif item_heads[item] == item_heads[item + 1]:
                slot = by_score(item, item_slots, slot_offsets, slot_pairs, done, outcomes, scores, touched)
            else:
                slot = by_bucket(
                    item, slot_offsets, slot_pairs, outcomes, scores, tops, item_heads, heads, after, before, buckets,
                    places, touched)
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item] = slot
    # fmt: on


@kernel
def _score_weighted(layout: BatchLayout, state: BatchState) -> None:
    """Score every slot, and put those of items with many into buckets, below the highest score that is possible."""
    entry_slots, entry_pairs, entry_gains = layout.entry_slots, layout.entry_pairs, layout.entry_gains
    item_slots, scores, remaining, heads = layout.item_slots, state.scores, state.remaining, state.heads
    after, before, buckets = state.after, state.before, state.buckets
    highest = np.zeros(len(scores))
    for entry in range(len(entry_slots)):
        slot, gain = entry_slots[entry], entry_gains[entry]
        highest[slot] += gain
        scores[slot] += gain / remaining[entry_pairs[entry]]
    for item in range(len(state.tops)):
        first, last, base = item_slots[item], item_slots[item + 1], state.item_heads[item]
        if base == state.item_heads[item + 1]:
            continue
        top = step_of(highest[first:last].max())
        state.tops[item] = top
        for slot in range(last - 1, first - 1, -1):
            put(slot, bucket_of(scores[slot], top), base, heads, after, before, buckets)


WEIGHTED = OrderKind(advance_weighted, entry_seconds=85e-9, score=_score_weighted, moves_slots=True)
