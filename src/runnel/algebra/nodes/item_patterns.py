"""Item patterns: conditions of a family of their own, on values of one kind, that may bind variables.

An `ItemPattern` has all that the rest of the code asks of such a condition. Evaluation, traces, bindings, encoding,
printing and the optimizer use these methods and never name a family. `runnel.families` lists the families.

A variable whose name begins with `_:` is local: nothing outside its pattern refers to it. A *canonical* pattern names
its variables by number, the first 1, and keeps the original names in `names`; canonical patterns that differ only in
names are equal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, cast

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Constraint
from runnel.errors import Span
from runnel.families import find_family, load_part
from runnel.model.item import Attributes, Value

Solution = Mapping[str, str]
"""A text for every variable of a pattern, in the notation of its family."""


@dataclass(frozen=True, slots=True)
class PatternPart:
    """A part of a pattern as `why` shows it: its text, whether it is satisfied, and by what."""

    text: str
    holds: bool
    by: str = ""


class PatternSearch(Protocol):
    """Decides patterns on one item: by definition, or within the limits of matching."""

    def holds(self, pattern: ItemPattern, /) -> bool | None:
        """Whether a pattern holds; None where the search was abandoned."""

    def solutions(self, pattern: ItemPattern, /) -> Iterator[Solution]:
        """The solutions of a pattern."""

    def rows(self, pattern: ItemPattern, /) -> list[dict[str, Value]] | None:
        """The distinct bindings of a pattern; None where there are too many."""


class ItemPattern(ABC):
    """A condition on the values of one attribute, which are of one kind."""

    __slots__ = ()

    family: ClassVar[str]
    """The name of its family, which is the tag of its stored form."""

    constraint_hint: ClassVar[str] = "variables of a pattern are compared with constants and with one another"
    """What to do about a comparison that the pattern cannot check and no operator takes part in."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The original names of a canonical pattern's variables; empty where it is not canonical."""

    @property
    @abstractmethod
    def span(self) -> Span | None:
        """Where the pattern is written."""

    @property
    @abstractmethod
    def attribute(self) -> Attribute:
        """The attribute whose values it reads."""

    @abstractmethod
    def variables(self) -> list[str]:
        """The names of its variables, each once, local ones included."""

    def open_variables(self) -> list[str]:
        """The variables that it shares with the conditions around it; a canonical pattern has none."""
        return [] if self.names else [name for name in self.variables() if not is_local(name)]

    @abstractmethod
    def canonical(self) -> Self:
        """The pattern in canonical form; itself where it is canonical."""

    @abstractmethod
    def renamed(self, names: Mapping[str, str]) -> Self:
        """The pattern with other names for its variables, and no longer canonical."""

    def as_written(self) -> Self:
        """A canonical pattern with the original names of its variables."""
        names = {str(number): name for number, name in enumerate(self.names, 1)}
        return self.renamed(names) if names else self

    @classmethod
    @abstractmethod
    def joined(cls, patterns: Sequence[Self]) -> Self:
        """Patterns of one conjunction as one; InvalidConditionError where that is too large."""

    @abstractmethod
    def constrained(self, constraints: Sequence[Constraint]) -> tuple[Self, list[Constraint]]:
        """The pattern with the constraints that it can check itself, and the other constraints."""

    @abstractmethod
    def encode(self) -> list[Any]:
        """The JSON values of the stored form, after the tag."""

    @classmethod
    @abstractmethod
    def decode(cls, values: Sequence[Any]) -> Self:
        """The pattern of values made by `encode`."""

    @abstractmethod
    def render(self) -> str:
        """The canonical text, with the original names; it parses to the same pattern."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many constants count towards the limits on a query."""

    @abstractmethod
    def holds(self, value: Value) -> bool:
        """Whether it holds of a value of its attribute: the definition. False for values of other kinds."""

    @abstractmethod
    def solutions(self, value: Value) -> Iterator[Solution]:
        """Its solutions on a value of its attribute: the definition. May raise TooExpensiveError."""

    @abstractmethod
    def binding(self, solution: Solution) -> dict[str, Value]:
        """A solution as plain values, without local variables."""

    @abstractmethod
    def trace(self, search: PatternSearch, bound: Sequence[Mapping[str, Value]]) -> list[PatternPart]:
        """Its parts under a solution that agrees with one of `bound`, or what it lacks."""


def is_local(name: str) -> bool:
    """Whether a variable is local to its pattern.

    >>> is_local("_:x"), is_local("x")
    (True, False)
    """
    return name.startswith("_:")


def encode_pattern(pattern: ItemPattern) -> list[Any]:
    """The stored form of a pattern: the name of its family, and its values."""
    return [pattern.family, *pattern.encode()]


def decode_pattern(tag: str, values: Sequence[Any]) -> ItemPattern:
    """The pattern of a stored form; InputError where there is no such family."""
    return cast(type[ItemPattern], load_part(find_family(tag).pattern)).decode(values)


def pattern_values(pattern: ItemPattern, attributes: Attributes) -> tuple[Value, ...]:
    """The values of an item that a pattern reads."""
    return attributes.get(pattern.attribute.name, ())
