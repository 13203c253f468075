"""In which order the edges of a shape are laid: the rarest first, then always one of which most is known.

In: a table of patterns, and how frequent terms are where that is known. Out: the orders, and how far back a search
must go to find something new. The first edge is the one under which the shape is indexed.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from runnel.arrays import Array, encode_text, read_only
from runnel.kernel import kernel
from runnel.matching.graphs.patterns.pattern_table import Code, PatternTable
from runnel.model.learned.stream_statistics import MAX_WORD

_LEAST = 0.0005
"""The part of all items expected to have a term that was in none of a sample."""


def term_word(term: str) -> str:
    """What statistics count a term as: itself, which is no word of any text, or its beginning and a digest.

    >>> term_word("<urn:p>"), len(term_word(f"<urn:{'x' * 99}>"))
    ('<urn:p>', 34)
    """
    return term if len(term) <= MAX_WORD else f"{term[0]}#{blake2b(encode_text(term), digest_size=16).hexdigest()}"


def order_edges(table: PatternTable, frequencies: Mapping[str, float] | None = None) -> tuple[Array, Array]:
    """The edges of all shapes, each shape's in order, and how many of a shape's can bind what filters ask for."""
    edges = table.shape_edges.values.reshape(-1, 3)
    longest = int(table.shape_edges.lengths.max(initial=3)) // 3
    orders = np.zeros(len(edges), dtype=np.int64)
    depths = np.zeros(len(table.shape_edges), dtype=np.uint8 if longest < 256 else np.uint16)
    ranks = _rarity(table, edges, frequencies or {})
    offsets, values = read_only(table.shape_edges.offsets), read_only(table.shape_edges.values)
    fill_orders(offsets, values, ranks, _asked(table), orders, depths)
    return np.ascontiguousarray(edges[orders]), depths


def edge_keys(edges: Array) -> Array:
    """The number of every edge's key: its terms, where all variables are alike."""
    nodes = np.maximum(edges, -1).astype(np.int64) + 1
    width = int(nodes.max(initial=0)) + 1
    _, pairs = np.unique(nodes[:, 0] * width + nodes[:, 1], return_inverse=True)
    _, keys = np.unique(pairs.reshape(-1) * width + nodes[:, 2], return_inverse=True)
    return np.asarray(keys.reshape(-1))


def _rarity(table: PatternTable, edges: Array, frequencies: Mapping[str, float]) -> Array:
    """The place of every edge in the order of all, those that are expected in the fewest items first.

    A sample of items decides; else how many shapes have an edge of the same terms, since people ask for what is
    published; else how many terms it has.
    """
    shares = np.zeros(len(edges))
    if frequencies:
        known = [frequencies.get(term_word(term), _LEAST) for term in table.terms.texts()]
        shares = np.append(np.array(known), 1.0)[np.maximum(edges, -1)].min(axis=1)
    keys = edge_keys(edges)
    counts = np.bincount(keys)[keys] if len(keys) else keys
    order = np.lexsort((-np.count_nonzero(edges >= 0, axis=1), counts, shares))
    ranks = np.empty(len(edges), dtype=np.int64)
    ranks[order] = np.arange(len(edges))
    return ranks


def _asked(table: PatternTable) -> Array:
    """The variables of every shape that a filter of one of its patterns asks for, as bits."""
    asked = np.zeros(len(table.shape_edges), dtype=np.uint32)
    constraints = table.constraints.values.reshape(-1, 3)
    owners = np.repeat(table.pattern_shapes, table.constraints.lengths // 3)
    np.bitwise_or.at(asked, owners, np.left_shift(np.uint32(1), constraints[:, 0].astype(np.uint32)))
    for pattern in np.flatnonzero(table.programs.lengths).tolist():
        program, place = table.programs.row(pattern).tolist(), 0
        while place < len(program):
            is_comparison = program[place] < Code.AND
            for node in program[place + 1 : place + 3] if is_comparison else ():
                asked[table.pattern_shapes[pattern]] |= np.uint32(1 << (-1 - node)) if node < 0 else np.uint32(0)
            place += 3 if is_comparison else 1
    return asked


@kernel
def fill_orders(offsets: Array, edges: Array, ranks: Array, asked: Array, orders: Array, depths: Array) -> None:
    """The order of every shape; a level counts where it binds a variable that is asked for."""
    for shape in range(len(offsets) - 1):
        first, last = offsets[shape] // 3, offsets[shape + 1] // 3
        bound = np.uint32(0)
        taken = np.zeros(last - first, dtype=np.bool_)
        for level in range(last - first):
            best, best_known, best_rank = 0, -1, np.int64(0)
            for place in range(last - first):
                if taken[place]:
                    continue
                known = 0
                for part in range(3):
                    node = edges[3 * (first + place) + part]
                    known += node >= 0 or (bound >> np.uint32(-1 - node)) & np.uint32(1) != 0
                known = 0 if level == 0 else known
                rank = ranks[first + place]
                if known > best_known or (known == best_known and rank < best_rank):
                    best, best_known, best_rank = place, known, rank
            taken[best] = True
            orders[first + level] = first + best
            for part in range(3):
                node = edges[3 * (first + best) + part]
                if node < 0:
                    bit = np.uint32(1) << np.uint32(-1 - node)
                    if bit & asked[shape] and not bit & bound:
                        depths[shape] = level + 1
                    bound |= bit
