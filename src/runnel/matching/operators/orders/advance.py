"""The loops over a batch: one for static orders, which are the same for all items, and one for the adaptive order.

In: layout, state, and the answers to the previous calls; or all answers at once, to simulate an order completely.
Out: the new state. The loops unpack the arrays of a tuple once and contain the work per item directly: a function
that is called in the loop would update the reference count of every array argument, which takes longer than its work.
The adaptive loop does most work per call, so it repeats even the code that both loops have in common.
"""

from __future__ import annotations

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
from runnel.matching.operators.orders.call_buckets import BUCKETS, bucket_of, push, step_of
from runnel.matching.operators.orders.order import OrderKind


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
    """Apply the answer of a call to the undecided pairs of its slot, and return how many pairs it decides.

    `answers` contains from `start` on whether each test of the call passed.
    """
    decided = 0
    for position in range(first, last):
        pair = slot_pairs[position]
        if outcomes[pair] != UNDECIDED:
            continue
        if not is_failed and answers[start + slot_tests[position]] != 0:
            remaining[pair] -= 1
            if remaining[pair] == 0:
                outcomes[pair] = ACCEPTED
                decided += 1
        else:
            outcomes[pair] = UNKNOWN if is_failed else REJECTED
            decided += 1
    return decided


@kernel
def advance_ranks(
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
    """Name the calls in the order of their ranks, except those that no undecided disjunct needs."""
    item_slots, slot_calls, slot_offsets = layout.item_slots, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests = layout.slot_pairs, layout.slot_tests
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    positions, asked, named, touched = state.positions, state.asked, state.named, state.touched
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
                    first, last, answers, start, is_failed, slot_pairs, slot_tests, outcomes, remaining
                )
            slot = NOTHING
            if undecided[item]:
                other, stop, looked = positions[item], item_slots[item + 1], 0
                while other < stop:
                    if done[other] == 0:
                        first, last = slot_offsets[other], slot_offsets[other + 1]
                        position = first
                        while position < last and outcomes[slot_pairs[position]] != UNDECIDED:
                            position += 1
                        looked += min(position + 1, last) - first
                        if position < last:
                            slot = other
                            break
                    other += 1
                positions[item] = other
                touched[item] += looked
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item] = slot


@kernel
def advance_falling(
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
    """Name the call with the highest score. Scores only decrease, because disjuncts only become decided."""
    item_slots, pair_entries, entry_slots = layout.item_slots, layout.pair_entries, layout.entry_slots
    entry_gains, slot_calls, slot_offsets = layout.entry_gains, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests = layout.slot_pairs, layout.slot_tests
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    positions, asked, named, touched = state.positions, state.asked, state.named, state.touched
    scores, item_heads, heads, after = state.scores, state.item_heads, state.heads, state.after
    for number in range(len(items)):
        item = items[number]
        base, top, bucket = item_heads[item], state.tops[item], positions[item]
        low, high, is_few = item_slots[item], item_slots[item + 1], base == item_heads[item + 1]
        open_pairs, looked = undecided[item], 0
        slot = asked[item]
        asked[item] = NOTHING
        while True:
            if slot != NOTHING:
                # A rejected disjunct reduces the scores of its other calls.
                start = starts[slot_calls[slot]] if is_known else starts[number]
                is_failed = not is_known and failures[number] != 0
                done[slot] = 1
                looked += slot_offsets[slot + 1] - slot_offsets[slot]
                for position in range(slot_offsets[slot], slot_offsets[slot + 1]):
                    pair = slot_pairs[position]
                    if outcomes[pair] != UNDECIDED:
                        continue
                    if not is_failed and answers[start + slot_tests[position]] != 0:
                        remaining[pair] -= 1
                        if remaining[pair] == 0:  # all its calls are done, so their scores no longer matter
                            outcomes[pair] = ACCEPTED
                            open_pairs -= 1
                    else:
                        outcomes[pair] = UNKNOWN if is_failed else REJECTED
                        open_pairs -= 1
                        looked += pair_entries[pair + 1] - pair_entries[pair]
                        for entry in range(pair_entries[pair], pair_entries[pair + 1]):
                            scores[entry_slots[entry]] -= entry_gains[entry]
            slot = NOTHING
            if open_pairs and is_few:  # scan all slots of an item with few slots
                best = -1.0
                looked += high - low
                for other in range(low, high):
                    if done[other] == 0 and max(scores[other], 0.0) > best:
                        position, stop = slot_offsets[other], slot_offsets[other + 1]
                        while position < stop and outcomes[slot_pairs[position]] != UNDECIDED:
                            position += 1
                        if position < stop:
                            slot, best = other, max(scores[other], 0.0)
                        else:
                            done[other] = 1
            elif open_pairs:  # take a slot of the highest bucket; move slots whose score has decreased since
                while bucket < BUCKETS:
                    other = heads[base + bucket]
                    looked += 1
                    if other == NOTHING:
                        bucket += 1
                        continue
                    heads[base + bucket] = after[other]
                    now = bucket_of(scores[other], top)
                    if now > bucket:
                        after[other] = heads[base + now]
                        heads[base + now] = other
                        continue
                    position, stop = slot_offsets[other], slot_offsets[other + 1]
                    while position < stop and outcomes[slot_pairs[position]] != UNDECIDED:
                        position += 1
                    if position < stop:
                        slot = other
                        break
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item], positions[item], undecided[item] = slot, bucket, open_pairs
        touched[item] += looked


@kernel
def score_slots(layout: BatchLayout, state: BatchState) -> None:
    """Compute the score of every slot, and put the slots of items with many slots into buckets."""
    entry_slots, entry_gains, item_slots = layout.entry_slots, layout.entry_gains, layout.item_slots
    scores, heads, after = state.scores, state.heads, state.after
    for entry in range(len(entry_slots)):
        scores[entry_slots[entry]] += entry_gains[entry]
    for item in range(len(state.tops)):
        first, last, base = item_slots[item], item_slots[item + 1], state.item_heads[item]
        if base == state.item_heads[item + 1]:
            continue
        top = step_of(scores[first:last].max())
        state.tops[item] = top
        for slot in range(last - 1, first - 1, -1):
            push(slot, bucket_of(scores[slot], top), base, heads, after)


RANKS = OrderKind(advance_ranks, entry_seconds=30e-9, by_calls=True)
ADAPTIVE = OrderKind(advance_falling, entry_seconds=55e-9, score=score_slots)
"""`entry_seconds` were measured in rounds over 2,048 items with 50 to 500 of 10,000 disjuncts each. The arrays of an
item are evicted from the CPU cache between rounds. A static order reads entries sequentially.
"""
