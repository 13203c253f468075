"""The parts of a tree pattern as immutable values: conditions on a node, and steps to nodes below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from runnel.algebra.nodes.attributes import Constant
from runnel.algebra.nodes.calls import Variable
from runnel.errors import Span

Axis = Literal["/", "//"]
Form = Literal["val", "cont", "id"]
FORMS: tuple[Form, ...] = ("val", "cont", "id")
Relation = Literal["=", "<", "<=", ">", ">=", "between", "in", "contains", "matches"]

MAX_STEPS, MAX_VARIABLES = 64, 32
"""Limits on the steps and variables of a pattern after joining it with others."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Binds a variable: to the text of a node (`val`), its canonical text (`cont`) or its position (`id`)."""

    form: Form
    variable: Variable


class PendingNamespace(str):
    """A prefix whose namespace is not looked up yet. Patterns that are stored or evaluated have none."""

    __slots__ = ("span",)

    span: Span

    @staticmethod
    def of(prefix: str, span: Span) -> PendingNamespace:
        """Create the namespace of a prefix."""
        namespace = PendingNamespace(prefix)
        namespace.span = span
        return namespace


@dataclass(frozen=True, slots=True)
class NameTest:
    """A test of the name of a node. None means any name, or any namespace."""

    name: str | None = None
    namespace: str | None = None
    is_attribute: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """There is a child (`/`) or descendant (`//`) with this name that satisfies the condition."""

    axis: Axis
    test: NameTest
    marks: tuple[Mark, ...] = ()
    condition: TreeCondition | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ValueTest:
    """The value of the node satisfies a comparison with constants (see `compare_values`).

    Unlike in Python, 1 and true are not equal.
    """

    relation: Relation
    constants: tuple[Constant, ...]

    def _key(self) -> tuple[object, ...]:
        return (self.relation, self.constants, tuple(map(type, self.constants)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueTest) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold for the node."""

    parts: tuple[TreeCondition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds for the node. No step below has marks."""

    parts: tuple[TreeCondition, ...]


@dataclass(frozen=True, slots=True)
class Complement:
    """The part does not hold for the node. No step below has marks."""

    part: TreeCondition


TreeCondition = Step | ValueTest | AllOf | AnyOf | Complement


def steps_of(condition: TreeCondition | None) -> Iterator[Step]:
    """Yield all steps of a condition from left to right.

    >>> inner = Step("/", NameTest("b"))
    >>> [step.test.name for step in steps_of(Step("//", NameTest("a"), condition=Complement(inner)))]
    ['a', 'b']
    """
    match condition:
        case Step():
            yield condition
            yield from steps_of(condition.condition)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from steps_of(part)
        case Complement(part):
            yield from steps_of(part)
        case _:
            pass


def marks_of(condition: TreeCondition | None) -> Iterator[Mark]:
    """Yield all marks of a condition from left to right."""
    return (mark for step in steps_of(condition) for mark in step.marks)


def conjuncts_of(condition: TreeCondition | None) -> tuple[TreeCondition, ...]:
    """Return the parts of a conjunction."""
    match condition:
        case None:
            return ()
        case AllOf(parts):
            return parts
        case _:
            return (condition,)


def all_of(parts: tuple[TreeCondition, ...]) -> TreeCondition | None:
    """Return the flat conjunction of parts."""
    flat = tuple(conjunct for part in parts for conjunct in conjuncts_of(part))
    return None if not flat else flat[0] if len(flat) == 1 else AllOf(flat)


def replace_steps(condition: TreeCondition, change: Callable[[Step], Step]) -> TreeCondition:
    """Return a condition in which every step is replaced by `change(step)`, from the innermost steps outwards."""
    match condition:
        case Step(condition=inner):
            changed = None if inner is None else replace_steps(inner, change)
            return change(condition if changed == inner else replace(condition, condition=changed))
        case AllOf(parts) | AnyOf(parts):
            return type(condition)(tuple(replace_steps(part, change) for part in parts))
        case Complement(part):
            return Complement(replace_steps(part, change))
        case _:
            return condition
