"""Compilation of tree patterns into steps and programs for the kernel.

A *step* is a label, a namespace and a program that tests nodes. Equal steps of all patterns are one step, without
their marks. A program is a sequence of operations in postfix notation; `Op.FILTER` keeps the nodes for which the
value on the stack is true. The kernel does not evaluate all comparisons: others are taken as true, or as false under
`not`, so that it finds at least the patterns that hold. Patterns with such comparisons are *approximate*.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from runnel.algebra.nodes.attributes import Constant
from runnel.algebra.trees.steps import (
    AllOf,
    AnyOf,
    Complement,
    NameTest,
    Step,
    TreeCondition,
    ValueTest,
    conjuncts_of,
    marks_of,
)
from runnel.algebra.trees.tree_patterns import TreePattern

ANY_ELEMENT, ANY_ATTRIBUTE = -1, -2
"""Labels of steps that are `*` and `@*`."""

ANY_NAMESPACE = -1


class Op(IntEnum):
    """An operation. Its argument is a step, a text, a number, or 0 or 1."""

    CHILD = 0
    BELOW = 1
    TEXT = 2
    EQUAL = 3
    LESS = 4
    AT_MOST = 5
    GREATER = 6
    AT_LEAST = 7
    CONSTANT = 8
    AND = 9
    OR = 10
    NOT = 11
    FILTER = 12


_RELATIONS = {"=": Op.EQUAL, "<": Op.LESS, "<=": Op.AT_MOST, ">": Op.GREATER, ">=": Op.AT_LEAST}

Program = tuple[int, ...]
"""Operations and their arguments in turn."""


@dataclass(frozen=True, slots=True)
class StepCode:
    """A step for the kernel: the numbers of its label and namespace, and its program."""

    label: int
    namespace: int
    program: Program


@dataclass(frozen=True, slots=True)
class PatternCode:
    """A pattern for the kernel.

    `steps` are all its steps, the inner ones first, and whether each must have a node. `program` is evaluated on the
    document. `features` are the features that every matching tree has.
    """

    steps: tuple[tuple[int, bool], ...]
    program: Program
    features: tuple[Feature, ...]
    is_approximate: bool


@dataclass(frozen=True, slots=True)
class Feature:
    """A property of a tree: a label, a label below a parent's label, or a label with a text."""

    label: int
    parent: int = -1
    text: int = -1


def label_of(name: str, *, is_attribute: bool) -> str:
    """Return the label of a name: elements and attributes have different ones.

    >>> label_of("url", is_attribute=True), label_of("news", is_attribute=False)
    ('@url', '/news')
    """
    return f"{'@' if is_attribute else '/'}{name}"


@dataclass
class Compiler:
    """Compiles patterns. Labels, namespaces, texts, numbers and steps are numbered in the order of their use."""

    labels: dict[str, int] = field(default_factory=dict)
    namespaces: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    numbers: dict[float, int] = field(default_factory=dict)
    steps: dict[StepCode, int] = field(default_factory=dict)

    def compile(self, pattern: TreePattern) -> PatternCode:
        """Compile a pattern."""
        counts = Counter(mark.variable.name for mark in marks_of(pattern.condition))
        code = _PatternCompiler(self)
        program = code.program(pattern.condition, is_positive=True, is_required=True, parent=-1)
        is_joined = any(count > 1 for count in counts.values())
        return PatternCode(
            tuple(sorted(code.used.items())), program, tuple(code.features), code.is_approximate or is_joined
        )


class _PatternCompiler:
    """Compiles one pattern."""

    def __init__(self, shared: Compiler) -> None:
        self._shared = shared
        self.used: dict[int, bool] = {}
        self.features: dict[Feature, None] = {}
        self.is_approximate = False

    def program(self, condition: TreeCondition, *, is_positive: bool, is_required: bool, parent: int) -> Program:
        """Return the program of a condition on a node whose label is `parent`, or -1 if any.

        `is_required` if the pattern holds only where the condition does.
        """
        match condition:
            case Step():
                operation = Op.CHILD if condition.axis == "/" else Op.BELOW
                return (operation, self._step(condition, is_positive, is_required, parent))
            case ValueTest():
                return self._test(condition, is_positive)
            case AllOf(parts) | AnyOf(parts):
                is_every = isinstance(condition, AllOf)
                joint: Program = ()
                for position, part in enumerate(parts):
                    joint += self.program(
                        part, is_positive=is_positive, is_required=is_required and is_every, parent=parent
                    )
                    if position:
                        joint += (Op.AND if is_every else Op.OR, 0)
                return joint
            case Complement(part):
                inner = self.program(part, is_positive=not is_positive, is_required=False, parent=parent)
                return (*inner, Op.NOT, 0)

    def _step(self, step: Step, is_positive: bool, is_required: bool, parent: int) -> int:
        label = self._label(step.test)
        if is_required and label >= 0:
            self.features[Feature(label)] = None
            if step.axis == "/" and parent >= 0:
                self.features[Feature(label, parent)] = None
        program: Program = ()
        for part in conjuncts_of(step.condition):
            program += self.program(part, is_positive=is_positive, is_required=is_required, parent=label)
            program += (Op.FILTER, 0)
            if is_required and label >= 0 and isinstance(part, ValueTest):
                self._require_text(label, part)
        code = StepCode(label, self._namespace(step.test), program)
        number = self._shared.steps.setdefault(code, len(self._shared.steps))
        self.used[number] = self.used.get(number, False) or is_required
        return number

    def _label(self, test: NameTest) -> int:
        if test.name is None:
            return ANY_ATTRIBUTE if test.is_attribute else ANY_ELEMENT
        label = label_of(test.name, is_attribute=test.is_attribute)
        return self._shared.labels.setdefault(label, len(self._shared.labels))

    def _namespace(self, test: NameTest) -> int:
        if test.namespace is None:
            return ANY_NAMESPACE
        return self._shared.namespaces.setdefault(test.namespace, len(self._shared.namespaces))

    def _require_text(self, label: int, test: ValueTest) -> None:
        value = test.constants[0]
        if test.relation == "=" and isinstance(value, str):
            self.features[Feature(label, text=self._shared.texts[value])] = None

    def _test(self, test: ValueTest, is_positive: bool) -> Program:
        """Return the program of a test, or a constant if the kernel cannot evaluate it."""
        match test.relation:
            case "in":
                programs = [self._compare("=", constant) for constant in test.constants]
                operation = Op.OR
            case "between":
                low, high = test.constants
                programs = [self._compare(">=", low), self._compare("<=", high)]
                operation = Op.AND
            case relation:
                programs = [self._compare(relation, test.constants[0])]
                operation = Op.AND
        joint: Program = ()
        for position, program in enumerate(programs):
            if program is None:
                self.is_approximate = True
                return (Op.CONSTANT, int(is_positive))
            joint += (*program, operation, 0) if position else program
        return joint

    def _compare(self, relation: str, constant: Constant) -> Program | None:
        if isinstance(constant, bool | str) and relation == "=":
            text = str(constant).lower() if isinstance(constant, bool) else constant
            return (Op.TEXT, self._shared.texts.setdefault(text, len(self._shared.texts)))
        if isinstance(constant, float) and relation in _RELATIONS:
            return (_RELATIONS[relation], self._shared.numbers.setdefault(constant, len(self._shared.numbers)))
        return None
