"""The reference evaluator: it defines everything else, so its own corners are pinned by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.encode import decode_expression, decode_node, encode_expression, encode_node
from runnel.algebra.evaluate import accepts, compare, holds, views_below
from runnel.algebra.expressions import (
    And,
    Attribute,
    Between,
    Compare,
    Contains,
    Exists,
    Expression,
    In,
    Not,
    Or,
    conjunction,
)
from runnel.algebra.query import Filter, Read, Union
from runnel.algebra.text import words
from runnel.algebra.why import trace_node
from runnel.errors import CyclicFeeds
from runnel.model.item import Attributes

X = Attribute("x")
EVENING = datetime(2026, 11, 15, 22, 30, tzinfo=UTC)


def test_a_missing_attribute_makes_atoms_false_and_their_negations_true() -> None:
    for atom in (Contains(X, ("a",)), Compare(X, "=", 1.0), Between(X, 1.0, 2.0), In(X, (1.0,)), Exists(X)):
        assert not holds(atom, {})
        assert holds(Not(atom), {})


def test_any_of_several_values_suffices_even_for_a_negation_of_equality() -> None:
    assert holds(Compare(X, "=", "b"), {"x": ("a", "b")})
    assert not holds(Not(Compare(X, "=", "b")), {"x": ("a", "b")})
    assert not holds(Between(X, 3.0, 4.0), {"x": (1.0, 9.0)}), "no single value lies between"


def test_values_of_two_types_stand_in_no_relation() -> None:
    assert not compare("3", "=", 3.0)
    assert not compare(True, "=", 1.0)
    assert not compare(1.0, "=", True)
    assert conjunction([Compare(X, "=", 1.0), Compare(X, "=", True)]) == And(
        (Compare(X, "=", 1.0), Compare(X, "=", True))
    )


@pytest.mark.parametrize(
    ("operator", "day", "truth"),
    [
        ("=", 15, True),
        ("<=", 15, True),
        (">=", 15, True),
        ("<", 15, False),
        (">", 15, False),
        (">", 14, True),
        ("<", 16, True),
    ],
)
def test_a_day_is_whole(operator: str, day: int, truth: bool) -> None:
    assert compare(EVENING, operator, date(2026, 11, day)) is truth  # type: ignore[arg-type]


def test_parts_of_moments() -> None:
    item: Attributes = {"x": (EVENING,), "y": ("2026",)}
    assert holds(Compare(Attribute("x", "weekday"), "=", 7.0), item)
    assert holds(Between(Attribute("x", "hour"), 22.0, 23.0), item)
    assert not holds(Compare(Attribute("y", "year"), "=", 2026.0), item), "a text has no year"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("don’t don't", ["don't", "don't"]),
        ("e\u0301t\u00e9", ["été"]),
        ("हिन्दी शब्द", ["हिन्दी", "शब्द"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("soft\u00adhyphen", ["softhyphen"]),
        ("a-b_c 3.5", ["a", "b_c", "3", "5"]),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_phrase_needs_its_words_side_by_side() -> None:
    phrase = Contains(X, ("quick", "fox"))
    assert not holds(phrase, {"x": ("quick brown fox",)})
    assert holds(phrase, {"x": ("the quick, quick fox",)})
    assert not holds(phrase, {"x": ("quick", "fox")}), "not across values"


def test_any_way_into_a_view_suffices() -> None:
    never, always = Compare(X, "=", 1.0), Not(Compare(X, "=", 1.0))
    node = Union((Filter(Read(1), never), Filter(Read(1), always)))
    assert accepts(node, 1, {}, {})
    assert not accepts(node, 2, {}, {})


def test_chains_and_diamonds_of_views_are_no_problem() -> None:
    chain = {number: Read(number - 1) for number in range(1, 3000)}
    assert accepts(Read(2999), 0, {}, chain)
    diamonds = {number: Union((Read(number - 1), Read(number - 1))) for number in range(1, 200)}
    assert accepts(Read(199), 0, {}, diamonds)
    trace = trace_node(Read(199), 0, {}, diamonds, {})
    assert trace.holds
    assert len(trace.lines()) < 500, "each view is shown once"


def test_a_cycle_ends() -> None:
    with pytest.raises(CyclicFeeds):
        views_below(Read(1), {1: Read(2), 2: Read(1)})


_CONSTANTS = st.one_of(
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
)
_ATTRIBUTES = st.builds(Attribute, st.text(min_size=1, max_size=5), st.sampled_from([None, "year", "weekday"]))
_ATOMS: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Contains, _ATTRIBUTES, st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3).map(tuple)),
    st.builds(Compare, _ATTRIBUTES, st.sampled_from(["=", "<", "<=", ">", ">="]), _CONSTANTS),
    st.builds(Between, _ATTRIBUTES, _CONSTANTS, _CONSTANTS),
    st.builds(In, _ATTRIBUTES, st.lists(_CONSTANTS, min_size=1, max_size=3).map(tuple)),
    st.builds(Exists, _ATTRIBUTES),
)
_EXPRESSIONS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(_EXPRESSIONS)
def test_the_stored_form_of_an_expression_is_read_back(expression: Expression) -> None:
    assert decode_expression(encode_expression(expression)) == expression
    node = Union((Read(1), Filter(Read(2), expression)))
    assert decode_node(encode_node(node)) == node
