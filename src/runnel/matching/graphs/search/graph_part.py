"""Match the graph patterns of a plan part. In: a batch. Out: the keys of the patterns that match its rows."""

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
    """The solutions of pairs of a row and an atom, as numbers of terms, and the terms with these numbers."""

    publications: Publications
    layout: GraphLayout
    solutions: Solutions
    pairs: Array

    @property
    def is_whole(self) -> Array:
        """Whether each set of solutions is complete."""
        return self.solutions.is_whole

    def rows(self, number: int) -> Array:
        """Return a set of solutions by its number."""
        return self.solutions.rows(number)

    def term(self, number: int) -> str:
        """Return the term with a number."""
        if number < self.publications.plan_terms:
            return self.layout.table.terms.text(number)
        return self.publications.local_term(number)

    def value(self, number: int) -> Value:
        """Return the plain value of the term with a number."""
        return plain_value(self.term(number))


class GraphPart:
    """The matcher of the graph patterns of one plan part, on its mapped arrays."""

    def __init__(self, layout: GraphLayout, atom_keys: Array) -> None:
        self.layout = layout
        self.matcher = GraphMatcher(layout)
        self._atom_keys = atom_keys
        self._by_key = np.argsort(layout.keys, kind="stable")

    def keys(self, columns: ItemColumns) -> PatternKeys:
        """Return the rows of a batch and the patterns that match them."""
        publications = read_publications(columns, self.layout.terms)
        matches = self.matcher.match(publications)
        rows = publications.rows
        return PatternKeys(rows[matches.places], matches.keys, rows[matches.doubted_places], matches.doubted_keys)

    def patterns(self, atoms: Array) -> Array:
        """Return the numbers, in the layout's table, of the patterns of graph atoms of the plan."""
        positions = np.searchsorted(self.layout.keys[self._by_key], self._atom_keys[atoms])
        return self._by_key[positions]

    def solutions(
        self, columns: ItemColumns, rows: Array, atoms: Array, named: Array | None = None
    ) -> GraphSolutions:
        """Return the solutions of graph atoms on rows of a batch. `solutions_of` limits their number.

        `named` are the variables of each atom that have names, as bits. By default, all variables have names.
        """
        publications = read_publications(columns, self.layout.terms)
        first = np.searchsorted(publications.rows, rows, side="left")
        counts = np.searchsorted(publications.rows, rows, side="right") - first
        pairs = np.repeat(np.arange(len(rows)), counts)
        graphs = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts) + first[pairs]
        named_variables = None if named is None else named[pairs]
        patterns = self.patterns(atoms[pairs])
        solutions = solutions_of(self.layout, publications, graphs, patterns, named=named_variables)
        return GraphSolutions(publications, self.layout, solutions, pairs)
