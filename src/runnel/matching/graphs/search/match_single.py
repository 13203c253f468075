"""Graph patterns on one item, for conditions that the index does not decide: within limits, unlike the definition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import islice
from typing import cast

from runnel.algebra.graphs.edges import Edge, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import IndexedTriples, truth_of
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import ItemPattern, Solution
from runnel.errors import TooExpensiveError
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.graphs.search.publications import read_publications
from runnel.matching.patterns.contract import FoundSolutions
from runnel.model.graph import GRAPH, RdfGraph
from runnel.model.item import Attributes, Item
from runnel.model.item_batch import ItemBatch

TOO_MANY_STEPS = "the item's graph has too many ways to compare it with a graph pattern of this query"
"""Why a query stays undecided where a search was abandoned."""

MOST_STEPS = 200_000
"""Triples that are tried for the edges of one pattern on one graph."""

MOST_SOLUTIONS = 10_000
"""Solutions of the edges of a pattern that are read for one item."""


def graph_holds(graph: Graph, columns: ItemColumns, row: int) -> bool:
    """Whether a pattern holds of an item of a batch; TooExpensiveError where that takes too many steps.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.model.graph import RdfGraph
    >>> from runnel.model.item import Item
    >>> item = Item("One", "1", {"graph": (RdfGraph.of([("<urn:a>", "<urn:year>", '"1"')]),)})
    >>> columns = ItemColumns(ItemBatch.of([item], {"One": 1}))
    >>> graph_holds(Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)), columns, 0)
    True
    """
    if not columns.positions(row, GRAPH):
        return False
    matcher = _matcher(graph.canonical())
    one = ItemColumns(ItemBatch(columns.batch.records.slice(row, 1)))
    found = matcher.match(read_publications(one, matcher.layout.terms))
    if not len(found.keys) and len(found.doubted_keys):
        raise TooExpensiveError(TOO_MANY_STEPS)
    return bool(len(found.keys))


class GraphSearch:
    """Graph patterns on one item; nothing is read before the first question.

    Whether a pattern holds is decided by the kernel that matching uses. Solutions are searched for as the definition
    does, with edges in a better order: on one graph of usual size that takes less time than preparing the kernel.
    Patterns with the same edges are searched for once, however many filters there are on them.

    >>> year = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    >>> GraphSearch({"graph": (RdfGraph('<urn:a> <urn:year> "1" .\\n'),)}).found(year).solutions
    ({'p': '<urn:a>', 'y': '"1"'},)
    """

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._found: dict[tuple[Edge, ...], FoundSolutions] = {}

    @cached_property
    def _columns(self) -> ItemColumns:
        return ItemColumns(ItemBatch.of([Item("item", "item", self._attributes)], {"item": 1}))

    @cached_property
    def _graphs(self) -> list[IndexedTriples[str]]:
        values = self._attributes.get(GRAPH, ())
        return [IndexedTriples(value.triples()) for value in values if isinstance(value, RdfGraph)]

    def holds(self, pattern: ItemPattern) -> bool | None:
        """Whether a pattern holds; None where the search was abandoned."""
        try:
            return graph_holds(cast(Graph, pattern), self._columns, 0)
        except TooExpensiveError:
            return None

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """The solutions of a pattern as terms, until the search takes too many steps."""
        graph = cast(Graph, pattern)
        with suppress(TooExpensiveError):
            yield from (one for one in self._searched(graph.edges) if _is_accepted(graph, one))

    def found(self, pattern: ItemPattern) -> FoundSolutions:
        """The solutions of a pattern as terms, as many as the limits allow."""
        graph = cast(Graph, pattern)
        if graph.edges not in self._found:
            self._found[graph.edges] = self._first_solutions(graph.edges)
        every = self._found[graph.edges]
        return FoundSolutions(tuple(one for one in every.solutions if _is_accepted(graph, one)), every.is_whole)

    def _first_solutions(self, edges: tuple[Edge, ...]) -> FoundSolutions:
        solutions: list[Solution] = []
        try:
            solutions.extend(islice(self._searched(edges), MOST_SOLUTIONS))
        except TooExpensiveError:
            return FoundSolutions(tuple(solutions), False)
        return FoundSolutions(tuple(solutions), len(solutions) < MOST_SOLUTIONS)

    def _searched(self, edges: tuple[Edge, ...]) -> Iterator[Solution]:
        for graph in self._graphs:
            yield from graph.solutions(_ordered(edges, graph), MOST_STEPS)


def _is_accepted(graph: Graph, solution: Solution) -> bool:
    return graph.filter is None or bool(truth_of(graph.filter, solution))


def _ordered(edges: tuple[Edge, ...], index: IndexedTriples[str]) -> tuple[Edge, ...]:
    """The edges so that each has as many ends as can be that are known by then; of those the rarest first."""
    left, known, ordered = list(edges), set[str](), []
    rarity = {edge: len(index.candidates(edge, {})) for edge in edges}
    while left:
        edge = max(left, key=lambda one: (sum(_is_known(node, known) for node in one.nodes), -rarity[one]))
        left.remove(edge)
        ordered.append(edge)
        known |= {node.name for node in edge.nodes if isinstance(node, Variable)}
    return tuple(ordered)


def _is_known(node: Node, known: set[str]) -> bool:
    return not isinstance(node, Variable) or node.name in known


@lru_cache(maxsize=1024)
def _matcher(graph: Graph) -> GraphMatcher:
    return GraphMatcher(GraphLayout.of(PatternTable.of([graph])))
