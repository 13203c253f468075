"""Order the edges of each shape for the search: the rarest edge first, then always an edge with most known nodes.

In: a table of patterns, and the frequencies of terms if they are known. Out: the orders, and the depth to which a
search must backtrack to find another solution. The shape is indexed under its first edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from runnel.arrays import Array, encode_text, read_only
from runnel.kernel import kernel
from runnel.matching.graphs.patterns.pattern_table import Code, PatternTable
from runnel.model.learned.stream_statistics import MAX_WORD

_MIN_FREQUENCY = 0.0005
"""The assumed fraction of items that contain a term which does not occur in the sample."""


def term_word(term: str) -> str:
    """Return the word under which statistics count a term: the term itself, or a digest of a long term.

    >>> term_word("<urn:p>"), len(term_word(f"<urn:{'x' * 99}>"))
    ('<urn:p>', 34)
    """
    return term if len(term) <= MAX_WORD else f"{term[0]}#{blake2b(encode_text(term), digest_size=16).hexdigest()}"


def order_edges(table: PatternTable, frequencies: Mapping[str, float] | None = None) -> tuple[Array, Array]:
    """Return the ordered edges of all shapes, and how many leading edges of each shape bind filtered variables."""
    edges = table.shape_edges.values.reshape(-1, 3)
    max_edges = int(table.shape_edges.lengths.max(initial=3)) // 3
    orders = np.zeros(len(edges), dtype=np.int64)
    depths = np.zeros(len(table.shape_edges), dtype=np.uint8 if max_edges < 256 else np.uint16)
    ranks = _rarity(table, edges, frequencies or {})
    offsets, values = read_only(table.shape_edges.offsets), read_only(table.shape_edges.values)
    fill_orders(offsets, values, ranks, _filtered_variables(table), orders, depths)
    return np.ascontiguousarray(edges[orders]), depths


def edge_keys(edges: Array) -> Array:
    """Return a number per edge. Edges have the same number if they differ only in their variables."""
    nodes = np.maximum(edges, -1).astype(np.int64) + 1
    width = int(nodes.max(initial=0)) + 1
    _, pairs = np.unique(nodes[:, 0] * width + nodes[:, 1], return_inverse=True)
    _, keys = np.unique(pairs.reshape(-1) * width + nodes[:, 2], return_inverse=True)
    return np.asarray(keys.reshape(-1))


def _rarity(table: PatternTable, edges: Array, frequencies: Mapping[str, float]) -> Array:
    """Return the rank of every edge. Edges that are expected in the fewest items have the lowest ranks.

    The criteria are, in this order: the frequency of the rarest term in a sample of items; the number of shapes with
    an edge of the same terms, because users ask for published terms; and the number of terms of the edge.
    """
    shares = np.zeros(len(edges))
    if frequencies:
        by_term = [frequencies.get(term_word(term), _MIN_FREQUENCY) for term in table.terms.texts()]
        shares = np.append(np.array(by_term), 1.0)[np.maximum(edges, -1)].min(axis=1)
    keys = edge_keys(edges)
    counts = np.bincount(keys)[keys] if len(keys) else keys
    order = np.lexsort((-np.count_nonzero(edges >= 0, axis=1), counts, shares))
    ranks = np.empty(len(edges), dtype=np.int64)
    ranks[order] = np.arange(len(edges))
    return ranks


def _filtered_variables(table: PatternTable) -> Array:
    """Return the variables of every shape that occur in a filter of one of its patterns, as bits."""
    filtered = np.zeros(len(table.shape_edges), dtype=np.uint32)
    constraints = table.constraints.values.reshape(-1, 3)
    owners = np.repeat(table.pattern_shapes, table.constraints.lengths // 3)
    np.bitwise_or.at(filtered, owners, np.left_shift(np.uint32(1), constraints[:, 0].astype(np.uint32)))
    for pattern in np.flatnonzero(table.programs.lengths).tolist():
        program, position = table.programs.row(pattern).tolist(), 0
        while position < len(program):
            is_comparison = program[position] < Code.AND
            for node in program[position + 1 : position + 3] if is_comparison else ():
                filtered[table.pattern_shapes[pattern]] |= np.uint32(1 << (-1 - node)) if node < 0 else np.uint32(0)
            position += 3 if is_comparison else 1
    return filtered


@kernel
def fill_orders(offsets: Array, edges: Array, ranks: Array, filtered: Array, orders: Array, depths: Array) -> None:
    """Fill the order of the edges of every shape, and the depth of the last edge that binds a filtered variable."""
    for shape in range(len(offsets) - 1):
        first, last = offsets[shape] // 3, offsets[shape + 1] // 3
        bound = np.uint32(0)
        taken = np.zeros(last - first, dtype=np.bool_)
        for level in range(last - first):
            best, best_known, best_rank = 0, -1, np.int64(0)
            for edge in range(last - first):
                if taken[edge]:
                    continue
                known = 0
                for part in range(3):
                    node = edges[3 * (first + edge) + part]
                    known += node >= 0 or (bound >> np.uint32(-1 - node)) & np.uint32(1) != 0
                known = 0 if level == 0 else known
                rank = ranks[first + edge]
                if known > best_known or (known == best_known and rank < best_rank):
                    best, best_known, best_rank = edge, known, rank
            taken[best] = True
            orders[first + level] = first + best
            for part in range(3):
                node = edges[3 * (first + best) + part]
                if node < 0:
                    bit = np.uint32(1) << np.uint32(-1 - node)
                    if bit & filtered[shape] and not bit & bound:
                        depths[shape] = level + 1
                    bound |= bit
