"""Containment between patterns as a definition: patterns in, whether one surely holds wherever the other does out.

Slow, short, and what the kernels are checked against. A pattern contains another if its edges can be laid into
those of the other, whose variables count as terms of their own (a homomorphism with consistent variables), and if
what the other demands of its nodes implies what the first demands. The paper's own rule (§4.2) looks at nodes one
by one, and at no constraint: it takes patterns for contained that are not. Containment here is sound and
incomplete: conjuncts other than a variable against a term imply only themselves.
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
"""The relation seen from the other side."""

Laid = Mapping[str, Node]
"""What each variable is laid on: a term, or a variable of the other pattern."""

Demand = tuple[Relation, str]
"""A relation to a term that what a variable stands for must have."""


@dataclass(frozen=True)
class Demands:
    """A filter as a conjunction: what it asks of each variable by itself, and all other conjuncts."""

    of_variables: dict[str, list[Demand]]
    others: list[GraphFilter]


def demands_of(one: GraphFilter | None) -> Demands:
    """The conjuncts of a filter, with those that two of them imply together.

    >>> both = AllOf((Comparison(Variable("x"), ">=", '"a"'), Comparison('"a"', "!=", Variable("x"))))
    >>> demands_of(both).of_variables
    {'x': [('>=', '"a"'), ('!=', '"a"'), ('>', '"a"')]}
    """
    found = Demands({}, [])
    for part in _conjuncts(one):
        if isinstance(part, Comparison) and isinstance(part.left, Variable) and isinstance(part.right, str):
            found.of_variables.setdefault(part.left.name, []).append((part.relation, part.right))
        elif isinstance(part, Comparison) and isinstance(part.right, Variable) and isinstance(part.left, str):
            found.of_variables.setdefault(part.right.name, []).append((TURNED[part.relation], part.left))
        else:
            found.others.append(part)
    for name, demands in found.of_variables.items():
        if len(demands) > 1:
            found.of_variables[name] = _completed(demands)
    return found


def _conjuncts(one: GraphFilter | None) -> Iterator[GraphFilter]:
    match one:
        case AllOf(parts):
            for part in parts:
                yield from _conjuncts(part)
        case None:
            pass
        case _:
            yield one


def _completed(demands: list[Demand]) -> list[Demand]:
    """Demands, each once, and what pairs of them say: then one alone implies whatever all of them do."""
    found = dict.fromkeys(demands)
    for relation, term in demands:
        for other, bound in demands:
            if other in ("<=", "!=") and compare_terms(term, "=", bound):
                match relation, other:
                    case ">=", "<=":
                        found["=", term] = None
                    case ">=", "!=":
                        found[">", term] = None
                    case "<=", "!=":
                        found["<", term] = None
    return list(found)


def implies(given: Demand, asked: Demand) -> bool:
    """Whether every term that meets one demand meets another, by SPARQL's rules for errors.

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
            # From a literal of an unknown type only what is no literal, or has a language, differs for sure.
            same = compare_known(left, "=", right) is True
            return other == "!=" and (same or (left.sort == Sort.OTHER and right.sort > Sort.TAGGED))
    if left.sort != right.sort or left.sort < Sort.TEXT:
        # An order says what sort a term has: one of another sort is different, if that can be told.
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
    """Whether the first pattern surely holds of every graph that the second holds of.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> year = Edge(Variable("p"), "<urn:year>", Variable("y"))
    >>> later = Graph((year, Edge(Variable("p"), "<urn:by>", "<urn:a>")), Comparison(Variable("y"), ">", '"2"'))
    >>> contains(Graph((year,), Comparison(Variable("y"), ">", '"1"')), later), contains(later, Graph((year,)))
    (True, False)
    """
    own, theirs = demands_of(first.filter), demands_of(second.filter)
    targets = IndexedTriples[Node](edge.nodes for edge in second.edges)
    return any(fits(own, theirs, laid) for laid in targets.solutions(first.edges, sys.maxsize))


def fits(own: Demands, theirs: Demands, laid: Laid) -> bool:
    """Whether all that a pattern demands is met where its variables are laid."""
    met = (is_met(one, laid[name], theirs) for name, demands in own.of_variables.items() for one in demands)
    return all(met) and all(mapped(one, laid) in theirs.others for one in own.others)


def is_met(asked: Demand, onto: Node, theirs: Demands) -> bool:
    """Whether a node of the other pattern surely meets a demand."""
    if isinstance(onto, str):
        return compare_terms(onto, *asked) is True
    return any(implies(given, asked) for given in theirs.of_variables.get(onto.name, ()))


def mapped(one: GraphFilter, laid: Laid) -> GraphFilter:
    """A conjunct with its variables replaced by what they are laid on."""
    match one:
        case Comparison(left, relation, right):
            return Comparison(_onto(left, laid), relation, _onto(right, laid))
        case AllOf(parts):
            return AllOf(tuple(mapped(part, laid) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(mapped(part, laid) for part in parts))
        case Complement(part) | Certain(part):
            return type(one)(mapped(part, laid))


def _onto(node: Node, laid: Laid) -> Node:
    return laid[node.name] if isinstance(node, Variable) else node
