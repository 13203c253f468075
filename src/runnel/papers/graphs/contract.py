"""The contract of graph matchers: publications in, pairs of a publication and a pattern that it has out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.arrays import Array
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.publications import Publications
from runnel.model.graph import Triple

Pairs = tuple[Array, Array]
"""Places of publications in their batch, and patterns: ascending, each pair once."""


@dataclass
class Counters:
    """What a matcher did, in all.

    `touched` are entries of lists that were gone through, `candidates` patterns (or shapes) of which something was
    found, `joined` those whose edges were laid one by one, `matches` the pairs.
    """

    touched: int = 0
    candidates: int = 0
    joined: int = 0
    matches: int = 0


class GraphContender(Protocol):
    """Finds the patterns of publications, exactly. Terms of both are numbered by the same `TermIndex`."""

    counters: Counters

    @property
    def size(self) -> int:
        """The bytes of the arrays that it looks into."""
        ...

    def match(self, publications: Publications) -> Pairs:
        """All pairs of a publication and a pattern that has a solution on it."""
        ...


def in_order(publications: Array, patterns: Array) -> Pairs:
    """Pairs in ascending order.

    >>> [part.tolist() for part in in_order(np.array([1, 0, 0]), np.array([2, 9, 3]))]
    [[0, 0, 1], [3, 9, 2]]
    """
    order = np.lexsort((patterns, publications))
    return publications[order], patterns[order]


def triples_of(table: PatternTable, publications: Publications, place: int) -> Iterator[Triple]:
    """The triples of a publication as terms."""
    for at in range(int(publications.offsets[place]), int(publications.offsets[place + 1])):
        numbers = publications.subjects[at], publications.labels[at], publications.objects[at]
        subject, label, found = (_term(table, publications, int(number)) for number in numbers)
        yield subject, label, found


def _term(table: PatternTable, publications: Publications, number: int) -> str:
    return table.terms.text(number) if number < publications.plan_terms else publications.local_term(number)


def settle_programs(table: PatternTable, publications: Publications, pairs: Pairs) -> Pairs:
    """The pairs that stay when what is no constraint in a filter (`or`, `not`, two variables) is asked too.

    Kernels of contenders go by constraints alone; the definition decides the rest.
    """
    asked = np.flatnonzero(table.programs.lengths[pairs[1]])
    kept = np.ones(len(pairs[0]), dtype=np.bool_)
    triples: dict[int, list[Triple]] = {}
    for at in asked.tolist():
        place, pattern = int(pairs[0][at]), int(pairs[1][at])
        if place not in triples:
            triples[place] = list(triples_of(table, publications, place))
        kept[at] = matches_graph(table.graph(pattern), triples[place])
    return pairs[0][kept], pairs[1][kept]
