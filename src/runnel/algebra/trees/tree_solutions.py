"""The reference semantics of tree patterns: slow, short, and the definition.

An assignment maps every step that is not below `or` or `not` to a node, so that axes, names and conditions hold. A
pattern holds if an assignment exists. A solution is what an assignment binds: for every variable the JSON text of its
value. Finding all of them may take exponential time, so the number of attempts is limited.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from runnel.algebra.nodes.item_patterns import Solution
from runnel.algebra.trees.compare_values import satisfies_test
from runnel.algebra.trees.steps import (
    AllOf,
    AnyOf,
    Complement,
    Mark,
    NameTest,
    Step,
    TreeCondition,
    ValueTest,
    marks_of,
)
from runnel.errors import TooExpensiveError
from runnel.model.item import Value
from runnel.model.trees.tree_nodes import TreeNodes

MAX_ATTEMPTS = 200_000
"""Maximum number of nodes to try for the steps of one pattern on one tree. Long texts count as several nodes."""

_CHARACTERS = 64
"""The number of characters of a compared or bound text that count as one attempt."""

DOCUMENT = -1
"""The parent of the root, where patterns begin."""


def solve(condition: TreeCondition, nodes: TreeNodes) -> Iterator[Solution]:
    """Yield the distinct solutions of a pattern on a tree. Raise TooExpensiveError after too many attempts.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.model.trees.document_tree import DocumentTree
    >>> from runnel.model.trees.tree_nodes import nodes_of
    >>> nodes = nodes_of(DocumentTree.read("<news><tag>ski</tag><tag>7</tag></news>"))
    >>> list(solve(Step("//", NameTest("tag"), (Mark("val", Variable("x")),)), nodes))
    [{'x': '"ski"'}, {'x': '7.0'}]
    """
    seen: set[tuple[tuple[str, str], ...]] = set()
    for solution in TreeSearch(nodes).assignments(condition, DOCUMENT, {}):
        key = tuple(solution.items())
        if key not in seen:
            seen.add(key)
            yield solution


class TreeSearch:
    """The search of one pattern on one tree."""

    def __init__(self, nodes: TreeNodes, attempts: int = MAX_ATTEMPTS) -> None:
        self._nodes = nodes
        self._attempts_left = attempts

    def assignments(self, condition: TreeCondition, node: int, bound: Solution) -> Iterator[Solution]:
        """Yield the bindings that extend `bound` so that a condition holds for a node."""
        match condition:
            case Step() if next(marks_of(condition), None) is not None:
                for candidate in self._candidates(condition, node):
                    extended = self._bind(condition.marks, candidate, bound)
                    if extended is not None:
                        yield from self._continue(condition, candidate, extended)
            case AllOf(parts):
                yield from self._all(parts, node, bound)
            case _:
                if self._holds(condition, node):
                    yield bound

    def _continue(self, step: Step, node: int, bound: Solution) -> Iterator[Solution]:
        if step.condition is None:
            yield bound
        else:
            yield from self.assignments(step.condition, node, bound)

    def _all(self, parts: tuple[TreeCondition, ...], node: int, bound: Solution) -> Iterator[Solution]:
        if not parts:
            yield bound
            return
        for extended in self.assignments(parts[0], node, bound):
            yield from self._all(parts[1:], node, extended)

    def _holds(self, condition: TreeCondition, node: int) -> bool:
        """Return whether a condition without marks holds for a node."""
        match condition:
            case Step():
                inner = condition.condition
                candidates = self._candidates(condition, node)
                return any(inner is None or self._holds(inner, candidate) for candidate in candidates)
            case ValueTest():
                self._spend(self._nodes.length(node) // _CHARACTERS)
                return satisfies_test(condition, self._nodes, node)
            case AllOf(parts):
                return all(self._holds(part, node) for part in parts)
            case AnyOf(parts):
                return any(self._holds(part, node) for part in parts)
            case Complement(part):
                return not self._holds(part, node)

    def _candidates(self, step: Step, node: int) -> Iterator[int]:
        nodes = self._nodes
        reached: Iterable[int] = nodes.children(node) if step.axis == "/" else nodes.descendants(node)
        for candidate in reached:
            self._spend(1)
            if has_name(step.test, nodes, candidate):
                yield candidate

    def _spend(self, attempts: int) -> None:
        self._attempts_left -= attempts
        if self._attempts_left < 0:
            raise TooExpensiveError(
                "the tree pattern has too many possible matches in the item's tree",
                hint="replace // by /, or write names instead of *",
            )

    def _bind(self, marks: tuple[Mark, ...], node: int, bound: Solution) -> Solution | None:
        """Return `bound` with the marks of a node, or None if a variable already has another value."""
        extended = dict(bound)
        for mark in marks:
            value = bound_value(mark, self._nodes, node)
            self._spend(len(value) // _CHARACTERS)
            if extended.setdefault(mark.variable.name, value) != value:
                return None
        return extended


def has_name(test: NameTest, nodes: TreeNodes, node: int) -> bool:
    """Return whether a node passes a test of its name."""
    return (
        nodes.attributes[node] == test.is_attribute
        and test.name in (None, nodes.names[node])
        and test.namespace in (None, nodes.namespaces[node])
    )


def bound_value(mark: Mark, nodes: TreeNodes, node: int) -> str:
    """Return the value that a mark binds, as JSON. A `val` is a number if the node is one."""
    match mark.form:
        case "val":
            number = nodes.number(node)
            return json.dumps(nodes.text(node) if number is None else number)
        case "cont":
            return json.dumps(nodes.content(node))
        case "id":
            return json.dumps(nodes.path(node))


def plain_value(text: str) -> Value:
    """Return the plain value of a variable in a solution.

    >>> plain_value('"ski"'), plain_value("7.0")
    ('ski', 7.0)
    """
    value: Value = json.loads(text)
    return value.replace("\0", "") if isinstance(value, str) else value
