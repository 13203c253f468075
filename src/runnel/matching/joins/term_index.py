"""The terms under which window items are listed: values, links, hosts, folders, or the first words of phrases.

In: the terms of window items. Out: the rows that are listed under each term. Terms are compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.arrays import offsets_of, read_only
from runnel.matching.joins.item_texts import SortedTexts, merge_texts

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TermIndex:
    """The rows `rows[starts[i]:starts[i + 1]]`, ascending, are listed under term i."""

    terms: SortedTexts
    starts: Array
    rows: Array

    def terms_of(self, row: int) -> list[str]:
        """Return the terms under which a row is listed. All rows are read."""
        positions = np.searchsorted(self.starts, np.flatnonzero(self.rows == row), side="right") - 1
        return [self.terms.text(position) for position in positions.tolist()]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to store."""
        return {**self.terms.arrays(), "starts": self.starts, "rows": self.rows}

    @staticmethod
    def stored(arrays: Mapping[str, Array]) -> TermIndex:
        """Return the index of arrays that `arrays` returned."""
        return TermIndex(SortedTexts.stored(arrays), read_only(arrays["starts"]), read_only(arrays["rows"]))

    @staticmethod
    def of(terms: SortedTexts, rows: Numbers, numbers: Array) -> TermIndex:
        """Index rows: the row `rows[i]` is listed under the term with the position `numbers[i]`."""
        order = np.lexsort((rows, numbers))
        rows, numbers = rows[order], numbers[order]
        is_new = np.ones(len(rows), dtype=np.bool_)
        is_new[1:] = (rows[1:] != rows[:-1]) | (numbers[1:] != numbers[:-1])
        starts = offsets_of(np.bincount(numbers[is_new], minlength=len(terms)))
        return TermIndex(terms, read_only(starts.astype(np.uint32)), read_only(rows[is_new].astype(np.int32)))


def merge_term_indexes(indexes: Sequence[TermIndex | None], moved: Sequence[Numbers]) -> TermIndex:
    """Merge indexes. `moved` has for each index the new row of every row, or -1 if it is dropped."""
    present = [(index, rows) for index, rows in zip(indexes, moved, strict=True) if index is not None]
    terms, positions = merge_texts([index.terms for index, _ in present])
    rows = np.concatenate([new[index.rows] for index, new in present])
    numbers = np.concatenate(
        [
            np.repeat(own, np.diff(index.starts).astype(np.int64))
            for (index, _), own in zip(present, positions, strict=True)
        ]
    )
    used, numbers = terms.used(numbers[rows >= 0])
    return TermIndex.of(used, rows[rows >= 0], numbers)
