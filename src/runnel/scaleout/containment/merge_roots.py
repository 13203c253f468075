"""Merging roots (§4.3): roots that one summary matches in, groups of them with what each group has in common out.

The paper merges all subscriptions that a summary matches, one by one. Their intersection soon is empty, or one edge
that every publication has. So roots are grouped: one joins the merger with which it has most edges in common, if
enough of both is left. `SHARES` are tried in turn, the most exact mergers first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.scaleout.containment.intersect_patterns import intersect_patterns

SHARES = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.0)
"""Which part of a pattern's edges its merger must at least have; some edge always."""

_TRIES = 3
"""How many groups a pattern tries to join."""

_Key = tuple[str, ...]


@dataclass
class Group:
    """Patterns by number, what they have in common, its edges without variables, and the most edges that one has."""

    members: list[int]
    common: Graph
    keys: frozenset[_Key]
    largest: int


def group_patterns(patterns: Iterable[tuple[int, Graph]], share: float, most: int) -> list[Group]:
    """Groups of at least two patterns, until there are `most` patterns fewer if each group becomes one.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> one, two = Edge("<urn:a>", "<urn:p>", "<urn:b>"), Edge("<urn:a>", "<urn:q>", "<urn:c>")
    >>> found = group_patterns([(4, Graph((one, two))), (6, Graph((one,))), (7, Graph((two,)))], 0.5, 9)
    >>> [(group.members, group.common == Graph((one,))) for group in found]
    [([6, 4], True)]
    """
    groups: list[Group] = []
    having: dict[_Key, list[Group]] = {}
    fewer = 0
    for number, graph in sorted(patterns, key=lambda one: (_keys_in_order(one[1]), one[0])):
        if fewer >= most:
            break
        keys = _keys(graph)
        if _join(number, graph, keys, having, share):
            fewer += 1
            continue
        group = Group([number], graph, keys, len(graph.edges))
        groups.append(group)
        for key in keys:
            having.setdefault(key, []).append(group)
    return [group for group in groups if len(group.members) > 1]


def _join(number: int, graph: Graph, keys: frozenset[_Key], having: dict[_Key, list[Group]], share: float) -> bool:
    """Let a pattern join the group with which it has most in common."""
    shared: Counter[int] = Counter()
    groups: dict[int, Group] = {}
    for key in sorted(keys):
        for group in having.get(key, ()):
            shared[id(group)] += 1
            groups[id(group)] = group
    size = len(graph.edges)
    best = sorted(groups, key=lambda one: -shared[one] / max(groups[one].largest, size))[:_TRIES]
    for group in map(groups.__getitem__, best):
        largest = max(group.largest, size)
        if len(keys & group.keys) < share * largest:
            continue
        common = intersect_patterns(group.common, graph)
        if common is not None and len(common.edges) >= share * largest and (share == 1.0 or _is_telling(common)):
            group.members.append(number)
            group.common, group.keys, group.largest = common, _keys(common), largest
            return True
    return False


def _is_telling(graph: Graph) -> bool:
    """Whether some edge names two terms: a merger that only names labels holds of nearly every publication."""
    return any(sum(isinstance(node, str) for node in edge.nodes) > 1 for edge in graph.edges)


def _keys(graph: Graph) -> frozenset[_Key]:
    return frozenset(_keys_in_order(graph))


def _keys_in_order(graph: Graph) -> list[_Key]:
    """Edges with empty text in place of variables: patterns with the same come next to one another."""
    return sorted(tuple(node if isinstance(node, str) else "" for node in edge.nodes) for edge in graph.edges)
