"""Group roots that match the same summary (§4.3), and intersect the patterns of each group.

The paper merges all subscriptions that a summary matches, one by one. Their intersection is soon empty, or a single
edge that every publication has. So roots are grouped here: a root joins the group with which it has most edges in
common, if enough of both remains. The fractions in `SHARES` are tried in turn, so the most specific mergers come
first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.scaleout.containment.intersect_patterns import intersect_patterns

SHARES = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.0)
"""The minimum fraction of the edges of a pattern that its merger must have. A merger has at least one edge."""

_MAX_TRIES = 3
"""The number of groups that a pattern tries to join."""

_Key = tuple[str, ...]


@dataclass
class Group:
    """Patterns by number, their intersection and its keys, and the number of edges of the largest pattern."""

    members: list[int]
    common: Graph
    keys: frozenset[_Key]
    largest: int


def group_patterns(patterns: Iterable[tuple[int, Graph]], share: float, most: int) -> list[Group]:
    """Group patterns until replacing each group by one pattern would save `most` patterns. Groups have at least two.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> one, two = Edge("<urn:a>", "<urn:p>", "<urn:b>"), Edge("<urn:a>", "<urn:q>", "<urn:c>")
    >>> groups = group_patterns([(4, Graph((one, two))), (6, Graph((one,))), (7, Graph((two,)))], 0.5, 9)
    >>> [(group.members, group.common == Graph((one,))) for group in groups]
    [([6, 4], True)]
    """
    groups: list[Group] = []
    by_key: dict[_Key, list[Group]] = {}
    saved = 0
    for number, graph in sorted(patterns, key=lambda pattern: (_sorted_keys(pattern[1]), pattern[0])):
        if saved >= most:
            break
        keys = _keys(graph)
        if _join(number, graph, keys, by_key, share):
            saved += 1
            continue
        group = Group([number], graph, keys, len(graph.edges))
        groups.append(group)
        for key in keys:
            by_key.setdefault(key, []).append(group)
    return [group for group in groups if len(group.members) > 1]


def _join(number: int, graph: Graph, keys: frozenset[_Key], by_key: dict[_Key, list[Group]], share: float) -> bool:
    """Add a pattern to the group with which it has most in common. Return False if it fits into none."""
    shared: Counter[int] = Counter()
    groups: dict[int, Group] = {}
    for key in sorted(keys):
        for group in by_key.get(key, ()):
            shared[id(group)] += 1
            groups[id(group)] = group
    size = len(graph.edges)
    best = sorted(groups, key=lambda group: -shared[group] / max(groups[group].largest, size))[:_MAX_TRIES]
    for group in map(groups.__getitem__, best):
        largest = max(group.largest, size)
        if len(keys & group.keys) < share * largest:
            continue
        common = intersect_patterns(group.common, graph)
        if common is not None and len(common.edges) >= share * largest and (share == 1.0 or _is_specific(common)):
            group.members.append(number)
            group.common, group.keys, group.largest = common, _keys(common), largest
            return True
    return False


def _is_specific(graph: Graph) -> bool:
    """Return whether some edge has two terms. A merger with only labels holds for nearly all publications."""
    return any(sum(isinstance(node, str) for node in edge.nodes) > 1 for edge in graph.edges)


def _keys(graph: Graph) -> frozenset[_Key]:
    return frozenset(_sorted_keys(graph))


def _sorted_keys(graph: Graph) -> list[_Key]:
    """Return the edges with empty texts in place of variables, sorted, so that similar patterns are adjacent."""
    return sorted(tuple(node if isinstance(node, str) else "" for node in edge.nodes) for edge in graph.edges)
