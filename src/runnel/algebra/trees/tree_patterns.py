"""Tree patterns: steps to the elements and attributes of an XML or JSON document, as an item pattern.

`tree //news[//company = 'ACME'][/author!val]//headline!cont` holds for an item if one of its trees has such nodes.
`tree_solutions.solve` defines the meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, cast

from runnel.algebra.nodes.attributes import Ago, Attribute
from runnel.algebra.nodes.calls import Constraint, Literally, Variable
from runnel.algebra.nodes.calls import Relation as ConstraintRelation
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternPart, PatternSearch, Solution, is_local
from runnel.algebra.trees.steps import (
    MAX_STEPS,
    MAX_VARIABLES,
    AllOf,
    AnyOf,
    Complement,
    Mark,
    Relation,
    Step,
    TreeCondition,
    ValueTest,
    all_of,
    conjuncts_of,
    marks_of,
    replace_steps,
    steps_of,
)
from runnel.algebra.trees.trace_trees import trace_conjuncts
from runnel.algebra.trees.tree_encoding import decode_condition, encode_condition
from runnel.algebra.trees.tree_solutions import plain_value, solve
from runnel.algebra.trees.tree_text import render_pattern
from runnel.errors import InvalidConditionError, Span
from runnel.model.item import Value
from runnel.model.trees.document_tree import TREE, DocumentTree
from runnel.model.trees.tree_nodes import nodes_of

OWN_TREE = Attribute(TREE)

_MIRRORED: dict[ConstraintRelation, ConstraintRelation] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


@dataclass(frozen=True, slots=True)
class TreePattern(ItemPattern):
    """A tree pattern, as written or canonical. Its condition is that of the document, the parent of the root.

    >>> from runnel.algebra.trees.steps import NameTest
    >>> TreePattern(Step("//", NameTest("news"), (Mark("cont", Variable("news")),))).render()
    'tree //news!cont'
    """

    condition: TreeCondition
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    family: ClassVar[str] = "tree"
    constraint_hint: ClassVar[str] = (
        "a variable of a tree pattern can be compared with constants if it is marked with !val;"
        " pass several variables to an operator"
    )

    @property
    def attribute(self) -> Attribute:
        """The attribute `tree`."""
        return OWN_TREE

    @property
    def size(self) -> int:
        """The number of steps."""
        return sum(1 for _ in steps_of(self.condition))

    def variables(self) -> list[str]:
        """Return the names of the variables in the order of the steps, without repetitions."""
        return list(dict.fromkeys(mark.variable.name for mark in marks_of(self.condition)))

    def canonical(self) -> TreePattern:
        """Return the pattern with sorted conditions and numbered variables.

        Most patterns that differ only in names become equal.
        """
        return self if self.names else _canonical(self)

    def renamed(self, names: Mapping[str, str]) -> TreePattern:
        """Return the pattern with its variables renamed."""
        return TreePattern(_rename(self.condition, names), span=self.span)

    @classmethod
    def joined(cls, patterns: Sequence[TreePattern]) -> TreePattern:
        """Join patterns into one, which has a match in a tree if all patterns have, with the same variables."""
        if len(patterns) == 1:
            return patterns[0]
        parts = dict.fromkeys(part for pattern in patterns for part in conjuncts_of(pattern.condition))
        pattern = TreePattern(cast(TreeCondition, all_of(tuple(parts))), span=patterns[0].span)
        if pattern.size > MAX_STEPS or len(pattern.variables()) > MAX_VARIABLES:
            raise InvalidConditionError(
                f"tree patterns with shared variables have {pattern.size} steps and {len(pattern.variables())}"
                " variables together",
                span=patterns[0].span,
                hint=f"use at most {MAX_STEPS} steps and {MAX_VARIABLES} variables in total",
            )
        return pattern

    def constrained(self, constraints: Sequence[Constraint]) -> tuple[TreePattern, list[Constraint]]:
        """Add comparisons of variables with constants as tests. Return the new pattern and the other constraints."""
        condition, others = self.condition, list[Constraint]()
        marked = {mark.variable.name for mark in marks_of(condition) if mark.form == "val"}
        for constraint in constraints:
            name, test = _as_test(constraint)
            if test is not None and name in marked:
                condition = _add_test(condition, name, test)
            else:
                others.append(constraint)
        return replace(self, condition=condition), others

    def encode(self) -> list[Any]:
        """Return the stored form of the condition."""
        return [encode_condition(self.condition)]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> TreePattern:
        """Return the pattern of values that `encode` returned."""
        return TreePattern(decode_condition(values[0]))

    def render(self) -> str:
        """Return the text of the pattern with full namespaces and the original names of its variables."""
        return render_pattern(self.as_written().condition)

    def holds(self, value: Value) -> bool:
        """Return whether a tree satisfies the pattern."""
        return next(self.solutions(value), None) is not None

    def solutions(self, value: Value) -> Iterator[Solution]:
        """Yield the distinct values of the variables for the occurrences of the pattern in a tree."""
        return solve(self.condition, nodes_of(value)) if isinstance(value, DocumentTree) else iter(())

    def binding(self, solution: Solution) -> dict[str, Value]:
        """Return a solution as plain values."""
        return {name: plain_value(text) for name, text in solution.items() if not is_local(name)}

    def trace(self, search: PatternSearch, bound: Sequence[Mapping[str, Value]]) -> list[PatternPart]:
        """Return the parts of the pattern, each with the text of a node that satisfies it or comes close."""
        return trace_conjuncts(self.condition, search, TreePattern)


def _rename(condition: TreeCondition, names: Mapping[str, str]) -> TreeCondition:
    def rename_marks(step: Step) -> Step:
        if not step.marks:
            return step
        marks = tuple(Mark(mark.form, Variable(names[mark.variable.name])) for mark in step.marks)
        return replace(step, marks=marks)

    return replace_steps(condition, rename_marks)


@lru_cache(maxsize=1 << 10)
def _canonical(pattern: TreePattern) -> TreePattern:
    """Return the canonical form of a pattern. Most patterns are requested twice, so the results are cached."""
    condition = _normalize(pattern.condition)
    names = tuple(dict.fromkeys(mark.variable.name for mark in marks_of(condition)))
    numbers = {name: str(number) for number, name in enumerate(names, 1)}
    return TreePattern(_rename(condition, numbers), names)


def _normalize(condition: TreeCondition) -> TreeCondition:
    """Return an equivalent condition: flattened, without repetitions, with sorted parts."""
    match condition:
        case Step(condition=inner) if inner is not None:
            return replace(condition, condition=_normalize(inner))
        case AllOf(parts) | AnyOf(parts):
            kind = type(condition)
            flat: dict[TreeCondition, None] = {}
            for part in map(_normalize, parts):
                flat.update(dict.fromkeys(part.parts if isinstance(part, kind) else (part,)))
            return next(iter(flat)) if len(flat) == 1 else kind(tuple(sorted(flat, key=_sort_key)))
        case Complement(Complement(part)):
            return _normalize(part)
        case Complement(part):
            return Complement(_normalize(part))
        case _:
            return condition


def _sort_key(condition: TreeCondition) -> tuple[bool, str]:
    """Return a key that orders conditions by their text without the names of variables, and tests before steps."""
    names = {mark.variable.name: "" for mark in marks_of(condition)}
    return isinstance(condition, Step), json.dumps(encode_condition(_rename(condition, names)))


def _as_test(constraint: Constraint) -> tuple[str, TreeCondition | None]:
    """Return the variable of a constraint and the equivalent condition, or None if it compares no constant."""
    match constraint.left, constraint.right:
        case Variable(name), Literally(value):
            relation = constraint.relation
        case Literally(value), Variable(name):
            relation = _MIRRORED[constraint.relation]
        case _:
            return "", None
    if isinstance(value, Ago) or (isinstance(value, bool) and relation not in ("=", "!=")):
        return name, None
    if relation != "!=":
        return name, ValueTest(cast(Relation, relation), (value,))
    return name, Complement(ValueTest("=", (value,)))


def _add_test(condition: TreeCondition, name: str, test: TreeCondition) -> TreeCondition:
    """Return a condition in which every node that binds a variable with `val` also satisfies a test."""

    def add(step: Step) -> Step:
        if not any(mark.form == "val" and mark.variable.name == name for mark in step.marks):
            return step
        return replace(step, condition=all_of((test, *conjuncts_of(step.condition))))

    return replace_steps(condition, add)
