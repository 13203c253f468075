"""Parsing of conditions on texts, links, addresses and relative times."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest

from runnel.algebra.nodes.attributes import WHOLE, Ago, Attribute
from runnel.algebra.nodes.expressions import (
    And,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    ContainsStems,
    Expression,
    Extends,
    InNetwork,
    Not,
    Or,
    References,
    RegularExpression,
    Shares,
    Similar,
)
from runnel.errors import StatementSyntaxError
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import CreateFeed


def condition(text: str) -> Expression:
    (parsed,) = parse(f"create feed F from A where {text}")
    assert isinstance(parsed.statement, CreateFeed)
    (results,) = parsed.statement.query.conditions
    return results.expression


def equal(name: str, value: float) -> Compare:
    return Compare(Attribute(name), "=", value)


TITLE = Attribute("title")
HOUR = Ago(timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("title contains all ('a', 'b c')", And((Contains(TITLE, ("a",)), Contains(TITLE, ("b", "c"))))),
        ("title contains any ('a', 'b')", Or((Contains(TITLE, ("a",)), Contains(TITLE, ("b",))))),
        ("title contains any ('A', 'a')", Contains(TITLE, ("a",))),
        ("title not contains any ('a', 'b')", Not(Or((Contains(TITLE, ("a",)), Contains(TITLE, ("b",)))))),
        ("title contains pattern 'Conc* h?ll'", ContainsPattern(TITLE, ("conc*", "h?ll"))),
        ("title contains pattern 'rock'", Contains(TITLE, ("rock",))),
        ("title contains 'Dogs' stemmed in English", ContainsStems(TITLE, "english", ("dogs",))),
        ("title similar to 'a b a'", Similar(TITLE, ("a", "b"), Fraction(1, 2))),
        ("title similar to 'a' at least 0.6", Similar(TITLE, ("a",), Fraction(3, 5))),
        ("title similar to 'a' at least 1", Similar(TITLE, ("a",), Fraction(1))),
        ("title matches 'it''s [A-Z]'", RegularExpression(TITLE, "it's [A-Z]")),
        ("title in network '10.0.0.1'", InNetwork(TITLE, ("10.0.0.1/32",))),
        ("title in network ('::/0', '0.0.0.0/0')", InNetwork(TITLE, ("::/0", "0.0.0.0/0"))),
        ("title references 'A.example'", References(TITLE, "a.example")),
        ("title references 'http://A.example'", References(TITLE, "http://a.example/")),
        ("title extends 'http://a.example/b/'", Extends(TITLE, "http://a.example/b")),
        ("title extends 'http://a.example//'", Extends(TITLE, "http://a.example/")),
        ("title shares 'http://a.example'", Shares(TITLE, ("http://a.example/",))),
        ("published > 2 days ago", Compare(Attribute("published"), ">", Ago(timedelta(days=2)))),
        ("published >= 1 HOUR AGO and x = 1", And((Compare(Attribute("published"), ">=", HOUR), equal("x", 1.0)))),
        ("published within last 1 hour", Between(Attribute("published"), HOUR, Ago(timedelta(0)))),
        ("published <= now", Compare(Attribute("published"), "<=", Ago(timedelta(0)))),
        ("item contains 'a'", Contains(WHOLE, ("a",))),
        ("ITEM.year = 2026", Compare(Attribute("*", "year"), "=", 2026.0)),
        ('"item" = 1', equal("item", 1.0)),
    ],
)
def test_conditions_on_texts_links_and_relative_times(text: str, expression: Expression) -> None:
    assert condition(text) == expression


def test_parentheses_of_lists_do_not_count_as_nesting() -> None:
    lists = (
        "x in (1, 2)",
        "x contains any ('a', 'b')",
        "x contains all pattern ('a*')",
        "x in network ('::/0')",
        "x shares ('http://a.example')",
    )
    for inner in lists:
        text = "(" * 50 + inner + ")" * 50
        assert condition(text) == condition(inner)
        with pytest.raises(StatementSyntaxError, match="nested more than 50"):
            condition(f"{inner} and ({text})")
