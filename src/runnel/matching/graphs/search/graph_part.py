"""The graph patterns of a plan part at work: a batch in, the keys of the patterns that hold of its rows out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.graph_layout import GraphLayout, stored_graphs
from runnel.matching.graphs.search.find_solutions import Solutions, solutions_of
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.publications import Publications, read_publications
from runnel.plan.store import PlanPart

TOO_MANY_STEPS = "the item's graph has too many ways to compare it with a graph pattern of this query"
"""Why a query stays undecided where a search was given up."""


@dataclass(frozen=True)
class GraphKeys:
    """Pairs of a row and a key; `doubted` are those of which nobody knows."""

    rows: Array
    keys: Array
    doubted_rows: Array
    doubted_keys: Array


@dataclass(frozen=True)
class GraphSolutions:
    """The solutions of pairs of a row and an atom, with what their terms stand for.

    `pairs` says which pair a solution set belongs to: an item with several graphs has several sets.
    """

    publications: Publications
    layout: GraphLayout
    solutions: Solutions
    pairs: Array

    def terms(self, place: int) -> list[list[str]]:
        """The solutions of a set as texts, a list each."""
        return [[self.term(number) for number in row] for row in self.solutions.rows(place).tolist()]

    def term(self, number: int) -> str:
        """A term by its number."""
        if number < self.publications.plan_terms:
            return self.layout.table.terms.text(number)
        return self.publications.local_term(number)


class GraphPart:
    """The graph patterns of one plan part, over its mapped arrays."""

    def __init__(self, layout: GraphLayout, atoms: AtomLayout) -> None:
        self.layout = layout
        self.matcher = GraphMatcher(layout)
        self._atom_keys = atoms.atom_keys
        self._by_key = np.argsort(layout.keys, kind="stable")

    @staticmethod
    def of(part: PlanPart, atoms: AtomLayout) -> GraphPart | None:
        """The graph patterns of a loaded plan part; None where it has none, which costs nothing."""
        layout = stored_graphs(part, atoms)
        return None if layout is None else GraphPart(layout, atoms)

    def keys(self, columns: ItemColumns) -> GraphKeys:
        """Which patterns hold of which rows of a batch."""
        publications = read_publications(columns, self.layout.terms)
        found = self.matcher.match(publications)
        rows = publications.rows
        return GraphKeys(rows[found.places], found.keys, rows[found.doubted_places], found.doubted_keys)

    def pattern(self, atom: int) -> int:
        """The pattern, in the layout's table, of a graph atom of the plan."""
        return int(self.patterns(np.array([atom]))[0])

    def patterns(self, atoms: Array) -> Array:
        """The patterns of graph atoms."""
        found = np.searchsorted(self.layout.keys[self._by_key], self._atom_keys[atoms])
        return self._by_key[found]

    def solutions(
        self, columns: ItemColumns, rows: Array, atoms: Array, *, named: Array | None = None
    ) -> GraphSolutions:
        """The solutions of graph atoms on rows of a batch, as many as `solutions_of` tells of each pair and graph.

        `named` are the variables of each atom that somebody wants to know, as bits; without it all are.
        """
        publications = read_publications(columns, self.layout.terms)
        first = np.searchsorted(publications.rows, rows, side="left")
        counts = np.searchsorted(publications.rows, rows, side="right") - first
        pairs = np.repeat(np.arange(len(rows)), counts)
        places = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts) + first[pairs]
        wanted = None if named is None else named[pairs]
        found = solutions_of(self.layout, publications, places, self.patterns(atoms[pairs]), named=wanted)
        return GraphSolutions(publications, self.layout, found, pairs)
