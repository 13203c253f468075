"""Edge cases of the reference evaluator, against which everything else is tested."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_atoms import text_atoms

from runnel.algebra.nodes.attributes import WHOLE, Ago, Attribute
from runnel.algebra.nodes.encode import decode_expression, decode_node, encode_expression, encode_node
from runnel.algebra.nodes.expressions import (
    And,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    ContainsStems,
    Exists,
    Expression,
    In,
    Not,
    Or,
    Truth,
    conjunction,
)
from runnel.algebra.nodes.query import Filter, Read, Union
from runnel.algebra.semantics.evaluate import accepts, compare, holds, views_below
from runnel.algebra.semantics.trace import trace_node
from runnel.algebra.values.words import words
from runnel.errors import CyclicFeedsError, InputError
from runnel.model.item import Attributes

X = Attribute("x")
EVENING = datetime(2026, 11, 15, 22, 30, tzinfo=UTC)


def test_a_missing_attribute_makes_atoms_false_and_their_negations_true() -> None:
    for atom in (Contains(X, ("a",)), Compare(X, "=", 1.0), Between(X, 1.0, 2.0), In(X, (1.0,)), Exists(X)):
        assert not holds(atom, {})
        assert holds(Not(atom), {})


def test_atom_holds_if_any_of_several_values_satisfies_it() -> None:
    assert holds(Compare(X, "=", "b"), {"x": ("a", "b")})
    assert not holds(Not(Compare(X, "=", "b")), {"x": ("a", "b")})
    assert not holds(Between(X, 3.0, 4.0), {"x": (1.0, 9.0)}), "no single value lies between"


def test_comparison_of_different_types_is_false() -> None:
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
def test_comparison_with_a_date_covers_the_whole_day(operator: str, day: int, truth: bool) -> None:
    assert compare(EVENING, operator, date(2026, 11, day)) is truth  # type: ignore[arg-type]


def test_date_parts() -> None:
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
def test_texts_are_split_into_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_phrase_needs_adjacent_words() -> None:
    phrase = Contains(X, ("quick", "fox"))
    assert not holds(phrase, {"x": ("quick brown fox",)})
    assert holds(phrase, {"x": ("the quick, quick fox",)})
    assert not holds(phrase, {"x": ("quick", "fox")}), "not across values"


def test_union_accepts_an_item_of_any_input() -> None:
    never, always = Compare(X, "=", 1.0), Not(Compare(X, "=", 1.0))
    node = Union((Filter(Read(1), never), Filter(Read(1), always)))
    assert accepts(node, 1, {}, {})
    assert not accepts(node, 2, {}, {})


def test_long_chains_and_diamonds_of_views_are_evaluated() -> None:
    chain = {number: Read(number - 1) for number in range(1, 3000)}
    assert accepts(Read(2999), 0, {}, chain)
    diamonds = {number: Union((Read(number - 1), Read(number - 1))) for number in range(1, 200)}
    assert accepts(Read(199), 0, {}, diamonds)
    trace = trace_node(Read(199), 0, {}, diamonds, {})
    assert trace.holds
    assert len(trace.lines()) < 500, "each view is shown once"


def test_cycle_of_views_raises_an_error() -> None:
    with pytest.raises(CyclicFeedsError):
        views_below(Read(1), {1: Read(2), 2: Read(1)})


_CONSTANTS = st.one_of(
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
    st.integers(0, 10**9).map(lambda seconds: Ago(timedelta(seconds=seconds))),
)
_ATTRIBUTES = st.builds(Attribute, st.text(min_size=1, max_size=5), st.sampled_from([None, "year", "weekday"]))
_ATOMS: st.SearchStrategy[Expression] = st.one_of(
    text_atoms(_ATTRIBUTES),
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
def test_stored_expression_is_decoded_to_the_same_expression(expression: Expression) -> None:
    assert decode_expression(json.loads(json.dumps(encode_expression(expression)))) == expression
    node = Union((Read(1), Filter(Read(2), expression)))
    assert decode_node(encode_node(node)) == node


@pytest.mark.parametrize(
    ("stored", "expression"),
    [
        (["contains", "title", "rock", "concert"], Contains(Attribute("title"), ("rock", "concert"))),
        (["contains", "title", "東", "京"], Contains(Attribute("title"), ("東", "京"))),
        (["contains", "title", "ไทย", "pop"], Contains(Attribute("title"), ("ไ", "ท", "ย", "pop"))),
        (["not", ["=", ["published", "year"], 2026]], Not(Compare(Attribute("published", "year"), "=", 2026.0))),
        (["<", "x", {"day": "2026-11-15"}], Compare(X, "<", date(2026, 11, 15))),
        (["in", "x", 1.0, True, "a"], In(X, (1.0, True, "a"))),
        (["between", "x", {"moment": "2026-11-15T22:30:00+00:00"}, 3], Between(X, EVENING, 3.0)),
        (["and", True, ["exists", "x"]], And((Truth(True), Exists(X)))),
    ],
)
def test_old_stored_forms_can_be_decoded(stored: list[object], expression: Expression) -> None:
    assert decode_expression(stored) == expression


def test_unknown_stored_form_is_rejected() -> None:
    with pytest.raises(InputError, match="the condition family 'resembles' is not installed"):
        decode_expression(["resembles", "title", "rock"])


def test_atoms_with_different_constants_or_kinds_differ() -> None:
    different = [
        Compare(X, "<", Ago(timedelta(days=1))),
        Compare(X, "<", Ago(timedelta(days=2))),
        Compare(X, "<", 86400.0),
        Between(X, Ago(timedelta(days=1)), Ago(timedelta(0))),
        Contains(X, ("a",)),
        ContainsPattern(X, ("a",)),
        ContainsStems(X, "english", ("a",)),
        ContainsStems(X, "german", ("a",)),
        Contains(WHOLE, ("a",)),
    ]
    assert len(set(different)) == len(different)
    assert Compare(X, "<", Ago(timedelta(hours=24))) == Compare(X, "<", Ago(timedelta(days=1)))


@pytest.mark.parametrize(
    ("hours", "operator", "length", "truth"),
    [
        (1, ">=", timedelta(hours=2), True),
        (1, "<", timedelta(hours=2), False),
        (2, ">=", timedelta(hours=2), True),
        (2, ">", timedelta(hours=2), False),
        (3, ">=", timedelta(hours=2), False),
        (3, "<=", timedelta(hours=2), True),
        (-1, "<=", timedelta(0), False),
        (-1, ">", timedelta(0), True),
    ],
)
def test_relative_times_refer_to_the_acceptance_of_the_item(
    hours: int, operator: str, length: timedelta, truth: bool
) -> None:
    published = EVENING - timedelta(hours=hours)
    assert compare(published, operator, Ago(length), EVENING) is truth  # type: ignore[arg-type]
    assert not compare(published, operator, Ago(length)), "without an acceptance there is no relative time"  # type: ignore[arg-type]


def test_within_last_excludes_future_dates() -> None:
    within = Between(X, Ago(timedelta(days=2)), Ago(timedelta(0)))
    assert holds(within, {"x": (EVENING,)}, EVENING)
    assert holds(within, {"x": (EVENING - timedelta(days=2),)}, EVENING)
    assert not holds(within, {"x": (EVENING + timedelta(seconds=1),)}, EVENING)
    assert not holds(within, {"x": ("2026-11-15",)}, EVENING), "a text is no moment"
    assert not holds(within, {"x": (EVENING,)})


def test_relative_time_before_year_1_becomes_the_first_time() -> None:
    first = datetime(1, 1, 1, 12, tzinfo=UTC)
    assert compare(first, ">=", Ago(timedelta(days=36500)), first)


def test_relative_times_work_in_views_and_traces() -> None:
    node = Filter(Read(1), Compare(X, ">=", Ago(timedelta(hours=1))))
    item: Attributes = {"x": (EVENING,)}
    assert accepts(Read(2), 1, item, {2: node}, EVENING + timedelta(minutes=59))
    assert not accepts(Read(2), 1, item, {2: node}, EVENING + timedelta(minutes=61))
    assert trace_node(Read(2), 1, item, {2: node}, {}, EVENING + timedelta(minutes=59)).holds


def test_item_stands_for_any_value_of_any_attribute() -> None:
    item: Attributes = {"title": ("Rock", "Jazz"), "price": (3.0,), "published": (EVENING,), "*": ("star",)}
    assert holds(Contains(WHOLE, ("jazz",)), item)
    assert holds(Compare(WHOLE, "=", 3.0), item)
    assert holds(Contains(WHOLE, ("star",)), item)
    assert holds(Compare(Attribute(WHOLE.name, "year"), "=", 2026.0), item)
    assert not holds(Contains(WHOLE, ("rock", "jazz")), item), "not across values"
    assert not holds(Exists(WHOLE), {})
