"""Generated XML documents and tree patterns, and the XPath of a pattern as an independent oracle."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from runnel.algebra.nodes.calls import Variable
from runnel.algebra.trees.steps import (
    AllOf,
    AnyOf,
    Axis,
    Complement,
    Mark,
    NameTest,
    Step,
    TreeCondition,
    ValueTest,
    all_of,
    conjuncts_of,
)
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.model.trees.document_tree import DocumentTree

NAMES = ("a", "b", "c")
NAMESPACE = "urn:x"
VALUES = ("", "x", "3", "4.0", "x y")

_axes: st.SearchStrategy[Axis] = st.sampled_from(("/", "//"))
_elements = st.one_of(
    st.builds(NameTest, st.sampled_from(NAMES), st.sampled_from((None, None, None, "", NAMESPACE))),
    st.just(NameTest()),
)
_attributes = st.builds(NameTest, st.sampled_from(("k", "l", None)), st.none(), st.just(True))


@st.composite
def documents(draw: st.DrawFn, depth: int = 0) -> str:
    """An XML document with few names and values, so that patterns often hold."""
    name = draw(st.sampled_from(NAMES))
    prefix = draw(st.sampled_from(("", "", "x:")))
    attributes = draw(st.dictionaries(st.sampled_from(("k", "l", "x:k")), st.sampled_from(VALUES), max_size=2))
    written = "".join(f' {key}="{value}"' for key, value in attributes.items())
    children = [] if depth > 3 else draw(st.lists(documents(depth + 1), max_size=3 if depth < 2 else 1))
    declared = f' xmlns:x="{NAMESPACE}"' if depth == 0 else ""
    inside = "\n".join([draw(st.sampled_from(VALUES)), *children])
    return f"<{prefix}{name}{declared}{written}>{inside}</{prefix}{name}>"


trees = documents().map(DocumentTree.read)

_json: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from((None, True, 3, 4.5, "3", "x")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=12,
)
json_trees = _json.filter(lambda value: isinstance(value, dict | list)).map(json.dumps).map(DocumentTree.read)

equalities = st.one_of(
    st.builds(lambda value: ValueTest("=", (value,)), st.sampled_from(("x", "3", "x y", 3.0, 4.0))),
    st.builds(lambda low: ValueTest("in", (low, "x")), st.sampled_from(("3", 4.0))),
)
tests = st.one_of(
    equalities,
    st.builds(lambda relation: ValueTest(relation, (3.5,)), st.sampled_from(("<", "<=", ">", ">="))),
    st.just(ValueTest("between", (3.0, 4.0))),
    st.sampled_from([ValueTest("contains", ("y",)), ValueTest("matches", ("^x",)), ValueTest(">=", ("x",))]),
    st.just(ValueTest("=", (True,))),
)


def _marks(draw: st.DrawFn, test: NameTest, numbers: list[int], is_marked: bool) -> tuple[Mark, ...]:
    if not is_marked or not draw(st.booleans()):
        return ()
    form: Any = draw(st.sampled_from(("val", "id") if test.is_attribute else ("val", "cont", "id")))
    is_shared = draw(st.integers(0, 5)) == 0
    if not is_shared:
        numbers.append(len(numbers))
    return (Mark(form, Variable(f"v{len(numbers)}")),)


@st.composite
def steps(
    draw: st.DrawFn,
    values: st.SearchStrategy[ValueTest],
    numbers: list[int],
    depth: int,
    is_marked: bool,
    at_root: bool,
) -> Step:
    """A step with conditions below it."""
    axis = draw(_axes)
    is_attribute = not (at_root and axis == "/") and draw(st.integers(0, 4)) == 0
    test = draw(_attributes if is_attribute else _elements)
    marks = _marks(draw, test, numbers, is_marked)
    parts = draw(st.integers(0, 2)) if depth < 3 else 0
    conditions = [draw(_conditions(values, numbers, depth + 1, is_marked, is_attribute)) for _ in range(parts)]
    return Step(axis, test, marks, all_of(tuple(conditions)))


@st.composite
def _conditions(
    draw: st.DrawFn,
    values: st.SearchStrategy[ValueTest],
    numbers: list[int],
    depth: int,
    is_marked: bool,
    is_attribute: bool,
) -> TreeCondition:
    choice = draw(st.integers(0, 9))
    if choice < 3 or is_attribute:
        return draw(values)
    if choice < 7:
        return draw(steps(values, numbers, depth, is_marked, False))
    if choice == 7:
        return Complement(draw(_conditions(values, numbers, depth, False, is_attribute)))
    both = [draw(_conditions(values, numbers, depth, False, is_attribute)) for _ in range(2)]
    flat = tuple(part for each in both for part in (each.parts if isinstance(each, AnyOf) else (each,)))
    return AnyOf(flat) if choice == 8 else all_of(tuple(both)) or AllOf(())


@st.composite
def patterns(
    draw: st.DrawFn, values: st.SearchStrategy[ValueTest] = tests, is_marked: bool = True, is_path: bool = False
) -> TreePattern:
    """A tree pattern. A path has exactly one step below the document."""
    numbers: list[int] = []
    parts = [draw(steps(values, numbers, 0, is_marked, True))]
    if not is_path and draw(st.integers(0, 3)) == 0:
        other = draw(steps(values, numbers, 1, False, True))
        parts.insert(0, other)
    condition = all_of(tuple(parts))
    assert condition is not None
    return TreePattern(condition)


def xpath(condition: TreeCondition) -> str:
    """The XPath 1.0 predicate of a condition with equalities of texts and numbers only."""
    match condition:
        case Step(axis, test, _, _):
            path = "/" if axis == "/" else "/descendant-or-self::" if test.is_attribute else "/descendant::"
            return f".{path}{_xpath_test(test, axis)}{_predicates(condition)}"
        case ValueTest("=", (value,)):
            return _equal(value)
        case ValueTest("in", values):
            return "(" + " or ".join(map(_equal, values)) + ")"
        case AllOf(parts):
            return "(" + " and ".join(f"boolean({xpath(part)})" for part in parts) + ")"
        case AnyOf(parts):
            return "(" + " or ".join(f"boolean({xpath(part)})" for part in parts) + ")"
        case Complement(part):
            return f"not({xpath(part)})"
    raise AssertionError(condition)


def _xpath_test(test: NameTest, axis: str) -> str:
    if test.is_attribute:
        name = "*" if test.name is None else f"*[local-name()='{test.name}']"
        # As in XPath's `.//@name`, the attributes of the node itself are included.
        return f"@{name}" if axis == "/" else f"*/@{name}"
    predicates = "" if test.name is None else f"[local-name()='{test.name}']"
    return f"*{predicates}" + ("" if test.namespace is None else f"[namespace-uri()='{test.namespace}']")


def _predicates(step: Step) -> str:
    return "".join(f"[{xpath(part)}]" for part in conjuncts_of(step.condition))


def _equal(value: object) -> str:
    if isinstance(value, str):
        return f"normalize-space(.)='{value}'"
    return f"(number(normalize-space(.))={value} and string-length(normalize-space(.))>0)"
