"""The graphs of a batch of items in arrays: straight from Arrow's buffers, without a Python object for a triple.

In: a batch, and the terms of a plan. Out: `Publications`: the triples of every item that has a graph, by the numbers
of their terms. A term that the plan has keeps its number there; others are numbered behind, each once in the batch.
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
"""Triples that are put in order by insertion."""


@dataclass(frozen=True)
class Publications:
    """The graphs of a batch.

    Publication i is that of batch row `rows[i]`; its triples are those from `offsets[i]` to `offsets[i + 1]`, in the
    order of label, subject and object. Numbers below `plan_terms` are the plan's terms, others local to the batch.
    `sorts` and `keys` say what terms stand for (see `algebra.graphs.rdf_terms`), `ranks` where texts lie (see
    `term_index`). A local term is `data[starts[number - plan_terms]:ends[number - plan_terms]]`.
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
        """A term that the plan does not have."""
        place = number - self.plan_terms
        return decode_text(self.data[self.starts[place] : self.ends[place]].tobytes())


def read_publications(columns: ItemColumns, terms: TermIndex) -> Publications:
    """The graphs of a batch; ValueError where a graph is not as `RdfGraph` writes it."""
    positions = columns.names.get(GRAPH, np.empty(0, dtype=np.int64))
    positions = positions[columns.kinds[positions] == registry().kinds[RdfGraph.kind].code]
    data, starts, ends = text_buffers(columns.text_array, positions)
    counts = np.empty(len(positions), dtype=np.int64)
    longest = count_lines(data, starts, ends, counts)
    offsets = offsets_of(counts)
    total = int(offsets[-1])
    nodes = np.empty((3, total), dtype=np.int32)
    room = 3 * total
    local_starts, local_ends = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    slots = np.full(1 << max(4, (2 * room).bit_length()), _FREE, dtype=np.int64)
    hashes = np.empty(room, dtype=np.uint64)
    chunks = np.empty(longest // 8 + 2, dtype=np.uint64)
    found = number_terms(
        data, starts, ends, offsets, terms.vocabulary.table, chunks, nodes, slots, hashes, local_starts, local_ends
    )
    if found < 0:
        raise ValueError("a graph of the batch is not in canonical N-Triples")
    sorts, keys = np.empty(found, dtype=np.uint8), np.empty(found, dtype=np.float64)
    read_sorts(data, local_starts, local_ends, sorts, keys)
    _settle_sorts(data, local_starts, local_ends, sorts, keys)
    ranks = _ranks(terms, data, local_starts[:found], local_ends[:found], sorts)
    in_order(offsets, nodes)
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
        starts=local_starts[:found].copy(),
        ends=local_ends[:found].copy(),
    )


def _settle_sorts(data: Array, starts: Array, ends: Array, sorts: Array, keys: Array) -> None:
    """What the kernel left undecided, by the definition."""
    for place in np.flatnonzero(sorts == UNDECIDED).tolist():
        found = known_term(decode_text(data[starts[place] : ends[place]].tobytes()))
        sorts[place] = found.sort
        keys[place] = 0.0 if isinstance(found.key, str) else found.key


def _ranks(terms: TermIndex, data: Array, starts: Array, ends: Array, sorts: Array) -> Array:
    """Where the local texts lie among the plan's."""
    ranks = np.zeros(len(sorts), dtype=np.int64)
    if not len(terms.ordered):
        return ranks
    ordered = terms.ordered
    rank_texts(data, starts, ends, sorts, read_only(ordered.offsets), read_only(ordered.data), ranks)
    for place in np.flatnonzero(ranks < 0).tolist():  # those with escapes, whose bytes have another order
        text = known_term(decode_text(data[starts[place] : ends[place]].tobytes())).key
        ranks[place] = 2 * bisect_left(terms.raw_ordered, encode_text(str(text)))
    return ranks


@kernel
def count_lines(data: Array, starts: Array, ends: Array, counts: Array) -> int:
    """How many lines every text has; the most bytes of a line."""
    longest = 0
    for text in range(len(starts)):
        lines, begun = 0, starts[text]
        for place in range(starts[text], ends[text]):
            if data[place] == _NEWLINE:
                lines += 1
                longest = max(longest, place - begun)
                begun = place + 1
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
    """Cut all lines into terms and number these; how many are local, or -1 where a line is no triple."""
    first_key, second_key, shift, plan_slots, chunk_offsets, held = table
    plan_terms = len(chunk_offsets) - 1
    mask = len(slots) - 1
    count = 0
    for text in range(len(starts)):
        place, end = starts[text], ends[text]
        if end > place and data[end - 1] != _NEWLINE:
            return -1
        line = offsets[text]
        while place < end:
            last = place
            while data[last] != _NEWLINE:
                last += 1
            for part in range(3):
                stop = place
                if part < 2:
                    while stop < last and data[stop] != _SPACE:
                        stop += 1
                else:
                    stop = last - 2
                    if stop <= place or data[stop] != _SPACE or data[stop + 1] != _DOT:
                        return -1
                if stop >= last or stop == place:
                    return -1
                size = stop - place
                pack(data, place, stop, chunks, 0)
                hashed = hash_of(chunks, 0, size, first_key, second_key)
                number = np.int64(seek(hashed, chunks, 0, size, shift, plan_slots, chunk_offsets, held))
                if number == _UNKNOWN:
                    slot = np.int64(hashed >> np.uint64(20)) & mask
                    while True:
                        local = slots[slot]
                        if local == _FREE:
                            slots[slot] = count
                            hashes[count] = hashed
                            local_starts[count], local_ends[count] = place, stop
                            local = count
                            count += 1
                            break
                        if hashes[local] == hashed and _same(
                            data, local_starts[local], local_ends[local], place, stop
                        ):
                            break
                        slot = (slot + 1) & mask
                    number = plan_terms + local
                nodes[part, line] = number
                place = stop + 1
            place = last + 1
            line += 1
    return count


@inlined
def _same(data: Array, start: Number, end: Number, other: Number, other_end: Number) -> Number:
    """Whether two stretches of bytes are equal."""
    equal = end - start == other_end - other
    place = 0
    while equal and place < end - start:
        equal = data[start + place] == data[other + place]
        place += 1
    return equal


@kernel
def read_sorts(data: Array, starts: Array, ends: Array, sorts: Array, keys: Array) -> None:
    """What local terms stand for, or UNDECIDED."""
    for term in range(len(sorts)):
        sorts[term], keys[term] = read_sort(data, starts[term], ends[term])


@kernel
def rank_texts(
    data: Array, starts: Array, ends: Array, sorts: Array, offsets: Array, ordered: Array, ranks: Array
) -> None:
    """Where texts lie among those in order, which have none of them; -1 where escapes change the order."""
    for term in range(len(sorts)):
        if sorts[term] != Sort.TEXT.value:
            continue
        first, last = starts[term] + 1, ends[term] - 1
        escaped = False
        for place in range(first, last):
            escaped |= data[place] == 92
        if escaped:
            ranks[term] = -1
            continue
        low, high = 0, len(offsets) - 1
        while low < high:
            middle = (low + high) >> 1
            place, other = first, offsets[middle]
            stop = offsets[middle + 1]
            while place < last and other < stop and data[place] == ordered[other]:
                place += 1
                other += 1
            less = place < last and (other == stop or ordered[other] < data[place])
            if less:
                low = middle + 1
            else:
                high = middle
        ranks[term] = 2 * low


@kernel
def in_order(offsets: Array, nodes: Array) -> None:
    """Put the triples of every publication in the order of label, subject and object."""
    for text in range(len(offsets) - 1):
        first, last = offsets[text], offsets[text + 1]
        if last - first > _FEW:
            for part in (2, 0, 1):
                order = np.argsort(nodes[part, first:last], kind="mergesort")
                for other in range(3):
                    nodes[other, first:last] = nodes[other, first:last][order]
            continue
        for place in range(first + 1, last):
            subject, label, object_ = nodes[0, place], nodes[1, place], nodes[2, place]
            at = place
            while at > first and _before(label, subject, object_, nodes, at - 1):
                for part in range(3):
                    nodes[part, at] = nodes[part, at - 1]
                at -= 1
            nodes[0, at], nodes[1, at], nodes[2, at] = subject, label, object_


@inlined
def _before(label: Number, subject: Number, object_: Number, nodes: Array, place: Number) -> Number:
    """Whether a triple comes before the one at a place."""
    if label != nodes[1, place]:
        result = label < nodes[1, place]
    elif subject != nodes[0, place]:
        result = subject < nodes[0, place]
    else:
        result = object_ < nodes[2, place]
    return result
