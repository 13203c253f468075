"""Explanation why a graph pattern holds for an item or not: its edges, each with the triple that satisfies it.

In: a pattern, a search over the item's graph, and the bindings of the conditions around it. Out: the parts of the
pattern. Without a solution they show the first cause that applies: edges that match no triple, edges that match only
separately, or the filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from runnel.algebra.graphs.edge_text import render_edges, render_term
from runnel.algebra.graphs.edges import Edge, EdgePattern, Node, comparisons
from runnel.algebra.graphs.rdf_terms import plain_value
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import PatternPart, Solution
from runnel.model.item import Value

_MAX_TERM_LENGTH = 80
_MAX_SOLUTIONS = 1_000

Pattern = TypeVar("Pattern", bound=EdgePattern)
Searched = TypeVar("Searched", bound=EdgePattern, contravariant=True)


class EdgeSearch(Protocol[Searched]):
    """Evaluates patterns on the graph of one item."""

    def holds(self, pattern: Searched, /) -> bool | None:
        """Return whether a pattern holds, or None if the search was abandoned."""

    def solutions(self, pattern: Searched, /) -> Iterator[Solution]:
        """Yield the solutions of a pattern."""


def matched_edges(
    graph: Pattern, search: EdgeSearch[Pattern], bound: Sequence[Mapping[str, Value]] = ()
) -> list[PatternPart]:
    """Return the edges and the filter of a pattern under one solution, if possible one that agrees with `bound`."""
    solution = _choose_solution(graph, search, bound)
    if solution is not None:
        return [*_trace_edges(graph, solution), *_trace_filter(graph, solution, True)]
    return _trace_missing(graph, search)


def _choose_solution(
    graph: Pattern, search: EdgeSearch[Pattern], bound: Sequence[Mapping[str, Value]]
) -> Solution | None:
    first: Solution | None = None
    for tried, solution in enumerate(search.solutions(graph)):
        first = first or solution
        if _agrees(solution, bound) or tried >= _MAX_SOLUTIONS:
            return solution if _agrees(solution, bound) else first
    return first


def _agrees(solution: Solution, bound: Sequence[Mapping[str, Value]]) -> bool:
    plain = {name: plain_value(term) for name, term in solution.items()}
    return not bound or any(all(row.get(name, value) == value for name, value in plain.items()) for row in bound)


def _trace_edges(graph: EdgePattern, solution: Solution) -> Iterator[PatternPart]:
    for edge in graph.edges:
        terms = (_term(node, solution) for node in edge.nodes)
        yield PatternPart(_render_edge(edge), True, " ".join(map(_shorten_term, terms)))


def _term(node: Node, solution: Solution) -> str:
    return solution[node.name] if isinstance(node, Variable) else node


def _trace_missing(graph: Pattern, search: EdgeSearch[Pattern]) -> list[PatternPart]:
    """Return the parts of a pattern without a solution that explain why it has none."""
    single_edges = [
        PatternPart(_render_edge(edge), bool(search.holds(replace(graph, edges=(edge,), filter=None))))
        for edge in graph.edges
    ]
    if not all(part.holds for part in single_edges):
        return single_edges
    holds = search.holds(graph)
    if holds is not False:
        # The search was abandoned before it had a result, or before it had listed a solution.
        cause = "the graph has too many possible matches"
        text = f"{cause} to show one" if holds else f"unknown: {cause} to search all of them"
        return [*single_edges, PatternPart(text, bool(holds))]
    solution = next(iter(search.solutions(replace(graph, filter=None))), None)
    if solution is None:
        return [*single_edges, PatternPart("all of these together", False)]
    return [*_trace_edges(graph, solution), *_trace_filter(graph, solution, False)]


def _trace_filter(graph: EdgePattern, solution: Solution, holds: bool) -> list[PatternPart]:
    if graph.filter is None:
        return []
    nodes = (node for comparison in comparisons(graph.filter) for node in (comparison.left, comparison.right))
    names = {node.name for node in nodes if isinstance(node, Variable)}
    values = (f"?{name} = {_shorten_term(term)}" for name, term in solution.items() if name in names)
    return [PatternPart(render_edges(EdgePattern((), graph.filter)), holds, ", ".join(values))]


def _render_edge(edge: Edge) -> str:
    return render_edges(EdgePattern((edge,)))


def _shorten_term(term: str) -> str:
    shown = render_term(term)
    return shown if len(shown) <= _MAX_TERM_LENGTH else f"{shown[: _MAX_TERM_LENGTH - 1]}…"
