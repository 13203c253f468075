"""Query nodes: what a virtual feed reads, after names have become catalog ids.

`create feed F from (A | B as $b) as $r where $b[x] and $r[y]` is Filter(Union(Read(A), Filter(Read(B), x)), y):
a condition on a variable filters the term that the variable names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Expression


@dataclass(frozen=True, slots=True)
class Read:
    """All items of a feed, source or virtual, by its catalog id."""

    feed: int


@dataclass(frozen=True, slots=True)
class Union:
    """The items of any input; a set, so an item that comes by two ways is there once."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The items of the input that satisfy the condition."""

    input: Node
    condition: Expression


@dataclass(frozen=True, slots=True)
class Distinct:
    """The items of the input without duplicates; it stands at the top of a virtual feed's definition alone.

    An item is a duplicate if an earlier item of the input has the same key (see `distinct`) and was accepted less
    than `window` before it, whether that one is a duplicate itself or not.
    """

    input: Node
    by: tuple[Attribute, ...]
    window: timedelta


Node = Read | Union | Filter | Distinct


def conditions_of(node: Node) -> Iterator[Expression]:
    """The conditions of a node's own filters, from the outermost on."""
    match node:
        case Read():
            pass
        case Union(inputs):
            for one in inputs:
                yield from conditions_of(one)
        case Filter(inner, condition):
            yield condition
            yield from conditions_of(inner)
        case Distinct(inner, _, _):
            yield from conditions_of(inner)


def reads(node: Node) -> Iterator[int]:
    """The ids of the feeds that a node reads directly, from left to right.

    >>> list(reads(Union((Read(1), Read(4)))))
    [1, 4]
    """
    match node:
        case Read(feed):
            yield feed
        case Union(inputs):
            for one in inputs:
                yield from reads(one)
        case Filter(inner, _) | Distinct(inner, _, _):
            yield from reads(inner)
