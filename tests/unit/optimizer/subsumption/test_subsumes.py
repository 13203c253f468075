"""Soundness of subsumption, checked with the reference evaluator on generated conditions and items."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.optimizer.generated_worlds import atoms, expressions

from runnel.algebra.nodes.attributes import WHOLE, Ago, Attribute, Constant
from runnel.algebra.nodes.expressions import (
    FALSE,
    TRUE,
    And,
    Atom,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    Exists,
    Expression,
    In,
    Not,
    Or,
    Similar,
)
from runnel.algebra.semantics.evaluate import holds
from runnel.model.item import Value
from runnel.optimizer.subsumption.subsumes import atom_subsumes, subsumes
from runnel.optimizer.subsumption.wider_literals import wider_literals

PRICE, TITLE, WHEN = Attribute("price"), Attribute("title"), Attribute("published")
HALF = Fraction(1, 2)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = date(2026, 11, 15)


def above(number: float) -> Expression:
    return Compare(PRICE, ">", number)


def word(*words: str) -> Expression:
    return Contains(TITLE, words)


SUBSUMED = {
    "ranges": (above(10.0), above(20.0)),
    "open and closed ends": (Compare(PRICE, ">=", 10.0), above(10.0)),
    "an interval in a half-line": (above(10.0), Between(PRICE, 11.0, 12.0)),
    "an interval in an interval": (Between(PRICE, 1.0, 9.0), Between(PRICE, 1.0, 8.0)),
    "a value in an interval": (Between(PRICE, 1.0, 9.0), Compare(PRICE, "=", 9.0)),
    "a list in a list": (In(PRICE, (1.0, 2.0, 3.0)), In(PRICE, (3.0, 1.0))),
    "a list in an interval": (above(0.0), In(PRICE, (3.0, 1.0))),
    "a moment in a day": (Compare(WHEN, "=", DAY), Compare(WHEN, "=", NOON)),
    "a day in a half-line": (Compare(WHEN, "<", date(2026, 11, 17)), Compare(WHEN, "<=", DAY)),
    "days in moments": (Compare(WHEN, ">=", datetime(2026, 11, 15, tzinfo=UTC)), Compare(WHEN, ">", DAY)),
    "texts in order": (Compare(TITLE, "<", "b"), Compare(TITLE, "<=", "a")),
    "truth values": (Compare(PRICE, ">=", False), Compare(PRICE, "=", True)),
    "a word of a phrase": (word("rock"), word("red", "rock", "band")),
    "a part of a phrase": (word("red", "rock"), word("big", "red", "rock")),
    "a word of a value": (word("rock"), Compare(TITLE, "=", "Rock am Ring")),
    "a word of all values": (word("rock"), In(TITLE, ("Rock am Ring", "ROCK!"))),
    "a prefix of a word": (ContainsPattern(TITLE, ("conc*",)), word("rock", "concert")),
    "a prefix of a prefix": (ContainsPattern(TITLE, ("con*",)), ContainsPattern(TITLE, ("conc*", "h?ll"))),
    "a word of a pattern": (word("hall"), ContainsPattern(TITLE, ("conc*", "hall"))),
    "a pattern of a value": (ContainsPattern(TITLE, ("r?ck", "a*")), Compare(TITLE, "=", "Rock am Ring")),
    "any attribute": (Contains(WHOLE, ("rock",)), word("red", "rock")),
    "any attribute's values": (Compare(WHOLE, ">", 10.0), above(20.0)),
    "any attribute, by the same condition": (Similar(WHOLE, ("a", "b"), HALF), Similar(TITLE, ("a", "b"), HALF)),
    "relative times": (Compare(WHEN, ">=", Ago(timedelta(days=2))), Compare(WHEN, ">", Ago(timedelta(days=1)))),
    "presence of anything": (Exists(WHOLE), word("a")),
    "presence": (Exists(PRICE), above(10.0)),
    "presence of a part's moment": (Exists(WHEN), Compare(Attribute("published", "year"), "=", 2026.0)),
    "one of a disjunction": (Or((word("a"), word("b"))), word("a")),
    "a conjunction": (word("a"), And((word("b"), word("a")))),
    "both at once": (Or((above(10.0), word("b"))), And((above(20.0), word("c")))),
    "a shorter disjunction": (Or((word("a"), word("b"), word("c"))), Or((word("c"), word("a")))),
    "contraposition": (Not(above(20.0)), Not(above(10.0))),
    "de Morgan": (Not(And((word("a"), word("b")))), Not(word("a"))),
    "always": (TRUE, word("a")),
    "never": (word("a"), FALSE),
}
UNRELATED = {
    "the other direction": (above(20.0), above(10.0)),
    "the complement of a range, for an item may have two prices": (Not(above(10.0)), Compare(PRICE, "<=", 10.0)),
    "a range and the complement of another": (Compare(PRICE, "<=", 20.0), Not(above(20.0))),
    "two kinds of value": (Compare(PRICE, ">=", 0.0), Compare(PRICE, "=", True)),
    "two attributes": (above(10.0), Compare(Attribute("cost"), ">", 20.0)),
    "a part and its moment": (Compare(Attribute("published", "day"), ">", 1.0), Compare(WHEN, ">", DAY)),
    "words of a phrase, apart": (word("red", "band"), word("red", "rock", "band")),
    "a phrase without words": (word(), word("a")),
    "a star in a phrase, which is no wildcard": (word("con*"), word("concert")),
    "a pattern and a wider one": (ContainsPattern(TITLE, ("conc*",)), ContainsPattern(TITLE, ("con*",))),
    "a pattern in the middle": (ContainsPattern(TITLE, ("c?n*",)), ContainsPattern(TITLE, ("c*",))),
    "one attribute and all": (word("rock"), Contains(WHOLE, ("rock",))),
    "other likeness": (Similar(TITLE, ("a",), HALF), Similar(TITLE, ("a", "b"), HALF)),
    "relative times of centuries": (
        Compare(WHEN, ">", Ago(timedelta(days=10**6))),
        Compare(WHEN, ">=", Ago(timedelta(days=10**6 - 1))),
    ),
    "a day and a moment after it": (Compare(WHEN, ">", DAY), Compare(WHEN, ">", NOON)),
    "an open and a closed end": (above(10.0), Compare(PRICE, ">=", 10.0)),
    "what is no number": (Compare(PRICE, ">", float("nan")), above(10.0)),
    "the last day of all": (Compare(WHEN, ">", date.max), Compare(WHEN, ">", DAY)),
    "a moment without a zone": (
        Compare(WHEN, ">", datetime(2026, 11, 15)),
        Compare(WHEN, ">", datetime(2026, 11, 16, tzinfo=UTC)),
    ),
}


@pytest.mark.parametrize("pair", SUBSUMED.values(), ids=SUBSUMED.keys())
def test_condition_is_subsumed(pair: tuple[Expression, Expression]) -> None:
    wide, narrow = pair
    assert subsumes(wide, narrow)
    assert not subsumes(narrow, wide) or wide == narrow


@pytest.mark.parametrize("pair", UNRELATED.values(), ids=UNRELATED.keys())
def test_condition_is_not_subsumed(pair: tuple[Expression, Expression]) -> None:
    assert not subsumes(*pair)


def test_condition_that_needs_two_values_is_not_taken_for_false() -> None:
    both = And((above(10.0), Compare(PRICE, "<", 5.0)))
    assert holds(both, {"price": (3.0, 12.0)})
    assert not subsumes(FALSE, both)


_values: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from([-1.0, 0.0, 1.0, 2.5, 7.0, 10.0, 20.0]),
    st.sampled_from(["rock", "Rock concert", "concert rock", "1", "true", "a b a b", "it's", "straße 東京"]),
    st.booleans(),
    st.sampled_from([datetime(2026, 11, 15, 23, 59, 59, 999999, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC)]),
    st.just(datetime(1969, 12, 31, 1, 1, tzinfo=UTC)),
)
_items = st.dictionaries(
    st.sampled_from(["title", "price", "flag", "published"]), st.lists(_values, max_size=3).map(tuple), max_size=4
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(expressions, expressions, st.lists(_items, min_size=1, max_size=8))
def test_every_item_that_matches_the_narrow_condition_matches_the_wide_one(
    wide: Expression, narrow: Expression, items: list[dict[str, tuple[Value, ...]]]
) -> None:
    for left, right in ((wide, narrow), (narrow, wide), (Or((wide, narrow)), narrow), (wide, And((wide, narrow)))):
        if subsumes(left, right):
            assert not [item for item in items if holds(right, item, NOON) and not holds(left, item, NOON)]
    assert subsumes(Or((wide, narrow)), narrow)
    assert subsumes(wide, And((narrow, wide)))
    assert subsumes(wide, wide)


def _is_atom(expression: Expression) -> bool:
    return isinstance(expression, get_args(Atom))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.lists(atoms.filter(_is_atom), min_size=2, max_size=12, unique=True), st.lists(_items, min_size=1, max_size=8)
)
def test_the_wider_literals_of_a_table_hold_wherever_the_narrow_one_does(
    table: list[Expression], items: list[dict[str, tuple[Value, ...]]]
) -> None:
    rows = wider_literals(table)  # type: ignore[arg-type]
    for literal, wider in enumerate(rows.lists()):
        narrow = signed(table, literal)
        for value in wider:
            assert value != literal
            assert literal not in rows.row(value)  # no circles
            broad = signed(table, value)
            assert not [item for item in items if holds(narrow, item, NOON) and not holds(broad, item, NOON)]


def signed(table: list[Expression], literal: int) -> Expression:
    return Not(table[literal >> 1]) if literal & 1 else table[literal >> 1]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.lists(atoms.filter(_is_atom), min_size=2, max_size=8, unique=True))
def test_the_table_finds_what_comparing_all_pairs_finds(table: list[Expression]) -> None:
    rows = wider_literals(table)  # type: ignore[arg-type]
    for narrow, wide in (
        (number, other) for number in range(len(table)) for other in range(len(table)) if number != other
    ):
        down = atom_subsumes(table[wide], table[narrow])  # type: ignore[arg-type]
        up = atom_subsumes(table[narrow], table[wide])  # type: ignore[arg-type]
        results = 2 * wide in rows.row(2 * narrow)
        assert down or not results
        if down and not up and _looked_up(table[wide]) and _looked_up(table[narrow]):
            assert results


def _looked_up(atom: Expression) -> bool:
    """Return whether the table finds all atoms that subsume atoms of this kind."""
    return isinstance(atom, Contains | Compare | Between | Exists) and atom.attribute != WHOLE


CORNERS: tuple[Value, ...] = (
    *(float(number) for number in range(-1, 5)),
    *("a", "b", "c", "rock", "red rock", "big red rock band", "Rock am Ring"),
    *(True, False, NOON, datetime(2026, 11, 14, 23, 59, 59, 999999, tzinfo=UTC)),
    *(datetime(2026, 11, day, tzinfo=UTC) for day in (14, 15, 16, 17)),
)
CONSTANTS: tuple[Constant, ...] = (
    0.0,
    1.0,
    3,
    "a",
    "b",
    "Rock am Ring",
    True,
    False,
    NOON,
    DAY,
    date(2026, 11, 14),
    date.max,
)


def test_subsumption_of_atoms_is_correct_on_single_values() -> None:
    x = Attribute("x")
    table: list[Atom] = [
        Compare(x, operator, element) for operator in ("=", "<", "<=", ">", ">=") for element in CONSTANTS
    ]
    table += [Between(x, low, high) for low in CONSTANTS[:6] for high in CONSTANTS[:6]]
    table += [Between(x, low, high) for low in CONSTANTS[8:] for high in CONSTANTS[8:]]
    table += [In(x, pair) for pair in pairwise(CONSTANTS)]
    table += [Contains(x, tuple(words.split())) for words in ("rock", "red rock", "big red rock", "a", "am")]
    table.append(Exists(x))
    satisfied = {
        atom: {index for index, value in enumerate(CORNERS) if holds(atom, {"x": (value,)})} for atom in table
    }
    claimed, missed = 0, 0
    for wide in table:
        for narrow in table:
            within = satisfied[narrow] <= satisfied[wide]
            claim = atom_subsumes(wide, narrow)
            assert within or not claim, (wide, narrow)
            claimed += claim
            missed += within and not claim and bool(satisfied[narrow])
    assert claimed > 5 * missed > 0  # the few values here make more pairs look related than are


def test_a_thousand_ranges_on_one_attribute_give_the_nearest_ones() -> None:
    rows = wider_literals([Compare(PRICE, ">", float(bound)) for bound in range(1000)], most=4)
    assert rows.row(2 * 500).tolist() == [2 * 499, 2 * 498, 2 * 497, 2 * 496]
    assert rows.row(2 * 500 + 1).tolist() == [2 * 501 + 1, 2 * 502 + 1, 2 * 503 + 1, 2 * 504 + 1]
    assert not len(rows.row(0))
