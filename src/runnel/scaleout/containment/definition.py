"""The definition of containment: whether one graph pattern holds for every graph for which another holds.

This implementation is slow and short; the kernels are tested against it. A pattern contains another if there is a
homomorphism from its edges to those of the other, whose variables count as terms, and if the demands of the other
pattern on its nodes imply those of the first. The paper's own rule (§4.2) considers each node separately and ignores
constraints, so it accepts patterns that are not contained. The rule here is sound but incomplete: conjuncts other
than comparisons of a variable with a term imply only themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, GraphFilter, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import IndexedTriples
from runnel.algebra.graphs.rdf_terms import Sort, compare_known, compare_terms, known_term
from runnel.algebra.nodes.calls import Relation, Variable

TURNED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The relation with its sides exchanged."""

Laid = Mapping[str, Node]
"""A homomorphism: maps each variable to a term, or to a variable of the other pattern."""

Demand = tuple[Relation, str]
"""A condition on a variable: a relation to a term."""


@dataclass(frozen=True)
class Demands:
    """A filter as a conjunction: the demands on single variables, and all other conjuncts."""

    of_variables: dict[str, list[Demand]]
    others: list[GraphFilter]


def demands_of(condition: GraphFilter | None) -> Demands:
    """Split a filter into conjuncts, and add demands that follow from two of them together.

    >>> both = AllOf((Comparison(Variable("x"), ">=", '"a"'), Comparison('"a"', "!=", Variable("x"))))
    >>> demands_of(both).of_variables
    {'x': [('>=', '"a"'), ('!=', '"a"'), ('>', '"a"')]}
    """
    result = Demands({}, [])
    for part in _conjuncts(condition):
        if isinstance(part, Comparison) and isinstance(part.left, Variable) and isinstance(part.right, str):
            result.of_variables.setdefault(part.left.name, []).append((part.relation, part.right))
        elif isinstance(part, Comparison) and isinstance(part.right, Variable) and isinstance(part.left, str):
            result.of_variables.setdefault(part.right.name, []).append((TURNED[part.relation], part.left))
        else:
            result.others.append(part)
    for name, demands in result.of_variables.items():
        if len(demands) > 1:
            result.of_variables[name] = _complete(demands)
    return result


def _conjuncts(condition: GraphFilter | None) -> Iterator[GraphFilter]:
    match condition:
        case AllOf(parts):
            for part in parts:
                yield from _conjuncts(part)
        case None:
            pass
        case _:
            yield condition


def _complete(demands: list[Demand]) -> list[Demand]:
    """Return the distinct demands, and those that follow from two of them together.

    Then whatever the demands imply together is implied by one of them.
    """
    completed = dict.fromkeys(demands)
    for relation, term in demands:
        for other, bound in demands:
            if other in ("<=", "!=") and compare_terms(term, "=", bound):
                match relation, other:
                    case ">=", "<=":
                        completed["=", term] = None
                    case ">=", "!=":
                        completed[">", term] = None
                    case "<=", "!=":
                        completed["<", term] = None
    return list(completed)


def implies(given: Demand, asked: Demand) -> bool:
    """Return whether every term that meets the demand `given` meets `asked`, by SPARQL's rules for errors.

    >>> implies((">", '"b"'), (">=", '"a"')), implies(("!=", "<urn:a>"), ("!=", '"a"'))
    (True, False)
    """
    if given == asked:
        return True
    (relation, term), (other, bound) = given, asked
    left, right = known_term(term), known_term(bound)
    match relation:
        case "=":
            return compare_known(left, other, right) is True
        case "!=":
            # From a literal of an unknown type, only a non-literal or a literal with a language surely differs.
            same = compare_known(left, "=", right) is True
            return other == "!=" and (same or (left.sort == Sort.OTHER and right.sort > Sort.TAGGED))
    if left.sort != right.sort or left.sort < Sort.TEXT:
        # An order determines the sort of a term. A term of another known sort is different.
        return other == "!=" and left.sort >= Sort.TEXT and right.sort != Sort.OTHER
    strict = relation in ("<", ">")
    match other:
        case "=":
            return False
        case "!=":
            beyond: Relation = "<=" if relation[0] == "<" else ">="
            return compare_known(left, beyond if strict else _strict(beyond), right) is True
    if other[0] != relation[0]:
        return False
    weaker: Relation = "<=" if relation[0] == "<" else ">="
    needed = weaker if strict or other == weaker else _strict(weaker)
    return compare_known(left, needed, right) is True


def _strict(relation: Relation) -> Relation:
    return "<" if relation == "<=" else ">"


def contains(first: Graph, second: Graph) -> bool:
    """Return whether the first pattern surely holds for every graph for which the second holds.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> year = Edge(Variable("p"), "<urn:year>", Variable("y"))
    >>> later = Graph((year, Edge(Variable("p"), "<urn:by>", "<urn:a>")), Comparison(Variable("y"), ">", '"2"'))
    >>> contains(Graph((year,), Comparison(Variable("y"), ">", '"1"')), later), contains(later, Graph((year,)))
    (True, False)
    """
    own, theirs = demands_of(first.filter), demands_of(second.filter)
    targets = IndexedTriples[Node](edge.nodes for edge in second.edges)
    return any(fits(own, theirs, mapping) for mapping in targets.solutions(first.edges, sys.maxsize))


def fits(own: Demands, theirs: Demands, mapping: Laid) -> bool:
    """Return whether all demands of a pattern are met under a mapping of its variables."""
    met = (is_met(demand, mapping[name], theirs) for name, demands in own.of_variables.items() for demand in demands)
    return all(met) and all(mapped(conjunct, mapping) in theirs.others for conjunct in own.others)


def is_met(asked: Demand, onto: Node, theirs: Demands) -> bool:
    """Return whether a node of the other pattern surely meets a demand."""
    if isinstance(onto, str):
        return compare_terms(onto, *asked) is True
    return any(implies(given, asked) for given in theirs.of_variables.get(onto.name, ()))


def mapped(conjunct: GraphFilter, mapping: Laid) -> GraphFilter:
    """Replace the variables of a conjunct by the nodes that they are mapped to."""
    match conjunct:
        case Comparison(left, relation, right):
            return Comparison(_map_node(left, mapping), relation, _map_node(right, mapping))
        case AllOf(parts):
            return AllOf(tuple(mapped(part, mapping) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(mapped(part, mapping) for part in parts))
        case Complement(part) | Certain(part):
            return type(conjunct)(mapped(part, mapping))


def _map_node(node: Node, mapping: Laid) -> Node:
    return mapping[node.name] if isinstance(node, Variable) else node
