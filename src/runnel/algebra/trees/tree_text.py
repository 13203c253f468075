"""The text of tree patterns, which parses to the same pattern."""

from __future__ import annotations

import re
from collections import Counter

from runnel.algebra.nodes.render import render_constant
from runnel.algebra.trees.steps import (
    AllOf,
    AnyOf,
    Complement,
    Mark,
    NameTest,
    PendingNamespace,
    Step,
    TreeCondition,
    ValueTest,
    conjuncts_of,
    marks_of,
)

_BARE_NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def render_pattern(condition: TreeCondition) -> str:
    """Return the text of a pattern.

    >>> author = Step("/", NameTest("author"), condition=ValueTest("=", ("Ann",)))
    >>> url = Step("//", NameTest("url", is_attribute=True))
    >>> render_pattern(Step("//", NameTest("news"), condition=AllOf((author, url))))
    "tree //news[/author = 'Ann']//@url"
    """
    counts = Counter(mark.variable.name for mark in marks_of(condition))
    text = _PatternText({name for name, count in counts.items() if count > 1}).path(conjuncts_of(condition))
    return f"tree {text}"


def render_condition(condition: TreeCondition) -> str:
    """Return the text of a condition as it is written in brackets.

    >>> render_condition(Step("//", NameTest("tag"), condition=ValueTest("=", ("ski",))))
    "//tag = 'ski'"
    """
    return _PatternText(set()).condition(condition)


class _PatternText:
    """Writes a pattern. Variables that occur several times are always written with `as`."""

    def __init__(self, repeated: set[str]) -> None:
        self._repeated = repeated

    def path(self, conjuncts: tuple[TreeCondition, ...]) -> str:
        """Return the conditions of a node after its step: brackets, and its last step as the rest of the path."""
        if conjuncts and isinstance(conjuncts[-1], Step):
            brackets, rest = conjuncts[:-1], self._step(conjuncts[-1])
        else:
            brackets, rest = conjuncts, ""
        return "".join(f"[{self.condition(part)}]" for part in brackets) + rest

    def _step(self, step: Step) -> str:
        name = render_name_test(step.test)
        marks = "".join(self._mark(mark, step.test) for mark in step.marks)
        return f"{step.axis}{name}{marks}{self.path(conjuncts_of(step.condition))}"

    def _mark(self, mark: Mark, test: NameTest) -> str:
        name = mark.variable.name
        is_implied = name == test.name and _WORD.fullmatch(name) and name not in self._repeated
        return f"!{mark.form}" if is_implied else f"!{mark.form} as ?{name}"

    def condition(self, condition: TreeCondition, inside: str = "") -> str:
        """Return a condition in brackets. Parentheses depend on the operation that it is inside."""
        match condition:
            case Step():
                return self._branch(condition)
            case ValueTest():
                return f". {render_test(condition)}"
            case Complement(part):
                return f"not {self.condition(part, 'not')}"
            case AllOf(parts):
                text = " and ".join(self.condition(part, "and") for part in parts)
            case AnyOf(parts):
                text = " or ".join(self.condition(part, "or") for part in parts)
        # `and` binds more tightly than `or`, so a conjunction inside a disjunction needs no parentheses.
        needs_parentheses = inside and not (isinstance(condition, AllOf) and inside == "or")
        return f"({text})" if needs_parentheses else text

    def _branch(self, step: Step) -> str:
        """Return a path inside brackets. The comparison of its last step is written after it."""
        match step.condition:
            case Step() as next_step:
                return self._step(Step(step.axis, step.test, step.marks)) + self._branch(next_step)
            case ValueTest() as test:
                return f"{self._step(Step(step.axis, step.test, step.marks))} {render_test(test)}"
            case _:
                return self._step(step)


def render_name_test(test: NameTest) -> str:
    """Return the text of a name test. A namespace is written in braces before the name, all in double quotes.

    >>> render_name_test(NameTest("title")), render_name_test(NameTest("title", "urn:x", True))
    ('title', '@"{urn:x}title"')
    """
    prefix = "@" if test.is_attribute else ""
    if test.name is None:
        return f"{prefix}*"
    if isinstance(test.namespace, PendingNamespace):
        return f"{prefix}{test.namespace}:{test.name}"
    if test.namespace is None and _BARE_NAME.fullmatch(test.name):
        return prefix + test.name
    braces = "" if test.namespace is None and not test.name.startswith("{") else f"{{{test.namespace or ''}}}"
    return f'{prefix}"{_escape(braces + test.name)}"'


def _escape(text: str) -> str:
    return text.replace('"', '""')


def render_test(test: ValueTest) -> str:
    """Return the text of a comparison after its node.

    >>> render_test(ValueTest("in", ("ski", 3.0)))
    "in ('ski', 3)"
    """
    match test.relation:
        case "between":
            low, high = map(render_constant, test.constants)
            return f"between {low} and {high}"
        case "in":
            return f"in ({', '.join(map(render_constant, test.constants))})"
        case relation:
            return f"{relation} {render_constant(test.constants[0])}"
