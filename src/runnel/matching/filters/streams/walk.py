"""The walk along the streams: for a block of items, the predicates that hold for each of them.

`present` holds the mask of every key, and after the last key those of always and never. What has no exact key is
known by other means: a range or phrase is evaluated for a block when it is first asked for; any other atom leaves its
predicates *doubtful* for the items that it decides, and the caller settles these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, lowest_bit, prefetch, step
from runnel.matching.filters.streams.masks import (
    ALL,
    BLOCK,
    NOBODY,
    ONE,
    WORDS,
    ZERO,
    Mask,
    both,
    either,
    flipped,
    gathered,
    load,
    put_bit,
    put_item,
    save,
    some,
    without,
)
from runnel.matching.filters.streams.shared_groups import MOST_LEVELS
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
"""A stream's first lines are asked for so many streams before it is walked."""

_GROUPED = np.uint32(GROUPED)
_LITERALS = np.uint32((1 << KIND) - 1)


class PartArrays(NamedTuple):
    """What the walk reads of a plan part."""

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
    """The texts of a batch as words: `row_values` are the offsets of an item's texts, `slots` the slot of each."""

    row_values: Array
    slots: Array
    offsets: Array
    words: Array


class BlockNumbers(NamedTuple):
    """The numbers of a block by slot, and the first row of the block.

    `columns` has the number of every item for every slot, NaN where it has none; `several` marks the slots in which
    some item has more than one.
    """

    offsets: Array
    rows: Array
    values: Array
    columns: Array
    several: Array
    first_row: int


class WalkState(NamedTuple):
    """What is written while a block is walked; kept from block to block.

    `streams` are those that the block leads to, `holders` the items that lead to each. `touched` has a bit for every
    predicate with hits. `stamps` say for which block an extra's mask was made. `doubtful` has room for every entry
    that can be in doubt. `counters` are the entries walked, the tails checked, the extras evaluated, and the number
    of the block.
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
    """Add the block's items to the hits of the predicates that hold for them; gives how many entries are doubtful.

    `count` streams are walked: those that the state names.
    """
    # One long function: handing the arrays on to another one would count their references for every entry, which
    # takes longer than the work.
    offsets, stream, present = part.offsets, part.stream, state.present
    hits, touched = state.hits, state.touched
    extra_masks, stamps, doubtful, doubts = state.extra_masks, state.stamps, state.doubtful, state.doubts
    extras, slots, lows, highs = part.extras, part.atom_slots, part.atom_lows, part.atom_highs
    columns, several = numbers.columns, numbers.several
    state.counters[3] = block
    in_doubt, entries, tails = ZERO, ZERO, ZERO
    words = np.empty(WORDS, dtype=np.uint64)
    streams, depth = state.streams, ZERO
    # The items for which the stream and each open group is walked, and where these end.
    left = np.empty(WORDS * (MOST_LEVELS + 1), dtype=np.uint64)
    limits = np.empty(MOST_LEVELS + 1, dtype=np.uint64)
    number = 0
    spot = limit = end = ZERO
    while True:
        # What comes next: a group that is not skipped, or else a stream.
        while depth != ZERO and spot == limit:
            depth -= ONE
            limit = limits[depth]
        if spot == limit:
            if number == count:
                break
            soon = np.uint64(offsets[streams[number + AHEAD]])
            prefetch(stream, soon)
            prefetch(stream, soon + np.uint64(16))
            prefetch(stream, soon + np.uint64(32))
            holders = load(state.holders, np.uint64(number))
            start = np.uint64(offsets[streams[number]])
            number += 1
            spot = start + np.uint64(2)
            direct = stream[start]
            limit = np.uint64(stream[start + ONE])
            if direct & _GROUPED:
                direct ^= _GROUPED
                limit += np.uint64(stream[spot])
                spot += ONE
            joined = spot + np.uint64(direct)
            limit += joined
            end = joined + np.uint64(stream[start + ONE])
        else:
            entries += ONE
            holders = keyed(present, stream, spot, load(left, depth))
            inside = spot + np.uint64(ENTRY)
            after = inside + np.uint64(stream[spot])
            if not some(holders):
                spot = after
                continue
            joined = inside + ONE + np.uint64(stream[spot + ONE])
            end = joined + np.uint64(stream[inside])
            spot = inside + ONE
            limits[depth] = limit
            depth += ONE
            limit = after
        save(left, depth, holders)
        entries += joined - spot + (end - joined) // np.uint64(ENTRY)
        while spot < joined:
            predicate = np.uint64(stream[spot])
            save(hits, predicate, either(load(hits, predicate), holders))
            put_bit(touched, predicate)
            spot += ONE
        while spot < end:
            entry = spot
            spot += np.uint64(ENTRY)
            mask = keyed(present, stream, entry, holders)
            if not some(mask):
                continue
            tail = np.uint64(stream[entry + ONE])
            if tail != ZERO:
                tails += ONE
                place = start + tail
                last = place + ONE + np.uint64(stream[place])
                place += ONE
                doubt = NOBODY
                while place < last and some(mask):
                    header = stream[place]
                    place += ONE
                    clause_end = place + np.uint64(header & _LITERALS)
                    kind = header >> np.uint32(KIND)
                    found, unknown = NOBODY, kind == FORMULA
                    if kind == MISSING:
                        found = flipped(load(present, np.uint64(stream[place])), ALL)
                        place += ONE
                    elif kind == KEYS:
                        while place < clause_end:
                            found = either(found, load(present, np.uint64(stream[place])))
                            place += ONE
                    while place < clause_end:
                        literal = stream[place]
                        place += ONE
                        flip = ALL if literal & np.uint32(1) else ZERO
                        index = np.uint64(literal >> np.uint32(3))
                        known_by = (literal >> np.uint32(1)) & np.uint32(3)
                        if known_by == OTHER:
                            unknown = True
                        elif known_by == KEY:
                            found = either(found, flipped(load(present, index), flip))
                        elif known_by == RANGE and several[slots[extras[index]]] == 0:
                            atom = extras[index]
                            asked, column = without(mask, found), np.uint64(BLOCK) * np.uint64(slots[atom])
                            for word in range(WORDS):
                                first = column + np.uint64(64 * word)
                                words[word] = _within(columns, first, asked[word], lows[atom], highs[atom])
                            within = gathered(words)
                            found = either(found, flipped(within, flip))
                        else:
                            if stamps[index] != block:
                                make_extra(part, texts, numbers, state, index, known_by == RANGE)
                            found = either(found, flipped(load(extra_masks, index), flip))
                    if unknown:
                        doubt = either(doubt, without(mask, found))
                    else:
                        mask = both(mask, found)
                doubt = both(mask, doubt)
                if some(doubt):
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
    """Those of the holders that have any of the keys in an entry."""
    mask = load(present, np.uint64(stream[entry + np.uint64(2)]))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(3)])))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(4)])))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(5)])))
    mask = either(mask, load(present, np.uint64(stream[entry + np.uint64(6)])))
    return both(mask, holders)


@step
def _within(columns: Array, first: Number, asked: Number, low: Number, high: Number) -> Number:
    """Which of the items that are asked for have a number within bounds."""
    within = ZERO
    while asked != ZERO:
        bit = np.uint64(lowest_bit(asked))
        asked &= asked - ONE
        if low <= columns[first + bit] <= high:
            within |= ONE << bit
    return within


@kernel
def make_extra(
    part: PartArrays, texts: BlockTexts, numbers: BlockNumbers, state: WalkState, extra: Number, is_range: bool
) -> None:
    """The mask of a range or phrase for this block."""
    state.stamps[extra] = state.counters[3]
    state.counters[2] += 1
    save(state.extra_masks, extra, NOBODY)
    if is_range:
        _mark_range(part, numbers, state, extra)
    else:
        _mark_phrase(part, texts, state, extra, numbers.first_row)


@kernel
def _mark_range(part: PartArrays, numbers: BlockNumbers, state: WalkState, extra: Number) -> None:
    """The items of the block with a number within the bounds of an atom."""
    atom = part.extras[extra]
    low, high, slot = part.atom_lows[atom], part.atom_highs[atom], part.atom_slots[atom]
    for place in range(numbers.offsets[slot], numbers.offsets[slot + 1]):
        if low <= numbers.values[place] <= high:
            put_item(state.extra_masks, extra, numbers.rows[place] - numbers.first_row)


@kernel
def _mark_phrase(part: PartArrays, texts: BlockTexts, state: WalkState, extra: Number, first_row: int) -> None:
    """The items of the block that hold a phrase: those that have all its words, looked through."""
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
