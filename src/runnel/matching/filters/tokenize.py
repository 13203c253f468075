"""Texts to the numbers of their words, straight from Arrow's UTF-8 buffers.

In: an array of texts, the positions of those to be cut, a vocabulary, and perhaps one of prefixes. Out: for every
chosen text the numbers of its words in order (-1 where the vocabulary does not have one), and the prefixes that its
words begin with. The words are exactly those of `runnel.algebra.text.words`: a text in which the table of code
points cannot decide is cut by that function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from runnel.algebra.text import words
from runnel.matching.filters.code_points import code_points
from runnel.matching.filters.cut_words import UNDECIDED, cut_words, room_for
from runnel.matching.filters.vocabulary import Vocabulary, packed, read_only
from runnel.matching.filters.word_prefixes import Prefixes, find_prefixes
from runnel.matching.filters.word_table import look_up
from runnel.plan.arrays import Array, Texts, decode_text, offsets_of
from runnel.plan.kernel import kernel

_NUMBER = 0xFFFFFFFF


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
    data, starts, ends = _buffers(texts, positions)
    sought = _sought(prefixes)
    room = room_for(int((ends - starts).max(initial=0)))
    counts = np.empty(len(starts), dtype=np.int64)
    # No text has more words than bytes. What is never written to takes no memory.
    numbers = np.empty(int((ends - starts).sum()), dtype=np.int32)
    rooms = np.empty(room, dtype=np.uint64), np.empty(room, dtype=np.int64)
    written, pairs, found = _cut_all(
        data, starts, ends, code_points(), vocabulary.table, sought, *rooms, _seen(sought), counts, numbers
    )
    undecided = np.flatnonzero(counts == UNDECIDED)
    if not len(undecided):
        return _tokens(counts, numbers[:written], pairs[:found])
    spelled = [words(_decoded(data[starts[one] : ends[one]].tobytes())) for one in undecided.tolist()]
    slow = _find_spelled(spelled, undecided, vocabulary, sought)
    return _merged(counts, numbers[:written], pairs[:found], undecided, *slow)


@cache
def _no_prefixes() -> Prefixes:
    return Vocabulary.of([]).prefixes


def _sought(prefixes: Vocabulary | None) -> Prefixes:
    return _no_prefixes() if prefixes is None else prefixes.prefixes


def _seen(prefixes: Prefixes) -> Array:
    """The last value that has each prefix: none yet."""
    return np.full(len(prefixes.table.chunk_offsets) - 1, -1, dtype=np.int64)


def _buffers(texts: pa.Array, positions: Array) -> tuple[Array, Array, Array]:
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


def _find_spelled(
    spelled: Sequence[Sequence[str]], values: Array, vocabulary: Vocabulary, prefixes: Prefixes
) -> tuple[Array, Array, Array]:
    """The same for texts whose words are known already: how many, their numbers, and the pairs of prefixes."""
    counts = np.array([len(one) for one in spelled], dtype=np.int64)
    texts = Texts.of(word for one in spelled for word in one)
    _, chunks = packed(texts)
    pairs, found = _find_all_prefixes(
        chunks, np.diff(texts.offsets), offsets_of(counts), values, prefixes, _seen(prefixes)
    )
    return counts, vocabulary.find_all(texts), pairs[:found]


def _merged(
    counts: Array, numbers: Array, pairs: Array, values: Array, more_counts: Array, more: Array, more_pairs: Array
) -> Tokens:
    """The words of both ways, each where its value stands."""
    together = np.where(counts == UNDECIDED, 0, counts)
    owners = np.repeat(np.arange(len(counts)), together)
    together[values] = more_counts
    order = np.argsort(np.concatenate([owners, np.repeat(values, more_counts)]), kind="stable")
    all_pairs = np.concatenate([pairs, more_pairs])
    pair_order = np.argsort(all_pairs >> 32, kind="stable")
    return _tokens(together, np.concatenate([numbers, more])[order], all_pairs[pair_order])


def _tokens(counts: Array, numbers: Array, pairs: Array) -> Tokens:
    return Tokens(offsets_of(counts), numbers, pairs >> 32, (pairs & _NUMBER).astype(np.int32))


@kernel
def _cut_all(data, starts, ends, codes, table, prefixes, chunks, sizes, seen, counts, numbers):  # type: ignore[no-untyped-def]
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
    return written, pairs, found


@kernel
def _find_all_prefixes(chunks, sizes, first_words, values, prefixes, seen):  # type: ignore[no-untyped-def]
    """The prefixes of texts that were cut already; `values` are the numbers of these texts."""
    start, found, pairs = 0, 0, np.empty(16, np.int64)
    for text in range(len(values) if len(prefixes.lengths) else 0):
        first, count = first_words[text], first_words[text + 1] - first_words[text]
        pairs, found = find_prefixes(chunks, start, sizes, first, count, prefixes, values[text], seen, found, pairs)
        for word in range(first, first + count):
            start += (sizes[word] + 7) >> 3
    return pairs, found
