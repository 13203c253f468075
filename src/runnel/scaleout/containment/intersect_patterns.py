"""The merger of two patterns: what is common to both (§4.3), as a pattern that contains each of them.

The paper's merger is the intersecting subgraph. Here variables stay consistent: an edge is kept if it can be laid
into the other pattern together with those kept before. Of what the filters demand, that is kept which both imply.
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
    """A pattern that contains both, with edges of the first; None where no edge is common.

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
    laid: Laid = {}
    kept: list[Edge] = []
    for edge in sorted(first.edges, key=_variables):
        candidates = targets.get(edge.label, ()) if isinstance(edge.label, str) else second.edges
        best = _best(edge, candidates, laid, own, theirs)
        if best is not None:
            laid = best
            kept.append(edge)
    if not kept:
        return None
    parts = list(_common(laid, own, theirs))
    whole = None if not parts else parts[0] if len(parts) == 1 else AllOf(tuple(parts))
    return Graph(tuple(edge for edge in first.edges if edge in kept), whole)


def _variables(edge: Edge) -> int:
    return sum(isinstance(node, Variable) for node in edge.nodes)


def _best(
    edge: Edge, targets: tuple[Edge, ...] | list[Edge], laid: Laid, own: Demands, theirs: Demands
) -> Laid | None:
    """The way to lay an edge that keeps most of what is demanded."""
    best: Laid | None = None
    most = -1
    for target in targets:
        found = lay_edge(edge, target.nodes, laid)
        if found is None:
            continue
        if len(found) == len(laid):
            return found
        score = 0
        for name in found.keys() - laid.keys():
            score += 1 + 4 * len(_demands_of_both(name, found[name], own, theirs)) if name in own.of_variables else 1
        if score > most:
            best, most = found, score
    return best


def _common(laid: Laid, own: Demands, theirs: Demands) -> Iterator[GraphFilter]:
    """What both filters say of the variables that are left."""
    for name, onto in laid.items():
        for relation, term in _demands_of_both(name, onto, own, theirs):
            yield Comparison(Variable(name), relation, term)
    for one in own.others:
        named = (
            node.name for part in comparisons(one) for node in (part.left, part.right) if isinstance(node, Variable)
        )
        if all(name in laid for name in named) and mapped(one, laid) in theirs.others:
            yield one


def _demands_of_both(name: str, onto: Node, own: Demands, theirs: Demands) -> list[Demand]:
    """What a variable and the node it is laid on both must meet, without what follows from the rest."""
    mine = own.of_variables.get(name, [])
    found = dict.fromkeys(one for one in mine if is_met(one, onto, theirs))
    if isinstance(onto, Variable):
        others = theirs.of_variables.get(onto.name, ())
        found.update(dict.fromkeys(one for one in others if any(implies(given, one) for given in mine)))
    kept: list[Demand] = []
    for one in found:
        if not any(implies(given, one) for given in kept):
            kept = [given for given in kept if not implies(one, given)]
            kept.append(one)
    return kept
