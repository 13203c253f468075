"""Operator calls, variables, and constraints on the values of variables, as immutable values.

`distanceFrom('Liberty', ?x) and ?x < 1000` consists of a call and a constraint. `bindings.solutions` defines their
meaning.
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
    """A variable of a condition, without its `?`. Equal names mean the same variable; those under `not` are local."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A calculation with two quantities. It has a value only if both are numbers and no division is by zero."""

    sign: Sign
    left: Quantity
    right: Quantity


@dataclass(frozen=True, slots=True, eq=False)
class Literally:
    """A constant in a call or constraint. Unlike in Python, 1 and true are not equal."""

    value: Constant

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literally) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


Quantity = Literally | Variable | Arithmetic


@dataclass(frozen=True, slots=True)
class Constraint:
    """A comparison of two quantities. It holds only if both have values, and these are of the same type."""

    left: Quantity
    relation: Relation
    right: Quantity


@dataclass(frozen=True, slots=True)
class Given:
    """An input of a call that is a variable of an item pattern. Only values of the declared type are passed."""

    name: str
    type: ValueType
    span: Span | None = field(default=None, compare=False, repr=False)


Argument = Literally | Attribute | Variable | Given


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator about the item.

    `version` is that of the registration to which the call is bound, or 0 if it is not bound. `results` are the
    indexes of the arguments that are results: variables or constants. All other arguments are inputs: constants,
    attributes, or variables that an item pattern in the same conjunction binds.
    """

    operator: str
    arguments: tuple[Argument, ...] = ()
    version: int = 0
    results: tuple[int, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments that are passed to the operator."""
        return tuple(argument for index, argument in enumerate(self.arguments) if index not in self.results)

    @property
    def pattern(self) -> tuple[Argument, ...]:
        """The arguments that the rows of the operator's answer must match."""
        return tuple(self.arguments[index] for index in self.results)

    @property
    def question(self) -> Call:
        """The call with unnamed variables as results. Calls with the same question get the same rows."""
        unnamed = Variable("")
        arguments = tuple(
            unnamed if index in self.results else argument for index, argument in enumerate(self.arguments)
        )
        return Call(self.operator, arguments, self.version, self.results)

    @property
    def given(self) -> tuple[Given, ...]:
        """The inputs that an item pattern in the same conjunction binds."""
        return tuple(argument for argument in self.arguments if isinstance(argument, Given))


def variables_of(part: Call | Constraint | Quantity) -> Iterator[Variable]:
    """Yield the variables of a call's results, a constraint or a quantity from left to right, with repetitions."""
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
