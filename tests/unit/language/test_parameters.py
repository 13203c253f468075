"""Parameters: values that the caller passes with a script."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import runnel
from runnel.algebra.nodes.attributes import Ago
from runnel.algebra.nodes.expressions import Compare, In
from runnel.errors import Span, StatementError
from runnel.language.grammar.parser import parse
from runnel.language.phrase_notes import phrase_notes
from runnel.language.printing import print_statement
from runnel.language.syntax.parameters import Parameters
from runnel.language.syntax.statements import CreateFeed, Statement

WHERE = "create feed A from Wire where "


def statement(text: str, **values: object) -> Statement:
    (parsed,) = parse(text, parameters=Parameters(values))
    return parsed.statement


def condition(text: str, **values: object) -> Any:
    created = statement(WHERE + text, **values)
    assert isinstance(created, CreateFeed)
    (written,) = created.query.conditions
    return written.expression


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


TEXTS = st.text(max_size=40) | st.sampled_from(
    [
        "'",
        "''",
        "'; drop feed A;",
        "\\'",
        "a\nb",
        ":x",
        "':x'",
        "-- no comment",
        "/*",
        "😀",
        "é",
        "e\u0301",
        "\0",
        "\r\n",
    ]
)


@given(TEXTS)
def test_text_parameter_equals_the_quoted_text(text: str) -> None:
    assert condition("title = :x", x=text) == condition(f"title = {quoted(text)}")


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_list_parameter_equals_the_list_of_quoted_texts(texts: list[str]) -> None:
    written = f"title in ({', '.join(map(quoted, texts))})"
    assert condition("title in :xs", xs=texts) == condition(written)


@given(TEXTS)
def test_colon_inside_a_text_is_not_a_parameter(text: str) -> None:
    written = quoted(f"{text}:x")
    assert condition(f"title = {written}") == condition("title = :y", y=f"{text}:x")
    assert statement(f'create feed A from ":x" where ":x" = {written}') is not None


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**200), 2**200))
def test_number_parameter_is_read_as_a_double(number: float) -> None:
    expected = float(number) + 0.0
    assert condition("price = :x", x=number) == Compare(condition("price = 1").attribute, "=", expected)


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_datetime_parameter_is_converted_to_utc(naive: datetime, minutes: int) -> None:
    assert condition("seen > :x", x=naive).constant == naive.replace(tzinfo=UTC)
    aware = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    try:
        expected = aware.astimezone(UTC)
    except OverflowError:
        with pytest.raises(StatementError, match="years 1 to 9999"):
            condition("seen > :x", x=aware)
    else:
        assert condition("seen > :x", x=aware).constant == expected


@given(st.dates())
def test_date_parameter_is_read_as_a_day(day: date) -> None:
    assert condition("seen > :x", x=day).constant == day


class Color(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("a = :x", True, "a = true"),
        ("a = :x", np.float64(0.5), "a = 0.5"),
        ("a = :x", np.int64(3), "a = 3"),
        ("a = :x", -2, "a = -2"),
        ("a = :x", Color.RED, "a = 'red'"),
        ("a contains :x", "rock band", "a contains 'rock band'"),
        ("a contains any :x", ["rock", "pop"], "a contains any ('rock', 'pop')"),
        ("a contains all (:x, 'jazz')", "rock", "a contains all ('rock', 'jazz')"),
        ("a contains pattern :x", "ro*", "a contains pattern 'ro*'"),
        ("a between :x and 5", 1, "a between 1 and 5"),
        ("a in (:x, 2)", 1, "a in (1, 2)"),
        ("a in :x", (1, "b", True, date(2026, 1, 2)), "a in (1, 'b', true, date '2026-01-02')"),
        ("a in :x", range(3), "a in (0, 1, 2)"),
        ("a in network :x", ["10.0.0.0/8"], "a in network ('10.0.0.0/8')"),
        ("a similar to 'b' at least :x", 0.25, "a similar to 'b' at least 0.25"),
        ("a within last :x days", 3, "a within last 3 days"),
        ("near(:x, ?m) and ?m < 2 * 5", "Bronx", "near('Bronx', ?m) and ?m < 2 * 5"),
        ("near('Bronx', ?m) and ?m < 2 * :x", 5, "near('Bronx', ?m) and ?m < 2 * 5"),
        ("near(?m) and ?m in :x", [1, 2], "near(?m) and ?m in (1, 2)"),
    ],
)
def test_parameter_is_allowed_wherever_a_constant_is(text: str, value: object, written: str) -> None:
    assert condition(text, x=value) == condition(written)


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [
        ("why item :x in Rock", "it's", "why item 'it''s' in Rock"),
        ("unsubscribe :x", 12, "unsubscribe 12"),
        ("unsubscribe ticket :x", "t", "unsubscribe ticket 't'"),
        ("register feed :x as Wire", "https://muse.example/rss", "register feed 'https://muse.example/rss' as Wire"),
        ("tag feed A as :x", "new wave", "tag feed A as 'new wave'"),
        ("subscribe to A output webhook :x every 2 hours", "https://a.example", "subscribe to A output webhook "
         "'https://a.example' every 2 hours"),
        ("preview feed A over last :x days", 2, "preview feed A over last 2 days"),
    ],
)  # fmt: skip
def test_statements_other_than_queries_accept_parameters(text: str, value: object, written: str) -> None:
    assert statement(text, x=value) == statement(written)


def test_a_relative_time_takes_its_count_from_a_parameter() -> None:
    assert condition("seen > :n hours ago", n=36).constant == Ago(timedelta(hours=36))


def test_a_parameter_may_be_used_twice() -> None:
    assert condition("a = :x or b = :x", x=1) == condition("a = 1 or b = 1")


def test_canonical_text_contains_the_value() -> None:
    text = print_statement(statement(WHERE + "a = :x", x="it's"))
    assert text == "create feed A from Wire where a = 'it''s';"


def test_list_parameter_must_not_be_empty() -> None:
    assert condition("a in :xs", xs=["b"]) == In(condition("a = 1").attribute, ("b",))
    refused("a in :xs", "the list :xs is empty", (36, 39), xs=[])


def refused(text: str, message: str, columns: tuple[int, int], **values: object) -> StatementError:
    with pytest.raises(StatementError) as caught:
        condition(text, **values)
    assert message in caught.value.message
    assert caught.value.span == Span(1, *columns)
    return caught.value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "has a value of the unsupported type NoneType"),
        (b"rock", "has a value of the unsupported type bytes"),
        (Decimal(1), "has a value of the unsupported type Decimal"),
        ({"a": 1}, "has a value of the unsupported type dict"),
        (float("nan"), "must be a finite number"),
        (float("inf"), "must be a finite number"),
        (10**400, "must be a finite number"),
        ([1], "expected a constant"),
    ],
)
def test_unsupported_values_are_rejected_at_the_parameter(value: object, message: str) -> None:
    refused("a = :x", message, (35, 37), x=value)


def test_nested_list_is_rejected() -> None:
    refused("a in :x", "has a value of the unsupported type list", (36, 38), x=[[1]])


def test_unknown_parameter_is_rejected_at_its_span() -> None:
    assert refused("a = :wrod", "no value was passed for the parameter :wrod", (35, 40), word=1).hint == (
        "did you mean word?"
    )
    assert "pass x=…" in str(refused("a = :x", "no value was passed", (35, 37)).hint)


@pytest.mark.parametrize("text", [":x = 1", "a contains 'b' stemmed in :x", "a.:x = 1"])
@pytest.mark.parametrize("value", ["year", True, 2, date(2026, 1, 2), ["a"]])
def test_parameter_cannot_be_a_name(text: str, value: object) -> None:
    with pytest.raises(StatementError):
        condition(text, x=value)


@pytest.mark.parametrize("value", ["Rock", True, 2, date(2026, 1, 2), ["Rock"], [True], [date(2026, 1, 2)]])
@pytest.mark.parametrize(
    "text",
    [
        "create feed :x from Wire",
        "create feed A from :x",
        "create feed A from (:x | B)",
        "show feed :x",
        "drop feed :x cascade",
        "subscribe to :x output rss 'a.xml'",
        "subscribe to A output :x",
        ":x feed A",
        "register operator f(:x text) from 'python:f'",
        "register operator f(a :x) from 'python:f'",
    ],
)
def test_parameter_cannot_be_a_feed_a_keyword_or_an_output(text: str, value: object) -> None:
    with pytest.raises(StatementError) as caught:
        statement(text, x=value)
    start = text.index(":x") + 1
    assert caught.value.span == Span(1, start, start + 2)
    assert "but not a name" in str(caught.value.hint)


def test_an_error_inside_a_text_points_at_the_whole_parameter() -> None:
    refused("a matches :x", "invalid regular expression", (41, 43), x="it's a (")


def test_a_name_with_a_colon_keeps_its_hint() -> None:
    error = refused("dc:title = 'a'", "but found `:`", (33, 34))
    assert '"dc:title"' in str(error.hint)


def test_graph_patterns_keep_their_colons() -> None:
    block = "graph { prefix : <http://a.example/> ?s :x ?o }"
    assert condition(block) == condition(block)


def test_phrases_of_parameters_have_notes() -> None:
    text = WHERE + "a contains :x or a contains any :xs"
    values = Parameters({"x": "c++", "xs": ["rock", "f#"]})
    assert [note.position for note in phrase_notes(text, values)] == [(1, 42), (1, 63)]
    assert phrase_notes(WHERE + "graph { ?s ex:contains :x }") == []


# --- the API -----------------------------------------------------------------------------------------------------


def test_compile_takes_parameters() -> None:
    plan = runnel.compile("create feed Rock from Wire where title contains :word", word="rock'n'roll")
    assert plan.match([{"title": "Rock'n'Roll"}, {"title": "Rock"}]) == [["Rock"], []]


def test_compile_uses_the_same_parameters_for_all_statements() -> None:
    texts = ["create feed A from Wire where n > :low", "create feed B from Wire where n < :high"]
    assert runnel.compile(texts, low=3, high=5).match([{"n": 4}, {"n": 5}]) == [["A", "B"], ["A"]]


@pytest.mark.parametrize("texts", ["create feed A from Wire where n > 1", [], ""])
def test_compile_rejects_an_unused_parameter(texts: str | list[str]) -> None:
    with pytest.raises(StatementError, match="a value was passed for :low") as caught:
        runnel.compile(texts, low=3)
    assert caught.value.span == Span(1, 1, 1)
