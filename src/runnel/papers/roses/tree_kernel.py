"""Kernels of the tree matcher: evaluate one level of a filter tree on a chunk of items, with one bit per item.

The mask of a node has the items that pass it: those that pass its parent and satisfy the clauses that it adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel

KEYED, RANGED, EXTRA = 0, 1, 2
"""Where the mask of an atom comes from: a key of the items, a numeric range, or an evaluation before the kernel."""


class TreeArrays(NamedTuple):
    """A tree and its atoms. `indexes` is the key of an atom, its number among the ranges or among the extra atoms."""

    parents: Array
    clause_offsets: Array
    clauses: Array
    literal_offsets: Array
    literals: Array
    kinds: Array
    indexes: Array
    slots: Array
    lows: Array
    highs: Array


class ChunkArrays(NamedTuple):
    """A chunk of items.

    `present[columns[key]]` is the mask of the items that have a key. `numbers` and `number_rows` are the numeric
    values of each slot and the rows that have them. `is_ranged` marks the ranges whose mask in `ranges` is complete.
    Extra atoms have two masks: the items for which they are true, and those for which they are true or unknown.
    """

    present: Array
    columns: Array
    number_offsets: Array
    number_rows: Array
    numbers: Array
    is_ranged: Array
    ranges: Array
    true: Array
    possible: Array


@kernel
def mark_keys(rows: Array, columns: Array, words: int, count: int) -> Array:
    """Return the mask of every column: the rows that have it. Column 0 stays empty."""
    present = np.zeros((count, words), dtype=np.uint64)
    for index in range(len(rows)):
        present[columns[index], rows[index] >> 6] |= np.uint64(1) << np.uint64(rows[index] & 63)
    return present


@kernel
def count_bits(mask: Array) -> int:
    """Return the number of items in a mask."""
    count = 0
    for word in mask:
        bits = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
        bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
        bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        count += int((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return count


@kernel
def _fill_range(tree: TreeArrays, chunk: ChunkArrays, atom: int) -> None:
    """Fill the mask of the items that have a number within an atom's bounds."""
    index, slot = tree.indexes[atom], tree.slots[atom]
    for number in range(chunk.number_offsets[slot], chunk.number_offsets[slot + 1]):
        if tree.lows[atom] <= chunk.numbers[number] <= tree.highs[atom]:
            row = chunk.number_rows[number]
            chunk.ranges[index, row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    chunk.is_ranged[index] = True


@kernel
def _add_literal(tree: TreeArrays, chunk: ChunkArrays, literal: int, passing: Array) -> None:
    """Add to `passing` the items for which a literal is not known to be false."""
    atom, negated = literal >> 1, literal & 1
    kind, index = tree.kinds[atom], tree.indexes[atom]
    if kind == RANGED and not chunk.is_ranged[index]:
        _fill_range(tree, chunk, atom)
    for word in range(len(passing)):
        bits: Number = np.uint64(0)
        if kind == KEYED:
            bits = chunk.present[chunk.columns[index], word]
        elif kind == RANGED:
            bits = chunk.ranges[index, word]
        else:
            bits = chunk.true[index, word] if negated else chunk.possible[index, word]
        passing[word] |= ~bits if negated else bits


@kernel
def pass_level(first: int, last: int, tree: TreeArrays, chunk: ChunkArrays, masks: Array, counts: Array) -> None:
    """Compute the masks of the nodes of a level from the masks of their parents.

    `counts` receives the number of (item, node) pairs and of (item, clause) pairs that were evaluated.
    """
    clause_mask = np.empty(masks.shape[1], dtype=np.uint64)
    for node in range(first, last):
        mask = masks[node]
        mask[:] = masks[tree.parents[node]]
        size = count_bits(mask)
        counts[0] += size
        for index in range(tree.clause_offsets[node], tree.clause_offsets[node + 1]):
            if not size:
                break
            counts[1] += size
            clause = tree.clauses[index]
            clause_mask[:] = np.uint64(0)
            for literal in range(tree.literal_offsets[clause], tree.literal_offsets[clause + 1]):
                _add_literal(tree, chunk, tree.literals[literal], clause_mask)
            for word in range(len(mask)):
                mask[word] &= clause_mask[word]
            size = count_bits(mask)


@kernel
def need_extras(first: int, last: int, tree: TreeArrays, chunk: ChunkArrays, masks: Array, needed: Array) -> None:
    """Find the items for which each extra atom of a level must be evaluated: those that pass all other clauses."""
    mask = np.empty(masks.shape[1], dtype=np.uint64)
    clause_mask = np.empty(masks.shape[1], dtype=np.uint64)
    for node in range(first, last):
        mask[:] = masks[tree.parents[node]]
        for collecting in range(2):
            if not count_bits(mask):
                break
            for index in range(tree.clause_offsets[node], tree.clause_offsets[node + 1]):
                clause = tree.clauses[index]
                has_extras = False
                clause_mask[:] = np.uint64(0)
                for position in range(tree.literal_offsets[clause], tree.literal_offsets[clause + 1]):
                    literal = tree.literals[position]
                    if tree.kinds[literal >> 1] != EXTRA:
                        _add_literal(tree, chunk, literal, clause_mask)
                    else:
                        has_extras = True
                        if collecting:
                            for word in range(len(mask)):
                                needed[tree.indexes[literal >> 1], word] |= mask[word]
                if not collecting and not has_extras:
                    for word in range(len(mask)):
                        mask[word] &= clause_mask[word]


@kernel
def gather_pairs(masks: Array, nodes: Array, offsets: Array, predicates: Array) -> tuple[Array, Array]:
    """Return the rows that pass these nodes, with the predicates of each node."""
    count = 0
    for node in nodes:
        count += count_bits(masks[node]) * (offsets[node + 1] - offsets[node])
    rows = np.empty(count, dtype=np.int64)
    pair_predicates = np.empty(count, dtype=np.int64)
    size = 0
    for node in nodes:
        for word in range(masks.shape[1]):
            bits = masks[node, word]
            while bits:
                lowest = bits & (~bits + np.uint64(1))
                row = 64 * word + _bit_position(lowest)
                for index in range(offsets[node], offsets[node + 1]):
                    rows[size] = row
                    pair_predicates[size] = predicates[index]
                    size += 1
                bits ^= lowest
    return rows, pair_predicates


@kernel
def _bit_position(bit: Number) -> int:
    """Return the position of the only bit of a word."""
    position = 0
    while bit > np.uint64(1):
        bit >>= np.uint64(1)
        position += 1
    return position
