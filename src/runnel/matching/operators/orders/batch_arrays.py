"""The arrays that the loops of orders work on: the layout of a batch, and its state while calls are answered.

A *pair* is an item and an active disjunct of it, a *slot* an item and a call that one of its pairs needs, an *entry*
a test of a pair. The arrays are as narrow as they can be: most of what the loops cost is memory outside the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array

UNDECIDED, REJECTED, ACCEPTED, UNKNOWN = 0, 1, 2, 3
"""What became of an active way. Unknown: a call that it needs has failed before it was decided."""

NOTHING = -1


class BatchLayout(NamedTuple):
    """Who needs what, item by item; nothing here changes while calls are answered."""

    item_pairs: Array
    item_slots: Array
    """Where the pairs and slots of each item begin."""
    pair_places: Array
    """Where the pair stands among the active ways as they were given."""
    pair_entries: Array
    entry_pairs: Array
    entry_slots: Array
    entry_gains: Array
    """The probability that the test fails, for a unit of cost; empty unless the order is adaptive."""
    slot_calls: Array
    slot_offsets: Array
    slot_pairs: Array
    """The pairs that need each slot, slot after slot."""
    slot_tests: Array
    """And for each of them which of the call's tests it needs, by number."""
    slot_entries: Array
    """And its entry; empty unless the order does not share rejections."""


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
    """For each item the pair that was begun, where disjuncts are gone through to their end."""
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
