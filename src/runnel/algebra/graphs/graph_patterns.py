"""Graph patterns: edges between terms and variables, and a filter over these, as an item pattern.

`graph { ?page ex:project ?p . ?p ex:year ?y . filter(?y > 2003) }` holds of an item if its graph contains an image of
the edges: a homomorphism, as in SPARQL, so two variables may stand for one node. `graph_solutions.solve` is the
definition.
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
        "variables of a graph are compared with constants and with one another: filter(?year > 2003)"
    )

    @property
    def attribute(self) -> Attribute:
        """The attribute `graph`."""
        return OWN_GRAPH

    @property
    def size(self) -> int:
        """How many edges there are."""
        return len(self.edges)

    def variables(self) -> list[str]:
        """The names of the variables, each once, in the order of the edges; filters have no others.

        >>> Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)).variables()
        ['p', 'y']
        """
        nodes = (node for edge in self.edges for node in edge.nodes)
        return list(dict.fromkeys(node.name for node in nodes if isinstance(node, Variable)))

    def canonical(self) -> Graph:
        """The pattern with sorted edges and numbered variables; most patterns equal up to names become equal.

        >>> one = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)).canonical()
        >>> one.edges[0].subject, one.names
        (Variable(name='1'), ('p', 'y'))
        """
        return self if self.names else _canonical(self)

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """The pattern with other names for its variables."""
        edges = tuple(Edge(*(renamed_node(node, names) for node in edge.nodes)) for edge in self.edges)
        return Graph(edges, None if self.filter is None else renamed_filter(self.filter, names), span=self.span)

    @classmethod
    def joined(cls, patterns: Sequence[Graph]) -> Graph:
        """Patterns as one: a variable that they share is one node, and blank nodes of different patterns differ.

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
            own = pattern.renamed(_fresh_locals(pattern.variables(), taken))
            taken.update(own.variables())
            edges.update(dict.fromkeys(own.edges))
            filters += [own.filter] if own.filter is not None else []
        if len(edges) > MAX_EDGES or len(taken) > MAX_VARIABLES:
            raise InvalidConditionError(
                f"patterns that share variables form one: this has {len(edges)} edges and {len(taken)} variables",
                span=patterns[0].span,
                hint=f"at most {MAX_EDGES} edges and {MAX_VARIABLES} variables, blank nodes too, belong together",
            )
        return Graph(tuple(edges), _all_of(filters), span=patterns[0].span)

    def constrained(self, constraints: Sequence[Constraint]) -> tuple[Graph, list[Constraint]]:
        """The pattern with the constraints on its own variables as filters, and the other constraints."""
        bound = set(self.variables())
        filters, others = [] if self.filter is None else [self.filter], []
        for constraint in constraints:
            names = {variable.name for variable in variables_of(constraint)}
            one = as_filter(constraint) if names and names <= bound else None
            if one is None:
                others.append(constraint)
            else:
                filters.append(one)
        return replace(self, filter=_all_of(filters)), others

    def encode(self) -> list[Any]:
        """The edges, and the filter where there is one.

        >>> Graph((Edge(Variable("p"), "<urn:year>", '"1"'),)).encode()
        [[['?p', '<urn:year>', '"1"']]]
        """
        edges = [encode_edge(edge) for edge in self.edges]
        return [edges] if self.filter is None else [edges, encode_filter(self.filter)]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Graph:
        """The pattern of values made by `encode`."""
        return Graph(tuple(map(decode_edge, values[0])), decode_filter(values[1]) if len(values) > 1 else None)

    def render(self) -> str:
        """The pattern as written, with all IRIs in full and the original names of its variables."""
        return f"graph {{ {render_edges(self.as_written())} }}"

    def holds(self, value: Value) -> bool:
        """Whether a graph contains the pattern."""
        return isinstance(value, RdfGraph) and matches_graph(self, value.triples())

    def solutions(self, value: Value) -> Iterator[Solution]:
        """A term for every variable, for every image of the pattern in a graph."""
        return solve(self, value.triples()) if isinstance(value, RdfGraph) else iter(())

    def binding(self, solution: Solution) -> dict[str, Value]:
        """The terms of a solution as plain values."""
        return plain_binding(solution)

    def trace(self, search: PatternSearch, bound: Sequence[Mapping[str, Value]]) -> list[PatternPart]:
        """The edges and the filter, each with the triple that satisfies it."""
        return matched_edges(self, search, bound)


def _fresh_locals(variables: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Names for variables under which the local ones are not taken."""
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
    """The canonical form of a pattern as written; most are asked for twice."""
    edges = dict.fromkeys(graph.edges)
    ordered = sorted((edge for edge in edges if not _has_variables(edge)), key=lambda edge: _look(edge, {}))
    left = sorted((edge for edge in edges if _has_variables(edge)), key=lambda edge: _look(edge, {}))
    numbers: dict[str, str] = {}
    while left:
        # The next edge is the first by what is known of its variables so far: names as written play no part.
        edge = min(left, key=lambda one: _look(one, numbers))
        left.remove(edge)
        ordered.append(edge)
        for node in edge.nodes:
            if isinstance(node, Variable):
                numbers.setdefault(node.name, str(len(numbers) + 1))
    renamed = tuple(
        Edge(*(renamed_node(node, numbers) for node in edge.nodes)) if _has_variables(edge) else edge
        for edge in ordered
    )
    found = None if graph.filter is None else _ordered(renamed_filter(graph.filter, numbers))
    return replace(graph, edges=renamed, filter=found, names=tuple(numbers), span=None)


def _has_variables(edge: Edge) -> bool:
    return not (isinstance(edge.subject, str) and isinstance(edge.label, str) and isinstance(edge.object, str))


def _look(edge: Edge, numbers: dict[str, str]) -> tuple[tuple[int, str], ...]:
    """What an edge looks like where variables have these numbers; unknown ones come last."""
    own: dict[str, str] = {}
    found: list[tuple[int, str]] = []
    for node in (edge.label, edge.subject, edge.object):
        if isinstance(node, str):
            found.append((0, node))
        elif node.name in numbers:
            found.append((1, numbers[node.name]))
        else:
            found.append((2, own.setdefault(node.name, str(len(own)))))
    return tuple(found)


def _ordered(one: GraphFilter) -> GraphFilter:
    """A filter that says the same: flat, without repetitions, its parts in order."""
    match one:
        case AllOf(parts) | AnyOf(parts):
            kind = type(one)
            flat: dict[GraphFilter, None] = {}
            for part in map(_ordered, parts):
                flat.update(dict.fromkeys(part.parts if isinstance(part, kind) else (part,)))
            return next(iter(flat)) if len(flat) == 1 else kind(tuple(sorted(flat, key=repr)))
        case Complement(part) | Certain(part):
            return type(one)(_ordered(part))
        case _:
            return one
