"""The terms of a plan's patterns, to be found by the bytes of an item's graph.

In: a table of patterns. Out: arrays in which a kernel finds a term's number, what it stands for, and where a text
lies among the plan's texts: a plan text has an odd rank, any other text the even rank between its neighbours.
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
    """The terms by number: a hash table of them, their sorts and keys, the ranks of texts, and these in order."""

    vocabulary: Vocabulary
    sorts: Array
    keys: Array
    ranks: Array
    ordered: Texts

    def __len__(self) -> int:
        return len(self.sorts)

    @cached_property
    def raw_ordered(self) -> list[bytes]:
        """The plan's texts in order, for those that a kernel cannot place."""
        return [self.ordered.raw(place) for place in range(len(self.ordered))]

    def arrays(self, name: str = "graph_terms") -> dict[str, Array]:
        """The arrays to store under a name."""
        plain = {f"{name}.{one}": getattr(self, one) for one in _PLAIN}
        return plain | self.vocabulary.arrays(f"{name}.vocabulary") | self.ordered.arrays(f"{name}.ordered")

    @staticmethod
    def stored(arrays: Arrays, name: str = "graph_terms") -> TermIndex:
        """The index of arrays made by `arrays`; ValueError if they do not fit each other."""
        found = TermIndex(
            Vocabulary.stored(arrays, f"{name}.vocabulary"),
            arrays[f"{name}.sorts"],
            arrays[f"{name}.keys"],
            arrays[f"{name}.ranks"],
            Texts.stored(arrays, f"{name}.ordered"),
        )
        if any(len(one) != len(found.vocabulary) for one in (found.sorts, found.keys, found.ranks)):
            raise ValueError(f"{name}.sorts does not fit its vocabulary")
        return found

    @staticmethod
    def of(table: PatternTable) -> TermIndex:
        """The index of a table's terms.

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
