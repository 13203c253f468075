"""The arrays of the orders' loops: the layout of a batch, and its state while calls are answered.

A *pair* is an item and one of its active disjuncts, a *slot* is an item and a call that one of its pairs needs, and
an *entry* is a test of a pair. The arrays use the narrowest possible types, because cache misses dominate the time of
the loops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array

UNDECIDED, REJECTED, ACCEPTED, UNKNOWN = 0, 1, 2, 3
"""Outcomes of an active disjunct. Unknown: a call that it needs failed before it was decided."""

NOTHING = -1


class BatchLayout(NamedTuple):
    """The pairs, entries and slots of a batch, item by item. They do not change while calls are answered."""

    item_pairs: Array
    item_slots: Array
    """The offsets of the pairs and slots of each item."""
    pair_positions: Array
    """The position of each pair in the active disjuncts of the caller."""
    pair_entries: Array
    entry_pairs: Array
    entry_slots: Array
    entry_gains: Array
    """The probability that the test fails, divided by the cost of its call; empty unless the order is adaptive."""
    slot_calls: Array
    slot_offsets: Array
    slot_pairs: Array
    """The pairs that need each slot, slot after slot."""
    slot_tests: Array
    """For each element of `slot_pairs`, the index of the test among the tests of the call."""
    slot_entries: Array
    """For each element of `slot_pairs`, its entry; empty if rejections are shared between disjuncts."""


class BatchState(NamedTuple):
    """Arrays over pairs, slots, entries and items of a layout. Arrays that an order does not use are empty."""

    outcomes: Array
    remaining: Array
    """For each pair, the number of tests that have not passed yet."""
    done: Array
    failed: Array
    """For each entry, whether its test failed; empty if rejections are shared between disjuncts."""
    undecided: Array
    """For each item, the number of its undecided pairs."""
    positions: Array
    """For each item, the first entry, slot or bucket that may still need a call."""
    marked: Array
    """For each item, the pair whose calls are being made, if the order finishes a disjunct before the next."""
    asked: Array
    """For each item, the slot that waits for an answer."""
    named: Array
    """For each item, the slot of its next call, if it does not wait for an answer."""
    touched: Array
    """For each item, the number of entries that were read, which measures the cost of bookkeeping."""
    scores: Array
    """For each slot, the ratio of worth to cost, if the order is adaptive. The following arrays are its buckets."""
    tops: Array
    """For each item, the logarithmic step of its highest initial score."""
    item_heads: Array
    heads: Array
    """The first slot of each bucket, item after item. Items with few slots have no buckets."""
    after: Array
    before: Array
    buckets: Array
    """For each slot, the next and the previous slot of its bucket, and, if the order moves slots, its bucket."""

    def copy(self) -> BatchState:
        """Return a copy of all arrays."""
        return BatchState(*(array.copy() for array in self))

    def copy_from(self, source: BatchState) -> None:
        """Overwrite all arrays with those of a state of the same size."""
        for target_array, source_array in zip(self, source, strict=True):
            np.copyto(target_array, source_array)
