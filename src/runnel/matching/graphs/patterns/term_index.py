"""An index of the terms of a plan's patterns, in which kernels look up the terms of an item's graph by their bytes.

In: a table of patterns. Out: arrays with the number, the sort and the key of each term, and with the rank of each
text in the order of the plan's texts. A text of the plan has an odd rank; any other text has the even rank in
between.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import Array, Arrays, Texts, encode_text
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.model.graph import unescape_text


@dataclass(frozen=True)
class TermIndex:
    """A hash table of terms, the sort, key and rank of each term by its number, and the sorted texts."""

    vocabulary: Vocabulary
    sorts: Array
    keys: Array
    ranks: Array
    ordered: Texts

    def __len__(self) -> int:
        return len(self.sorts)

    @cached_property
    def raw_ordered(self) -> list[bytes]:
        """The plan's sorted texts, for texts whose rank a kernel cannot determine."""
        return [self.ordered.raw(position) for position in range(len(self.ordered))]

    def arrays(self, name: str = "graph_terms") -> dict[str, Array]:
        """Return the arrays to store. Their names begin with `name`."""
        plain = {f"{name}.{field}": getattr(self, field) for field in _PLAIN}
        return plain | self.vocabulary.arrays(f"{name}.vocabulary") | self.ordered.arrays(f"{name}.ordered")

    @staticmethod
    def stored(arrays: Arrays, name: str = "graph_terms") -> TermIndex:
        """Build the index from stored arrays. Raise ValueError if their lengths differ."""
        index = TermIndex(
            Vocabulary.stored(arrays, f"{name}.vocabulary"),
            arrays[f"{name}.sorts"],
            arrays[f"{name}.keys"],
            arrays[f"{name}.ranks"],
            Texts.stored(arrays, f"{name}.ordered"),
        )
        if any(len(array) != len(index.vocabulary) for array in (index.sorts, index.keys, index.ranks)):
            raise ValueError(f"{name}.sorts, keys or ranks has another length than its vocabulary")
        return index

    @staticmethod
    def of(table: PatternTable) -> TermIndex:
        """Build the index of a table's terms.

        >>> from runnel.algebra.graphs.graph_patterns import Edge, Graph
        >>> index = TermIndex.of(PatternTable.of([Graph((Edge("<urn:a>", "<urn:p>", '"text"'),))]))
        >>> index.vocabulary.find("<urn:p>"), index.ranks.tolist()
        (1, [0, 0, 1])
        """
        texts = np.flatnonzero(table.sorts == Sort.TEXT).tolist()
        raw = {number: encode_text(unescape_text(table.terms.text(number)[1:-1])) for number in texts}
        ordered = sorted(texts, key=raw.__getitem__)
        ranks = np.zeros(len(table.terms), dtype=np.int64)
        ranks[ordered] = 2 * np.arange(len(ordered)) + 1
        in_order = Texts.of(raw[number] for number in ordered)
        return TermIndex(Vocabulary.of(table.terms), table.sorts, table.keys, ranks, in_order)


_PLAIN = ("sorts", "keys", "ranks")
