"""The ranges of characters that satisfy conditions, in the original text."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_atoms import text_atoms

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.expressions import (
    And,
    Atom,
    Compare,
    Contains,
    ContainsPattern,
    ContainsStems,
    Exists,
    Extends,
    In,
    InNetwork,
    Not,
    References,
    RegularExpression,
    Shares,
    Similar,
)
from runnel.algebra.semantics.evaluate import satisfies
from runnel.algebra.semantics.highlights import MAX_HIGHLIGHTS, highlights
from runnel.algebra.semantics.trace import SeenValue, trace_expression
from runnel.algebra.values.words import words

X = Attribute("x")


@pytest.mark.parametrize(
    ("atom", "text", "shown"),
    [
        (Contains(X, ("rock",)), "Rock, rocket, ROCK!", ["Rock", "ROCK"]),
        (Contains(X, ("new", "york")), "in New  York; new-york", ["New  York", "new-york"]),
        (Contains(X, ("strasse",)), "Eine STRASSE, eine Straße.", ["STRASSE", "Straße"]),
        (Contains(X, ("été",)), "L’e\u0301te\u0301 e\u0301t\u00e9", ["e\u0301te\u0301", "e\u0301t\u00e9"]),
        (Contains(X, ("softhyphen",)), "«soft\u00adhyphen»", ["soft\u00adhyphen"]),
        (Contains(X, ("東", "京")), "今日の東京タワー", ["東京"]),
        (Contains(X, ("a", "b")), "a b a b a", ["a b", "a b"]),
        (Contains(X, ("a", "a")), "a a a a a", ["a a", "a a"]),
        (ContainsPattern(X, ("conc*", "h?ll")), "The CONCERT-hall", ["CONCERT-hall"]),
        (ContainsPattern(X, ("*",)), "ﬁn, été", ["ﬁn", "été"]),
        (
            ContainsStems(X, "english", ("run", "shoe")),
            "My running shoes, his run shoe",
            ["running shoes", "run shoe"],
        ),
        (Similar(X, ("rock", "am", "ring"), Fraction(1, 2)), "Ring-Rock now", ["Ring", "Rock"]),
        (RegularExpression(X, "(?i)gr[ae]y"), "é Gray grey 東 gRaY", ["Gray", "grey", "gRaY"]),
        (RegularExpression(X, "x*"), "abc", []),
        (InNetwork(X, ("10.0.0.0/8",)), " 10.0.0.1 ", ["10.0.0.1"]),
        (References(X, "a.example"), "see http://a.example/1, http://b.example", ["http://a.example/1"]),
        (
            Extends(X, "http://a.example/"),
            "<a href='http://a.example/?x=1&amp;y=2'>",
            ["http://a.example/?x=1&amp;y=2"],
        ),
        (Shares(X, ("http://a.example/",)), " http://a.example ", ["http://a.example"]),
        (Compare(X, "=", "Rock"), "Rock", ["Rock"]),
        (In(X, ("Rock", "Pop")), "Pop", ["Pop"]),
        (Compare(X, "<", "b"), "", []),
        (Exists(X), "Rock", []),
        (Contains(X, ("jazz",)), "Rock", []),
    ],
)
def test_highlighted_ranges(atom: Atom, text: str, shown: list[str]) -> None:
    assert [text[start:end] for start, end in highlights(atom, text)] == shown


def test_only_texts_have_highlights_and_their_number_is_limited() -> None:
    assert highlights(Compare(X, "=", 3.0), 3.0) == []
    assert highlights(Exists(X), datetime(2026, 11, 15, tzinfo=UTC)) == []
    assert len(highlights(Contains(X, ("a",)), "a " * 1000)) == MAX_HIGHLIGHTS


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text_atoms(st.just(X)), st.text(max_size=30) | st.text(st.sampled_from("aAßé\u0301 \u00ad*'東"), max_size=20))
def test_atom_that_holds_has_highlights(atom: Atom, text: str) -> None:
    results = highlights(atom, text)
    assert all(0 <= start < end <= len(text) for start, end in results)
    assert results == sorted(results)
    if not isinstance(atom, RegularExpression):  # which may be satisfied by nothing at all
        assert bool(results) == satisfies(atom, text)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(["Straße", "rock", "e\u0301te\u0301", "東", "İs", "ﬁ", "-", " "]), max_size=8))
def test_highlighted_text_satisfies_the_condition_by_itself(parts: list[str]) -> None:
    text = " ".join(parts)
    for word in set(words(text)):
        for start, end in highlights(Contains(X, (word,)), text):
            assert satisfies(Contains(X, (word,)), text[start:end])


def test_trace_returns_highlights() -> None:
    condition = And(
        (Contains(Attribute("title"), ("rock",)), Not(Contains(WHOLE, ("jazz",))), Exists(Attribute("n")))
    )
    trace = trace_expression(condition, {"title": ("Hard Rock", "no"), "n": (3.0,)})
    assert trace.holds
    assert trace.highlights() == [
        {"condition": "title contains 'rock'", "attribute": "title", "text": "Hard Rock", "places": [(5, 9)]}
    ]
    assert trace.lines() == [
        "✓ all of",
        "  ✓ title contains 'rock'  [Hard »Rock«]",
        "  ✓ not",
        "    ✗ item contains 'jazz'  [title: Hard Rock, title: no, n: 3]",
        "  ✓ n exists  [3]",
    ]


@pytest.mark.parametrize(
    ("text", "spans", "shown"),
    [
        ("Rock am Ring", ((0, 4), (8, 12)), "»Rock« am »Ring«"),
        ("Rock", ((0, 4),), "Rock"),
        ("x" * 100 + " Rock " + "y" * 100, ((101, 105),), "…" + "x" * 19 + " »Rock« " + "y" * 35 + "…"),
        ("a" * 200, ((0, 199),), "»" + "a" * 59 + "…«…"),
    ],
)
def test_matches_are_shown_in_context(text: str, spans: tuple[tuple[int, int], ...], shown: str) -> None:
    assert SeenValue("title", text, spans).in_context() == shown
