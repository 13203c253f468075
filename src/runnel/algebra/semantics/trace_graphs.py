"""Why a graph pattern holds of an item, or does not: its edges, each with the triple that it was laid onto.

In: a pattern, the item's attributes, and what its variables are bound to beside it. Out: lines with marks. Where
there is no solution, the edges that fit nothing by themselves are told, else the filter, else that they do not go
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.graph_patterns import Edge, Graph, Node, comparisons
from runnel.algebra.nodes.render import render_graph, render_term
from runnel.algebra.semantics.bindings import GraphSearch
from runnel.algebra.semantics.evaluate import graphs_of
from runnel.algebra.semantics.graph_solutions import Solution
from runnel.algebra.semantics.rdf_terms import plain_value
from runnel.model.bindings import Binding
from runnel.model.item import Attributes

_LONGEST = 80
_MOST_TRIED = 1_000


@dataclass(frozen=True, slots=True)
class MatchedEdge:
    """A part of a pattern, whether it is satisfied, and by what."""

    text: str
    holds: bool
    by: str = ""


def matched_edges(
    graph: Graph, attributes: Attributes, bound: Sequence[Binding] = (), search: GraphSearch | None = None
) -> list[MatchedEdge]:
    """The edges of a pattern, and its filter, under one of its solutions; one that fits a binding, if there is.

    >>> from runnel.model.graph import read_ntriples
    >>> item = {"graph": (read_ntriples('<urn:a> <urn:year> "2003" .'),)}
    >>> matched_edges(Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)), item)
    [MatchedEdge(text='?p <urn:year> ?y', holds=True, by='<urn:a> <urn:year> "2003"')]
    """
    if not graphs_of(attributes):
        return [MatchedEdge("the item has a graph", False)]
    search = search or GraphSearch(attributes)
    solution = _solution(graph, search, bound)
    if solution is not None:
        return [*_edges(graph, solution), *_filtered(graph, solution, True)]
    return _missing(graph, search)


def _solution(graph: Graph, search: GraphSearch, bound: Sequence[Binding]) -> Solution | None:
    first: Solution | None = None
    for tried, one in enumerate(search.solutions(graph)):
        first = first or one
        if _fits(one, bound) or tried >= _MOST_TRIED:
            return one if _fits(one, bound) else first
    return first


def _fits(solution: Solution, bound: Sequence[Binding]) -> bool:
    plain = {name: plain_value(term) for name, term in solution.items()}
    return not bound or any(all(row.get(name, value) == value for name, value in plain.items()) for row in bound)


def _edges(graph: Graph, solution: Solution) -> Iterator[MatchedEdge]:
    for edge in graph.edges:
        terms = (_term(node, solution) for node in edge.nodes)
        yield MatchedEdge(_shown(edge), True, " ".join(map(_short, terms)))


def _term(node: Node, solution: Solution) -> str:
    return solution[node.name] if isinstance(node, Variable) else node


def _missing(graph: Graph, search: GraphSearch) -> list[MatchedEdge]:
    """What a pattern without a solution lacks."""
    alone = [MatchedEdge(_shown(edge), bool(search.holds(Graph((edge,))))) for edge in graph.edges]
    if not all(one.holds for one in alone):
        return alone
    held = search.holds(graph)
    if held is not False:
        # The search was given up, before it was decided or before its solutions were found.
        told = "the graph has too many ways to show one" if held else "unknown: the graph has too many ways to try"
        return [*alone, MatchedEdge(told, bool(held))]
    solution = next(iter(search.solutions(replace(graph, filter=None))), None)
    if solution is None:
        return [*alone, MatchedEdge("all of these together", False)]
    return [*_edges(graph, solution), *_filtered(graph, solution, False)]


def _filtered(graph: Graph, solution: Solution, holds: bool) -> list[MatchedEdge]:
    if graph.filter is None:
        return []
    text = render_graph(Graph((), graph.filter)).removeprefix("graph { ").removesuffix(" }")
    sides = (node for one in comparisons(graph.filter) for node in (one.left, one.right))
    asked = {node.name for node in sides if isinstance(node, Variable)}
    named = (f"?{name} = {_short(term)}" for name, term in solution.items() if name in asked)
    return [MatchedEdge(text, holds, ", ".join(named))]


def _shown(edge: Edge) -> str:
    return render_graph(Graph((edge,))).removeprefix("graph { ").removesuffix(" }")


def _short(term: str) -> str:
    shown = render_term(term)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
