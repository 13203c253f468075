"""Explanation why a tree pattern holds for an item or not: its conditions, each with the text of a node.

In: a pattern and a search over the item's trees. Out: one part per bracket and one for every step of the path. A
comparison that does not hold is shown with the text of a node that has the right name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternPart, PatternSearch
from runnel.algebra.trees.steps import (
    Mark,
    Step,
    TreeCondition,
    ValueTest,
    conjuncts_of,
    replace_steps,
)
from runnel.algebra.trees.tree_solutions import plain_value
from runnel.algebra.trees.tree_text import render_condition

_MAX_LENGTH = 80
_SHOWN = "shown"

Make = Callable[[TreeCondition], ItemPattern]


def trace_conjuncts(condition: TreeCondition, search: PatternSearch, make: Make) -> list[PatternPart]:
    """Return the parts of a condition. `make` creates a pattern of a condition."""
    parts = [_trace_part(part, search, make) for part in _parts(condition)]
    if len(parts) == 1 or not all(part.holds for part in parts):
        return parts
    holds = search.holds(make(condition))
    if holds:
        return parts
    text = "one node satisfies all conditions" if holds is False else "unknown: the tree has too many nodes to search"
    return [*parts, PatternPart(text, False)]


def _parts(condition: TreeCondition) -> Iterator[TreeCondition]:
    """Yield the conditions to show: each path to a step, followed by each of its brackets on the same path."""
    for conjunct in conjuncts_of(replace_steps(condition, lambda step: replace(step, marks=()))):
        if not isinstance(conjunct, Step):
            yield conjunct
            continue
        yield replace(conjunct, condition=None)
        for part in conjuncts_of(conjunct.condition):
            inner = [part] if not isinstance(part, Step) or _is_comparison(part) else _parts(part)
            for each in inner:
                yield replace(conjunct, condition=each)


def _is_comparison(step: Step) -> bool:
    return isinstance(step.condition, ValueTest)


def _trace_part(condition: TreeCondition, search: PatternSearch, make: Make) -> PatternPart:
    holds = bool(search.holds(make(condition)))
    shown = _mark_last(condition if holds else _without_tests(condition))
    by = "" if shown is None else _text(shown, search, make)
    return PatternPart(render_condition(condition), holds, by)


def _without_tests(condition: TreeCondition) -> TreeCondition:
    """Return a condition without the comparison at its end."""
    match condition:
        case Step(condition=ValueTest()):
            return replace(condition, condition=None)
        case Step(condition=Step() as inner):
            return replace(condition, condition=_without_tests(inner))
        case _:
            return condition


def _mark_last(condition: TreeCondition) -> TreeCondition | None:
    """Return a path with a mark on its last step, or None if the condition is not a path."""
    match condition:
        case Step(condition=Step() as inner):
            marked = _mark_last(inner)
            return None if marked is None else replace(condition, condition=marked)
        case Step(condition=None | ValueTest()):
            return replace(condition, marks=(Mark("val", Variable(_SHOWN)),))
        case _:
            return None


def _text(condition: TreeCondition, search: PatternSearch, make: Make) -> str:
    solution = next(iter(search.solutions(make(condition))), None)
    if solution is None:
        return ""
    text = str(plain_value(solution[_SHOWN]))
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"
