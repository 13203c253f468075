"""Graph patterns that contain others (§4.2): patterns in, for each those that contain it out.

Also the sub-patterns that stand for several patterns where nothing is known of publications: some edges of a pattern,
without its filter, hold wherever it does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from runnel.algebra.graphs.edges import Edge, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import encode_pattern
from runnel.arrays import Array
from runnel.scaleout.containment.containment_index import ContainmentIndex
from runnel.scaleout.containment.containment_trees import NONE

_DEEPEST = 12
"""Of those above a pattern so many are told, the root among them."""

_EACH, _SPARE = 4_096, 4_194_304
"""Work to find what contains a pattern, for each of them and for all beside that (see `ContainmentIndex`).

A unit takes about 70 nanoseconds. 100,000 patterns of the benchmarks took 314 each and none more than 1,775; among
1,024 chains of ten variables each would take 55,000.
"""

_Key = tuple[str, ...]


def graph_text(graph: Graph) -> str:
    """A pattern as an atom is stored: the same text, whatever its variables were called."""
    return json.dumps(encode_pattern(graph.canonical()), separators=(",", ":"))


def containing_pairs(graphs: Sequence[Graph], counters: dict[str, int] | None = None) -> tuple[Array, Array]:
    """Positions of patterns, and of patterns that contain them: those above them in the trees of containment.

    Where that takes too long some are missed. `counters` gets how many patterns were given up so.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> year, by = (Edge(Variable("p"), f"<urn:{one}>", Variable("y")) for one in ("year", "by"))
    >>> [part.tolist() for part in containing_pairs([Graph((year, by)), Graph((year,))])]
    [[0], [1]]
    """
    index = ContainmentIndex(each=_EACH, spare=_SPARE)
    for number, graph in enumerate(graphs):
        if graph.edges:
            index.insert(number, graph)
    if counters is not None:
        counters["graphs_given_up"] = index.given_up
    return ancestors(index.trees.links.parents, index.owners)


def ancestors(parents: Array, owners: Array) -> tuple[Array, Array]:
    """The owners of what lies below something in trees, with the owners of what lies above it, the nearest first."""
    below = np.flatnonzero(parents != NONE)
    below = below[owners[below] >= 0]
    above = parents[below].astype(np.int64)
    found: list[tuple[Array, Array]] = []
    while len(below):
        found.append((below, above))
        further = parents[above] != NONE
        below, above = below[further], parents[above[further]].astype(np.int64)
        if len(found) == _DEEPEST - 1:
            while np.any(parents[above] != NONE):
                above = np.where(parents[above] != NONE, parents[above], above)
            found.append((below, above))
            break
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    narrow, wide = (owners[np.concatenate(part)] for part in zip(*found, strict=True))
    return narrow.astype(np.int64), wide.astype(np.int64)


def common_edges(graphs: Iterable[Graph]) -> Counter[_Key]:
    """How many patterns have each edge; variables are alike there."""
    return Counter(key for graph in graphs for key in {_key(edge) for edge in graph.edges})


def sub_pattern(graph: Graph, edges: int, shared: Counter[_Key]) -> Graph:
    """So many edges of a canonical pattern, without its filter: those that the fewest graphs are expected to have.

    The more terms an edge names, the rarer it is among publications; of edges that name as many, those are taken that
    most patterns have: they tell as much, and more patterns become one.

    >>> graph = Graph((Edge("<urn:a>", "<urn:p>", "<urn:b>"), Edge("<urn:a>", "<urn:q>", "<urn:c>")))
    >>> shared = common_edges([graph, Graph(graph.edges[1:])])
    >>> sub_pattern(graph, 1, shared).edges[0].label
    '<urn:q>'
    """
    if edges >= len(graph.edges):
        return Graph(graph.edges)
    keys = [_key(edge) for edge in graph.edges]
    order = sorted(range(len(keys)), key=lambda place: (keys[place].count(""), -shared[keys[place]], keys[place]))
    # Names by order of appearance are not canonical, but cheap, and nearly always the same for the same edges.
    names: dict[str, Variable] = {}
    kept = (graph.edges[place] for place in order[:edges])
    return Graph(tuple(Edge(*(_named(node, names) for node in edge.nodes)) for edge in kept))


def _named(node: Node, names: dict[str, Variable]) -> Node:
    return node if isinstance(node, str) else names.setdefault(node.name, Variable(str(len(names) + 1)))


def _key(edge: Edge) -> _Key:
    return tuple(node if isinstance(node, str) else "" for node in edge.nodes)
