"""Highlights of `why`: independent checks that each highlighted range satisfies its condition."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_atoms import text_atoms
from tests.unit.optimizer.generated_worlds import GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import (
    Atom,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    ContainsStems,
    Exists,
    Expression,
    Extends,
    In,
    InNetwork,
    References,
    RegularExpression,
    Shares,
    Similar,
)
from runnel.algebra.nodes.query import Filter, Node, Union
from runnel.algebra.nodes.render import render
from runnel.algebra.semantics.close_conditions import leaves
from runnel.algebra.semantics.evaluate import holds, satisfies
from runnel.algebra.semantics.highlights import highlights
from runnel.algebra.semantics.trace import trace_expression
from runnel.algebra.values.links import leads_to, lies_below, links_in
from runnel.algebra.values.regular_expressions import occurs_in
from runnel.algebra.values.stems import stem_words, stems_of
from runnel.algebra.values.words import words

X = Attribute("x")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
_ANCHORS = re.compile(r"[\^$]|\\[bBAzZ]")
"""Elements of regular expressions that depend on characters outside the match."""


def is_claimed(atom: Atom, marked: str, whole: str) -> bool:
    """Return whether highlighted characters satisfy an atom by themselves."""
    link = links_in(marked.replace("&amp;", "&").strip())
    match atom:
        case Contains(_, phrase):
            return tuple(words(marked)) == phrase
        case ContainsPattern(_, patterns):
            return len(words(marked)) == len(patterns) and satisfies(atom, marked)
        case ContainsStems(_, language, phrase):
            return tuple(stem_words(language, words(marked))) == tuple(stems_of(language, phrase))
        case Similar(_, phrase, _):
            return len(words(marked)) == 1 and words(marked)[0] in phrase
        case RegularExpression(_, pattern):
            return bool(_ANCHORS.search(pattern)) or occurs_in(pattern, marked)
        case References(_, target):
            return len(link) == 1 and leads_to(link[0], target)
        case Extends(_, prefix):
            return len(link) == 1 and lies_below(link[0], prefix)
        case Shares(_, shared):
            return len(link) == 1 and link[0].url in shared
        case InNetwork():
            return satisfies(atom, marked)
        case Compare() | Between() | In():
            return marked == whole
        case Exists():
            return False
    raise AssertionError(f"a kind of condition without a claim: {atom}")


_LINKED = st.lists(
    st.sampled_from(
        [
            "http://a.example/1",
            "<a href='https://b.example/?x=1&amp;y=2'>",
            "10.0.0.1",
            "(http://ä.example)",
            ".",
            " ",
        ]
    ),
    max_size=5,
).map("".join)
_FIRMLY = (
    References(X, "a.example"),
    References(X, "https://b.example/?x=1&y=2"),
    Extends(X, "https://b.example/"),
    Shares(X, ("http://a.example/1", "http://xn--4ca.example/")),
    InNetwork(X, ("10.0.0.0/8",)),
    Compare(X, "=", " "),
    Compare(X, "<", "b"),
    Between(X, " ", "http://z"),
    In(X, (" ", "10.0.0.1")),
    Exists(X),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    text_atoms(st.just(X)) | st.sampled_from(_FIRMLY),
    st.text(max_size=30) | st.text(st.sampled_from("aAbßéİ\u0301 \u00ad*'’東Σ"), max_size=20) | _LINKED,
)
@example(Similar(X, ("\u0300", "\u1000"), Fraction(1, 9)), "\u1000\u0300")  # a letter that is a word, with a mark
def test_every_highlight_satisfies_the_condition(atom: Atom, text: str) -> None:
    results = highlights(atom, text)
    for (_, before), (after, _) in pairwise(results):
        assert before <= after, "places do not overlap"
    for start, end in results:
        assert 0 <= start < end <= len(text)
        assert is_claimed(atom, text[start:end], text), (atom, text, text[start:end])
    if results:
        assert satisfies(atom, text)


def conditions(node: Node) -> list[Expression]:
    results, stack = [], [node]
    while stack:
        match stack.pop():
            case Union(inputs):
                stack.extend(inputs)
            case Filter(inner, condition):
                results.append(condition)
                stack.append(inner)
            case _:
                pass
    return results


@settings(max_examples=150, deadline=None, derandomize=True)
@given(worlds())
def test_highlights_belong_to_the_item_and_to_conditions_that_hold(world: GeneratedWorld) -> None:
    for condition in (value for node in world.definitions.values() for value in conditions(node)):
        labels = {render(atom): atom for atom in leaves(condition) if isinstance(atom, Atom)}
        for attributes in world.batch.attributes():
            trace = trace_expression(condition, attributes, NOW)
            assert trace.holds == holds(condition, attributes, NOW)
            assert len(trace.lines()) >= 1
            for highlight in trace.highlights():
                atom = labels[highlight["condition"]]
                assert highlight["text"] in attributes[highlight["attribute"]]
                assert atom.attribute.name in (highlight["attribute"], "*")
                assert satisfies(atom, highlight["text"], NOW)
                assert all(
                    is_claimed(atom, highlight["text"][first:last], highlight["text"])
                    for first, last in highlight["places"]
                )
            missed = {label for label, atom in labels.items() if not holds(atom, attributes, NOW)}
            assert not missed & {highlight["condition"] for highlight in trace.highlights()}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rock " + "x" * 9_000, ["rock"]),
        ("x" * 9_000 + " rock and rock", ["rock", "rock"]),
        ("rock" + " y" * 5_000 + " rock", ["rock"]),
        ("x" * 4_090 + " rock", ["rock"]),
    ],
)
def test_highlights_of_a_long_text_refer_to_its_extract(text: str, shown: list[str]) -> None:
    (highlight,) = trace_expression(Contains(X, ("rock",)), {"x": (text,)}).highlights()
    assert [highlight["text"][first:last] for first, last in highlight["places"]] == shown
    assert len(highlight["text"]) <= 4_096
    (whole,) = trace_expression(Compare(X, "=", text), {"x": (text,)}).highlights()
    assert whole["places"] == [(0, min(len(text), 4_096))]
