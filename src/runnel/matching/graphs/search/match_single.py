"""Match graph patterns against one item, for conditions that the index does not decide. The search has limits."""

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

TOO_MANY_STEPS = "the search for a graph pattern of this query in the item's graph takes too many steps"
"""The reason of a query that is undecided because a search was abandoned."""

MAX_STEPS = 200_000
"""Maximum number of triples that are tried for the edges of one pattern in one graph."""

MAX_SOLUTIONS = 10_000
"""Maximum number of solutions of a pattern's edges that are read for one item."""


def graph_holds(graph: Graph, columns: ItemColumns, row: int) -> bool:
    """Return whether the item in a row matches a pattern. Raise TooExpensiveError if that takes too many steps.

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
    row_columns = ItemColumns(ItemBatch(columns.batch.records.slice(row, 1)))
    matches = matcher.match(read_publications(row_columns, matcher.layout.terms))
    if not len(matches.keys) and len(matches.doubted_keys):
        raise TooExpensiveError(TOO_MANY_STEPS)
    return bool(len(matches.keys))


class GraphSearch:
    """Searches one item for graph patterns. The item's graphs are read on first use.

    The matching kernel decides whether a pattern holds. Solutions are searched with the algorithm of the definition,
    but with a better order of edges: on a graph of usual size that is faster than preparing the kernel. Patterns that
    differ only in their filters are searched once.

    >>> year = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    >>> GraphSearch({"graph": (RdfGraph('<urn:a> <urn:year> "1" .\\n'),)}).find_all(year).solutions
    ({'p': '<urn:a>', 'y': '"1"'},)
    """

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._solutions: dict[tuple[Edge, ...], FoundSolutions] = {}

    @cached_property
    def _columns(self) -> ItemColumns:
        return ItemColumns(ItemBatch.of([Item("item", "item", self._attributes)], {"item": 1}))

    @cached_property
    def _graphs(self) -> list[IndexedTriples[str]]:
        values = self._attributes.get(GRAPH, ())
        return [IndexedTriples(value.triples()) for value in values if isinstance(value, RdfGraph)]

    def holds(self, pattern: ItemPattern) -> bool | None:
        """Return whether a pattern holds, or None if the search was abandoned."""
        try:
            return graph_holds(cast(Graph, pattern), self._columns, 0)
        except TooExpensiveError:
            return None

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """Yield the solutions of a pattern as terms, until the search takes too many steps."""
        graph = cast(Graph, pattern)
        with suppress(TooExpensiveError):
            yield from (solution for solution in self._search_edges(graph.edges) if _is_accepted(graph, solution))

    def find_all(self, pattern: ItemPattern) -> FoundSolutions:
        """Return the solutions of a pattern as terms, within the limits."""
        graph = cast(Graph, pattern)
        if graph.edges not in self._solutions:
            self._solutions[graph.edges] = self._first_solutions(graph.edges)
        unfiltered = self._solutions[graph.edges]
        accepted = tuple(solution for solution in unfiltered.solutions if _is_accepted(graph, solution))
        return FoundSolutions(accepted, unfiltered.is_whole)

    def _first_solutions(self, edges: tuple[Edge, ...]) -> FoundSolutions:
        solutions: list[Solution] = []
        try:
            solutions.extend(islice(self._search_edges(edges), MAX_SOLUTIONS))
        except TooExpensiveError:
            return FoundSolutions(tuple(solutions), False)
        return FoundSolutions(tuple(solutions), len(solutions) < MAX_SOLUTIONS)

    def _search_edges(self, edges: tuple[Edge, ...]) -> Iterator[Solution]:
        for graph in self._graphs:
            yield from graph.solutions(_order_edges(edges, graph), MAX_STEPS)


def _is_accepted(graph: Graph, solution: Solution) -> bool:
    return graph.filter is None or bool(truth_of(graph.filter, solution))


def _order_edges(edges: tuple[Edge, ...], index: IndexedTriples[str]) -> tuple[Edge, ...]:
    """Order edges so that each has as many known nodes as possible, and the rarest edge comes first among equals."""
    remaining, known, ordered = list(edges), set[str](), []
    candidates = {edge: len(index.candidates(edge, {})) for edge in edges}
    while remaining:
        edge = max(
            remaining, key=lambda edge: (sum(_is_known(node, known) for node in edge.nodes), -candidates[edge])
        )
        remaining.remove(edge)
        ordered.append(edge)
        known |= {node.name for node in edge.nodes if isinstance(node, Variable)}
    return tuple(ordered)


def _is_known(node: Node, known: set[str]) -> bool:
    return not isinstance(node, Variable) or node.name in known


@lru_cache(maxsize=1024)
def _matcher(graph: Graph) -> GraphMatcher:
    return GraphMatcher(GraphLayout.of(PatternTable.of([graph])))
