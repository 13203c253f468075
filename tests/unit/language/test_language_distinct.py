"""The clause `distinct [by …] [within …]`: parsing, printing and error messages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import PARTS, Attribute
from runnel.algebra.nodes.expressions import Compare
from runnel.algebra.nodes.gate_rules import GateRule
from runnel.algebra.nodes.query import Filter, Gated, Read, Union
from runnel.algebra.semantics.distinct import DEFAULT_WINDOW, ID, Distinct
from runnel.errors import StatementError
from runnel.language.binding.bind_query import bind_query
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import (
    Condition,
    CreateFeed,
    FeedTerm,
    GroupTerm,
    Name,
    Preview,
    QueryText,
)

TITLE = Attribute("title")


def clause(text: str) -> GateRule | None:
    statement = parse(text)[0].statement
    assert isinstance(statement, CreateFeed)
    return statement.query.gate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create feed N from A distinct", Distinct((ID,), DEFAULT_WINDOW)),
        ("create feed N from A DISTINCT BY title", Distinct((TITLE,), DEFAULT_WINDOW)),
        ("create feed N from (A | B) distinct within 1 week", Distinct((ID,), timedelta(days=7))),
        (
            'create feed N from A | B distinct by title, "dc:title", published.day within 90 minutes where x = 1',
            Distinct((TITLE, Attribute("dc:title"), Attribute("published", "day")), timedelta(minutes=90)),
        ),
        # The keywords of the clause can be names elsewhere.
        ("create feed by from within distinct by by within 2 days", Distinct((Attribute("by"),), timedelta(2))),
        ('create feed N from A distinct by "item"', Distinct((Attribute("item"),), DEFAULT_WINDOW)),
        ("create feed distinct from distinct", None),
        ("create feed N from A where distinct = 1 and within exists", None),
    ],
)
def test_clause_is_parsed(text: str, expected: Distinct | None) -> None:
    assert clause(text) == expected


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("create feed N from (A | B) distinct by id within 30 days", "create feed N from A | B distinct;"),
        ("create feed N from A as $a distinct within 24 hours where $a[x=1]", None),
        ("preview create feed N from A distinct by title within 36 hours over last 7 days", None),
    ],
)
def test_canonical_text(text: str, canonical: str | None) -> None:
    printed = print_statement(parse(text)[0].statement)
    expected = text.replace("24 hours", "1 day").replace("x=1", "x = 1") + ";"
    assert printed == (canonical or expected)
    assert print_statement(parse(printed)[0].statement) == printed


names = st.text("aB_ :\"é*'1", min_size=1, max_size=5).map(str.strip).filter(lambda name: name not in ("", "*"))
attributes = st.builds(Attribute, names, st.sampled_from([None, *PARTS]))
clauses = st.builds(
    Distinct,
    st.lists(attributes, min_size=1, max_size=8, unique=True).map(tuple),
    st.integers(1, 366 * 86_400).map(lambda seconds: timedelta(seconds=seconds)),
)


@given(clauses, st.booleans(), st.booleans())
@settings(deadline=None, max_examples=150)
def test_printed_clause_parses_to_the_same_rule(distinct: Distinct, union: bool, filtered: bool) -> None:
    terms = (FeedTerm(Name("A")), FeedTerm(Name("B")))
    where = (Condition(None, Compare(TITLE, "=", "x")),) if filtered else ()
    query = CreateFeed(Name("N"), QueryText(GroupTerm(terms) if union else terms[0], where, distinct))
    for statement in (query, Preview(query, back=timedelta(days=1))):
        assert parse(print_statement(statement))[0].statement == statement


def test_distinct_is_applied_after_all_conditions() -> None:
    statement = parse("create feed N from A as $a | B distinct by title within 1 day where $a[x = 1] and y = 2")[0]
    assert isinstance(statement.statement, CreateFeed)
    node = bind_query(statement.statement.query, {"A": 1, "B": 2}.get, list)
    x, y = (Compare(Attribute(name), "=", number) for name, number in (("x", 1.0), ("y", 2.0)))
    inner = Filter(Union((Filter(Read(1), x), Read(2))), y)
    assert node == Gated(inner, Distinct((TITLE,), timedelta(days=1)))


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("distinct within 0 days", "must be positive", 38, "at least 1 second"),
        ("distinct within 367 days", "at most 366 days", 38, "a shorter duration"),
        ("distinct within 2 fortnights", "not a unit of time", 40, "use seconds"),
        ("distinct by item", "not the whole item", 34, "distinct by title, link"),
        ('distinct by "*"', "attributes cannot be named *", 34, "item"),
        ("distinct by title, link, title", "distinct by names title twice", 47, None),
        ("distinct by a, b, c, d, e, f, g, h, i", "at most 8 attributes", 58, "identify duplicates"),
        ("distinct by published.yaer", "not a part of a date", 44, "did you mean year"),
        ("distinct by 'title'", "expected", 34, '"title"'),
        ("distinct on title", "expected `by`", 31, "write by"),
        ("distinct by title withn 2 days", "expected", 40, "did you mean within"),
        ("distinct distinct", "expected `by`", 31, None),
        ("unique by title", "expected", 22, "write: distinct by"),
        ("where x = 1 distinct by title", "expected", 34, "write distinct before where"),
        ("distinct by where x = 1", "expected", 34, "reserved word"),
    ],
)
def test_mistakes_are_reported_with_span_and_hint(text: str, message: str, column: int, hint: str | None) -> None:
    with pytest.raises(StatementError, match=message.replace("*", r"\*")) as caught:
        parse(f"create feed N from A {text}")
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (1, column)
    assert hint is None or hint in (caught.value.hint or "")
