"""The one loop over a batch: take in the answers of some items, and name the call that each needs next.

In: layout and state, and the answers to what was asked; or all answers beforehand, to follow an order to its end.
Out: the state as it is then. The arrays are taken apart once, and what happens for an item becomes a part of the
loop: a function called within it would count the references to every array that it is given, which takes longer than
its work. That is why this is one long function.
"""

from __future__ import annotations

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.operators.orders.apply_answer import apply_to_one, apply_to_pairs, apply_weighted
from runnel.matching.operators.orders.batch_layout import NOTHING, BatchLayout
from runnel.matching.operators.orders.batch_state import BatchState
from runnel.matching.operators.orders.name_next import (
    by_bucket,
    by_rank,
    by_score,
    independent,
    marked_disjunct,
    of_chain,
)
from runnel.matching.operators.orders.order import OrderKind

INDEPENDENT, MARKED, CHAINS, RANKS, _, WEIGHTED = (int(kind) for kind in OrderKind)


@kernel
def advance(
    kind: int,
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
    """Settle what the items have asked for, if anything, and name what they need then.

    `answers` from `starts[number]` on are those to the call of `items[number]`. Where all answers are known,
    `starts` is by calls instead; then nothing is named, but every item is decided, and its calls and their cost are
    added to `calls` and `costs`. The adaptive order whose scores only fall has a loop of its own.
    """
    item_pairs, item_slots, pair_entries = layout.item_pairs, layout.item_slots, layout.pair_entries
    entry_pairs, entry_slots, entry_gains = layout.entry_pairs, layout.entry_slots, layout.entry_gains
    slot_calls, slot_offsets, slot_pairs = layout.slot_calls, layout.slot_offsets, layout.slot_pairs
    slot_tests, slot_entries = layout.slot_tests, layout.slot_entries
    outcomes, remaining, done, failed = state.outcomes, state.remaining, state.done, state.failed
    undecided, places, marked, asked = state.undecided, state.places, state.marked, state.asked
    named, touched, scores, tops = state.named, state.touched, state.scores, state.tops
    item_heads, heads, after, before = state.item_heads, state.heads, state.after, state.before
    buckets = state.buckets
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
                if kind == WEIGHTED:
                    undecided[item] -= apply_weighted(
                        slot, first, last, answers, start, is_failed, item, slot_pairs, slot_tests, pair_entries,
                        entry_slots, entry_gains, outcomes, remaining, scores, tops, item_heads, heads, after, before,
                        buckets, places, touched)
                elif kind == INDEPENDENT:
                    undecided[item] -= apply_to_one(
                        first, last, answers, start, is_failed, slot_pairs, slot_tests, slot_entries, outcomes,
                        remaining, failed)
                else:
                    undecided[item] -= apply_to_pairs(
                        first, last, answers, start, is_failed, slot_pairs, slot_tests, outcomes, remaining)
            if kind == INDEPENDENT:
                slot = independent(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, done, failed, places, touched)
            elif undecided[item] == 0:
                slot = NOTHING
            elif kind == RANKS:
                slot = by_rank(item, item_slots, slot_offsets, slot_pairs, done, outcomes, places, touched)
            elif kind == CHAINS:
                slot = of_chain(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, done, outcomes, places, touched)
            elif kind == MARKED:
                slot = marked_disjunct(
                    item, item_pairs, pair_entries, entry_pairs, entry_slots, slot_offsets, slot_pairs, done,
                    outcomes, places, marked, touched)
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
