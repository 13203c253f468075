"""Item patterns: conditions on structured values such as RDF graphs, which may bind variables.

`ItemPattern` is the interface of such a condition. Evaluation, traces, bindings, encoding, printing and the optimizer
use only this interface, never a particular family. `runnel.families` lists the families.

A variable whose name begins with `_:` is local: nothing outside its pattern refers to it. The variables of a
*canonical* pattern are named by numbers from 1 on, and `names` has their original names. Canonical patterns that
differ only in original names are equal.
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
"""The values of the variables of a pattern, as texts in the notation of its family."""


@dataclass(frozen=True, slots=True)
class PatternPart:
    """A part of a pattern as `why` shows it: its text, whether it holds, and the value that satisfies it."""

    text: str
    holds: bool
    by: str = ""


class PatternSearch(Protocol):
    """Evaluates patterns on one item, either by their definition or within the limits of matching."""

    def holds(self, pattern: ItemPattern, /) -> bool | None:
        """Return whether a pattern holds, or None if the search was abandoned."""

    def solutions(self, pattern: ItemPattern, /) -> Iterator[Solution]:
        """Yield the solutions of a pattern."""

    def rows(self, pattern: ItemPattern, /) -> list[dict[str, Value]] | None:
        """Return the distinct bindings of a pattern, or None if there are too many."""


class ItemPattern(ABC):
    """A condition of one family on the values of one attribute."""

    __slots__ = ()

    family: ClassVar[str]
    """The name of its family, which is the tag of its stored form."""

    constraint_hint: ClassVar[str] = "variables of a pattern can only be compared with constants and with each other"
    """The hint for a comparison that the pattern cannot evaluate."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The original names of a canonical pattern's variables, empty if the pattern is not canonical."""

    @property
    @abstractmethod
    def span(self) -> Span | None:
        """The span of the pattern in its script."""

    @property
    @abstractmethod
    def attribute(self) -> Attribute:
        """The attribute whose values it reads."""

    @abstractmethod
    def variables(self) -> list[str]:
        """Return the names of all variables, including local ones, without repetitions."""

    def open_variables(self) -> list[str]:
        """Return the variables that other conditions can refer to. A canonical pattern has none."""
        return [] if self.names else [name for name in self.variables() if not is_local(name)]

    @abstractmethod
    def canonical(self) -> Self:
        """Return the pattern in canonical form, or itself if it is canonical."""

    @abstractmethod
    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the pattern with its variables renamed. The result is not canonical."""

    def as_written(self) -> Self:
        """Return a canonical pattern with the original names of its variables."""
        names = {str(number): name for number, name in enumerate(self.names, 1)}
        return self.renamed(names) if names else self

    @classmethod
    @abstractmethod
    def joined(cls, patterns: Sequence[Self]) -> Self:
        """Join patterns of a conjunction into one. Raise InvalidConditionError if the result is too large."""

    @abstractmethod
    def constrained(self, constraints: Sequence[Constraint]) -> tuple[Self, list[Constraint]]:
        """Add the constraints that the pattern can evaluate. Return the new pattern and the other constraints."""

    @abstractmethod
    def encode(self) -> list[Any]:
        """Return the JSON values of the stored form, after the tag."""

    @classmethod
    @abstractmethod
    def decode(cls, values: Sequence[Any]) -> Self:
        """Return the pattern of values that `encode` returned."""

    @abstractmethod
    def render(self) -> str:
        """Return the canonical text with the original names, which parses to the same pattern."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How much the pattern counts towards the limits on the size of a query."""

    @abstractmethod
    def holds(self, value: Value) -> bool:
        """Return whether a value of the attribute satisfies the pattern, by definition. False for other types."""

    @abstractmethod
    def solutions(self, value: Value) -> Iterator[Solution]:
        """Yield the solutions on a value of the attribute, by definition. May raise TooExpensiveError."""

    @abstractmethod
    def binding(self, solution: Solution) -> dict[str, Value]:
        """Return a solution as plain values, without local variables."""

    @abstractmethod
    def trace(self, search: PatternSearch, bound: Sequence[Mapping[str, Value]]) -> list[PatternPart]:
        """Return the parts under a solution that agrees with a binding of `bound`, or the parts that do not hold."""


def is_local(name: str) -> bool:
    """Return whether a variable is local to its pattern.

    >>> is_local("_:x"), is_local("x")
    (True, False)
    """
    return name.startswith("_:")


def encode_pattern(pattern: ItemPattern) -> list[Any]:
    """Return the stored form of a pattern: the name of its family, and its values."""
    return [pattern.family, *pattern.encode()]


def decode_pattern(tag: str, values: Sequence[Any]) -> ItemPattern:
    """Return the pattern of a stored form. Raise InputError if there is no such family."""
    return cast(type[ItemPattern], load_part(find_family(tag).pattern)).decode(values)


def pattern_values(pattern: ItemPattern, attributes: Attributes) -> tuple[Value, ...]:
    """Return the values of an item that a pattern reads."""
    return attributes.get(pattern.attribute.name, ())
