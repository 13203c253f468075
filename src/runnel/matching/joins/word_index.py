"""The words of the texts that joins compare by similarity, with the index that finds similar texts.

In: the distinct words of the texts of window items. Out: for each text its words as numbers, the rarest first, and
for each word the texts that have it among their rarest words. Each of these texts has a *mark*, the number
of its words and a signature of them, which excludes most texts that are not similar without reading their words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.arrays import offsets_of, read_only
from runnel.matching.joins.item_texts import SortedTexts, merge_texts
from runnel.matching.joins.join_kernels import LENGTH_BITS, LONG, MARK_BITS

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]

PREFIXES = {"words": Fraction(1, 2), "all words": Fraction(0)}
"""For each kind of index on words, the least similarity for which it finds all similar texts."""

_ARRAYS = {
    "ranks": np.int32,
    "text_rows": np.int32,
    "text_offsets": np.uint32,
    "text_tokens": np.int32,
    "text_signatures": np.uint64,
    "posting_offsets": np.uint32,
    "posting_texts": np.int32,
    "posting_marks": np.uint32,
}


@dataclass(frozen=True)
class WordIndex:
    """The texts of an attribute, in the order of their rows.

    `words` are all words, and `ranks` their numbers by rarity. Text i is of the row `text_rows[i]`, or of row i if
    that array is empty, and has the words `text_tokens[text_offsets[i]:text_offsets[i + 1]]`. The postings of a word
    are the texts that have it in their prefix, and their marks.
    """

    kind: str
    words: SortedTexts
    ranks: Array
    text_rows: Array
    text_offsets: Array
    text_tokens: Array
    text_signatures: Array
    posting_offsets: Array
    posting_texts: Array
    posting_marks: Array

    def rows(self) -> Numbers:
        """Return the row of every text."""
        return self.text_rows.astype(np.int64) if len(self.text_rows) else np.arange(len(self.text_offsets) - 1)

    def texts_of(self, row: int) -> list[str]:
        """Return the texts of a row, as their words. All texts are read."""
        words = self.word_numbers()
        bounds = self.text_offsets.astype(np.int64)
        return [
            " ".join(self.words.text(word) for word in words[bounds[text] : bounds[text + 1]].tolist())
            for text in np.flatnonzero(self.rows() == row).tolist()
        ]

    def word_numbers(self) -> Array:
        """Return for every word of every text its position among `words`."""
        positions = np.empty_like(self.ranks)
        positions[self.ranks] = np.arange(len(self.ranks), dtype=np.int32)
        return positions[self.text_tokens]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to store."""
        return {**self.words.arrays(), **{name: getattr(self, name) for name in _ARRAYS}}

    @staticmethod
    def stored(kind: str, arrays: Mapping[str, Array]) -> WordIndex:
        """Return the index of arrays that `arrays` returned."""
        return WordIndex(kind, SortedTexts.stored(arrays), **{name: read_only(arrays[name]) for name in _ARRAYS})

    @staticmethod
    def of(kind: str, words: SortedTexts, rows: Numbers, lengths: Numbers, numbers: Array, count: int) -> WordIndex:
        """Index texts. `numbers` are the positions of each text's distinct words among `words`, text by text.

        `rows` are the ascending rows of the texts, of `count` rows.
        """
        frequencies = np.bincount(numbers, minlength=len(words))
        ranks = np.empty(len(words), dtype=np.int64)
        ranks[np.argsort(frequencies, kind="stable")] = np.arange(len(words))
        owners = np.repeat(np.arange(len(lengths)), lengths)
        tokens = ranks[numbers]
        tokens = tokens[np.argsort(owners * len(words) + tokens)]
        offsets = offsets_of(lengths)
        is_first = np.arange(len(tokens)) - np.repeat(offsets[:-1], lengths) < np.repeat(
            prefix_lengths(kind, lengths), lengths
        )
        posted = np.argsort(tokens[is_first], kind="stable")
        texts = owners[is_first][posted]
        is_plain = len(rows) == count and bool((rows == np.arange(count)).all())
        arrays = {
            "ranks": ranks,
            "text_rows": np.empty(0) if is_plain else rows,
            "text_offsets": offsets,
            "text_tokens": tokens,
            "text_signatures": signatures_of(offsets, tokens, 64),
            "posting_offsets": offsets_of(np.bincount(tokens[is_first], minlength=len(words))),
            "posting_texts": texts,
            "posting_marks": marks_of(lengths, offsets, tokens)[texts],
        }
        own = {name: read_only(arrays[name].astype(kind, copy=False)) for name, kind in _ARRAYS.items()}
        return WordIndex(kind, words, **own)


def prefix_lengths(kind: str, lengths: Numbers) -> Numbers:
    """Return for each size of a text how many of its rarest words suffice: every similar text has one of them."""
    least = PREFIXES[kind]
    common = np.maximum(1, -((-least.numerator * lengths) // least.denominator))
    return lengths - common + 1


def marks_of(lengths: Numbers, offsets: Numbers, tokens: Numbers) -> Array:
    """Return a mark for each text: its number of words, or `LONG`, below a signature of its words."""
    signatures = signatures_of(offsets, tokens, MARK_BITS)
    return (signatures << np.uint64(LENGTH_BITS)) | np.minimum(lengths, LONG).astype(np.uint64)


def signatures_of(offsets: Numbers, tokens: Numbers, bits: int) -> Array:
    """Return for each text a number of `bits` bits, in which each word sets one bit."""
    signatures = np.zeros(len(offsets) - 1, dtype=np.uint64)
    mixed = (tokens.astype(np.uint64) * np.uint64(0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    set_bits = np.uint64(1) << ((mixed * np.uint64(bits)) >> np.uint64(32))
    if len(tokens):
        has_words = np.diff(offsets) > 0
        signatures[has_words] = np.bitwise_or.reduceat(set_bits, offsets[:-1][has_words])
    return signatures


def merge_word_indexes(
    kind: str, indexes: Sequence[WordIndex | None], moved: Sequence[Numbers], count: int
) -> WordIndex:
    """Merge indexes. `moved` has for each index the new row of every row, or -1 if it is dropped."""
    present = [(index, rows) for index, rows in zip(indexes, moved, strict=True) if index is not None]
    words, positions = merge_texts([index.words for index, _ in present])
    rows = np.concatenate([new[index.rows()] for index, new in present])
    lengths = np.concatenate([np.diff(index.text_offsets.astype(np.int64)) for index, _ in present])
    numbers = np.concatenate([own[index.word_numbers()] for (index, _), own in zip(present, positions, strict=True)])
    is_kept = np.repeat(rows >= 0, lengths)
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    new_position = np.full(len(rows), -1, dtype=np.int64)
    new_position[order] = np.arange(len(order))
    moved_words = np.argsort(np.repeat(new_position, lengths)[is_kept], kind="stable")
    numbers = numbers[is_kept][moved_words]
    used, numbers = words.used(numbers)
    return WordIndex.of(kind, used, rows[order], lengths[order], numbers, count)
