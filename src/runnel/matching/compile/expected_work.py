"""What the streams of a plan are expected to do for an item, and what that costs.

In: the arrays of a plan part. Out: the clause by which each predicate is found, and for every source the entries that
an item passes and the numbers that are compared with bounds. Items are taken to come in full blocks, from all sources
alike; an entry that is walked for a block is shared by its items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from runnel.arrays import Array, Rows, read_only
from runnel.kernel import Number, kernel, step
from runnel.matching.filters.atoms.anchors import Anchors, choose_anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.streams.masks import BLOCK
from runnel.matching.filters.streams.shared_groups import MOST_LEVELS, expected_holders
from runnel.matching.filters.streams.stream_layout import StreamLayout, stream_shares
from runnel.matching.filters.streams.write_streams import ENTRY, GROUPED, HEAD, KIND, MIXED, RANGE
from runnel.plan.store import PlanPart

_LOOK = 0.02
"""What looking for a source's own stream costs, in entries."""

EACH_ITEM: Final = 8.0
EACH_ENTRY: Final = 0.1
EACH_NUMBER: Final = 0.0002
EACH_EVALUATION: Final = 125.0
"""Microseconds of CPU for an item as such, an entry, a number compared, and a query evaluated by its definition.

`benchmarks/matchers.py` measured these, rounded: workload M, long texts, batches of 2,048 items, on two cores that
others used too. What more queries cost otherwise (more words to mark, more matches to write) is in them.
"""


@dataclass(frozen=True)
class StreamWork:
    """For every source, in the order of their catalog ids: entries and numbers for one of its items."""

    entries: Array
    numbers: Array

    @property
    def microseconds(self) -> Array:
        """The CPU time that this takes."""
        return EACH_ITEM + EACH_ENTRY * self.entries + EACH_NUMBER * self.numbers


def part_anchors(part: PlanPart) -> Anchors:
    """The anchors of a loaded plan part, as its streams have them."""
    return choose_anchors(part.logical, stored_atoms(part))


def expect_streams(layout: StreamLayout, atoms: AtomLayout) -> StreamWork:
    """What streams do for an item of each source."""
    shares = stream_shares(atoms, layout.own_keys)
    keys = np.concatenate([atoms.key_shares.astype(np.float64), [1.0, 0.0]])
    entries, numbers = _per_walk(read_only(layout.offsets), read_only(layout.stream), keys, expected_holders(shares))
    walked = 1.0 - (1.0 - np.minimum(shares, 1.0)) ** BLOCK
    general = len(shares) - len(layout.own_keys.values)
    looks = np.where(layout.own_keys.lengths > 0, _LOOK * layout.own_keys.lengths, 0.0)
    return StreamWork(
        _per_item(walked * entries, layout.own_keys, general, looks),
        _per_item(walked * numbers, layout.own_keys, general, np.zeros(len(looks))),
    )


def _per_item(work: Array, own_keys: Rows, general: int, looks: Array) -> Array:
    """What is done in a block for all, and for the items of each source, as an item has its part in it."""
    sources = max(1, len(own_keys))
    owners = np.repeat(np.arange(len(own_keys)), own_keys.lengths)
    own = np.bincount(owners, weights=work[general:], minlength=len(own_keys))
    # Looks are made once for a source of which the block has any item.
    seldom = 1.0 - (1.0 - 1.0 / sources) ** BLOCK
    return np.asarray(work[:general].sum() / BLOCK + (own + seldom * looks) / (BLOCK / sources))


@kernel
def _per_walk(offsets: Array, stream: Array, shares: Array, holders: Array) -> tuple[Array, Array]:
    """For every stream the entries that are passed, and the numbers compared, when it is walked for a full block."""
    entries, numbers = np.zeros(len(holders)), np.zeros(len(holders))
    # Of the stream and of each open group: where it ends, the chance that it is walked, and the items left for it.
    ends, chances, left = np.zeros(MOST_LEVELS + 1, np.int64), np.ones(MOST_LEVELS + 1), np.ones(MOST_LEVELS + 1)
    for number in range(len(holders)):
        start = offsets[number]
        if start == offsets[number + 1]:
            continue
        direct, joined, spot = np.int64(stream[start]), np.int64(stream[start + 1]), start + HEAD
        ends[0], left[0], depth = spot + joined, holders[number], 0
        if direct & GROUPED:
            direct ^= GROUPED
            ends[0] += 1 + np.int64(stream[spot])
            spot += 1
        ends[0] += direct
        while True:
            entries[number] += chances[depth] * (direct + joined // ENTRY)
            spot += direct
            for entry in range(spot, spot + joined, ENTRY):
                if stream[entry + 1]:
                    found = chances[depth] * left[depth] * _share(stream, entry, shares)
                    numbers[number] += found * _ranges(stream, start + np.int64(stream[entry + 1]))
            spot += joined
            while depth > 0 and spot == ends[depth]:
                depth -= 1
            if spot == ends[depth]:
                break
            share = _share(stream, spot, shares)
            entries[number] += chances[depth]
            direct, joined = np.int64(stream[spot + 1]), np.int64(stream[spot + ENTRY])
            depth += 1
            ends[depth] = spot + ENTRY + np.int64(stream[spot])
            chances[depth] = chances[depth - 1] * (1.0 - (1.0 - share) ** left[depth - 1])
            left[depth] = max(1.0, left[depth - 1] * share)
            spot += ENTRY + 1
    return entries, numbers


@step
def _share(stream: Array, entry: Number, shares: Array) -> Number:
    """The part of the items that has one of the keys in an entry."""
    found = 0.0
    for place in range(entry + 2, entry + ENTRY):
        found += shares[stream[place]]
    return min(1.0, found)


@step
def _ranges(stream: Array, spot: Number) -> Number:
    """How many ranges a tail has."""
    end = spot + 1 + np.int64(stream[spot])
    spot += 1
    found = 0
    while spot < end:
        header = np.int64(stream[spot])
        spot += 1
        for place in range(spot, spot + (header & ((1 << KIND) - 1))):
            if header >> KIND == MIXED and (np.int64(stream[place]) >> 1) & 3 == RANGE:
                found += 1
        spot += header & ((1 << KIND) - 1)
    return found
