"""Taking an answer in: which pairs it decides, and for the adaptive order what other calls are worth then.

In: layout and state, a slot that was asked, and which of its call's tests passed. Out: the state as it is then.
Looked at are the pairs that need that slot; the adaptive order looks at their other slots, too.
"""

from __future__ import annotations

from runnel.kernel import Number, kernel
from runnel.matching.operators.orders.buckets import bucket_of, put, take
from runnel.matching.operators.orders.layout import ACCEPTED, NOTHING, REJECTED, UNDECIDED, UNKNOWN, Layout
from runnel.matching.operators.orders.name_next import ADAPTIVE, INDEPENDENT
from runnel.matching.operators.orders.state import State
from runnel.plan.arrays import Array


@kernel
def settle_slot(
    kind: int, layout: Layout, state: State, item: Number, slot: Number, passed: Array, start: Number, failed: Number
) -> None:
    """Take an answer in: `passed` from `start` on says for every test of the call whether it passed."""
    slot_pairs, slot_tests = layout.slot_pairs, layout.slot_tests
    outcomes, remaining = state.outcomes, state.remaining
    first, last = layout.slot_offsets[slot], layout.slot_offsets[slot + 1]
    state.done[slot] = 1
    decided = 0
    for place in range(first, last):
        pair = slot_pairs[place]
        holds = not failed and passed[start + slot_tests[place]] != 0
        if kind == INDEPENDENT:
            state.failed[layout.slot_entries[place]] = not holds
        if outcomes[pair] != UNDECIDED:
            continue
        if holds:
            remaining[pair] -= 1
            if remaining[pair] == 0:
                outcomes[pair] = ACCEPTED
                decided += 1
        else:
            outcomes[pair] = UNKNOWN if failed else REJECTED
            decided += 1
    state.undecided[item] -= decided
    state.touched[item] += last - first


@kernel
def settle_slot_and_scores(
    layout: Layout, state: State, item: Number, slot: Number, passed: Array, start: Number, failed: Number
) -> None:
    """The same for the adaptive order.

    A way that is rejected makes its other calls worth less; one with a test less to go makes them worth more.
    """
    slot_pairs, slot_tests, entry_slots, gains = (
        layout.slot_pairs,
        layout.slot_tests,
        layout.entry_slots,
        layout.entry_gains,
    )
    pair_entries, outcomes, remaining, done = layout.pair_entries, state.outcomes, state.remaining, state.done
    scores, heads, after, before, buckets = state.scores, state.heads, state.after, state.before, state.buckets
    base, top = state.item_heads[item], state.tops[item]
    first, last = layout.slot_offsets[slot], layout.slot_offsets[slot + 1]
    decided, touched, highest = 0, last - first, state.places[item]
    done[slot] = 1
    if buckets[slot] != NOTHING:
        take(slot, base, heads, after, before, buckets)
    for place in range(first, last):
        pair = slot_pairs[place]
        if outcomes[pair] != UNDECIDED:
            continue
        left = remaining[pair]
        if failed or passed[start + slot_tests[place]] == 0:
            outcomes[pair] = UNKNOWN if failed else REJECTED
            more = -1.0 / left
        else:
            remaining[pair] = left - 1
            more = 1.0 / max(left - 1, 1) - 1.0 / left
            if left == 1:
                outcomes[pair] = ACCEPTED
        decided += outcomes[pair] != UNDECIDED
        touched += pair_entries[pair + 1] - pair_entries[pair]
        for entry in range(pair_entries[pair], pair_entries[pair + 1]):
            other = entry_slots[entry]
            scores[other] += gains[entry] * more
            if more > 0.0 and buckets[other] != NOTHING:
                bucket = bucket_of(scores[other], top)
                if bucket < buckets[other]:
                    take(other, base, heads, after, before, buckets)
                    put(other, bucket, base, heads, after, before, buckets)
                    highest = min(highest, bucket)
    state.places[item] = highest
    state.undecided[item] -= decided
    state.touched[item] += touched


@kernel
def settle_answer(
    kind: int, layout: Layout, state: State, item: Number, slot: Number, passed: Array, start: Number, failed: Number
) -> None:
    """Take an answer in, for any order."""
    if kind == ADAPTIVE:
        settle_slot_and_scores(layout, state, item, slot, passed, start, failed)
    else:
        settle_slot(kind, layout, state, item, slot, passed, start, failed)
