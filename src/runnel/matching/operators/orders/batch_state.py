"""Create the state of a batch before its first call. In: a layout and the kind of an order. Out: a `BatchState`."""

from __future__ import annotations

import numpy as np

from runnel.arrays import IDENTIFIER, Array, row_offsets
from runnel.matching.operators.orders import call_buckets
from runnel.matching.operators.orders.batch_arrays import ACCEPTED, NOTHING, UNDECIDED, BatchLayout, BatchState
from runnel.matching.operators.orders.call_buckets import BUCKETS
from runnel.matching.operators.orders.order import OrderKind


def create_state(layout: BatchLayout, kind: OrderKind) -> BatchState:
    """Return the state before the first call. Disjuncts without tests are accepted."""
    items, slots, entries = len(layout.item_pairs) - 1, len(layout.slot_calls), len(layout.entry_slots)
    lengths = np.diff(layout.pair_entries)
    before = np.concatenate([[0], np.cumsum(lengths > 0)])
    scored = slots if kind.is_scored else 0
    moved = slots if kind.moves_slots else 0
    many = (np.diff(layout.item_slots) > call_buckets.FEW) & kind.is_scored
    state = BatchState(
        outcomes=np.where(lengths > 0, UNDECIDED, ACCEPTED).astype(np.int8),
        remaining=lengths.astype(np.int16),
        done=np.zeros(slots, dtype=np.int8),
        failed=np.zeros(entries if kind.keeps_failures else 0, dtype=np.int8),
        undecided=np.diff(before[layout.item_pairs]).astype(IDENTIFIER),
        positions=_first_positions(layout, kind),
        marked=np.full(items if kind.finishes_disjuncts else 0, NOTHING, dtype=IDENTIFIER),
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
    if kind.score is not None:
        kind.score(layout, state)
    return state


def _first_positions(layout: BatchLayout, kind: OrderKind) -> Array:
    if kind.by_calls:
        return layout.item_slots[:-1].copy()
    if kind.is_scored:
        return np.zeros(len(layout.item_slots) - 1, dtype=IDENTIFIER)
    return np.asarray(layout.pair_entries[layout.item_pairs[:-1]])
