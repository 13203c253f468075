"""Graph patterns: edges between terms and variables, and a filter on the variables, as an item pattern.

`graph { ?page ex:project ?p . ?p ex:year ?y . filter(?y > 2003) }` holds for an item if its graph contains the edges
for some values of the variables. As in SPARQL, this is a homomorphism: two variables may have the same value.
`graph_solutions.solve` defines the meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

from runnel.algebra.graphs.constraint_filters import as_filter
from runnel.algebra.graphs.edge_encoding import decode_edge, decode_filter, encode_edge, encode_filter
from runnel.algebra.graphs.edge_text import render_edges
from runnel.algebra.graphs.edges import (
    MAX_EDGES,
    MAX_VARIABLES,
    AllOf,
    AnyOf,
    Certain,
    Complement,
    Edge,
    EdgePattern,
    GraphFilter,
    renamed_filter,
    renamed_node,
)
from runnel.algebra.graphs.graph_solutions import matches_graph, plain_binding, solve
from runnel.algebra.graphs.trace_graphs import matched_edges
from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Constraint, Variable, variables_of
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternPart, PatternSearch, Solution, is_local
from runnel.errors import InvalidConditionError, Span
from runnel.model.graph import GRAPH, RdfGraph
from runnel.model.item import Value

OWN_GRAPH = Attribute(GRAPH)


@dataclass(frozen=True, slots=True)
class Graph(EdgePattern, ItemPattern):
    """A graph pattern, as written or canonical.

    >>> Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)).render()
    'graph { ?p <urn:year> ?y }'
    """

    names: tuple[str, ...] = field(default=(), compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    family: ClassVar[str] = "graph"
    constraint_hint: ClassVar[str] = (
        "variables of a graph can only be compared with constants and with each other: filter(?year > 2003)"
    )

    @property
    def attribute(self) -> Attribute:
        """The attribute `graph`."""
        return OWN_GRAPH

    @property
    def size(self) -> int:
        """The number of edges."""
        return len(self.edges)

    def variables(self) -> list[str]:
        """Return the names of the variables in the order of the edges, without repetitions. Filters have no others.

        >>> Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)).variables()
        ['p', 'y']
        """
        nodes = (node for edge in self.edges for node in edge.nodes)
        return list(dict.fromkeys(node.name for node in nodes if isinstance(node, Variable)))

    def canonical(self) -> Graph:
        """Return the pattern with sorted edges and numbered variables.

        Most patterns that differ only in names become equal.


        >>> one = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)).canonical()
        >>> one.edges[0].subject, one.names
        (Variable(name='1'), ('p', 'y'))
        """
        return self if self.names else _canonical(self)

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """Return the pattern with its variables renamed."""
        edges = tuple(Edge(*(renamed_node(node, names) for node in edge.nodes)) for edge in self.edges)
        return Graph(edges, None if self.filter is None else renamed_filter(self.filter, names), span=self.span)

    @classmethod
    def joined(cls, patterns: Sequence[Graph]) -> Graph:
        """Join patterns into one. They share variables of the same name, but not blank nodes.

        >>> year, name = (Graph((Edge(Variable("p"), f"<urn:{one}>", Variable("_:x")),)) for one in ("year", "name"))
        >>> [edge.object.name for edge in Graph.joined([year, name]).edges]
        ['_:x', '_:x1']
        """
        if len(patterns) == 1:
            return patterns[0]
        edges: dict[Edge, None] = {}
        filters: list[GraphFilter] = []
        taken: set[str] = set()
        for pattern in patterns:
            renamed = pattern.renamed(_rename_locals(pattern.variables(), taken))
            taken.update(renamed.variables())
            edges.update(dict.fromkeys(renamed.edges))
            filters += [renamed.filter] if renamed.filter is not None else []
        if len(edges) > MAX_EDGES or len(taken) > MAX_VARIABLES:
            raise InvalidConditionError(
                f"graph patterns with shared variables have {len(edges)} edges and {len(taken)} variables together",
                span=patterns[0].span,
                hint=f"use at most {MAX_EDGES} edges and {MAX_VARIABLES} variables in total, including blank nodes",
            )
        return Graph(tuple(edges), _all_of(filters), span=patterns[0].span)

    def constrained(self, constraints: Sequence[Constraint]) -> tuple[Graph, list[Constraint]]:
        """Add constraints on the pattern's variables as filters. Return the new pattern and the other constraints."""
        bound = set(self.variables())
        filters, others = [] if self.filter is None else [self.filter], []
        for constraint in constraints:
            names = {variable.name for variable in variables_of(constraint)}
            graph_filter = as_filter(constraint) if names and names <= bound else None
            if graph_filter is None:
                others.append(constraint)
            else:
                filters.append(graph_filter)
        return replace(self, filter=_all_of(filters)), others

    def encode(self) -> list[Any]:
        """Return the edges, and the filter if there is one.

        >>> Graph((Edge(Variable("p"), "<urn:year>", '"1"'),)).encode()
        [[['?p', '<urn:year>', '"1"']]]
        """
        edges = [encode_edge(edge) for edge in self.edges]
        return [edges] if self.filter is None else [edges, encode_filter(self.filter)]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Graph:
        """Return the pattern of values that `encode` returned."""
        return Graph(tuple(map(decode_edge, values[0])), decode_filter(values[1]) if len(values) > 1 else None)

    def render(self) -> str:
        """Return the text of the pattern with full IRIs and the original names of its variables."""
        return f"graph {{ {render_edges(self.as_written())} }}"

    def holds(self, value: Value) -> bool:
        """Return whether a graph contains the pattern."""
        return isinstance(value, RdfGraph) and matches_graph(self, value.triples())

    def solutions(self, value: Value) -> Iterator[Solution]:
        """Yield the terms of the variables for every occurrence of the pattern in a graph."""
        return solve(self, value.triples()) if isinstance(value, RdfGraph) else iter(())

    def binding(self, solution: Solution) -> dict[str, Value]:
        """Return the terms of a solution as plain values."""
        return plain_binding(solution)

    def trace(self, search: PatternSearch, bound: Sequence[Mapping[str, Value]]) -> list[PatternPart]:
        """Return the edges with the triples that satisfy them, and the filter with the values of its variables."""
        return matched_edges(self, search, bound)


def _rename_locals(variables: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Return new names for local variables that are taken; all other variables keep their names."""
    names: dict[str, str] = {}
    for name in variables:
        fresh, count = name, 0
        while is_local(name) and (fresh in taken or fresh in names.values()):
            count += 1
            fresh = f"{name}{count}"
        names[name] = fresh
    return names


def _all_of(filters: Sequence[GraphFilter]) -> GraphFilter | None:
    return None if not filters else filters[0] if len(filters) == 1 else AllOf(tuple(filters))


@lru_cache(maxsize=1 << 10)
def _canonical(graph: Graph) -> Graph:
    """Return the canonical form of a pattern. Most patterns are requested twice, so the results are cached."""
    edges = dict.fromkeys(graph.edges)
    ordered = sorted((edge for edge in edges if not _has_variables(edge)), key=lambda edge: _sort_key(edge, {}))
    remaining = sorted((edge for edge in edges if _has_variables(edge)), key=lambda edge: _sort_key(edge, {}))
    numbers: dict[str, str] = {}
    while remaining:
        # Choose the next edge by the numbers that its variables have so far, so that original names have no effect.
        edge = min(remaining, key=lambda candidate: _sort_key(candidate, numbers))
        remaining.remove(edge)
        ordered.append(edge)
        for node in edge.nodes:
            if isinstance(node, Variable):
                numbers.setdefault(node.name, str(len(numbers) + 1))
    renamed = tuple(
        Edge(*(renamed_node(node, numbers) for node in edge.nodes)) if _has_variables(edge) else edge
        for edge in ordered
    )
    normal_filter = None if graph.filter is None else _normalize_filter(renamed_filter(graph.filter, numbers))
    return replace(graph, edges=renamed, filter=normal_filter, names=tuple(numbers), span=None)


def _has_variables(edge: Edge) -> bool:
    return not (isinstance(edge.subject, str) and isinstance(edge.label, str) and isinstance(edge.object, str))


def _sort_key(edge: Edge, numbers: dict[str, str]) -> tuple[tuple[int, str], ...]:
    """Return a key that orders edges by their terms and the numbers of their variables. Unnumbered ones come last."""
    unnumbered: dict[str, str] = {}
    key: list[tuple[int, str]] = []
    for node in (edge.label, edge.subject, edge.object):
        if isinstance(node, str):
            key.append((0, node))
        elif node.name in numbers:
            key.append((1, numbers[node.name]))
        else:
            key.append((2, unnumbered.setdefault(node.name, str(len(unnumbered)))))
    return tuple(key)


def _normalize_filter(graph_filter: GraphFilter) -> GraphFilter:
    """Return an equivalent filter: flattened, without repetitions, with sorted parts."""
    match graph_filter:
        case AllOf(parts) | AnyOf(parts):
            kind = type(graph_filter)
            flat: dict[GraphFilter, None] = {}
            for part in map(_normalize_filter, parts):
                flat.update(dict.fromkeys(part.parts if isinstance(part, kind) else (part,)))
            return next(iter(flat)) if len(flat) == 1 else kind(tuple(sorted(flat, key=repr)))
        case Complement(part) | Certain(part):
            return type(graph_filter)(_normalize_filter(part))
        case _:
            return graph_filter
