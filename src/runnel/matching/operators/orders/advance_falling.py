"""The loop over a batch for the adaptive order whose scores only fall: as `advance`, with nothing called inside.

In and out are those of `advance`. Of all orders this one does most for a call, so even the parts that others share
are written out here: with many ways that takes much less time.
"""

from __future__ import annotations

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.operators.orders.batch_layout import ACCEPTED, NOTHING, REJECTED, UNDECIDED, UNKNOWN, BatchLayout
from runnel.matching.operators.orders.batch_state import BatchState
from runnel.matching.operators.orders.call_buckets import BUCKETS, bucket_of


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
    """Settle what the items have asked for, if anything, and name what they need then."""
    item_slots, pair_entries, entry_slots = layout.item_slots, layout.pair_entries, layout.entry_slots
    entry_gains, slot_calls, slot_offsets = layout.entry_gains, layout.slot_calls, layout.slot_offsets
    slot_pairs, slot_tests = layout.slot_pairs, layout.slot_tests
    outcomes, remaining, done, undecided = state.outcomes, state.remaining, state.done, state.undecided
    places, asked, named, touched = state.places, state.asked, state.named, state.touched
    scores, item_heads, heads, after = state.scores, state.item_heads, state.heads, state.after
    for number in range(len(items)):
        item = items[number]
        base, top, bucket = item_heads[item], state.tops[item], places[item]
        low, high, is_few = item_slots[item], item_slots[item + 1], base == item_heads[item + 1]
        open_pairs, looked = undecided[item], 0
        slot = asked[item]
        asked[item] = NOTHING
        while True:
            if slot != NOTHING:
                # A way that is rejected makes its other calls worth less.
                start = starts[slot_calls[slot]] if is_known else starts[number]
                is_failed = not is_known and failures[number] != 0
                done[slot] = 1
                looked += slot_offsets[slot + 1] - slot_offsets[slot]
                for place in range(slot_offsets[slot], slot_offsets[slot + 1]):
                    pair = slot_pairs[place]
                    if outcomes[pair] != UNDECIDED:
                        continue
                    if not is_failed and answers[start + slot_tests[place]] != 0:
                        remaining[pair] -= 1
                        if remaining[pair] == 0:  # all its calls are done: what they are worth does not matter
                            outcomes[pair] = ACCEPTED
                            open_pairs -= 1
                    else:
                        outcomes[pair] = UNKNOWN if is_failed else REJECTED
                        open_pairs -= 1
                        looked += pair_entries[pair + 1] - pair_entries[pair]
                        for entry in range(pair_entries[pair], pair_entries[pair + 1]):
                            scores[entry_slots[entry]] -= entry_gains[entry]
            slot = NOTHING
            if open_pairs and is_few:  # few slots are looked through
                best = -1.0
                looked += high - low
                for other in range(low, high):
                    if done[other] == 0 and max(scores[other], 0.0) > best:
                        place, stop = slot_offsets[other], slot_offsets[other + 1]
                        while place < stop and outcomes[slot_pairs[place]] != UNDECIDED:
                            place += 1
                        if place < stop:
                            slot, best = other, max(scores[other], 0.0)
                        else:
                            done[other] = 1
            elif open_pairs:  # of many, one of the highest bucket, after those that have fallen since
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
                    place, stop = slot_offsets[other], slot_offsets[other + 1]
                    while place < stop and outcomes[slot_pairs[place]] != UNDECIDED:
                        place += 1
                    if place < stop:
                        slot = other
                        break
            if slot == NOTHING or not is_known:
                break
            calls[item] += 1
            costs[item] += call_costs[slot_calls[slot]]
        named[item], places[item], undecided[item] = slot, bucket, open_pairs
        touched[item] += looked
