"""The only list of condition families, of the kinds of value that they read, and of the kinds of gate.

An entry names the parts of a member, and each part is imported when it is first used. So a lower layer finds a part
of a higher one without importing it, and a process loads only the members that its queries use. To add a member,
write a package and call `register_family` or `register_gate_kind` at the end of this module. A call elsewhere, before
the first query is read, registers it in that process only: Spark workers and sandboxes do not know it.
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


@dataclass(frozen=True, slots=True)
class GateKind:
    """A kind of gate: the tag of its stored rules, and where its parts are (`module:name`).

    `rule` is its `GateRule`, which defines which items pass, and `resolver` its `GateResolver`, which decides in
    workers and commits. `syntax` is its `GateSyntax`; without one, it cannot be written in statements.
    """

    name: str
    rule: str
    resolver: str
    syntax: str | None = None


VALUE_KINDS: dict[str, ValueKind] = {}
FAMILIES: dict[str, Family] = {}
GATE_KINDS: dict[str, GateKind] = {}

VALUE_CODES = range(4, 128)
"""The codes of kinds of value: item files store them in a signed byte, and ordinary values have the codes 0 to 3."""

OTHER_TAGS = frozenset(
    [
        "and",
        "or",
        "not",
        "call",
        "constraint",
        "term",
        "=",
        "<",
        "<=",
        ">",
        ">=",
        "between",
        "in",
        "exists",
        "contains",
        "pattern",
        "stems",
        "similar",
        "matches",
        "network",
        "references",
        "extends",
        "shares",
    ]
)
"""The tags of stored conditions that belong to no family. A family of that name would decode these conditions."""


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
    if family.name in OTHER_TAGS:
        raise ValueError(f"{family.name} is the tag of other stored conditions and cannot name a family")
    if kind is not None:
        _check_kind(kind)
    if family.kind not in VALUE_KINDS and (kind is None or family.kind != kind.name):
        raise ValueError(f"the family {family.name} reads values of the kind {family.kind}, which is not registered")
    if kind is not None:
        VALUE_KINDS[kind.name] = kind
    FAMILIES[family.name] = family


def _check_kind(kind: ValueKind) -> None:
    if kind.name in VALUE_KINDS:
        raise ValueError(f"there is a kind of value {kind.name} already")
    if kind.code not in VALUE_CODES:
        raise ValueError(
            f"the code of a kind of value must be {VALUE_CODES[0]} to {VALUE_CODES[-1]}, not {kind.code}"
        )
    if any(kind.code == one.code or kind.attribute == one.attribute for one in VALUE_KINDS.values()):
        raise ValueError(f"another kind of value has the code {kind.code} or the attribute {kind.attribute}")


def register_gate_kind(kind: GateKind) -> None:
    """Add a kind of gate."""
    if kind.name in GATE_KINDS:
        raise ValueError(f"there is a kind of gate {kind.name} already")
    GATE_KINDS[kind.name] = kind


@cache
def load_part(reference: str) -> Any:
    """A part of a member by its `module:name`.

    >>> load_part("runnel.model.graph:GRAPH")
    'graph'
    """
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


register_family(
    Family(
        "graph",
        kind="graph",
        pattern="runnel.algebra.graphs.graph_patterns:Graph",
        index="runnel.matching.graphs.graph_index:GRAPH_INDEX",
        cover="runnel.scaleout.cover.graph_cover:GRAPH_COVER",
        syntax="runnel.language.graphs.parse_graph:GRAPH_SYNTAX",
    ),
    ValueKind("graph", 4, "graph", "runnel.model.graph:RdfGraph"),
)
register_gate_kind(
    GateKind(
        "distinct",
        rule="runnel.algebra.semantics.distinct:Distinct",
        resolver="runnel.matching.gates.distinct:DISTINCT",
        syntax="runnel.language.grammar.parse_distinct:DISTINCT_SYNTAX",
    )
)
