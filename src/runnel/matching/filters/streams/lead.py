"""Where a block's items lead: the streams that must be walked, and for which of the items each.

A key leads to its stream for all items that have it; for the items of a source it also leads to the source's own
stream of that key, where there is one.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.filters.streams.masks import both, load, make_masks, put_item, save, some
from runnel.matching.filters.streams.walk import AHEAD, PartArrays, WalkState


def lead(part: PartArrays, state: WalkState, sources: Array) -> int:
    """Fill the streams of the state; gives how many there are. `sources` are those of the items, below 0 others."""
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
    for key in range(len(flags) - 1):  # without a branch, which would be guessed wrongly too often
        streams[count] = key
        count += flags[key] != 0 and offsets[key] != offsets[key + 1]
    for place in range(count):
        save(holders, np.uint64(place), load(state.present, np.uint64(streams[place])))
    return count


@kernel
def _mark_sources(places: Array, sources: Array, masks: Array) -> None:
    for item in range(len(sources)):
        if sources[item] >= 0:
            put_item(masks, places[item], item)


@kernel
def _lead_by_sources(part: PartArrays, state: WalkState, sources: Array, masks: Array, count: int) -> int:
    own_offsets, own_keys, flags = part.own_offsets, part.own_keys, state.flags
    first = len(flags) - 1
    for place in range(len(sources)):
        here = load(masks, np.uint64(place))
        for own in range(own_offsets[sources[place]], own_offsets[sources[place] + 1]):
            key = own_keys[own]
            if flags[key] == 0:
                continue
            mask = both(here, load(state.present, np.uint64(key)))
            if some(mask):
                state.streams[count] = first + own
                save(state.holders, np.uint64(count), mask)
                count += 1
    return count
