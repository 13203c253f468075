"""The condition families and the kinds of value that they read: one entry each, and the only list of them.

An entry names the parts of a family, and each part is imported when it is first used. So a lower layer finds a part
of a higher one without importing it, and a process loads only the families that its conditions use. To add a family,
write a package and add an entry here, or call `register_family` before the first condition is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value besides text, number, boolean and moment.

    `code` is its number in item files, which must never change. Texts given for `attribute` are read as values of
    this kind. `type` is the `StructuredValue` that the values are.
    """

    name: str
    code: int
    attribute: str
    type: str


@dataclass(frozen=True, slots=True)
class Family:
    """A condition family: the tag of its stored conditions, and where its parts are (`module:name`).

    `kind` is the kind of value that it reads. `pattern` is its `ItemPattern`, and `index` its `PatternIndex`, which
    finds the patterns that hold of a batch. `cover` is its `PatternCover`, which says what patterns have in common;
    without one, each pattern stands for itself. `syntax` is its `ConditionSyntax`;
    without one, its conditions cannot be written in statements.
    """

    name: str
    kind: str
    pattern: str
    index: str
    cover: str | None = None
    syntax: str | None = None


VALUE_KINDS = {"graph": ValueKind("graph", 4, "graph", "runnel.model.graph:RdfGraph")}
FAMILIES = {
    "graph": Family(
        "graph",
        kind="graph",
        pattern="runnel.algebra.graphs.graph_patterns:Graph",
        index="runnel.matching.graphs.graph_index:GRAPH_INDEX",
        cover="runnel.scaleout.cover.graph_cover:GRAPH_COVER",
        syntax="runnel.language.graphs.parse_graph:GRAPH_SYNTAX",
    )
}


def attribute_of(family: str) -> str:
    """The attribute whose values a family reads.

    >>> attribute_of("graph")
    'graph'
    """
    return VALUE_KINDS[FAMILIES[family].kind].attribute


def register_family(family: Family, kind: ValueKind | None = None) -> None:
    """Add a family, and the kind of value that it reads where that is new."""
    if family.name in FAMILIES:
        raise ValueError(f"there is a condition family {family.name} already")
    if kind is not None:
        if any(kind.code == one.code or kind.attribute == one.attribute for one in VALUE_KINDS.values()):
            raise ValueError(f"another kind of value has the code {kind.code} or the attribute {kind.attribute}")
        VALUE_KINDS[kind.name] = kind
    FAMILIES[family.name] = family


@cache
def load_part(reference: str) -> Any:
    """A part of a family by its `module:name`.

    >>> load_part("runnel.model.graph:GRAPH")
    'graph'
    """
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
