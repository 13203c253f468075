"""The only list of condition families, of the kinds of value that they read, and of the kinds of gate.

An entry names the parts of a member, and each part is imported when it is first used. So a lower layer finds a part
of a higher one without importing it, and a process loads only the members that its queries use. `BUILT_IN` lists
the families that come with Runnel, and `GATE_KINDS` the kinds of gate. Packages add families by entry points of the
group `runnel.families`, so that every process knows them: the driver, Spark workers and sandboxes.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

from runnel.entry_points import find_entry, load_entry, plugin_names
from runnel.errors import InputError

logger = logging.getLogger("runnel")

GROUP = "runnel.families"


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

    `kind` is the kind of value that it reads; several families may read one kind. `pattern` is its `ItemPattern`, and
    `index` its `PatternIndex`, which finds the patterns that hold of a batch. `cover` is its `PatternCover`, which
    says what patterns have in common; without one, each pattern stands for itself. `syntax` is its `ConditionSyntax`,
    whose only word is the name of the family; without one, its conditions cannot be written in statements.
    """

    name: str
    kind: ValueKind
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


BUILT_IN = (
    Family(
        "graph",
        kind=ValueKind("graph", 4, "graph", "runnel.model.graph:RdfGraph"),
        pattern="runnel.algebra.graphs.graph_patterns:Graph",
        index="runnel.matching.graphs.graph_index:GRAPH_INDEX",
        cover="runnel.scaleout.cover.graph_cover:GRAPH_COVER",
        syntax="runnel.language.graphs.parse_graph:GRAPH_SYNTAX",
    ),
)

GATE_KINDS = (
    GateKind(
        "distinct",
        rule="runnel.algebra.semantics.distinct:Distinct",
        resolver="runnel.matching.gates.distinct:DISTINCT",
        syntax="runnel.language.grammar.parse_distinct:DISTINCT_SYNTAX",
    ),
    GateKind("join", rule="runnel.algebra.semantics.joins:Join", resolver="runnel.matching.joins.resolve_joins:JOIN"),
    GateKind(
        "window", rule="runnel.algebra.semantics.joins:Window", resolver="runnel.matching.joins.resolve_joins:WINDOW"
    ),
)

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
        "window",
    ]
)
"""The tags of stored conditions that belong to no family. A family of that name would decode these conditions."""


STANDARD_ATTRIBUTES = frozenset(
    [
        "author",
        "category",
        "comments",
        "content",
        "description",
        "enclosure",
        "feed",
        "guid",
        "id",
        "image",
        "item",
        "language",
        "link",
        "published",
        "rights",
        "source",
        "title",
        "updated",
    ]
)
"""The attributes that the items of feeds have. A kind that claimed one would take it from the conditions on texts."""

_WORD = re.compile(r"[a-z][a-z0-9_]{0,59}")


@dataclass(frozen=True)
class Registry:
    """The families, the kinds of value and the kinds of gate that a process knows, by name."""

    families: dict[str, Family]
    kinds: dict[str, ValueKind]
    gates: dict[str, GateKind]

    @staticmethod
    def of(*families: Family) -> Registry:
        """A registry of families that are known to fit together, with the built-in kinds of gate."""
        return Registry(
            {family.name: family for family in families},
            {family.kind.name: family.kind for family in families},
            {gate.name: gate for gate in GATE_KINDS},
        )

    def add(self, family: Family) -> None:
        """Add a family, and its kind of value where that is new. InputError where a name or code is taken."""
        self._check_name(family.name)
        if self.kinds.get(family.kind.name) != family.kind:
            self._check_kind(family.kind)
        self.families[family.name] = family
        self.kinds[family.kind.name] = family.kind

    def add_gate(self, kind: GateKind) -> None:
        """Add a kind of gate. InputError where its name is taken."""
        if kind.name in self.gates:
            raise InputError(f"there is a kind of gate {kind.name} already", hint=_OTHER_NAME)
        self.gates[kind.name] = kind

    def _check_name(self, name: str) -> None:
        if not _WORD.fullmatch(name):
            raise InputError(
                f"the name of a condition family is a word in lower case, not {name[:60]!r}",
                hint="use at most 60 letters, digits and underscores",
            )
        if name in self.families:
            raise InputError(f"there is a condition family {name} already", hint=_OTHER_NAME)
        if name in OTHER_TAGS:
            raise InputError(
                f"{name} is the tag of other stored conditions and cannot name a family", hint=_OTHER_NAME
            )
        if name in load_part("runnel.algebra.nodes.render:RESERVED"):
            raise InputError(f"{name} is a word of the language and cannot name a family", hint=_OTHER_NAME)

    def _check_kind(self, kind: ValueKind) -> None:
        if kind.name in self.kinds:
            raise InputError(f"there is a kind of value {kind.name} already", hint=_OTHER_NAME)
        if kind.code not in VALUE_CODES:
            raise InputError(
                f"the code of a kind of value must be {VALUE_CODES[0]} to {VALUE_CODES[-1]}, not {kind.code}"
            )
        for other in self.kinds.values():
            if kind.code == other.code or kind.attribute == other.attribute:
                raise InputError(
                    f"the kind of value {other.name} has the code {other.code} and the attribute {other.attribute}",
                    hint=f"choose another code and another attribute for the kind {kind.name}",
                )
        if not _WORD.fullmatch(kind.attribute) or kind.attribute in STANDARD_ATTRIBUTES:
            raise InputError(
                f"{kind.attribute[:60]!r} cannot be the attribute of a kind of value",
                hint="choose a word in lower case that is not an attribute of feeds, such as title",
            )


_OTHER_NAME = "choose another name"


@cache
def registry() -> Registry:
    """The families that come with Runnel, and those of installed packages. One that is refused is logged."""
    found = Registry.of(*BUILT_IN)
    for name in plugin_names(GROUP):
        try:
            if entry := find_entry(GROUP, name):
                found.add(_load_family(entry))
        except Exception as error:  # a plug-in may hold anything
            logger.warning("the condition family %r is not available: %s", name, error)
    return found


def _load_family(entry: EntryPoint) -> Family:
    """The family that an entry point names. Each process reads values, so their type is loaded at once."""
    family = load_entry(entry, f"the condition family {entry.name!r}")
    if not isinstance(family, Family) or not isinstance(family.kind, ValueKind):
        raise InputError(f"{entry.value} is not a Family", hint=f"name an object of {Family.__module__}.Family")
    if family.name != entry.name:
        raise InputError(
            f"the condition family {entry.name!r} calls itself {family.name!r}",
            hint=f"use one name in {entry.value} and in its entry point",
        )
    if getattr(load_part(family.kind.type), "kind", None) != family.kind.name:
        raise InputError(
            f"{family.kind.type} is not the type of the kind of value {family.kind.name}",
            hint=f"set kind = {family.kind.name!r} in a subclass of StructuredValue",
        )
    return family


def find_family(name: str) -> Family:
    """A family by name; InputError where its package is not installed.

    >>> find_family("graph").kind.code
    4
    """
    family = registry().families.get(name)
    if family is None:
        raise InputError(
            f"the condition family {name!r} is not installed", hint="install its package wherever Runnel runs"
        )
    return family


def attribute_of(family: str) -> str:
    """The attribute whose values a family reads.

    >>> attribute_of("graph")
    'graph'
    """
    return find_family(family).kind.attribute


@cache
def load_part(reference: str) -> Any:
    """A part of a family or a kind of gate by its `module:name`; InputError if it cannot be loaded.

    >>> load_part("runnel.model.graph:GRAPH")
    'graph'
    """
    return load_entry(EntryPoint("", reference, GROUP), reference)
