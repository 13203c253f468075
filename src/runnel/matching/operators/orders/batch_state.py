"""What changes while the calls of a batch are answered: outcomes, what is done, and for the adaptive order scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import IDENTIFIER, Array, row_offsets
from runnel.kernel import kernel
from runnel.matching.operators.orders import call_buckets
from runnel.matching.operators.orders.batch_layout import ACCEPTED, NOTHING, UNDECIDED, BatchLayout
from runnel.matching.operators.orders.call_buckets import BUCKETS, bucket_of, push, put, step_of
from runnel.matching.operators.orders.order import OrderKind


class BatchState(NamedTuple):
    """Arrays over pairs, slots, entries and items of a layout; what an order does not use is empty."""

    outcomes: Array
    remaining: Array
    """For each pair its tests that have not passed yet."""
    done: Array
    failed: Array
    """For each entry whether its test did not pass, where rejections are not shared."""
    undecided: Array
    """For each item its undecided pairs."""
    places: Array
    """For each item the entry or slot up to which there is nothing left to ask."""
    marked: Array
    """For each item the pair that was begun, where ways are gone through to their end."""
    asked: Array
    """For each item the slot that waits for an answer."""
    named: Array
    """For each item the slot that it needs next, if it waits for none."""
    touched: Array
    """For each item how many entries were looked at: what the bookkeeping costs."""
    scores: Array
    """For each slot what it is worth for its cost, where the order is adaptive; the rest is its buckets."""
    tops: Array
    """For each item the step of the highest score that it can have."""
    item_heads: Array
    heads: Array
    """The first slot of each bucket, item after item; items with few slots have none."""
    after: Array
    before: Array
    buckets: Array
    """For each slot those beside it in its bucket, and where slots are moved, which bucket that is."""

    def copy(self) -> BatchState:
        """The same in arrays of its own."""
        return BatchState(*(array.copy() for array in self))

    def put_back(self, before: BatchState) -> None:
        """Be as another of the same size was."""
        for mine, other in zip(self, before, strict=True):
            np.copyto(mine, other)


def begin(layout: BatchLayout, kind: OrderKind) -> BatchState:
    """The state before the first call. Ways without tests are accepted."""
    items, slots, entries = len(layout.item_pairs) - 1, len(layout.slot_calls), len(layout.entry_slots)
    lengths = np.diff(layout.pair_entries)
    before = np.concatenate([[0], np.cumsum(lengths > 0)])
    scored = slots if kind.is_scored else 0
    moved = slots if kind is OrderKind.WEIGHTED else 0
    many = (np.diff(layout.item_slots) > call_buckets.FEW) & kind.is_scored
    state = BatchState(
        outcomes=np.where(lengths > 0, UNDECIDED, ACCEPTED).astype(np.int8),
        remaining=lengths.astype(np.int16),
        done=np.zeros(slots, dtype=np.int8),
        failed=np.zeros(entries if kind is OrderKind.INDEPENDENT else 0, dtype=np.int8),
        undecided=np.diff(before[layout.item_pairs]).astype(IDENTIFIER),
        places=_first_places(layout, kind),
        marked=np.full(items, NOTHING, dtype=IDENTIFIER),
        asked=np.full(items, NOTHING, dtype=IDENTIFIER),
        named=np.full(items, NOTHING, dtype=IDENTIFIER),
        touched=np.zeros(items, dtype=np.int64),
        scores=np.zeros(scored, dtype=np.float64),
        tops=np.zeros(items if scored else 0, dtype=IDENTIFIER),
        item_heads=row_offsets(BUCKETS * many),
        heads=np.full(BUCKETS * int(np.count_nonzero(many)), NOTHING, dtype=IDENTIFIER),
        after=np.full(scored, NOTHING, dtype=IDENTIFIER),
        before=np.full(moved, NOTHING, dtype=IDENTIFIER),
        buckets=np.full(moved, NOTHING, dtype=IDENTIFIER),
    )
    if scored:
        _score(kind is OrderKind.WEIGHTED, layout, state)
    return state


def _first_places(layout: BatchLayout, kind: OrderKind) -> Array:
    match kind:
        case OrderKind.RANKS:
            return layout.item_slots[:-1].copy()
        case OrderKind.ADAPTIVE | OrderKind.WEIGHTED:
            return np.zeros(len(layout.item_slots) - 1, dtype=IDENTIFIER)
        case _:
            return np.asarray(layout.pair_entries[layout.item_pairs[:-1]])


@kernel
def _score(is_weighted: bool, layout: BatchLayout, state: BatchState) -> None:
    """Score every slot, and put those of items with many into buckets."""
    entry_slots, entry_pairs, entry_gains = layout.entry_slots, layout.entry_pairs, layout.entry_gains
    item_slots, scores, remaining, heads = layout.item_slots, state.scores, state.remaining, state.heads
    after, before, buckets = state.after, state.before, state.buckets
    highest = np.zeros(len(scores))
    for entry in range(len(entry_slots)):
        slot, gain = entry_slots[entry], entry_gains[entry]
        highest[slot] += gain
        scores[slot] += gain / remaining[entry_pairs[entry]] if is_weighted else gain
    for item in range(len(state.tops)):
        first, last, base = item_slots[item], item_slots[item + 1], state.item_heads[item]
        if base == state.item_heads[item + 1]:
            continue
        top = step_of(highest[first:last].max())
        state.tops[item] = top
        for slot in range(last - 1, first - 1, -1):
            if is_weighted:
                put(slot, bucket_of(scores[slot], top), base, heads, after, before, buckets)
            else:
                push(slot, bucket_of(scores[slot], top), base, heads, after)
