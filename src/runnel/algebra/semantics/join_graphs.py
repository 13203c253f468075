"""Graph patterns of one conjunction as one pattern, and comparisons beside them as filters.

In: patterns that stand beside one another, as written, and constraints on their variables. Out: the pattern that says
the same. A comparison of variables that a pattern binds, with one another or with constants, is a filter of that
pattern, by the rules of filters: it means the same inside and outside the braces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

from runnel.algebra.nodes.attributes import Ago, Constant
from runnel.algebra.nodes.calls import Constraint, Literally, Quantity, Relation, Variable
from runnel.algebra.nodes.graph_patterns import (
    MOST_EDGES,
    MOST_VARIABLES,
    AllOf,
    AnyOf,
    Certain,
    Comparison,
    Complement,
    Edge,
    Graph,
    GraphFilter,
    Node,
    graph_variables,
    is_local,
    renamed_filter,
    renamed_node,
)
from runnel.algebra.semantics.rdf_terms import BOOLEAN, DOUBLE, INTEGER, XSD
from runnel.errors import InvalidConditionError
from runnel.model.graph import escape_text

_LARGEST_WHOLE = 1e15


def open_variables(graph: Graph) -> list[str]:
    """The variables by which a pattern is tied to what stands beside it: a canonical one has none.

    >>> open_variables(Graph((Edge(Variable("p"), "<urn:by>", Variable("_:x")),)))
    ['p']
    """
    return [] if graph.names else [name for name in graph_variables(graph) if not is_local(name)]


def joined_graphs(graphs: Sequence[Graph]) -> Graph:
    """Patterns as one: what they share is one node, and the blank nodes of each stay its own.

    >>> year, name = (Graph((Edge(Variable("p"), f"<urn:{one}>", Variable("_:x")),)) for one in ("year", "name"))
    >>> [edge.object.name for edge in joined_graphs([year, name]).edges]
    ['_:x', '_:x1']
    """
    if len(graphs) == 1:
        return graphs[0]
    edges: dict[Edge, None] = {}
    filters: list[GraphFilter] = []
    taken: set[str] = set()
    for graph in graphs:
        own = renamed_locals(graph, taken)
        taken.update(graph_variables(own))
        edges.update(dict.fromkeys(own.edges))
        filters += [own.filter] if own.filter is not None else []
    if len(edges) > MOST_EDGES or len(taken) > MOST_VARIABLES:
        raise InvalidConditionError(
            f"patterns that share variables are one, and this has {len(edges)} edges and {len(taken)} variables",
            span=graphs[0].place,
            hint=f"at most {MOST_EDGES} edges and {MOST_VARIABLES} variables, blank nodes too, belong together",
        )
    return Graph(tuple(edges), all_of(filters), place=graphs[0].place)


def renamed_locals(graph: Graph, taken: set[str]) -> Graph:
    """A pattern whose blank nodes have names that are not taken."""
    names: dict[str, str] = {}
    for name in graph_variables(graph):
        fresh, count = name, 0
        while is_local(name) and (fresh in taken or fresh in names.values()):
            count += 1
            fresh = f"{name}{count}"
        names[name] = fresh
    return renamed_graph(graph, names)


def renamed_graph(graph: Graph, names: dict[str, str]) -> Graph:
    """A pattern with its variables called otherwise."""
    edges = tuple(Edge(*(renamed_node(node, names) for node in edge.nodes)) for edge in graph.edges)
    told = None if graph.filter is None else renamed_filter(graph.filter, names)
    return Graph(edges, told, place=graph.place)


def with_filters(graph: Graph, more: Iterable[GraphFilter]) -> Graph:
    """A pattern that asks for more."""
    own = [graph.filter] if graph.filter is not None else []
    return replace(graph, filter=all_of([*own, *more]))


def all_of(parts: Sequence[GraphFilter]) -> GraphFilter | None:
    """The filter that asks for all of some."""
    return None if not parts else parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def as_filter(constraint: Constraint) -> GraphFilter | None:
    """A constraint as a filter of a pattern that binds its variables; None where only the other says it.

    >>> as_filter(Constraint(Variable("y"), ">", Literally(2003.0))).right
    '"2003"^^<http://www.w3.org/2001/XMLSchema#integer>'
    """
    left, right = constraint.left, constraint.right
    match left, right:
        case Variable(), Literally(date() as day) if not isinstance(day, datetime):
            return _of_day(left, constraint.relation, day)
        case Literally(date() as day), Variable() if not isinstance(day, datetime):
            return _of_day(right, TURNED[constraint.relation], day)
    first, second = _node(left), _node(right)
    return None if first is None or second is None else Comparison(first, constraint.relation, second)


TURNED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _node(one: Quantity) -> Node | None:
    match one:
        case Variable(name):
            return Variable(name)
        case Literally(value):
            return _term(value)
        case _:
            return None


def _term(value: Constant) -> str | None:
    """A constant as a term; None for a time that counts from the acceptance of the item."""
    match value:
        case bool():
            return f'"{str(value).lower()}"^^<{BOOLEAN}>'
        case str():
            return f'"{escape_text(value)}"'
        case datetime():
            return f'"{value.astimezone(UTC).isoformat().replace("+00:00", "Z")}"^^<{XSD}dateTime>'
        case date() | Ago():
            return None
        case _ if value == int(value) and abs(value) < _LARGEST_WHOLE:
            return f'"{int(value)}"^^<{INTEGER}>'
        case _:
            return f'"{value!r}"^^<{DOUBLE}>'


def _of_day(variable: Variable, relation: Relation, day: date) -> GraphFilter | None:
    """A comparison with a date holds for the whole day: for the date and for the moments in it.

    Of other terms it says what a filter says of them and the day: `!=` holds of a text, a number or an IRI.
    """
    own = Variable(variable.name)
    try:
        begin, end = (_term(datetime.combine(one, time(), UTC)) or "" for one in (day, day + timedelta(days=1)))
    except OverflowError:
        return None
    whole = f'"{day.isoformat()}"^^<{XSD}date>'
    within = AllOf((Comparison(own, ">=", begin), Comparison(own, "<", end)))
    match relation:
        case "=":
            return AnyOf((Comparison(own, "=", whole), within))
        case "!=":
            return AllOf((Comparison(own, "!=", whole), Complement(Certain(within))))
        case "<" | ">=":
            return AnyOf((Comparison(own, relation, whole), Comparison(own, relation, begin)))
        case _:
            beyond: Relation = "<" if relation == "<=" else ">="
            return AnyOf((Comparison(own, relation, whole), Comparison(own, beyond, end)))
