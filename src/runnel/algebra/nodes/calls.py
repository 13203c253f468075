"""Calls of operators, variables, and constraints on what they are bound to, as immutable values.

`distanceFrom('Liberty', ?x) and ?x < 1000` is a call and a constraint. `bindings.solutions` is the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from runnel.algebra.nodes.attributes import Attribute, Constant
from runnel.errors import Span
from runnel.model.operator import ValueType

Relation = Literal["=", "!=", "<", "<=", ">", ">="]
RELATIONS: tuple[Relation, ...] = ("=", "!=", "<", "<=", ">", ">=")
Sign = Literal["+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a condition, without its `?`. All of one name are one, but those under `not` are local there."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two quantities, computed with. Defined for numbers alone, and not for a division by zero."""

    sign: Sign
    left: Quantity
    right: Quantity


@dataclass(frozen=True, slots=True, eq=False)
class Literally:
    """A constant in a constraint; 1 and true are two, which Python's own equality does not tell."""

    value: Constant

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literally) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


Quantity = Literally | Variable | Arithmetic


@dataclass(frozen=True, slots=True)
class Constraint:
    """Two quantities stand in a relation: of one type, and both defined."""

    left: Quantity
    relation: Relation
    right: Quantity


@dataclass(frozen=True, slots=True)
class Given:
    """A variable of an item pattern, whose values an operator is given: those that are of the type it takes."""

    name: str
    type: ValueType
    span: Span | None = field(default=None, compare=False, repr=False)


Argument = Literally | Attribute | Variable | Given


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, asked about the item.

    `version` is the registration that the call was bound to (0: none yet); `results` are the places of the arguments
    that are results, which are variables or constants; all others are inputs: constants, attributes, or variables
    that an item pattern next to the call binds.
    """

    operator: str
    arguments: tuple[Argument, ...] = ()
    version: int = 0
    results: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments that the operator is given."""
        return tuple(one for index, one in enumerate(self.arguments) if index not in self.results)

    @property
    def pattern(self) -> tuple[Argument, ...]:
        """The arguments that its rows must fit."""
        return tuple(self.arguments[index] for index in self.results)

    @property
    def question(self) -> Call:
        """The call without what its results are compared with: calls with one question have the same rows."""
        nameless = Variable("")
        arguments = tuple(nameless if index in self.results else one for index, one in enumerate(self.arguments))
        return Call(self.operator, arguments, self.version, self.results)

    @property
    def given(self) -> tuple[Given, ...]:
        """The inputs that an item pattern next to the call binds."""
        return tuple(one for one in self.arguments if isinstance(one, Given))


def variables_of(part: Call | Constraint | Quantity) -> Iterator[Variable]:
    """The variables of a call's results, a constraint or a quantity, from left to right, repeated where they are."""
    match part:
        case Variable():
            yield part
        case Arithmetic(_, left, right) | Constraint(left, _, right):
            yield from variables_of(left)
            yield from variables_of(right)
        case Call(_, arguments):
            for argument in arguments:
                if isinstance(argument, Variable):
                    yield argument
        case Literally():
            pass
