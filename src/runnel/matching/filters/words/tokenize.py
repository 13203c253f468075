"""Tokenize texts into the numbers of their words, directly from Arrow's UTF-8 buffers.

In: an array of texts, the positions of those to tokenize, a vocabulary and, optionally, a vocabulary of prefixes.
Out: for every selected text the numbers of its words in order (-1 for a word that is not in the vocabulary), and the
prefixes that its words begin with. The words are exactly those of `runnel.algebra.values.words.words`, which also
splits the texts that the table of code points cannot decide.
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
from runnel.matching.filters.words.cut_words import UNDECIDED, cut_words, max_words
from runnel.matching.filters.words.vocabulary import Vocabulary, pack_words
from runnel.matching.filters.words.word_prefixes import Prefixes, find_prefixes
from runnel.matching.filters.words.word_table import WordTable, look_up

_NUMBER = 0xFFFFFFFF
"""The lower bits of a pair (value, prefix), which contain the number of the prefix."""


@dataclass(frozen=True)
class Tokens:
    """The words of value i are `words[offsets[i]:offsets[i + 1]]`; value `prefix_values[j]` has prefix `prefixes[j]`.

    Values are numbered in the order of the selected positions. The pairs are distinct and sorted by value.
    """

    offsets: Array
    words: Array
    prefix_values: Array
    prefixes: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, value: int) -> Array:
        """Return the numbers of the words of one value."""
        return self.words[self.offsets[value] : self.offsets[value + 1]]


def tokenize(texts: pa.Array, positions: Array, vocabulary: Vocabulary, prefixes: Vocabulary | None = None) -> Tokens:
    """Return the words of the texts at these positions, none of which may be null, as numbers in the vocabulary.

    >>> texts = pa.array(["Rock in Paris!", None, "jazz; ROCK"])
    >>> tokens = tokenize(texts, np.array([0, 2]), Vocabulary.of(["paris", "rock"]), Vocabulary.of(["ro", "ja"]))
    >>> [tokens.row(value).tolist() for value in range(2)], tokens.prefix_values.tolist(), tokens.prefixes.tolist()
    ([[1, -1, 0], [-1, 1]], [0, 1, 1], [0, 1, 0])
    """
    data, starts, ends = text_buffers(texts, positions)
    prefix_table = _no_prefixes() if prefixes is None else prefixes.prefixes
    split = _split(data, starts, ends, vocabulary.table, prefix_table)
    undecided = np.flatnonzero(split.counts == UNDECIDED)
    if len(undecided):
        raw = (data[starts[value] : ends[value]].tobytes() for value in undecided.tolist())
        split = _merge(split, _split_slowly([_decode(text) for text in raw], vocabulary, prefix_table), undecided)
    values, numbers = split.pairs >> 32, (split.pairs & _NUMBER).astype(np.int32)
    return Tokens(offsets_of(split.counts), split.words, values, numbers)


@cache
def _no_prefixes() -> Prefixes:
    return Vocabulary.of([]).prefixes


def text_buffers(texts: pa.Array, positions: Array) -> tuple[Array, Array, Array]:
    """Return the bytes of a text array, and the start and end of each selected text in them."""
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise TypeError(f"texts must be an array of strings, not of {texts.type}")
    selected = np.asarray(positions, dtype=np.int64)
    if len(selected) and (int(selected.min()) < 0 or int(selected.max()) >= len(texts)):
        raise IndexError(f"positions must be from 0 to {len(texts) - 1}")
    _, offset_buffer, data_buffer = texts.buffers()
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    if not len(selected):
        return read_only(data), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    width = np.dtype(np.int32 if pa.types.is_string(texts.type) else np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=width, count=len(texts) + 1, offset=texts.offset * width.itemsize)
    starts, ends = offsets[selected].astype(np.int64), offsets[selected + 1].astype(np.int64)
    if int(starts.min()) < 0 or np.any(ends < starts) or int(ends.max()) > len(data):
        raise ValueError("the offsets of the texts do not fit their bytes")
    return read_only(data), starts, ends


def _decode(data: bytes) -> str:
    """Decode a text. Invalid bytes become characters that separate words."""
    try:
        return decode_text(data)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


class _SplitTexts(NamedTuple):
    """The number of words of each value, the numbers of all words, and pairs `value << 32 | prefix`."""

    counts: Array
    words: Array
    pairs: Array


def _split(data: Array, starts: Array, ends: Array, table: WordTable, prefixes: Prefixes) -> _SplitTexts:
    """Split the texts that the table of code points can decide. The others get the count UNDECIDED and no words."""
    sizes = ends - starts
    capacity = max_words(int(sizes.max(initial=0)))
    buffers = np.empty(capacity, dtype=np.uint64), np.empty(capacity, dtype=np.int64)
    counts = np.empty(len(sizes), dtype=np.int64)
    # No text has more words than bytes. Pages that are never written occupy no memory.
    numbers = np.empty(int(sizes.sum()), dtype=np.int32)
    codes = code_points().arrays
    word_count, pair_count, pairs = _split_all(
        data, starts, ends, codes, table, prefixes, *buffers, _no_last_values(prefixes), counts, numbers
    )
    return _SplitTexts(counts, numbers[:word_count], pairs[:pair_count])


def _split_slowly(texts: list[str], vocabulary: Vocabulary, prefixes: Prefixes) -> _SplitTexts:
    """Split undecided texts: try again after composing them, and use `words` for those that are still undecided."""
    composed = Texts.of(map(code_points().compose, texts))
    starts, ends = composed.offsets[:-1].copy(), composed.offsets[1:].copy()
    split = _split(read_only(composed.data), starts, ends, vocabulary.table, prefixes)
    undecided = np.flatnonzero(split.counts == UNDECIDED)
    if not len(undecided):
        return split
    text_words = [words(texts[value]) for value in undecided.tolist()]
    counts = np.array([len(one_text) for one_text in text_words], dtype=np.int64)
    all_words = Texts.of(word for one_text in text_words for word in one_text)
    _, chunks = pack_words(all_words)
    pair_count, pairs = _find_all_prefixes(
        chunks, np.diff(all_words.offsets), offsets_of(counts), prefixes, _no_last_values(prefixes)
    )
    return _merge(split, _SplitTexts(counts, vocabulary.find_all(all_words), pairs[:pair_count]), undecided)


def _merge(decided: _SplitTexts, others: _SplitTexts, values: Array) -> _SplitTexts:
    """Insert the words of the `others` at their `values`, which have no words in `decided`."""
    counts = np.maximum(decided.counts, 0)
    owners = np.repeat(np.arange(len(counts)), counts), np.repeat(values, others.counts)
    counts[values] = others.counts
    word_order = np.argsort(np.concatenate(owners), kind="stable")
    other_pairs = values[others.pairs >> 32] << 32 | others.pairs & _NUMBER
    pairs = np.concatenate([decided.pairs, other_pairs])
    pair_order = np.argsort(pairs >> 32, kind="stable")
    return _SplitTexts(counts, np.concatenate([decided.words, others.words])[word_order], pairs[pair_order])


def _no_last_values(prefixes: Prefixes) -> Array:
    """Return the initial `last_values` of `find_prefixes`: no prefix has been found in any value."""
    return np.full(len(prefixes.table.chunk_offsets) - 1, -1, dtype=np.int64)


@kernel
def _split_all(
    data: Array,
    starts: Array,
    ends: Array,
    codes: CodePoints,
    table: WordTable,
    prefixes: Prefixes,
    chunks: Array,
    sizes: Array,
    last_values: Array,
    counts: Array,
    numbers: Array,
) -> tuple[int, int, Array]:
    """Split all texts and look up their words; undecided texts are skipped.

    `chunks` and `sizes` are buffers. Return the number of words, the number of pairs, and the pairs.
    """
    word_count, pair_count, pairs = 0, 0, np.empty(16, np.int64)
    for value in range(len(starts)):
        count = cut_words(data, starts[value], ends[value], codes, chunks, sizes)
        counts[value] = count
        if count == UNDECIDED:
            continue
        look_up(chunks, 0, sizes, 0, count, table, numbers, word_count)
        word_count += count
        if len(prefixes.lengths):
            pairs, pair_count = find_prefixes(
                chunks, 0, sizes, 0, count, prefixes, value, last_values, pair_count, pairs
            )
    return word_count, pair_count, pairs


@kernel
def _find_all_prefixes(
    chunks: Array, sizes: Array, first_words: Array, prefixes: Prefixes, last_values: Array
) -> tuple[int, Array]:
    """Find the prefixes of texts that were split already. Return the number of pairs, and the pairs."""
    start, pair_count, pairs = 0, 0, np.empty(16, np.int64)
    for text in range(len(first_words) - 1 if len(prefixes.lengths) else 0):
        first, count = first_words[text], first_words[text + 1] - first_words[text]
        pairs, pair_count = find_prefixes(
            chunks, start, sizes, first, count, prefixes, text, last_values, pair_count, pairs
        )
        for word in range(first, first + count):
            start += (sizes[word] + 7) >> 3
    return pair_count, pairs
