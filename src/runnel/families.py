"""The registry of condition families, of the kinds of value that they read, and of the kinds of gate.

An entry refers to its parts as `module:name`, and each part is imported when it is first used. So a lower layer can
use a part in a higher layer without importing it, and a process loads only the parts that its queries use. `BUILT_IN`
lists the built-in families, and `GATE_KINDS` the kinds of gate. Packages add families with entry points of the group
`runnel.families`, which are available in every process: the driver, Spark workers and sandboxes.
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
    """A kind of value in addition to text, number, boolean and moment.

    `code` is its number in item files, which must never change. Texts in `attribute` are parsed as values of this
    kind. `type` refers to the subclass of `StructuredValue` for its values.
    """

    name: str
    code: int
    attribute: str
    type: str


@dataclass(frozen=True, slots=True)
class Family:
    """A condition family: its name, which is the tag of its stored conditions, and references to its parts.

    `kind` is the kind of value that it reads; several families may read the same kind. `pattern` refers to its
    `ItemPattern`, and `index` to its `PatternIndex`, which finds the patterns that match the items of a batch.
    `cover` refers to its `PatternCover`, which computes what patterns have in common; without one, every pattern is
    treated separately. `syntax` refers to its `ConditionSyntax`, whose only keyword is the name of the family;
    without one, its conditions cannot be written in statements.
    """

    name: str
    kind: ValueKind
    pattern: str
    index: str
    cover: str | None = None
    syntax: str | None = None


@dataclass(frozen=True, slots=True)
class GateKind:
    """A kind of gate: its name, which is the tag of its stored rules, and references to its parts.

    `rule` refers to its `GateRule`, which defines the items that pass. `resolver` refers to its `GateResolver`, which
    decides in workers and at commits. `syntax` refers to its `GateSyntax`; without one, it cannot be written in
    statements.
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
    Family(
        "tree",
        kind=ValueKind("tree", 5, "tree", "runnel.model.trees.document_tree:DocumentTree"),
        pattern="runnel.algebra.trees.tree_patterns:TreePattern",
        index="runnel.matching.trees.tree_index:TREE_INDEX",
        syntax="runnel.language.trees.parse_tree:TREE_SYNTAX",
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
"""The allowed codes of kinds of value. Item files store a code as a signed byte; 0 to 3 are the ordinary values."""

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
"""The tags of stored conditions without a family. A family with such a name would wrongly decode these conditions."""


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
"""The attributes of feed items. No kind of value can use one of them, because conditions read their text."""

_WORD = re.compile(r"[a-z][a-z0-9_]{0,59}")


@dataclass(frozen=True)
class Registry:
    """The families, kinds of value and kinds of gate of a process, by name."""

    families: dict[str, Family]
    kinds: dict[str, ValueKind]
    gates: dict[str, GateKind]

    @staticmethod
    def of(*families: Family) -> Registry:
        """Create a registry of families without checking them, with the built-in kinds of gate."""
        return Registry(
            {family.name: family for family in families},
            {family.kind.name: family.kind for family in families},
            {gate.name: gate for gate in GATE_KINDS},
        )

    def add(self, family: Family) -> None:
        """Add a family, and its kind of value if that is new. Raise InputError if a name or code is in use."""
        self._check_name(family.name)
        if self.kinds.get(family.kind.name) != family.kind:
            self._check_kind(family.kind)
        self.families[family.name] = family
        self.kinds[family.kind.name] = family.kind

    def add_gate(self, kind: GateKind) -> None:
        """Add a kind of gate. Raise InputError if its name is in use."""
        if kind.name in self.gates:
            raise InputError(f"another kind of gate is already named {kind.name}", hint=_OTHER_NAME)
        self.gates[kind.name] = kind

    def _check_name(self, name: str) -> None:
        if not _WORD.fullmatch(name):
            raise InputError(
                f"the name of a condition family must be a word in lower case, not {name[:60]!r}",
                hint="use at most 60 lower-case letters, digits and underscores, and begin with a letter",
            )
        if name in self.families:
            raise InputError(f"a condition family named {name} already exists", hint=_OTHER_NAME)
        if name in OTHER_TAGS:
            raise InputError(
                f"{name} cannot name a condition family: it identifies other conditions in stored queries",
                hint=_OTHER_NAME,
            )
        if name in load_part("runnel.algebra.nodes.render:RESERVED"):
            raise InputError(f"{name} is a keyword of the language and cannot name a family", hint=_OTHER_NAME)

    def _check_kind(self, kind: ValueKind) -> None:
        if kind.name in self.kinds:
            raise InputError(f"another kind of value is already named {kind.name}", hint=_OTHER_NAME)
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
    """Return the built-in families and those of installed packages. Log a warning for each that is refused."""
    families = Registry.of(*BUILT_IN)
    for name in plugin_names(GROUP):
        try:
            if entry := find_entry(GROUP, name):
                families.add(_load_family(entry))
        except Exception as error:  # a plug-in may contain anything
            logger.warning("the condition family %r is not available: %s", name, error)
    return families


def _load_family(entry: EntryPoint) -> Family:
    """Load the family of an entry point, and the type of its values, which every process needs."""
    family = load_entry(entry, f"the condition family {entry.name!r}")
    if not isinstance(family, Family) or not isinstance(family.kind, ValueKind):
        raise InputError(
            f"{entry.value} is not a Family", hint=f"it must be an instance of {Family.__module__}.Family"
        )
    if family.name != entry.name:
        raise InputError(
            f"the entry point {entry.name!r} refers to a condition family with the name {family.name!r}",
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
    """Load a part of a family or a kind of gate by its `module:name`. Raise InputError if that fails.

    >>> load_part("runnel.model.graph:GRAPH")
    'graph'
    """
    return load_entry(EntryPoint("", reference, GROUP), reference)
