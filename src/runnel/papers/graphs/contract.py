"""The contract of graph matchers: publications in, pairs of a publication and a matching pattern out."""

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
"""Indexes of publications in their batch, and pattern numbers; ascending and distinct pairs."""


@dataclass
class Counters:
    """The work of a matcher since it was created.

    `touched` is the number of list entries read, `candidates` the number of patterns (or shapes) of which an edge was
    found, `joined` the number of those that were joined edge by edge, and `matches` the number of pairs.
    """

    touched: int = 0
    candidates: int = 0
    joined: int = 0
    matches: int = 0


class GraphContender(Protocol):
    """Finds the exact matches of patterns. The same `TermIndex` numbers the terms of patterns and publications."""

    counters: Counters

    @property
    def size(self) -> int:
        """The size in bytes of the arrays that matching reads."""
        ...

    def match(self, publications: Publications) -> Pairs:
        """Return all pairs of a publication and a pattern that has a solution on it."""
        ...


def sort_pairs(publications: Array, patterns: Array) -> Pairs:
    """Sort pairs.

    >>> [column.tolist() for column in sort_pairs(np.array([1, 0, 0]), np.array([2, 9, 3]))]
    [[0, 0, 1], [3, 9, 2]]
    """
    order = np.lexsort((patterns, publications))
    return publications[order], patterns[order]


def triples_of(table: PatternTable, publications: Publications, publication: int) -> Iterator[Triple]:
    """Yield the triples of a publication as terms."""
    for index in range(int(publications.offsets[publication]), int(publications.offsets[publication + 1])):
        numbers = publications.subjects[index], publications.labels[index], publications.objects[index]
        subject, label, value = (_term(table, publications, int(number)) for number in numbers)
        yield subject, label, value


def _term(table: PatternTable, publications: Publications, number: int) -> str:
    return table.terms.text(number) if number < publications.plan_terms else publications.local_term(number)


def check_programs(table: PatternTable, publications: Publications, pairs: Pairs) -> Pairs:
    """Return the pairs that also satisfy the filters with `or`, `not` or two variables.

    The kernels check only constraints, which such filters are not. The definition decides them.
    """
    with_program = np.flatnonzero(table.programs.lengths[pairs[1]])
    kept = np.ones(len(pairs[0]), dtype=np.bool_)
    triples: dict[int, list[Triple]] = {}
    for index in with_program.tolist():
        publication, pattern = int(pairs[0][index]), int(pairs[1][index])
        if publication not in triples:
            triples[publication] = list(triples_of(table, publications, publication))
        kept[index] = matches_graph(table.graph(pattern), triples[publication])
    return pairs[0][kept], pairs[1][kept]
