"""Walk along the streams of a block: find the predicates that hold for each of its items.

`present` contains the mask of every key and, after the last key, the masks of all items and of no items. Atoms
without an exact key are decided differently: a range or phrase is evaluated for the whole block at its first use. Any
other atom leaves its predicates *doubtful* for the items for which it matters, and the caller decides these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, lowest_bit, prefetch, step
from runnel.matching.filters.streams.masks import (
    ALL,
    BLOCK,
    EMPTY_MASK,
    ONE,
    WORDS,
    ZERO,
    Mask,
    both,
    either,
    flipped,
    is_nonempty,
    load,
    put_bit,
    put_item,
    save,
    to_mask,
    without,
)
from runnel.matching.filters.streams.shared_groups import MAX_LEVELS
from runnel.matching.filters.streams.write_streams import (
    ENTRY,
    FORMULA,
    GROUPED,
    KEY,
    KEYS,
    KIND,
    MISSING,
    OTHER,
    RANGE,
)

AHEAD = 6
"""The number of streams by which prefetching is ahead of the walk."""

_GROUPED = np.uint32(GROUPED)
_LITERALS = np.uint32((1 << KIND) - 1)


class PartArrays(NamedTuple):
    """The arrays of a plan part that the walk reads."""

    offsets: Array
    stream: Array
    own_offsets: Array
    own_keys: Array
    extras: Array
    phrase_offsets: Array
    phrase_words: Array
    phrase_key_offsets: Array
    phrase_keys: Array
    atom_slots: Array
    atom_lows: Array
    atom_highs: Array
    whole: int


class BlockTexts(NamedTuple):
    """The words of the texts of a batch: `row_values` are the offsets of each item's texts, `slots` their slots."""

    row_values: Array
    slots: Array
    offsets: Array
    words: Array


class BlockNumbers(NamedTuple):
    """The numbers of a block by slot, and the first row of the block.

    `columns` has the number of every item for every slot, or NaN if it has none. `several` marks the slots in which
    an item has more than one number.
    """

    offsets: Array
    rows: Array
    values: Array
    columns: Array
    several: Array
    first_row: int


class WalkState(NamedTuple):
    """The buffers that are written while a block is walked, and reused for the next block.

    `streams` are the streams that the block leads to, `holders` the items that lead to each. `hits` are the items
    that satisfy each predicate, and `touched` has a bit for every predicate with hits. `stamps` has the block for
    which the mask of each extra was computed. `doubtful` are the undecided predicates, and `doubts` their items.
    `counters` are the entries read, the tails checked, the extras evaluated, and the number of the block.
    """

    present: Array
    flags: Array
    streams: Array
    holders: Array
    extra_masks: Array
    stamps: Array
    hits: Array
    touched: Array
    doubtful: Array
    doubts: Array
    counters: Array


@kernel
def walk(part: PartArrays, texts: BlockTexts, numbers: BlockNumbers, state: WalkState, count: int, block: int) -> int:
    """Add the block's items to the hits of the predicates that they satisfy. Return the number of doubtful entries.

    The walk reads the first `count` of `state.streams`.
    """
    # One long function, because numba would count references whenever arrays are passed to another function, and that
    # takes longer than the work on an entry.
    offsets, stream, present = part.offsets, part.stream, state.present
    hits, touched = state.hits, state.touched
    extra_masks, stamps, doubtful, doubts = state.extra_masks, state.stamps, state.doubtful, state.doubts
    extras, slots, lows, highs = part.extras, part.atom_slots, part.atom_lows, part.atom_highs
    columns, several = numbers.columns, numbers.several
    state.counters[3] = block
    in_doubt, entries, tails = ZERO, ZERO, ZERO
    words = np.empty(WORDS, dtype=np.uint64)
    streams, depth = state.streams, ZERO
    # The items for which the stream and each open group are walked, and the ends of these.
    left = np.empty(WORDS * (MAX_LEVELS + 1), dtype=np.uint64)
    limits = np.empty(MAX_LEVELS + 1, dtype=np.uint64)
    number = 0
    position = limit = end = ZERO
    while True:
        # Enter the next group that is not skipped or, if there is none, the next stream.
        while depth != ZERO and position == limit:
            depth -= ONE
            limit = limits[depth]
        if position == limit:
            if number == count:
                break
            soon = np.uint64(offsets[streams[number + AHEAD]])
            prefetch(stream, soon)
            prefetch(stream, soon + np.uint64(16))
            prefetch(stream, soon + np.uint64(32))
            holders = load(state.holders, np.uint64(number))
            start = np.uint64(offsets[streams[number]])
            number += 1
            position = start + np.uint64(2)
            direct = stream[start]
            limit = np.uint64(stream[start + ONE])
            if direct & _GROUPED:
                direct ^= _GROUPED
                limit += np.uint64(stream[position])
                position += ONE
            joined = position + np.uint64(direct)
            limit += joined
            end = joined + np.uint64(stream[start + ONE])
        else:
            entries += ONE
            holders = keyed(present, stream, position, load(left, depth))
            inside = position + np.uint64(ENTRY)
            after = inside + np.uint64(stream[position])
            if not is_nonempty(holders):
                position = after
                continue
            joined = inside + ONE + np.uint64(stream[position + ONE])
            end = joined + np.uint64(stream[inside])
            position = inside + ONE
            limits[depth] = limit
            depth += ONE
            limit = after
        save(left, depth, holders)
        entries += joined - position + (end - joined) // np.uint64(ENTRY)
        while position < joined:
            predicate = np.uint64(stream[position])
            save(hits, predicate, either(load(hits, predicate), holders))
            put_bit(touched, predicate)
            position += ONE
        while position < end:
            entry = position
            position += np.uint64(ENTRY)
            mask = keyed(present, stream, entry, holders)
            if not is_nonempty(mask):
                continue
            tail = np.uint64(stream[entry + ONE])
            if tail != ZERO:
                tails += ONE
                tail_position = start + tail
                last = tail_position + ONE + np.uint64(stream[tail_position])
                tail_position += ONE
                doubt = EMPTY_MASK
                while tail_position < last and is_nonempty(mask):
                    header = stream[tail_position]
                    tail_position += ONE
                    clause_end = tail_position + np.uint64(header & _LITERALS)
                    kind = header >> np.uint32(KIND)
                    satisfied, is_unknown = EMPTY_MASK, kind == FORMULA
                    if kind == MISSING:
                        satisfied = flipped(load(present, np.uint64(stream[tail_position])), ALL)
                        tail_position += ONE
                    elif kind == KEYS:
                        while tail_position < clause_end:
                            satisfied = either(satisfied, load(present, np.uint64(stream[tail_position])))
                            tail_position += ONE
                    while tail_position < clause_end:
                        literal = stream[tail_position]
                        tail_position += ONE
                        flip = ALL if literal & np.uint32(1) else ZERO
                        index = np.uint64(literal >> np.uint32(3))
                        literal_kind = (literal >> np.uint32(1)) & np.uint32(3)
                        if literal_kind == OTHER:
                            is_unknown = True
                        elif literal_kind == KEY:
                            satisfied = either(satisfied, flipped(load(present, index), flip))
                        elif literal_kind == RANGE and several[slots[extras[index]]] == 0:
                            atom = extras[index]
                            candidates, column = without(mask, satisfied), np.uint64(BLOCK) * np.uint64(slots[atom])
                            for word in range(WORDS):
                                first = column + np.uint64(64 * word)
                                words[word] = _within(columns, first, candidates[word], lows[atom], highs[atom])
                            within = to_mask(words)
                            satisfied = either(satisfied, flipped(within, flip))
                        else:
                            if stamps[index] != block:
                                make_extra(part, texts, numbers, state, index, literal_kind == RANGE)
                            satisfied = either(satisfied, flipped(load(extra_masks, index), flip))
                    if is_unknown:
                        doubt = either(doubt, without(mask, satisfied))
                    else:
                        mask = both(mask, satisfied)
                doubt = both(mask, doubt)
                if is_nonempty(doubt):
                    doubtful[in_doubt] = stream[entry]
                    save(doubts, in_doubt, doubt)
                    in_doubt += ONE
                    mask = without(mask, doubt)
            predicate = np.uint64(stream[entry])
            save(hits, predicate, either(load(hits, predicate), mask))
            put_bit(touched, predicate)
    state.counters[0] += entries
    state.counters[1] += tails
    return np.int64(in_doubt)  # type: ignore[return-value]


@step
def keyed(present: Array, stream: Array, entry: Number, holders: Mask) -> Mask:
    """Return the holders that have any of the keys of an entry."""
    mask = load(present, np.uint64(stream[entry + np.uint64(2)]))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(3)])))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(4)])))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(5)])))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(6)])))
    return both(mask, holders)


@step
def _within(columns: Array, first: Number, candidates: Number, low: Number, high: Number) -> Number:
    """Return the candidates (64 items from `first` on) that have a number from `low` to `high`."""
    within = ZERO
    while candidates != ZERO:
        bit = np.uint64(lowest_bit(candidates))
        candidates &= candidates - ONE
        if low <= columns[first + bit] <= high:
            within |= ONE << bit
    return within


@kernel
def make_extra(
    part: PartArrays, texts: BlockTexts, numbers: BlockNumbers, state: WalkState, extra: Number, is_range: bool
) -> None:
    """Compute the mask of a range or phrase for this block."""
    state.stamps[extra] = state.counters[3]
    state.counters[2] += 1
    save(state.extra_masks, extra, EMPTY_MASK)
    if is_range:
        _mark_range(part, numbers, state, extra)
    else:
        _mark_phrase(part, texts, state, extra, numbers.first_row)


@kernel
def _mark_range(part: PartArrays, numbers: BlockNumbers, state: WalkState, extra: Number) -> None:
    """Mark the items of the block with a number within the bounds of an atom."""
    atom = part.extras[extra]
    low, high, slot = part.atom_lows[atom], part.atom_highs[atom], part.atom_slots[atom]
    for index in range(numbers.offsets[slot], numbers.offsets[slot + 1]):
        if low <= numbers.values[index] <= high:
            put_item(state.extra_masks, extra, numbers.rows[index] - numbers.first_row)


@kernel
def _mark_phrase(part: PartArrays, texts: BlockTexts, state: WalkState, extra: Number, first_row: int) -> None:
    """Mark the items of the block that contain a phrase. Only items with all its words are searched."""
    atom = part.extras[extra]
    keys = part.phrase_keys[part.phrase_key_offsets[atom] : part.phrase_key_offsets[atom + 1]]
    phrase = part.phrase_words[part.phrase_offsets[extra] : part.phrase_offsets[extra + ONE]]
    for word in range(WORDS):
        left = ALL
        for key in keys:
            left &= state.present[WORDS * key + word]
        while left != ZERO:
            item = 64 * word + lowest_bit(left)
            left &= left - ONE
            if _has_phrase(texts, first_row + item, part.atom_slots[atom], part.whole, phrase):
                put_item(state.extra_masks, extra, item)


@kernel
def _has_phrase(texts: BlockTexts, row: Number, slot: Number, whole: int, phrase: Array) -> bool:
    size = len(phrase)
    for value in range(texts.row_values[row], texts.row_values[row + 1]):
        if slot != whole and texts.slots[value] != slot:
            continue
        for start in range(texts.offsets[value], texts.offsets[value + 1] - size + 1):
            matched = 0
            while matched < size and texts.words[start + matched] == phrase[matched]:
                matched += 1
            if matched == size:
                return True
    return False
