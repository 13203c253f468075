"""Query nodes: the definitions of virtual feeds, with catalog IDs instead of names.

`create feed F from (A | B as $b) as $r where $b[x] and $r[y]` is Filter(Union(Read(A), Filter(Read(B), x)), y):
a condition on a variable filters the term that the variable names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    """The items of the input that pass a gate, which may compare them with the earlier items of `window`.

    In the definitions of feeds only the outermost node is one, and a window only reads a feed (see `hide_gates`).
    """

    input: Node
    rule: GateRule
    window: Node | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input, and the window if there is one."""
        return (self.input,) if self.window is None else (self.input, self.window)


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
        case Gated():
            for each in node.inputs:
                yield from conditions_of(each)


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
        case Filter(inner, _):
            yield from reads(inner)
        case Gated():
            for each in node.inputs:
                yield from reads(each)


def groups_of(node: Node) -> Iterator[ReadAll]:
    """Yield the groups of feeds that a node reads directly, from left to right."""
    match node:
        case ReadAll():
            yield node
        case Union(inputs):
            for each in inputs:
                yield from groups_of(each)
        case Filter(inner, _):
            yield from groups_of(inner)
        case Gated():
            for each in node.inputs:
                yield from groups_of(each)
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
        case Gated(inner, rule, window):
            expanded_input = expand_groups(inner, expand)
            expanded_window = None if window is None else expand_groups(window, expand)
            is_unchanged = expanded_input is inner and expanded_window is window
            return node if is_unchanged else Gated(expanded_input, rule, expanded_window)


def hide_gates(node: Node, hide: Callable[[Node], int]) -> Node:
    """Return a node in which only the outermost part is a gate, and whose window only reads a feed.

    Windows, and gates below others, become feeds of their own. `hide` returns the id of the feed with a definition.

    >>> hidden: list[Node] = []
    >>> hide_gates(Union((Read(1), Read(2))), lambda definition: hidden.append(definition) or 9), hidden
    (Union(inputs=(Read(feed=1), Read(feed=2))), [])
    """
    if not isinstance(node, Gated):
        return _without_gates(node, hide)
    window = node.window
    if window is not None and node.rule.window_rule is not None:
        window = Read(hide(Gated(_without_gates(window, hide), node.rule.window_rule)))
    return Gated(_without_gates(node.input, hide), node.rule, window)


def with_hidden_feeds(nodes: Mapping[int, Node], first: int) -> dict[int, Node]:
    """Return definitions of which at most the outermost node is a gate, with hidden feeds from an id on."""
    hidden: dict[Node, int] = {}

    def hide(node: Node) -> int:
        return hidden.setdefault(node, first + len(hidden))

    visible = {number: hide_gates(node, hide) for number, node in nodes.items()}
    return visible | {number: node for node, number in hidden.items()}


def _without_gates(node: Node, hide: Callable[[Node], int]) -> Node:
    """Return a node that reads a feed instead of each gate."""
    match node:
        case Union(inputs):
            return Union(tuple(_without_gates(each, hide) for each in inputs))
        case Filter(inner, condition):
            return Filter(_without_gates(inner, hide), condition)
        case Gated():
            return Read(hide(hide_gates(node, hide)))
        case _:
            return node
