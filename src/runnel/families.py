"""The registry of condition families, of the kinds of value that they read, and of the kinds of gate.

An entry contains the names of modules and objects, which are imported when they are first used. So a lower layer can
use a part of a higher layer without importing it, and a process loads only the families that its queries use.
`BUILT_IN` lists the built-in families, and `GATE_KINDS` the kinds of gate. Packages add families by entry points of
the group `runnel.families`, so that every process (driver, Spark workers and sandboxes) finds them.
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
    """A kind of value other than text, number, boolean and moment.

    `code` is its number in item files, which must never change. Texts of `attribute` are parsed as values of this
    kind. `type` names the subclass of `StructuredValue` (`module:name`).
    """

    name: str
    code: int
    attribute: str
    type: str


@dataclass(frozen=True, slots=True)
class Family:
    """A condition family. `name` also identifies its conditions in stored queries. Its parts are `module:name`.

    `kind` is the kind of value that its conditions read; several families may read one kind. `pattern` is its
    `ItemPattern`, and `index` its `PatternIndex`, which matches patterns with a batch. `cover` is its `PatternCover`,
    which computes patterns that contain others; without it, a router evaluates each pattern. `syntax` is its
    `ConditionSyntax`, whose only word is the name of the family; without it, statements cannot contain its
    conditions.
    """

    name: str
    kind: ValueKind
    pattern: str
    index: str
    cover: str | None = None
    syntax: str | None = None


@dataclass(frozen=True, slots=True)
class GateKind:
    """A kind of gate. `name` also identifies its rules in stored queries. Its parts are `module:name`.

    `rule` is its `GateRule`, which defines which items pass, and `resolver` its `GateResolver`, which is used in
    workers and commits. `syntax` is its `GateSyntax`; without it, statements cannot contain the gate.
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
"""Names of conditions in stored queries that belong to no family. A family with such a name would decode them."""


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
"""Attributes that feeds provide. If a kind of value used one, conditions on text could no longer read it."""

_WORD = re.compile(r"[a-z][a-z0-9_]{0,59}")


@dataclass(frozen=True)
class Registry:
    """The condition families, kinds of value and kinds of gate of a process, by name."""

    families: dict[str, Family]
    kinds: dict[str, ValueKind]
    gates: dict[str, GateKind]

    @staticmethod
    def of(*families: Family) -> Registry:
        """Create a registry of these families, which are not checked, and of the built-in kinds of gate."""
        return Registry(
            {family.name: family for family in families},
            {family.kind.name: family.kind for family in families},
            {gate.name: gate for gate in GATE_KINDS},
        )

    def add(self, family: Family) -> None:
        """Add a family, and its kind of value if it is new. Raise InputError if a name or code is not allowed."""
        self._check_name(family.name)
        if self.kinds.get(family.kind.name) != family.kind:
            self._check_kind(family.kind)
        self.families[family.name] = family
        self.kinds[family.kind.name] = family.kind

    def add_gate(self, kind: GateKind) -> None:
        """Add a kind of gate. Raise InputError if its name is already used."""
        if kind.name in self.gates:
            raise InputError(f"the kind of gate {kind.name} already exists", hint=_OTHER_NAME)
        self.gates[kind.name] = kind

    def _check_name(self, name: str) -> None:
        if not _WORD.fullmatch(name):
            raise InputError(
                f"the name of a condition family must be a lower-case word, not {name[:60]!r}",
                hint="use at most 60 letters, digits and underscores",
            )
        if name in self.families:
            raise InputError(f"the condition family {name} already exists", hint=_OTHER_NAME)
        if name in OTHER_TAGS:
            raise InputError(
                f"{name} cannot name a condition family: it identifies other conditions in stored queries",
                hint=_OTHER_NAME,
            )
        if name in load_part("runnel.algebra.nodes.render:RESERVED"):
            raise InputError(
                f"{name} cannot name a condition family: it is a keyword of the language", hint=_OTHER_NAME
            )

    def _check_kind(self, kind: ValueKind) -> None:
        if kind.name in self.kinds:
            raise InputError(
                f"the kind of value {kind.name} already exists, with another definition", hint=_OTHER_NAME
            )
        if kind.code not in VALUE_CODES:
            raise InputError(
                f"the code of a kind of value must be {VALUE_CODES[0]} to {VALUE_CODES[-1]}, not {kind.code}"
            )
        for other in self.kinds.values():
            if kind.code == other.code or kind.attribute == other.attribute:
                raise InputError(
                    f"the kind of value {other.name} already uses the code {other.code} and the attribute"
                    f" {other.attribute}",
                    hint=f"choose another code and another attribute for the kind {kind.name}",
                )
        if not _WORD.fullmatch(kind.attribute) or kind.attribute in STANDARD_ATTRIBUTES:
            raise InputError(
                f"{kind.attribute[:60]!r} cannot be the attribute of a kind of value",
                hint="choose a lower-case word that is not an attribute of feeds (as title is)",
            )


_OTHER_NAME = "choose another name"


@cache
def registry() -> Registry:
    """Return the built-in families and those of installed packages. Log a warning for each family that is refused."""
    registry = Registry.of(*BUILT_IN)
    for name in plugin_names(GROUP):
        try:
            if entry := find_entry(GROUP, name):
                registry.add(_load_family(entry))
        except Exception as error:  # a plug-in may raise anything
            logger.warning("the condition family %r is not available: %s", name, error)
    return registry


def _load_family(entry: EntryPoint) -> Family:
    """Load the family of an entry point, and the type of its values, which every process needs to read item files."""
    family = load_entry(entry, f"the condition family {entry.name!r}")
    if not isinstance(family, Family) or not isinstance(family.kind, ValueKind):
        raise InputError(
            f"{entry.value} is not a Family",
            hint=f"let the entry point name an instance of {Family.__module__}.Family",
        )
    if family.name != entry.name:
        raise InputError(
            f"the entry point {entry.name!r} refers to a condition family with another name, {family.name!r}",
            hint=f"use the same name in {entry.value} and in its entry point",
        )
    if getattr(load_part(family.kind.type), "kind", None) != family.kind.name:
        raise InputError(
            f"the attribute kind of {family.kind.type} must be {family.kind.name!r}",
            hint=f"set kind = {family.kind.name!r} in a subclass of StructuredValue",
        )
    return family


def find_family(name: str) -> Family:
    """Return a family by name. Raise InputError if its package is not installed.

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
    """Return the attribute whose values a family reads.

    >>> attribute_of("graph")
    'graph'
    """
    return find_family(family).kind.attribute


@cache
def load_part(reference: str) -> Any:
    """Load a part of a family or a kind of gate, given as `module:name`. Raise InputError if it cannot be loaded.

    >>> load_part("runnel.model.graph:GRAPH")
    'graph'
    """
    return load_entry(EntryPoint("", reference, GROUP), reference)
