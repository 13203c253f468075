"""Texts to the numbers of their words, straight from Arrow's UTF-8 buffers.

In: an array of texts, the positions of those to be cut, a vocabulary, and perhaps one of prefixes. Out: for every
chosen text the numbers of its words in order (-1 where the vocabulary does not have one), and the prefixes that its
words begin with. The words are exactly those of `runnel.algebra.values.words.words`: a text in which the table of
code points cannot decide is cut by that function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from runnel.algebra.values.words import words
from runnel.arrays import Array, Texts, decode_text, offsets_of, read_only
from runnel.kernel import kernel
from runnel.matching.filters.words.code_points import CodePoints, code_points
from runnel.matching.filters.words.cut_words import UNDECIDED, cut_words, room_for
from runnel.matching.filters.words.vocabulary import Vocabulary, packed
from runnel.matching.filters.words.word_prefixes import Prefixes, find_prefixes
from runnel.matching.filters.words.word_table import WordTable, look_up

_NUMBER = 0xFFFFFFFF
"""The bits of a pair that are the number of a prefix."""


@dataclass(frozen=True)
class Tokens:
    """The words of value i are `words[offsets[i]:offsets[i + 1]]`; value `prefix_values[j]` has prefix `prefixes[j]`.

    Values are numbered as they were chosen. The pairs are in the order of the values, each once.
    """

    offsets: Array
    words: Array
    prefix_values: Array
    prefixes: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, value: int) -> Array:
        """The numbers of the words of one value."""
        return self.words[self.offsets[value] : self.offsets[value + 1]]


def tokenize(texts: pa.Array, positions: Array, vocabulary: Vocabulary, prefixes: Vocabulary | None = None) -> Tokens:
    """The words of the texts at these positions (none of them null), by their numbers in the vocabulary.

    >>> some = pa.array(["Rock in Paris!", None, "jazz; ROCK"])
    >>> tokens = tokenize(some, np.array([0, 2]), Vocabulary.of(["paris", "rock"]), Vocabulary.of(["ro", "ja"]))
    >>> [tokens.row(value).tolist() for value in range(2)], tokens.prefix_values.tolist(), tokens.prefixes.tolist()
    ([[1, -1, 0], [-1, 1]], [0, 1, 1], [0, 1, 0])
    """
    data, starts, ends = text_buffers(texts, positions)
    sought = _no_prefixes() if prefixes is None else prefixes.prefixes
    cut = _cut(data, starts, ends, vocabulary.table, sought)
    undecided = np.flatnonzero(cut.counts == UNDECIDED)
    if len(undecided):
        raw = (data[starts[value] : ends[value]].tobytes() for value in undecided.tolist())
        cut = _merged(cut, _cut_slowly([_decoded(one) for one in raw], vocabulary, sought), undecided)
    values, numbers = cut.pairs >> 32, (cut.pairs & _NUMBER).astype(np.int32)
    return Tokens(offsets_of(cut.counts), cut.words, values, numbers)


@cache
def _no_prefixes() -> Prefixes:
    return Vocabulary.of([]).prefixes


def text_buffers(texts: pa.Array, positions: Array) -> tuple[Array, Array, Array]:
    """The bytes of an array, and where each chosen text begins and ends in them."""
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise TypeError(f"texts are strings, not {texts.type}")
    chosen = np.asarray(positions, dtype=np.int64)
    if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= len(texts)):
        raise IndexError("a position lies outside of the texts")
    _, offset_buffer, data_buffer = texts.buffers()
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    if not len(chosen):
        return read_only(data), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    width = np.dtype(np.int32 if pa.types.is_string(texts.type) else np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=width, count=len(texts) + 1, offset=texts.offset * width.itemsize)
    starts, ends = offsets[chosen].astype(np.int64), offsets[chosen + 1].astype(np.int64)
    if int(starts.min()) < 0 or np.any(ends < starts) or int(ends.max()) > len(data):
        raise ValueError("the offsets of the texts do not fit their bytes")
    return read_only(data), starts, ends


def _decoded(data: bytes) -> str:
    """The text of bytes; what is no text at all separates words."""
    try:
        return decode_text(data)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


class _Cut(NamedTuple):
    """How many words each value has, the numbers of all, and pairs of a value and, 32 bits below, a prefix."""

    counts: Array
    words: Array
    pairs: Array


def _cut(data: Array, starts: Array, ends: Array, table: WordTable, prefixes: Prefixes) -> _Cut:
    """Cut what the table of code points can decide; the other values are UNDECIDED and have no words."""
    sizes = ends - starts
    room = room_for(int(sizes.max(initial=0)))
    rooms = np.empty(room, dtype=np.uint64), np.empty(room, dtype=np.int64)
    counts = np.empty(len(sizes), dtype=np.int64)
    # No text has more words than bytes. What is never written to takes no memory.
    numbers = np.empty(int(sizes.sum()), dtype=np.int32)
    codes = code_points().arrays
    written, found, pairs = _cut_all(
        data, starts, ends, codes, table, prefixes, *rooms, _unseen(prefixes), counts, numbers
    )
    return _Cut(counts, numbers[:written], pairs[:found])


def _cut_slowly(texts: list[str], vocabulary: Vocabulary, prefixes: Prefixes) -> _Cut:
    """Cut what was left undecided: once more when it is composed, and what is still undecided by `words`."""
    composed = Texts.of(map(code_points().compose, texts))
    starts, ends = composed.offsets[:-1].copy(), composed.offsets[1:].copy()
    cut = _cut(read_only(composed.data), starts, ends, vocabulary.table, prefixes)
    undecided = np.flatnonzero(cut.counts == UNDECIDED)
    if not len(undecided):
        return cut
    spelled = [words(texts[value]) for value in undecided.tolist()]
    counts = np.array([len(one) for one in spelled], dtype=np.int64)
    known = Texts.of(word for one in spelled for word in one)
    _, chunks = packed(known)
    found, pairs = _prefixes_of_all(chunks, np.diff(known.offsets), offsets_of(counts), prefixes, _unseen(prefixes))
    return _merged(cut, _Cut(counts, vocabulary.find_all(known), pairs[:found]), undecided)


def _merged(some: _Cut, others: _Cut, values: Array) -> _Cut:
    """The words of both, each where its value stands; `values` are those of the others, which have none in `some`."""
    counts = np.maximum(some.counts, 0)
    owners = np.repeat(np.arange(len(counts)), counts), np.repeat(values, others.counts)
    counts[values] = others.counts
    order = np.argsort(np.concatenate(owners), kind="stable")
    moved = values[others.pairs >> 32] << 32 | others.pairs & _NUMBER
    pairs = np.concatenate([some.pairs, moved])
    in_order = np.argsort(pairs >> 32, kind="stable")
    return _Cut(counts, np.concatenate([some.words, others.words])[order], pairs[in_order])


def _unseen(prefixes: Prefixes) -> Array:
    """The last value that has each prefix: none yet."""
    return np.full(len(prefixes.table.chunk_offsets) - 1, -1, dtype=np.int64)


@kernel
def _cut_all(
    data: Array,
    starts: Array,
    ends: Array,
    codes: CodePoints,
    table: WordTable,
    prefixes: Prefixes,
    chunks: Array,
    sizes: Array,
    seen: Array,
    counts: Array,
    numbers: Array,
) -> tuple[int, int, Array]:
    """Cut all texts and look their words up; the undecided ones are left without words."""
    written, found, pairs = 0, 0, np.empty(16, np.int64)
    for value in range(len(starts)):
        count = cut_words(data, starts[value], ends[value], codes, chunks, sizes)
        counts[value] = count
        if count == UNDECIDED:
            continue
        look_up(chunks, 0, sizes, 0, count, table, numbers, written)
        written += count
        if len(prefixes.lengths):
            pairs, found = find_prefixes(chunks, 0, sizes, 0, count, prefixes, value, seen, found, pairs)
    return written, found, pairs


@kernel
def _prefixes_of_all(
    chunks: Array, sizes: Array, first_words: Array, prefixes: Prefixes, seen: Array
) -> tuple[int, Array]:
    """The prefixes of texts that were cut already."""
    start, found, pairs = 0, 0, np.empty(16, np.int64)
    for text in range(len(first_words) - 1 if len(prefixes.lengths) else 0):
        first, count = first_words[text], first_words[text + 1] - first_words[text]
        pairs, found = find_prefixes(chunks, start, sizes, first, count, prefixes, text, seen, found, pairs)
        for word in range(first, first + count):
            start += (sizes[word] + 7) >> 3
    return found, pairs
