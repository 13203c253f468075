"""Query nodes: the definitions of virtual feeds, with catalog IDs instead of names.

`create feed F from (A | B as $b) as $r where $b[x] and $r[y]` is Filter(Union(Read(A), Filter(Read(B), x)), y):
a condition on a variable filters the term that the variable names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.gate_rules import GateRule
from runnel.errors import RunnelError


@dataclass(frozen=True, slots=True)
class Read:
    """All items of a source feed or virtual feed, by its catalog ID."""

    feed: int


@dataclass(frozen=True, slots=True)
class ReadAll:
    """All items of all source feeds that an owner may read and that have all of the tags.

    The set of feeds changes as feeds are registered, tagged and dropped. `expand_groups` replaces the node by the
    union of the feeds that the catalog lists.
    """

    owner: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Union:
    """The union of the inputs as a set: an item of two inputs occurs once."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The items of the input that satisfy the condition."""

    input: Node
    condition: Expression


@dataclass(frozen=True, slots=True)
class Gated:
    """The items of the input that pass a gate. Only the outermost node of a definition can be a gate."""

    input: Node
    rule: GateRule


Node = Read | ReadAll | Union | Filter | Gated


def conditions_of(node: Node) -> Iterator[Expression]:
    """Yield the conditions of a node's own filters, outer filters before inner ones."""
    match node:
        case Read() | ReadAll():
            pass
        case Union(inputs):
            for each in inputs:
                yield from conditions_of(each)
        case Filter(inner, condition):
            yield condition
            yield from conditions_of(inner)
        case Gated(inner, _):
            yield from conditions_of(inner)


def reads(node: Node) -> Iterator[int]:
    """Yield the IDs of the feeds that a node reads directly and by name, from left to right.

    >>> list(reads(Union((Read(1), Read(4)))))
    [1, 4]
    """
    match node:
        case Read(feed):
            yield feed
        case ReadAll():
            pass
        case Union(inputs):
            for each in inputs:
                yield from reads(each)
        case Filter(inner, _) | Gated(inner, _):
            yield from reads(inner)


def groups_of(node: Node) -> Iterator[ReadAll]:
    """Yield the groups of feeds that a node reads directly, from left to right."""
    match node:
        case ReadAll():
            yield node
        case Union(inputs):
            for each in inputs:
                yield from groups_of(each)
        case Filter(inner, _) | Gated(inner, _):
            yield from groups_of(inner)
        case Read():
            pass


def unexpanded(group: ReadAll) -> RunnelError:
    """Return the error for a group of feeds that should have been expanded into its members before evaluation."""
    return RunnelError(f"the group `all feeds` of owner {group.owner} was not expanded into its feeds")


def group_view(group: ReadAll) -> int:
    """Return the ID of the view that represents a group in a plan. It is negative, unlike the IDs of feeds.

    >>> group_view(ReadAll(1)) == group_view(ReadAll(1)) != group_view(ReadAll(1, ("news",)))
    True
    """
    text = "\n".join((str(group.owner), *group.tags))
    return -1 - int.from_bytes(blake2b(text.encode(), digest_size=7).digest())


def expand_groups(node: Node, expand: Callable[[ReadAll], Node]) -> Node:
    """Replace every group of a node by the result of `expand`: the union of its members, or a view of them.

    >>> expand_groups(Union((Read(9), ReadAll(1))), lambda group: Union((Read(3), Read(4))))
    Union(inputs=(Read(feed=9), Union(inputs=(Read(feed=3), Read(feed=4)))))
    """
    match node:
        case ReadAll():
            return expand(node)
        case Read():
            return node
        case Union(inputs):
            expanded = tuple(expand_groups(each, expand) for each in inputs)
            return node if expanded == inputs else Union(expanded)
        case Filter(inner, condition):
            expanded_input = expand_groups(inner, expand)
            return node if expanded_input is inner else Filter(expanded_input, condition)
        case Gated(inner, rule):
            expanded_input = expand_groups(inner, expand)
            return node if expanded_input is inner else Gated(expanded_input, rule)
