"""Query nodes: what a virtual feed reads, after names have become catalog ids.

`create feed F from (A | B as $b) as $r where $b[x] and $r[y]` is Filter(Union(Read(A), Filter(Read(B), x)), y):
a condition on a variable filters the term that the variable names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runnel.algebra.expressions import Expression


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


Node = Read | Union | Filter


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
        case Filter(inner, _):
            yield from reads(inner)
