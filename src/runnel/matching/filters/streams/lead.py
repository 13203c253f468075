"""Determine the streams that must be read for a block, and the items that lead to each of them.

A key leads to its common stream for all items that have it. For the items of a source, it also leads to the source's
own stream of that key if there is one.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.filters.streams.masks import both, is_nonempty, load, make_masks, put_item, save
from runnel.matching.filters.streams.walk import AHEAD, PartArrays, WalkState


def lead(part: PartArrays, state: WalkState, sources: Array) -> int:
    """Fill the streams and holders of the state, and return the number of streams.

    `sources` are the indices of the items' sources, or negative for feeds that are not sources of the part.
    """
    count = _lead_by_keys(part, state)
    if len(part.own_keys):
        present = np.unique(sources[sources >= 0])
        masks = make_masks(len(present))
        _mark_sources(np.searchsorted(present, sources), sources, masks)
        count = _lead_by_sources(part, state, present, masks, count)
    state.streams[count : count + AHEAD] = 0
    return count


@kernel
def _lead_by_keys(part: PartArrays, state: WalkState) -> int:
    offsets, flags = part.offsets, state.flags
    streams, holders = state.streams, state.holders
    count = 0
    for key in range(len(flags) - 1):  # without a branch, which would often be mispredicted
        streams[count] = key
        count += flags[key] != 0 and offsets[key] != offsets[key + 1]
    for index in range(count):
        save(holders, np.uint64(index), load(state.present, np.uint64(streams[index])))
    return count


@kernel
def _mark_sources(indices: Array, sources: Array, masks: Array) -> None:
    """Set the bit of each item in the mask of its source; `indices` are the masks of the items' sources."""
    for item in range(len(sources)):
        if sources[item] >= 0:
            put_item(masks, indices[item], item)


@kernel
def _lead_by_sources(part: PartArrays, state: WalkState, sources: Array, masks: Array, count: int) -> int:
    own_offsets, own_keys, flags = part.own_offsets, part.own_keys, state.flags
    first = len(flags) - 1
    for index in range(len(sources)):
        source_items = load(masks, np.uint64(index))
        for own in range(own_offsets[sources[index]], own_offsets[sources[index] + 1]):
            key = own_keys[own]
            if flags[key] == 0:
                continue
            mask = both(source_items, load(state.present, np.uint64(key)))
            if is_nonempty(mask):
                state.streams[count] = first + own
                save(state.holders, np.uint64(count), mask)
                count += 1
    return count
