"""Kernels of the tree matcher: a level of a filter tree on a chunk of items, a bit for every item.

The mask of a node says which items pass it: those that pass its parent and satisfy the clauses that it adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel

KEYED, RANGED, EXTRA = 0, 1, 2
"""How an atom's mask is found: the items that have a key, numbers within bounds, or evaluated beforehand."""


class TreeArrays(NamedTuple):
    """A tree and the atoms below it. `places` is the key of an atom, its number among the ranges, or among extras."""

    parents: Array
    clause_offsets: Array
    clauses: Array
    literal_offsets: Array
    literals: Array
    kinds: Array
    places: Array
    slots: Array
    lows: Array
    highs: Array


class ChunkArrays(NamedTuple):
    """A chunk of items: which have a key (`present`, by `columns`), and the numbers of every slot with their rows.

    `made` says which masks of ranges were made already. Extras have two masks: surely true, and perhaps.
    """

    present: Array
    columns: Array
    number_offsets: Array
    number_rows: Array
    numbers: Array
    made: Array
    ranges: Array
    true: Array
    perhaps: Array


@kernel
def mark_keys(rows: Array, columns: Array, words: int, count: int) -> Array:
    """The mask of every column: the rows that it was found in; column 0 stays empty."""
    present = np.zeros((count, words), dtype=np.uint64)
    for place in range(len(rows)):
        present[columns[place], rows[place] >> 6] |= np.uint64(1) << np.uint64(rows[place] & 63)
    return present


@kernel
def count_bits(mask: Array) -> int:
    """How many items a mask has."""
    count = 0
    for word in mask:
        bits = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
        bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
        bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        count += int((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return count


@kernel
def _make_range(tree: TreeArrays, chunk: ChunkArrays, atom: int) -> None:
    """The mask of the items that have a number within an atom's bounds."""
    place, slot = tree.places[atom], tree.slots[atom]
    for number in range(chunk.number_offsets[slot], chunk.number_offsets[slot + 1]):
        if tree.lows[atom] <= chunk.numbers[number] <= tree.highs[atom]:
            row = chunk.number_rows[number]
            chunk.ranges[place, row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    chunk.made[place] = True


@kernel
def _add_literal(tree: TreeArrays, chunk: ChunkArrays, literal: int, found: Array) -> None:
    """Add the items for which a literal is not known to be false."""
    atom, negated = literal >> 1, literal & 1
    kind, place = tree.kinds[atom], tree.places[atom]
    if kind == RANGED and not chunk.made[place]:
        _make_range(tree, chunk, atom)
    for word in range(len(found)):
        bits: Number = np.uint64(0)
        if kind == KEYED:
            bits = chunk.present[chunk.columns[place], word]
        elif kind == RANGED:
            bits = chunk.ranges[place, word]
        else:
            bits = chunk.true[place, word] if negated else chunk.perhaps[place, word]
        found[word] |= ~bits if negated else bits


@kernel
def pass_level(first: int, last: int, tree: TreeArrays, chunk: ChunkArrays, masks: Array, counts: Array) -> None:
    """The masks of the nodes of a level, from those of their parents.

    `counts` are the pairs of an item and a node that were asked, and the pairs of an item and a clause.
    """
    clause_mask = np.empty(masks.shape[1], dtype=np.uint64)
    for node in range(first, last):
        mask = masks[node]
        mask[:] = masks[tree.parents[node]]
        size = count_bits(mask)
        counts[0] += size
        for place in range(tree.clause_offsets[node], tree.clause_offsets[node + 1]):
            if not size:
                break
            counts[1] += size
            clause = tree.clauses[place]
            clause_mask[:] = np.uint64(0)
            for literal in range(tree.literal_offsets[clause], tree.literal_offsets[clause + 1]):
                _add_literal(tree, chunk, tree.literals[literal], clause_mask)
            for word in range(len(mask)):
                mask[word] &= clause_mask[word]
            size = count_bits(mask)


@kernel
def need_extras(first: int, last: int, tree: TreeArrays, chunk: ChunkArrays, masks: Array, needed: Array) -> None:
    """For every extra atom of a level the items for which it must be evaluated: those that pass all the rest."""
    mask = np.empty(masks.shape[1], dtype=np.uint64)
    clause_mask = np.empty(masks.shape[1], dtype=np.uint64)
    for node in range(first, last):
        mask[:] = masks[tree.parents[node]]
        for asking in range(2):
            if not count_bits(mask):
                break
            for place in range(tree.clause_offsets[node], tree.clause_offsets[node + 1]):
                clause = tree.clauses[place]
                extras = False
                clause_mask[:] = np.uint64(0)
                for which in range(tree.literal_offsets[clause], tree.literal_offsets[clause + 1]):
                    literal = tree.literals[which]
                    if tree.kinds[literal >> 1] != EXTRA:
                        _add_literal(tree, chunk, literal, clause_mask)
                    else:
                        extras = True
                        if asking:
                            for word in range(len(mask)):
                                needed[tree.places[literal >> 1], word] |= mask[word]
                if not asking and not extras:
                    for word in range(len(mask)):
                        mask[word] &= clause_mask[word]


@kernel
def gather_pairs(masks: Array, nodes: Array, offsets: Array, predicates: Array) -> tuple[Array, Array]:
    """The rows that pass these nodes, with the predicates of each node."""
    count = 0
    for node in nodes:
        count += count_bits(masks[node]) * (offsets[node + 1] - offsets[node])
    rows = np.empty(count, dtype=np.int64)
    found = np.empty(count, dtype=np.int64)
    size = 0
    for node in nodes:
        for word in range(masks.shape[1]):
            bits = masks[node, word]
            while bits:
                lowest = bits & (~bits + np.uint64(1))
                row = 64 * word + _place(lowest)
                for place in range(offsets[node], offsets[node + 1]):
                    rows[size] = row
                    found[size] = predicates[place]
                    size += 1
                bits ^= lowest
    return rows, found


@kernel
def _place(bit: Number) -> int:
    """The place of the only bit of a word."""
    place = 0
    while bit > np.uint64(1):
        bit >>= np.uint64(1)
        place += 1
    return place
