"""Mark the keys of the items of a block in masks, and group the numbers of the block by slot."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.matching.filters.streams.block_texts import Prefixed
from runnel.matching.filters.streams.masks import BLOCK, EMPTY_MASK, put_item, save
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
    """Mark the words in the texts of rows. A word counts for the slot of its text and for the slot of whole items."""
    for row in range(rows[0], rows[1]):
        for value in range(texts.row_values[row], texts.row_values[row + 1]):
            slot = texts.slots[value]
            for position in range(texts.offsets[value], texts.offsets[value + 1]):
                word = texts.words[position]
                if word < 0:
                    continue
                for index in range(offsets[word], offsets[word + 1]):
                    key = word_keys[index]
                    if key_slots[key] == slot or key_slots[key] == whole:
                        put_item(state.present, key, row - rows[0])
                        state.flags[key] = 1


@kernel
def mark_prefixes(
    prefixed: Prefixed,
    pairs: tuple[int, int],
    first_row: int,
    whole: int,
    offsets: Array,
    prefix_keys: Array,
    key_slots: Array,
    state: WalkState,
) -> None:
    """Mark the prefixes of words in a range of pairs. A prefix counts for the same slots as a word."""
    for pair in range(pairs[0], pairs[1]):
        slot, prefix = prefixed.slots[pair], prefixed.prefixes[pair]
        for index in range(offsets[prefix], offsets[prefix + 1]):
            key = prefix_keys[index]
            if key_slots[key] == slot or key_slots[key] == whole:
                put_item(state.present, key, prefixed.rows[pair] - first_row)
                state.flags[key] = 1


@kernel
def mark_keys(rows: Array, keys: Array, first_row: int, state: WalkState) -> None:
    """Mark pairs of a row and a key."""
    for pair in range(len(rows)):
        put_item(state.present, keys[pair], rows[pair] - first_row)
        state.flags[keys[pair]] = 1


@kernel
def mark_all(count: int, state: WalkState) -> None:
    """Mark the last key but one, which all `count` items of a block have."""
    always = len(state.flags) - 2
    for item in range(count):
        put_item(state.present, always, item)
    state.flags[always] = 1


@kernel
def clear(state: WalkState) -> None:
    """Clear the marks of a block."""
    for key in range(len(state.flags)):
        if state.flags[key]:
            state.flags[key] = 0
            save(state.present, np.uint64(key), EMPTY_MASK)


@kernel
def group_numbers(cells: Array, numbers: Array, slots: int, first_row: int) -> BlockNumbers:
    """Group the numbers of a block by slot. The ascending `cells` are `row * slots + slot` of each number."""
    offsets = np.zeros(slots + 1, dtype=np.int64)
    for cell in cells:
        offsets[cell % slots + 1] += 1
    for slot in range(slots):
        offsets[slot + 1] += offsets[slot]
    rows = np.empty(len(cells), dtype=np.int64)
    values = np.empty(len(cells), dtype=np.float64)
    columns = np.full(slots * BLOCK, np.nan)
    several = np.zeros(slots, dtype=np.uint8)
    next_indices = offsets[:-1].copy()
    for number in range(len(cells)):
        slot, row = cells[number] % slots, cells[number] // slots
        rows[next_indices[slot]] = row
        values[next_indices[slot]] = numbers[number]
        next_indices[slot] += 1
        several[slot] |= number > 0 and cells[number] == cells[number - 1]
        columns[slot * BLOCK + row - first_row] = numbers[number]
    return BlockNumbers(offsets, rows, values, columns, several, first_row)
