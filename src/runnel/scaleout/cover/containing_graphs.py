"""Find graph patterns that contain others (§4.2), and sub-patterns that can stand for several patterns.

A sub-pattern consists of some edges of a pattern, without its filter, so it holds wherever the pattern does.
Sub-patterns are used for merging if no publications are known.
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

_MAX_ANCESTORS = 12
"""At most this many ancestors of a pattern are returned, including the root."""

_EACH, _SPARE = 4_096, 4_194_304
"""Limits for the work to find patterns that contain a pattern: for each pattern, and a reserve for all of them.

See `ContainmentIndex`. A unit of work takes about 70 nanoseconds. 100,000 patterns of the benchmarks took 314 units
each and none more than 1,775; each of 1,024 chains of ten variables would take 55,000.
"""

_Key = tuple[str, ...]


def graph_text(graph: Graph) -> str:
    """Return the stored form of a pattern as an atom, which does not depend on the names of its variables."""
    return json.dumps(encode_pattern(graph.canonical()), separators=(",", ":"))


def containing_pairs(graphs: Sequence[Graph], counters: dict[str, int] | None = None) -> tuple[Array, Array]:
    """Return positions of patterns, and of patterns that contain them: their ancestors in the containment trees.

    If the search takes too long, some are missed. Set in `counters` the number of patterns for which it did.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> year, by = (Edge(Variable("p"), f"<urn:{name}>", Variable("y")) for name in ("year", "by"))
    >>> [positions.tolist() for positions in containing_pairs([Graph((year, by)), Graph((year,))])]
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
    """Return pairs of the owners of a node and of one of its ancestors in the trees, the nearest ancestors first."""
    below = np.flatnonzero(parents != NONE)
    below = below[owners[below] >= 0]
    above = parents[below].astype(np.int64)
    pairs: list[tuple[Array, Array]] = []
    while len(below):
        pairs.append((below, above))
        further = parents[above] != NONE
        below, above = below[further], parents[above[further]].astype(np.int64)
        if len(pairs) == _MAX_ANCESTORS - 1:
            while np.any(parents[above] != NONE):
                above = np.where(parents[above] != NONE, parents[above], above)
            pairs.append((below, above))
            break
    if not pairs:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    narrow, wide = (owners[np.concatenate(nodes)] for nodes in zip(*pairs, strict=True))
    return narrow.astype(np.int64), wide.astype(np.int64)


def common_edges(graphs: Iterable[Graph]) -> Counter[_Key]:
    """Count the patterns that have each edge. All variables count as equal."""
    return Counter(key for graph in graphs for key in {_key(edge) for edge in graph.edges})


def sub_pattern(graph: Graph, edges: int, shared: Counter[_Key]) -> Graph:
    """Return a sub-pattern with `edges` edges of a canonical pattern, without its filter.

    The edges with the most terms are chosen, because they are rarest among publications. Among edges with equally
    many terms, those that most patterns share are chosen, so that more patterns have the same sub-pattern.

    >>> graph = Graph((Edge("<urn:a>", "<urn:p>", "<urn:b>"), Edge("<urn:a>", "<urn:q>", "<urn:c>")))
    >>> shared = common_edges([graph, Graph(graph.edges[1:])])
    >>> sub_pattern(graph, 1, shared).edges[0].label
    '<urn:q>'
    """
    if edges >= len(graph.edges):
        return Graph(graph.edges)
    keys = [_key(edge) for edge in graph.edges]
    order = sorted(range(len(keys)), key=lambda index: (keys[index].count(""), -shared[keys[index]], keys[index]))
    # Numbering variables by appearance is not canonical, but cheap, and nearly always equal for the same edges.
    names: dict[str, Variable] = {}
    kept = (graph.edges[index] for index in order[:edges])
    return Graph(tuple(Edge(*(_rename(node, names) for node in edge.nodes)) for edge in kept))


def _rename(node: Node, names: dict[str, Variable]) -> Node:
    return node if isinstance(node, str) else names.setdefault(node.name, Variable(str(len(names) + 1)))


def _key(edge: Edge) -> _Key:
    return tuple(node if isinstance(node, str) else "" for node in edge.nodes)
