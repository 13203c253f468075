"""Why a graph pattern holds of an item, or does not: its edges, each with the triple that satisfies it.

In: a pattern, a search over the item's graph, and the bindings of the conditions around it. Out: the parts of the
pattern. Without a solution, these are the edges that match nothing by themselves, else the filter, else the edges as
a whole.
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

_LONGEST = 80
_MOST_TRIED = 1_000

Pattern = TypeVar("Pattern", bound=EdgePattern)
Searched = TypeVar("Searched", bound=EdgePattern, contravariant=True)


class EdgeSearch(Protocol[Searched]):
    """Decides patterns on one item's graph."""

    def holds(self, pattern: Searched, /) -> bool | None:
        """Whether a pattern holds; None where the search was abandoned."""

    def solutions(self, pattern: Searched, /) -> Iterator[Solution]:
        """The solutions of a pattern."""


def matched_edges(
    graph: Pattern, search: EdgeSearch[Pattern], bound: Sequence[Mapping[str, Value]] = ()
) -> list[PatternPart]:
    """The edges of a pattern, and its filter, under one solution; one that agrees with a binding, if there is."""
    solution = _solution(graph, search, bound)
    if solution is not None:
        return [*_edges(graph, solution), *_filtered(graph, solution, True)]
    return _missing(graph, search)


def _solution(graph: Pattern, search: EdgeSearch[Pattern], bound: Sequence[Mapping[str, Value]]) -> Solution | None:
    first: Solution | None = None
    for tried, one in enumerate(search.solutions(graph)):
        first = first or one
        if _fits(one, bound) or tried >= _MOST_TRIED:
            return one if _fits(one, bound) else first
    return first


def _fits(solution: Solution, bound: Sequence[Mapping[str, Value]]) -> bool:
    plain = {name: plain_value(term) for name, term in solution.items()}
    return not bound or any(all(row.get(name, value) == value for name, value in plain.items()) for row in bound)


def _edges(graph: EdgePattern, solution: Solution) -> Iterator[PatternPart]:
    for edge in graph.edges:
        terms = (_term(node, solution) for node in edge.nodes)
        yield PatternPart(_shown(edge), True, " ".join(map(_short, terms)))


def _term(node: Node, solution: Solution) -> str:
    return solution[node.name] if isinstance(node, Variable) else node


def _missing(graph: Pattern, search: EdgeSearch[Pattern]) -> list[PatternPart]:
    """What a pattern without a solution lacks."""
    alone = [
        PatternPart(_shown(edge), bool(search.holds(replace(graph, edges=(edge,), filter=None))))
        for edge in graph.edges
    ]
    if not all(one.holds for one in alone):
        return alone
    held = search.holds(graph)
    if held is not False:
        # The search was abandoned, before it was decided or before its solutions were found.
        told = "the graph has too many ways to show one" if held else "unknown: the graph has too many ways to try"
        return [*alone, PatternPart(told, bool(held))]
    solution = next(iter(search.solutions(replace(graph, filter=None))), None)
    if solution is None:
        return [*alone, PatternPart("all of these together", False)]
    return [*_edges(graph, solution), *_filtered(graph, solution, False)]


def _filtered(graph: EdgePattern, solution: Solution, holds: bool) -> list[PatternPart]:
    if graph.filter is None:
        return []
    sides = (node for one in comparisons(graph.filter) for node in (one.left, one.right))
    asked = {node.name for node in sides if isinstance(node, Variable)}
    named = (f"?{name} = {_short(term)}" for name, term in solution.items() if name in asked)
    return [PatternPart(render_edges(EdgePattern((), graph.filter)), holds, ", ".join(named))]


def _shown(edge: Edge) -> str:
    return render_edges(EdgePattern((edge,)))


def _short(term: str) -> str:
    shown = render_term(term)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
