"""Look-ups of one window atom for a batch of items, in the index of every part.

In: the prepared texts or terms of the items, and the indexes of the parts. Out: candidate pairs of an item and a row;
for equality, shared links and similarity, exactly the pairs that satisfy the atom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.values.similarity import DEFAULT_LEAST
from runnel.arrays import offsets_of
from runnel.matching.joins.item_texts import SortedTexts, sort_texts
from runnel.matching.joins.join_kernels import check_listed, check_similar, count_listed, listed_pairs, similar_pairs
from runnel.matching.joins.prepare_items import list_rows
from runnel.matching.joins.term_index import TermIndex
from runnel.matching.joins.window_items import split_words
from runnel.matching.joins.word_index import WordIndex

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_NO_PAIRS: tuple[Numbers, Numbers] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


class LookUp(Protocol):
    """The look-ups of an atom for a batch of items."""

    def sizes(self) -> Numbers | None:
        """Return the number of candidates for each item, or None if it is unknown before they are found."""

    def candidates(self, chosen: Booleans, counts: Numbers, limit: int) -> list[tuple[Numbers, Numbers]]:
        """Return the candidates of the chosen items in each part, and add their numbers to `counts`.

        An item with more than `limit` need not get all of them.
        """

    def check(self, part: int, items: Numbers, rows: Numbers) -> Booleans:
        """Return which pairs with rows of a part satisfy the atom. Only for exact indexes."""


class TermLookUp:
    """Look-ups of terms."""

    def __init__(
        self, atom: WindowAtom, indexes: Sequence[Any], column: Any, rows: Numbers, bounds: Sequence[Numbers]
    ) -> None:
        self._indexes: Sequence[TermIndex | None] = indexes
        self._bounds = bounds
        self._owners, texts = list_rows(column, rows)
        self._starts = offsets_of(np.bincount(self._owners, minlength=len(rows)))
        self._texts, self._positions = sort_texts(texts)
        self._terms: dict[int, Array] = {}
        self._sizes: Numbers | None = None

    def _terms_in(self, part: int, index: TermIndex) -> Array:
        """Return the position of each sought term in the index of a part, or -1."""
        if part not in self._terms:
            self._terms[part] = index.terms.find(self._texts)[self._positions]
        return self._terms[part]

    def sizes(self) -> Numbers:
        """Return the number of rows that are listed under the terms of each item."""
        if self._sizes is None:
            self._sizes = np.zeros(len(self._starts) - 1, dtype=np.int64)
            for part, index in enumerate(self._indexes):
                if index is not None:
                    terms, bounds = self._terms_in(part, index), self._bounds[part]
                    count_listed(self._owners, terms, bounds, index.starts, index.rows, self._sizes)
        return self._sizes

    def candidates(self, chosen: Booleans, counts: Numbers, limit: int) -> list[tuple[Numbers, Numbers]]:
        """Return the listed rows."""
        counts[chosen] += self.sizes()[chosen]
        small = chosen & (counts <= limit)
        return [
            _NO_PAIRS
            if index is None
            else listed_pairs(
                self._owners, self._terms_in(part, index), self._bounds[part], small, index.starts, index.rows
            )
            for part, index in enumerate(self._indexes)
        ]

    def check(self, part: int, items: Numbers, rows: Numbers) -> Booleans:
        """Return which rows are listed under a term of the item."""
        index = self._indexes[part]
        if index is None:
            return np.zeros(len(items), dtype=np.bool_)
        terms = self._terms_in(part, index)
        mask: Booleans = check_listed(items, rows, self._starts, terms, index.starts, index.rows)
        return mask


class WordLookUp:
    """Look-ups of similar texts."""

    def __init__(
        self, atom: WindowAtom, indexes: Sequence[Any], column: Any, rows: Numbers, bounds: Sequence[Numbers]
    ) -> None:
        least = atom.least or DEFAULT_LEAST
        self._least = least.numerator, least.denominator
        self._indexes: Sequence[WordIndex | None] = indexes
        self._bounds = bounds
        self._owners, texts = list_rows(column, rows)
        self._item_texts = offsets_of(np.bincount(self._owners, minlength=len(rows)))
        text_owners, words = split_words(texts)
        self._offsets = offsets_of(np.bincount(text_owners, minlength=len(texts)))
        self._texts: SortedTexts
        self._texts, self._words = sort_texts(words)
        self._ranks: dict[int, Array] = {}

    def _ranks_in(self, part: int, index: WordIndex) -> Array:
        """Return the rank of each sought word in a part, or -1."""
        if part not in self._ranks:
            positions = index.words.find(self._texts)
            padded = np.append(index.ranks, -1) if len(index.ranks) == 0 else index.ranks
            self._ranks[part] = np.where(positions < 0, -1, padded[positions]).astype(np.int64)
        return self._ranks[part]

    def sizes(self) -> None:
        """The candidates are counted while they are checked."""
        return

    def candidates(self, chosen: Booleans, counts: Numbers, limit: int) -> list[tuple[Numbers, Numbers]]:
        """Return the pairs with similar texts."""
        # The items that are not chosen count as items with too many candidates, which the kernel leaves out.
        own = np.where(chosen, counts, limit + 1)
        found = [
            _NO_PAIRS
            if index is None
            else similar_pairs(
                self._owners,
                self._offsets,
                self._words,
                self._ranks_in(part, index),
                *self._least,
                self._bounds[part],
                own,
                limit,
                index.text_rows,
                index.text_offsets,
                index.text_tokens,
                index.text_signatures,
                index.posting_offsets,
                index.posting_texts,
                index.posting_marks,
            )
            for part, index in enumerate(self._indexes)
        ]
        counts[chosen] = own[chosen]
        return found

    def check(self, part: int, items: Numbers, rows: Numbers) -> Booleans:
        """Return which rows have a text that is similar to one of the item."""
        index = self._indexes[part]
        if index is None:
            return np.zeros(len(items), dtype=np.bool_)
        mask: Booleans = check_similar(
            items,
            rows,
            self._item_texts,
            self._offsets,
            self._words,
            self._ranks_in(part, index),
            *self._least,
            index.text_rows,
            index.text_offsets,
            index.text_tokens,
        )
        return mask
