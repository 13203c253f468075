"""Marking a block: which of its items have which key, as masks; and its numbers by slot."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.filters.streams.block_texts import Prefixed
from runnel.matching.filters.streams.masks import BLOCK, NOBODY, put_item, save
from runnel.matching.filters.streams.walk import BlockNumbers, BlockTexts, WalkState


@kernel
def mark_words(
    texts: BlockTexts,
    rows: tuple[int, int],
    whole: int,
    offsets: Array,
    word_keys: Array,
    key_slots: Array,
    state: WalkState,
) -> None:
    """Set the bits of the words in the texts of some rows; a word counts for its text's slot and for whole items."""
    for row in range(rows[0], rows[1]):
        for value in range(texts.row_values[row], texts.row_values[row + 1]):
            slot = texts.slots[value]
            for place in range(texts.offsets[value], texts.offsets[value + 1]):
                token = texts.words[place]
                if token < 0:
                    continue
                for spot in range(offsets[token], offsets[token + 1]):
                    key = word_keys[spot]
                    if key_slots[key] == slot or key_slots[key] == whole:
                        put_item(state.present, key, row - rows[0])
                        state.flags[key] = 1


@kernel
def mark_prefixes(
    found: Prefixed,
    pairs: tuple[int, int],
    first_row: int,
    whole: int,
    offsets: Array,
    prefix_keys: Array,
    key_slots: Array,
    state: WalkState,
) -> None:
    """Set the bits of some of the prefixes that words begin with; each counts as a word does."""
    for pair in range(pairs[0], pairs[1]):
        slot, prefix = found.slots[pair], found.prefixes[pair]
        for spot in range(offsets[prefix], offsets[prefix + 1]):
            key = prefix_keys[spot]
            if key_slots[key] == slot or key_slots[key] == whole:
                put_item(state.present, key, found.rows[pair] - first_row)
                state.flags[key] = 1


@kernel
def mark_keys(rows: Array, keys: Array, first_row: int, state: WalkState) -> None:
    """Set the bits of other keys, given as pairs of a row and a key."""
    for pair in range(len(rows)):
        put_item(state.present, keys[pair], rows[pair] - first_row)
        state.flags[keys[pair]] = 1


@kernel
def mark_all(count: int, state: WalkState) -> None:
    """Set the bits of the key that all `count` items of a block have: the last but one."""
    always = len(state.flags) - 2
    for item in range(count):
        put_item(state.present, always, item)
    state.flags[always] = 1


@kernel
def clear(state: WalkState) -> None:
    """Forget the marks of a block."""
    for key in range(len(state.flags)):
        if state.flags[key]:
            state.flags[key] = 0
            save(state.present, np.uint64(key), NOBODY)


@kernel
def group_numbers(places: Array, numbers: Array, slots: int, first_row: int) -> BlockNumbers:
    """The numbers of a block by slot. A place is a row times the slots plus the slot; places ascend."""
    offsets = np.zeros(slots + 1, dtype=np.int64)
    for place in places:
        offsets[place % slots + 1] += 1
    for slot in range(slots):
        offsets[slot + 1] += offsets[slot]
    rows = np.empty(len(places), dtype=np.int64)
    values = np.empty(len(places), dtype=np.float64)
    columns = np.full(slots * BLOCK, np.nan)
    several = np.zeros(slots, dtype=np.uint8)
    spots = offsets[:-1].copy()
    for number in range(len(places)):
        slot, row = places[number] % slots, places[number] // slots
        rows[spots[slot]] = row
        values[spots[slot]] = numbers[number]
        spots[slot] += 1
        several[slot] |= number > 0 and places[number] == places[number - 1]
        columns[slot * BLOCK + row - first_row] = numbers[number]
    return BlockNumbers(offsets, rows, values, columns, several, first_row)
