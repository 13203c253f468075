"""Intersect two graph patterns (§4.3): return a merger, a pattern that contains both.

The paper's merger is the intersecting subgraph. Here variables stay consistent: an edge is kept if it can be mapped
into the other pattern together with the edges kept before. Of the demands of the filters, those that both imply are
kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from runnel.algebra.graphs.edges import AllOf, Comparison, Edge, GraphFilter, Node, comparisons
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import lay_edge
from runnel.algebra.nodes.calls import Variable
from runnel.scaleout.containment.definition import (
    Demand,
    Demands,
    Laid,
    demands_of,
    implies,
    is_met,
    mapped,
)


def intersect_patterns(first: Graph, second: Graph) -> Graph | None:
    """Return a pattern that contains both, with edges of the first, or None if they have no edge in common.

    >>> from runnel.algebra.graphs.graph_solutions import matches_graph
    >>> year = Edge(Variable("p"), "<urn:year>", Variable("y"))
    >>> recent = Graph((year, Edge(Variable("p"), "<urn:by>", "<urn:a>")), Comparison(Variable("y"), ">", '"2"'))
    >>> old = Graph((year,), Comparison(Variable("y"), ">", '"1"'))
    >>> intersect_patterns(recent, old) == old
    True
    """
    own, theirs = demands_of(first.filter), demands_of(second.filter)
    targets: dict[Node, list[Edge]] = {}
    for target in second.edges:
        targets.setdefault(target.label, []).append(target)
    mapping: Laid = {}
    kept: list[Edge] = []
    for edge in sorted(first.edges, key=_count_variables):
        candidates = targets.get(edge.label, ()) if isinstance(edge.label, str) else second.edges
        extended = _best_mapping(edge, candidates, mapping, own, theirs)
        if extended is not None:
            mapping = extended
            kept.append(edge)
    if not kept:
        return None
    parts = list(_common_conjuncts(mapping, own, theirs))
    conjunction = None if not parts else parts[0] if len(parts) == 1 else AllOf(tuple(parts))
    return Graph(tuple(edge for edge in first.edges if edge in kept), conjunction)


def _count_variables(edge: Edge) -> int:
    return sum(isinstance(node, Variable) for node in edge.nodes)


def _best_mapping(
    edge: Edge, targets: tuple[Edge, ...] | list[Edge], mapping: Laid, own: Demands, theirs: Demands
) -> Laid | None:
    """Extend a mapping by an edge so that most demands are kept, or return None if the edge fits on no target."""
    best: Laid | None = None
    best_score = -1
    for target in targets:
        extended = lay_edge(edge, target.nodes, mapping)
        if extended is None:
            continue
        if len(extended) == len(mapping):
            return extended
        score = 0
        for name in extended.keys() - mapping.keys():
            kept_demands = _common_demands(name, extended[name], own, theirs) if name in own.of_variables else []
            score += 1 + 4 * len(kept_demands)
        if score > best_score:
            best, best_score = extended, score
    return best


def _common_conjuncts(mapping: Laid, own: Demands, theirs: Demands) -> Iterator[GraphFilter]:
    """Yield the conjuncts that both filters imply for the mapped variables."""
    for name, onto in mapping.items():
        for relation, term in _common_demands(name, onto, own, theirs):
            yield Comparison(Variable(name), relation, term)
    for conjunct in own.others:
        names = (
            node.name
            for part in comparisons(conjunct)
            for node in (part.left, part.right)
            if isinstance(node, Variable)
        )
        if all(name in mapping for name in names) and mapped(conjunct, mapping) in theirs.others:
            yield conjunct


def _common_demands(name: str, onto: Node, own: Demands, theirs: Demands) -> list[Demand]:
    """Return the demands that both a variable and the node it is mapped to meet, without those implied by others."""
    mine = own.of_variables.get(name, [])
    common = dict.fromkeys(demand for demand in mine if is_met(demand, onto, theirs))
    if isinstance(onto, Variable):
        others = theirs.of_variables.get(onto.name, ())
        common.update(dict.fromkeys(demand for demand in others if any(implies(given, demand) for given in mine)))
    kept: list[Demand] = []
    for demand in common:
        if not any(implies(given, demand) for given in kept):
            kept = [given for given in kept if not implies(demand, given)]
            kept.append(demand)
    return kept
