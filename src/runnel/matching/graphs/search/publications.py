"""Read the graphs of a batch into arrays, directly from Arrow buffers and without a Python object per triple.

In: a batch, and the terms of a plan. Out: `Publications` with the triples of all graphs, as numbers of terms. Terms
of the plan have their numbers in the plan. Other terms of the batch have the numbers after those.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from runnel.algebra.graphs.rdf_terms import Sort, known_term
from runnel.arrays import Array, decode_text, encode_text, offsets_of, read_only
from runnel.families import registry
from runnel.kernel import Number, inlined, kernel
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.words.tokenize import text_buffers
from runnel.matching.filters.words.word_table import WordTable, hash_of, pack, seek
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.matching.graphs.search.numerals import UNDECIDED, read_sort
from runnel.model.graph import GRAPH, RdfGraph

_UNKNOWN, _FREE = -1, -1
_SPACE, _NEWLINE, _DOT = 32, 10, 46
_FEW = 128
"""Graphs with at most this number of triples are sorted by insertion."""


@dataclass(frozen=True)
class Publications:
    """The graphs of a batch.

    Publication i is a graph of the batch row `rows[i]`. Its triples are those from `offsets[i]` to `offsets[i + 1]`,
    sorted by label, subject and object. Numbers below `plan_terms` are terms of the plan, others are local to the
    batch. `sorts` and `keys` are those of the terms (see `algebra.graphs.rdf_terms`), and `ranks` are the ranks of
    texts (see `term_index`). A local term is `data[starts[number - plan_terms]:ends[number - plan_terms]]`.
    """

    rows: Array
    offsets: Array
    subjects: Array
    labels: Array
    objects: Array
    sorts: Array
    keys: Array
    ranks: Array
    plan_terms: int
    data: Array
    starts: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.rows)

    def local_term(self, number: int) -> str:
        """Return a term that is not in the plan."""
        index = number - self.plan_terms
        return decode_text(self.data[self.starts[index] : self.ends[index]].tobytes())


def read_publications(columns: ItemColumns, terms: TermIndex) -> Publications:
    """Read the graphs of a batch. Raise ValueError if a graph does not have the form that `RdfGraph` writes."""
    positions = columns.names.get(GRAPH, np.empty(0, dtype=np.int64))
    positions = positions[columns.kinds[positions] == registry().kinds[RdfGraph.kind].code]
    data, starts, ends = text_buffers(columns.text_array, positions)
    counts = np.empty(len(positions), dtype=np.int64)
    max_line_bytes = count_lines(data, starts, ends, counts)
    offsets = offsets_of(counts)
    total = int(offsets[-1])
    nodes = np.empty((3, total), dtype=np.int32)
    capacity = 3 * total
    local_starts, local_ends = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
    slots = np.full(1 << max(4, (2 * capacity).bit_length()), _FREE, dtype=np.int64)
    hashes = np.empty(capacity, dtype=np.uint64)
    chunks = np.empty(max_line_bytes // 8 + 2, dtype=np.uint64)
    local_terms = number_terms(
        data, starts, ends, offsets, terms.vocabulary.table, chunks, nodes, slots, hashes, local_starts, local_ends
    )
    if local_terms < 0:
        raise ValueError("a graph of the batch is not in canonical N-Triples")
    sorts, keys = np.empty(local_terms, dtype=np.uint8), np.empty(local_terms, dtype=np.float64)
    read_sorts(data, local_starts, local_ends, sorts, keys)
    _read_remaining_sorts(data, local_starts, local_ends, sorts, keys)
    ranks = _ranks(terms, data, local_starts[:local_terms], local_ends[:local_terms], sorts)
    sort_triples(offsets, nodes)
    return Publications(
        rows=columns.value_rows[positions],
        offsets=offsets,
        subjects=nodes[0],
        labels=nodes[1],
        objects=nodes[2],
        sorts=np.concatenate([terms.sorts, sorts]),
        keys=np.concatenate([terms.keys, keys]),
        ranks=np.concatenate([terms.ranks, ranks]),
        plan_terms=len(terms),
        data=data,
        starts=local_starts[:local_terms].copy(),
        ends=local_ends[:local_terms].copy(),
    )


def _read_remaining_sorts(data: Array, starts: Array, ends: Array, sorts: Array, keys: Array) -> None:
    """Fill in the sorts and keys of the terms that the kernel could not parse."""
    for index in np.flatnonzero(sorts == UNDECIDED).tolist():
        term = known_term(decode_text(data[starts[index] : ends[index]].tobytes()))
        sorts[index] = term.sort
        keys[index] = 0.0 if isinstance(term.key, str) else term.key


def _ranks(terms: TermIndex, data: Array, starts: Array, ends: Array, sorts: Array) -> Array:
    """Return the ranks of the local texts among the plan's texts."""
    ranks = np.zeros(len(sorts), dtype=np.int64)
    if not len(terms.ordered):
        return ranks
    ordered = terms.ordered
    rank_texts(data, starts, ends, sorts, read_only(ordered.offsets), read_only(ordered.data), ranks)
    for index in np.flatnonzero(ranks < 0).tolist():  # texts with escapes, whose bytes have another order
        text = known_term(decode_text(data[starts[index] : ends[index]].tobytes())).key
        ranks[index] = 2 * bisect_left(terms.raw_ordered, encode_text(str(text)))
    return ranks


@kernel
def count_lines(data: Array, starts: Array, ends: Array, counts: Array) -> int:
    """Fill in the number of lines of every text, and return the size of the longest line in bytes."""
    longest = 0
    for text in range(len(starts)):
        lines, line_start = 0, starts[text]
        for position in range(starts[text], ends[text]):
            if data[position] == _NEWLINE:
                lines += 1
                longest = max(longest, position - line_start)
                line_start = position + 1
        counts[text] = lines
    return longest


@kernel
def number_terms(
    data: Array,
    starts: Array,
    ends: Array,
    offsets: Array,
    table: WordTable,
    chunks: Array,
    nodes: Array,
    slots: Array,
    hashes: Array,
    local_starts: Array,
    local_ends: Array,
) -> int:
    """Split all lines into terms and number these. Return the number of local terms, or -1 if a line is no triple."""
    first_key, second_key, shift, plan_slots, chunk_offsets, held = table
    plan_terms = len(chunk_offsets) - 1
    mask = len(slots) - 1
    count = 0
    for text in range(len(starts)):
        position, end = starts[text], ends[text]
        if end > position and data[end - 1] != _NEWLINE:
            return -1
        line = offsets[text]
        while position < end:
            last = position
            while data[last] != _NEWLINE:
                last += 1
            for part in range(3):
                stop = position
                if part < 2:
                    while stop < last and data[stop] != _SPACE:
                        stop += 1
                else:
                    stop = last - 2
                    if stop <= position or data[stop] != _SPACE or data[stop + 1] != _DOT:
                        return -1
                if stop >= last or stop == position:
                    return -1
                size = stop - position
                pack(data, position, stop, chunks, 0)
                hashed = hash_of(chunks, 0, size, first_key, second_key)
                number = np.int64(seek(hashed, chunks, 0, size, shift, plan_slots, chunk_offsets, held))
                if number == _UNKNOWN:
                    slot = np.int64(hashed >> np.uint64(20)) & mask
                    while True:
                        local = slots[slot]
                        if local == _FREE:
                            slots[slot] = count
                            hashes[count] = hashed
                            local_starts[count], local_ends[count] = position, stop
                            local = count
                            count += 1
                            break
                        if hashes[local] == hashed and _same(
                            data, local_starts[local], local_ends[local], position, stop
                        ):
                            break
                        slot = (slot + 1) & mask
                    number = plan_terms + local
                nodes[part, line] = number
                position = stop + 1
            position = last + 1
            line += 1
    return count


@inlined
def _same(data: Array, start: Number, end: Number, other: Number, other_end: Number) -> Number:
    """Return whether two byte ranges are equal."""
    equal = end - start == other_end - other
    position = 0
    while equal and position < end - start:
        equal = data[start + position] == data[other + position]
        position += 1
    return equal


@kernel
def read_sorts(data: Array, starts: Array, ends: Array, sorts: Array, keys: Array) -> None:
    """Fill in the sorts and keys of local terms, or UNDECIDED."""
    for term in range(len(sorts)):
        sorts[term], keys[term] = read_sort(data, starts[term], ends[term])


@kernel
def rank_texts(
    data: Array, starts: Array, ends: Array, sorts: Array, offsets: Array, ordered: Array, ranks: Array
) -> None:
    """Fill in the ranks of local texts among the sorted texts of the plan, or -1 for texts with escapes."""
    for term in range(len(sorts)):
        if sorts[term] != Sort.TEXT.value:
            continue
        first, last = starts[term] + 1, ends[term] - 1
        escaped = False
        for position in range(first, last):
            escaped |= data[position] == 92
        if escaped:
            ranks[term] = -1
            continue
        low, high = 0, len(offsets) - 1
        while low < high:
            middle = (low + high) >> 1
            position, other = first, offsets[middle]
            stop = offsets[middle + 1]
            while position < last and other < stop and data[position] == ordered[other]:
                position += 1
                other += 1
            less = position < last and (other == stop or ordered[other] < data[position])
            if less:
                low = middle + 1
            else:
                high = middle
        ranks[term] = 2 * low


@kernel
def sort_triples(offsets: Array, nodes: Array) -> None:
    """Sort the triples of every publication by label, subject and object."""
    for text in range(len(offsets) - 1):
        first, last = offsets[text], offsets[text + 1]
        if last - first > _FEW:
            for part in (2, 0, 1):
                order = np.argsort(nodes[part, first:last], kind="mergesort")
                for other in range(3):
                    nodes[other, first:last] = nodes[other, first:last][order]
            continue
        for position in range(first + 1, last):
            subject, label, object_ = nodes[0, position], nodes[1, position], nodes[2, position]
            target = position
            while target > first and _precedes(label, subject, object_, nodes, target - 1):
                for part in range(3):
                    nodes[part, target] = nodes[part, target - 1]
                target -= 1
            nodes[0, target], nodes[1, target], nodes[2, target] = subject, label, object_


@inlined
def _precedes(label: Number, subject: Number, object_: Number, nodes: Array, position: Number) -> Number:
    """Return whether a triple precedes the triple at a position."""
    if label != nodes[1, position]:
        result = label < nodes[1, position]
    elif subject != nodes[0, position]:
        result = subject < nodes[0, position]
    else:
        result = object_ < nodes[2, position]
    return result
