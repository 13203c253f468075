"""The graph patterns of a plan part at work: a batch in, the keys of the patterns that hold of its rows out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.algebra.graphs.rdf_terms import plain_value
from runnel.arrays import Array
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.search.find_solutions import Solutions, solutions_of
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.publications import Publications, read_publications
from runnel.matching.patterns.contract import PatternKeys
from runnel.model.item import Value


@dataclass(frozen=True)
class GraphSolutions:
    """The solutions of pairs of a row and an atom, as numbers of terms, and what these stand for."""

    publications: Publications
    layout: GraphLayout
    solutions: Solutions
    pairs: Array

    @property
    def is_whole(self) -> Array:
        """Whether each set has all solutions."""
        return self.solutions.is_whole

    def rows(self, number: int) -> Array:
        """A set of solutions."""
        return self.solutions.rows(number)

    def term(self, number: int) -> str:
        """A term by its number."""
        if number < self.publications.plan_terms:
            return self.layout.table.terms.text(number)
        return self.publications.local_term(number)

    def value(self, number: int) -> Value:
        """The plain value of a term."""
        return plain_value(self.term(number))


class GraphPart:
    """The graph patterns of one plan part, over its mapped arrays."""

    def __init__(self, layout: GraphLayout, atom_keys: Array) -> None:
        self.layout = layout
        self.matcher = GraphMatcher(layout)
        self._atom_keys = atom_keys
        self._by_key = np.argsort(layout.keys, kind="stable")

    def keys(self, columns: ItemColumns) -> PatternKeys:
        """Which patterns hold of which rows of a batch."""
        publications = read_publications(columns, self.layout.terms)
        found = self.matcher.match(publications)
        rows = publications.rows
        return PatternKeys(rows[found.places], found.keys, rows[found.doubted_places], found.doubted_keys)

    def patterns(self, atoms: Array) -> Array:
        """The patterns, in the layout's table, of graph atoms of the plan."""
        found = np.searchsorted(self.layout.keys[self._by_key], self._atom_keys[atoms])
        return self._by_key[found]

    def solutions(
        self, columns: ItemColumns, rows: Array, atoms: Array, named: Array | None = None
    ) -> GraphSolutions:
        """The solutions of graph atoms on rows of a batch, as many as `solutions_of` gives of each pair and graph.

        `named` are the variables of each atom that have names, as bits; without it all have.
        """
        publications = read_publications(columns, self.layout.terms)
        first = np.searchsorted(publications.rows, rows, side="left")
        counts = np.searchsorted(publications.rows, rows, side="right") - first
        pairs = np.repeat(np.arange(len(rows)), counts)
        places = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts) + first[pairs]
        wanted = None if named is None else named[pairs]
        found = solutions_of(self.layout, publications, places, self.patterns(atoms[pairs]), named=wanted)
        return GraphSolutions(publications, self.layout, found, pairs)
