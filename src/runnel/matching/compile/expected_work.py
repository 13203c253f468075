"""Estimate the work of the stream matcher per item, and its CPU time.

In: the arrays of a plan part. Out: the anchor clause of each predicate and, for every source, the expected number of
entries read and of numbers compared with bounds, per item. The estimate assumes that items come in full blocks, with
equal shares from all sources. The items of a block share the cost of reading an entry.
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
from runnel.matching.filters.streams.shared_groups import MAX_LEVELS, expected_holders
from runnel.matching.filters.streams.stream_layout import StreamLayout, stream_shares
from runnel.matching.filters.streams.write_streams import ENTRY, GROUPED, HEAD, KIND, MIXED, RANGE
from runnel.plan.store import PlanPart

_LOOKUP = 0.02
"""The cost of looking up an own stream of a source, in entries."""

EACH_ITEM: Final = 8.0
EACH_ENTRY: Final = 0.1
EACH_NUMBER: Final = 0.0002
EACH_EVALUATION: Final = 125.0
"""Microseconds of CPU time per item, per entry read, per number compared, and per query evaluated without an index.

Measured with `benchmarks/matchers.py` and rounded: workload M, long texts, batches of 2,048 items, on two cores with
other load. They include the other costs of more queries: more words to recognize and more matches to write.
"""


@dataclass(frozen=True)
class StreamWork:
    """The expected entries read and numbers compared per item of each source, in the order of their catalog ids."""

    entries: Array
    numbers: Array

    @property
    def microseconds(self) -> Array:
        """The estimated CPU time per item of each source."""
        return EACH_ITEM + EACH_ENTRY * self.entries + EACH_NUMBER * self.numbers


def part_anchors(part: PlanPart) -> Anchors:
    """Choose the anchors of a loaded plan part, which are the same as in its streams."""
    return choose_anchors(part.logical, stored_atoms(part))


def expect_streams(layout: StreamLayout, atoms: AtomLayout) -> StreamWork:
    """Estimate the work of the streams per item of each source."""
    shares = stream_shares(atoms, layout.own_keys)
    keys = np.concatenate([atoms.key_shares.astype(np.float64), [1.0, 0.0]])
    entries, numbers = _per_walk(read_only(layout.offsets), read_only(layout.stream), keys, expected_holders(shares))
    walk_chances = 1.0 - (1.0 - np.minimum(shares, 1.0)) ** BLOCK
    common = len(shares) - len(layout.own_keys.values)
    lookups = np.where(layout.own_keys.lengths > 0, _LOOKUP * layout.own_keys.lengths, 0.0)
    return StreamWork(
        _per_item(walk_chances * entries, layout.own_keys, common, lookups),
        _per_item(walk_chances * numbers, layout.own_keys, common, np.zeros(len(lookups))),
    )


def _per_item(work: Array, own_keys: Rows, common: int, lookups: Array) -> Array:
    """Divide the work for a block by its items, for each source.

    The first `common` entries of `work` are for the streams of all sources, the others for sources' own streams.
    """
    sources = max(1, len(own_keys))
    owners = np.repeat(np.arange(len(own_keys)), own_keys.lengths)
    own = np.bincount(owners, weights=work[common:], minlength=len(own_keys))
    # The lookups of a source are made once per block that contains any of its items.
    presence = 1.0 - (1.0 - 1.0 / sources) ** BLOCK
    return np.asarray(work[:common].sum() / BLOCK + (own + presence * lookups) / (BLOCK / sources))


@kernel
def _per_walk(offsets: Array, stream: Array, shares: Array, holders: Array) -> tuple[Array, Array]:
    """Return for every stream the entries read and the numbers compared when it is walked for a full block.

    `holders` has for every stream the expected number of items of the block that lead to it.
    """
    entries, numbers = np.zeros(len(holders)), np.zeros(len(holders))
    # For the stream and each open group: its end, the chance that it is walked, and the items that still qualify.
    ends, chances, left = np.zeros(MAX_LEVELS + 1, np.int64), np.ones(MAX_LEVELS + 1), np.ones(MAX_LEVELS + 1)
    for number in range(len(holders)):
        start = offsets[number]
        if start == offsets[number + 1]:
            continue
        direct, joined, position = np.int64(stream[start]), np.int64(stream[start + 1]), start + HEAD
        ends[0], left[0], depth = position + joined, holders[number], 0
        if direct & GROUPED:
            direct ^= GROUPED
            ends[0] += 1 + np.int64(stream[position])
            position += 1
        ends[0] += direct
        while True:
            entries[number] += chances[depth] * (direct + joined // ENTRY)
            position += direct
            for entry in range(position, position + joined, ENTRY):
                if stream[entry + 1]:
                    items = chances[depth] * left[depth] * _share(stream, entry, shares)
                    numbers[number] += items * _count_ranges(stream, start + np.int64(stream[entry + 1]))
            position += joined
            while depth > 0 and position == ends[depth]:
                depth -= 1
            if position == ends[depth]:
                break
            share = _share(stream, position, shares)
            entries[number] += chances[depth]
            direct, joined = np.int64(stream[position + 1]), np.int64(stream[position + ENTRY])
            depth += 1
            ends[depth] = position + ENTRY + np.int64(stream[position])
            chances[depth] = chances[depth - 1] * (1.0 - (1.0 - share) ** left[depth - 1])
            left[depth] = max(1.0, left[depth - 1] * share)
            position += ENTRY + 1
    return entries, numbers


@step
def _share(stream: Array, entry: Number, shares: Array) -> Number:
    """Return the estimated share of items that have one of the keys of an entry."""
    total = 0.0
    for index in range(entry + 2, entry + ENTRY):
        total += shares[stream[index]]
    return min(1.0, total)


@step
def _count_ranges(stream: Array, position: Number) -> Number:
    """Return the number of ranges in the tail of an entry."""
    end = position + 1 + np.int64(stream[position])
    position += 1
    count = 0
    while position < end:
        header = np.int64(stream[position])
        position += 1
        for index in range(position, position + (header & ((1 << KIND) - 1))):
            if header >> KIND == MIXED and (np.int64(stream[index]) >> 1) & 3 == RANGE:
                count += 1
        position += header & ((1 << KIND) - 1)
    return count
