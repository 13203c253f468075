"""Parsing of every statement and every form of condition."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import (
    FALSE,
    TRUE,
    And,
    Between,
    Compare,
    Contains,
    Exists,
    Expression,
    In,
    Not,
    Or,
)
from runnel.algebra.nodes.render import RESERVED
from runnel.errors import InvalidConditionError, Span, StatementSyntaxError
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import (
    Condition,
    Confirm,
    CreateFeed,
    Drop,
    Explain,
    ExplainMessage,
    FeedTerm,
    GroupTerm,
    MaterializeFeed,
    Name,
    Pause,
    Preview,
    QueryText,
    RegisterFeed,
    Renew,
    Replay,
    RotateKey,
    SendNow,
    Show,
    Statement,
    Subscribe,
    SubscribeSpans,
    Unsubscribe,
    Why,
)


def one(text: str) -> Statement:
    parsed = parse(text)
    assert len(parsed) == 1
    return parsed[0].statement


def query(text: str) -> QueryText:
    statement = one(f"create feed F {text}")
    assert isinstance(statement, CreateFeed)
    return statement.query


def condition(text: str) -> Expression:
    (results,) = query(f"from A where {text}").conditions
    assert results.variable is None
    return results.expression


def equal(name: str, value: float | str | bool) -> Compare:
    return Compare(Attribute(name), "=", value)


A, B, C = equal("a", 1.0), equal("b", 2.0), equal("c", 3.0)


@pytest.mark.parametrize("text", ["", "  \n\t ", "-- only a comment", "\ufeff", "-- a\n-- b\n"])
def test_an_empty_script_has_no_statements(text: str) -> None:
    assert parse(text) == []


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("register feed 'https://a.example/rss' as News", RegisterFeed(Name("News"), "https://a.example/rss")),
        ("register feed News", RegisterFeed(Name("News"))),
        ("register feed 'x' as A every 2 hours", RegisterFeed(Name("A"), "x", timedelta(hours=2))),
        ("register feed V apply 'x.xsl' as W", MaterializeFeed(Name("W"), Name("V"), "x.xsl")),
        ("create feed A from B", CreateFeed(Name("A"), QueryText(FeedTerm(Name("B"))))),
        ("create or replace feed A from B", CreateFeed(Name("A"), QueryText(FeedTerm(Name("B"))), replace=True)),
        ("subscribe to A output RSS", Subscribe(Name("A"), "rss")),
        ("subscribe to A output rss 'a.rss'", Subscribe(Name("A"), "rss", "a.rss")),
        ("subscribe to A output rss every 3 hours", Subscribe(Name("A"), "rss", every=timedelta(hours=3))),
        ("subscribe to A output rss for 1 week", Subscribe(Name("A"), "rss", lifetime=timedelta(days=7))),
        ("subscribe to A output rss from last 1 day", Subscribe(Name("A"), "rss", back=timedelta(days=1))),
        ("subscribe to A apply 'x.xsl' output rss", Subscribe(Name("A"), "rss", sheet="x.xsl")),
        ("renew subscription 12", Renew(12)),
        ("renew subscription 12 for 1 day", Renew(12, lifetime=timedelta(days=1))),
        ("renew ticket 'a''b' for 1 day", Renew(ticket="a'b", lifetime=timedelta(days=1))),
        ("rotate key of subscription 12", RotateKey(12)),
        ("replay message 'a-1-2'", Replay("a-1-2")),
        ("send subscription 12 now", SendNow(12)),
        ("Send ALL now", SendNow()),
        ("confirm subscription 12", Confirm(12)),
        ("Confirm subscription 12 'ABCD-EFGH'", Confirm(12, "ABCD-EFGH")),
        ("replay subscription 12", Replay(subscription=12)),
        ("explain message 'a-1-2'", ExplainMessage("a-1-2")),
        ("show dead letters", Show("dead letters")),
        ("unsubscribe ticket 'x'", Unsubscribe(ticket="x")),
        ("unsubscribe 12", Unsubscribe(12)),
        ("unsubscribe from A", Unsubscribe(feed=Name("A"))),
        ("unsubscribe from A output rss", Unsubscribe(feed=Name("A"), kind="rss")),
        ("unsubscribe from A output rss 'x'", Unsubscribe(feed=Name("A"), kind="rss", target="x")),
        ("drop feed A", Drop(Name("A"))),
        ("drop feed A cascade", Drop(Name("A"), cascade=True)),
        ("pause feed A", Pause(True, feed=Name("A"))),
        ("resume feed A", Pause(False, feed=Name("A"))),
        ("pause subscription 3", Pause(True, subscription=3)),
        ("resume subscription 3", Pause(False, subscription=3)),
        ("show feeds", Show("feeds")),
        ("show subscriptions", Show("subscriptions")),
        ("show quarantine", Show("quarantine")),
        ("show feed A", Show("feed", Name("A"))),
        ("explain feed A", Explain(Name("A"))),
        ("why item 'it''s' in A", Why("it's", Name("A"))),
        ("preview feed A", Preview(feed=Name("A"))),
        ("preview feed A over last 7 days", Preview(feed=Name("A"), back=timedelta(days=7))),
        ("preview create feed A from B", Preview(CreateFeed(Name("A"), QueryText(FeedTerm(Name("B")))))),
        (
            "preview create feed A from B over last 2 hours",
            Preview(CreateFeed(Name("A"), QueryText(FeedTerm(Name("B")))), back=timedelta(hours=2)),
        ),
    ],
)
def test_statements_are_parsed(text: str, statement: Statement) -> None:
    for written in (text, f"{text};", f"  {text}\n;\n-- done"):
        assert one(written) == statement


_NEW_WORDS = """
    renew ticket rotate key of replay message dead letters subscription all any pattern stemmed similar at least
    matches within network references extends shares ago now days confirm
"""


def test_keywords_that_are_not_reserved_can_be_names() -> None:
    for word in _NEW_WORDS.split():
        assert one(f"drop feed {word}") == Drop(Name(word))
        assert query(f"from {word} where {word} = 1").source == FeedTerm(Name(word))


def test_parts_of_a_subscription_have_spans() -> None:
    results = one("subscribe to A\n apply 'x.xsl' output\n rss 'a.rss'")
    assert isinstance(results, Subscribe)
    assert results.spans == SubscribeSpans(kind=Span(3, 2, 5), target=Span(3, 6, 13), sheet=Span(2, 8, 15))
    without = one("subscribe to A output rss")
    assert isinstance(without, Subscribe)
    assert without.spans.target == Span(1, 23, 26), "where nothing is said, the kind asks for it"


def test_secrets_are_not_in_the_repr_of_a_statement() -> None:
    for text in ("renew ticket 'geheim'", "unsubscribe ticket 'geheim'"):
        assert "geheim" not in repr(one(text))


def test_keywords_ignore_case() -> None:
    lower = (
        "create or replace feed A from (B as $b) where $b[x not between 1 and 2 or t contains 'z' and y in (true)]"
    )
    upper = lower.upper().replace("$B", "$b").replace(" T ", " t ").replace("X", "x").replace(" Y ", " y ")
    assert one(upper) == one(lower)


def test_clauses_of_a_subscription_can_have_any_order() -> None:
    expected = Subscribe(Name("A"), "rss", None, timedelta(hours=1), timedelta(days=2), timedelta(days=3))
    clauses = ["every 1 hour", "for 2 days", "from last 3 days"]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        assert one("subscribe to A output rss " + " ".join(clauses[i] for i in order)) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 second", 1),
        ("90 seconds", 90),
        ("2 minutes", 120),
        ("1 hour", 3600),
        ("1 DAYS", 86400),
        ("1 week", 604800),
        ("1 month", 2592000),
        ("1 year", 31536000),
        ("100 years", 3153600000),
    ],
)
def test_durations_are_parsed(text: str, seconds: int) -> None:
    assert one(f"subscribe to A output log every {text}") == Subscribe(
        Name("A"), "log", every=timedelta(seconds=seconds)
    )


def test_statements_of_a_script_have_spans() -> None:
    text = "show feeds;\n  drop feed A; -- gone\n\nexplain feed B;"
    assert [parsed.span for parsed in parse(text)] == [Span(1, 1, 5), Span(2, 3, 7), Span(4, 1, 8)]
    last = parse(text)[-1].statement
    assert isinstance(last, Explain)
    assert last.name.span == Span(4, 14, 15)


def test_last_semicolon_may_be_omitted_only_for_a_single_statement() -> None:
    assert len(parse("show feeds")) == 1
    with pytest.raises(StatementSyntaxError) as caught:
        parse("show feeds; show feeds")
    assert caught.value.hint == "in a script of several statements, each one ends with ;"


def test_terms_of_from_are_parsed() -> None:
    a, b, c = (FeedTerm(Name(name)) for name in "ABC")
    assert query("from A as $x").source == FeedTerm(Name("A"), Name("x"))
    assert query("from A | B | C").source == GroupTerm((a, b, c))
    assert query("from (A | B | C)").source == GroupTerm((a, b, c))
    assert query("from A | B as $b").source == GroupTerm((a, FeedTerm(Name("B"), Name("b"))))
    assert query("from (A | (B | C) as $g) as $r").source == GroupTerm((a, GroupTerm((b, c), Name("g"))), Name("r"))
    assert query("from (A)").source == GroupTerm((a,))


def test_a_where_without_variables_is_one_condition() -> None:
    assert query("from A where a = 1 and b = 2").conditions == (Condition(None, And((A, B))),)


def test_conditions_on_variables_keep_their_order_and_plain_ones_come_last_as_one() -> None:
    conditions = query(
        "from X as $x | Y as $y where a = 1 and ($y[b = 2] and $x[c = 3]) and b = 2 and $y[a = 1]"
    ).conditions
    assert conditions == (
        Condition(Name("y"), B),
        Condition(Name("x"), C),
        Condition(Name("y"), A),
        Condition(None, And((A, B))),
    )


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("a = 1", A),
        ("a = 1 or b = 2 and c = 3", Or((A, And((B, C))))),
        ("a = 1 and b = 2 or c = 3", Or((And((A, B)), C))),
        ("(a = 1 or b = 2) and c = 3", And((Or((A, B)), C))),
        ("not a = 1 and b = 2", And((Not(A), B))),
        ("not (a = 1 and b = 2)", Not(And((A, B)))),
        ("not not a = 1", A),
        ("not a = 1 or b = 2", Or((Not(A), B))),
        ("a != 1", Not(A)),
        ("a <> 1", Not(A)),
        ("not a != 1", A),
        ("a = 1 and (b = 2 and c = 3)", And((A, B, C))),
        ("a = 1 and a = 1", A),
        ("true", TRUE),
        ("not true", FALSE),
        ("false or a = 1", A),
        ("a < 1", Compare(Attribute("a"), "<", 1.0)),
        ("a <= 1", Compare(Attribute("a"), "<=", 1.0)),
        ("a > 1", Compare(Attribute("a"), ">", 1.0)),
        ("a>=1", Compare(Attribute("a"), ">=", 1.0)),
        ("a between 1 and 2 and b = 2", And((Between(Attribute("a"), 1.0, 2.0), B))),
        ("a between 'a' and 'b'", Between(Attribute("a"), "a", "b")),
        ("a in (1, 'x')", In(Attribute("a"), (1.0, "x"))),
        ("a exists", Exists(Attribute("a"))),
        ("a not contains 'x'", Not(Contains(Attribute("a"), ("x",)))),
        ("a not in (1)", Not(In(Attribute("a"), (1.0,)))),
        ("a not between 1 and 2", Not(Between(Attribute("a"), 1.0, 2.0))),
        ("a not exists", Not(Exists(Attribute("a")))),
        ("a contains 'Rock, BAND'", Contains(Attribute("a"), ("rock", "band"))),
        ("\"dc:creator\" = 'x'", equal("dc:creator", "x")),
        ("published.weekday = 7", Compare(Attribute("published", "weekday"), "=", 7.0)),
        ("published.YEAR = 7", Compare(Attribute("published", "year"), "=", 7.0)),
        ("a = -3", equal("a", -3.0)),
        ("a = 1.5e3", equal("a", 1500.0)),
        ("a = .5", equal("a", 0.5)),
        ("a = 'it''s'", equal("a", "it's")),
        ("a = ''", equal("a", "")),
        ("a = 'e\u0301'", equal("a", "é")),
    ],
)
def test_conditions_are_parsed(text: str, expression: Expression) -> None:
    assert condition(text) == expression


@pytest.mark.parametrize("text", ["a = true", "a = 1", "a in (true)", "a in (1)"])
def test_a_truth_value_is_not_a_number(text: str) -> None:
    # 1.0 == True in Python, so comparing the constants would not detect a difference.
    match condition(text):
        case Compare(_, _, constant) | In(_, (constant,)):
            assert type(constant) is (bool if "true" in text else float)
        case other:
            pytest.fail(f"unexpected {other}")


def test_list_distinguishes_1_from_true() -> None:
    assert repr(condition("a in (1, true, 1)")).endswith("constants=(1.0, True))")


@pytest.mark.parametrize(
    ("text", "constant"),
    [
        ("x = date '2026-11-15'", date(2026, 11, 15)),
        ("x = date '2026-11-15T09:30:00Z'", datetime(2026, 11, 15, 9, 30, tzinfo=UTC)),
        ("x = date '2026-11-15T09:30'", datetime(2026, 11, 15, 9, 30, tzinfo=UTC)),
        ("x = date '2026-11-15 09:30:00.25+01:00'", datetime(2026, 11, 15, 8, 30, 0, 250000, tzinfo=UTC)),
        ("published = '2026-11-15'", date(2026, 11, 15)),
        ("updated = '2026-11-15T09:30:00Z'", datetime(2026, 11, 15, 9, 30, tzinfo=UTC)),
        ("x = '2026-11-15'", "2026-11-15"),
    ],
)
def test_dates_are_parsed(text: str, constant: date | datetime | str) -> None:
    expression = condition(text)
    assert isinstance(expression, Compare)
    assert (type(expression.constant), expression.constant) == (type(constant), constant)


@pytest.mark.parametrize(
    "word", ["create", "show", "feeds", "rss", "second", "year", "replace", "cascade", "why", "null"]
)
def test_keywords_are_recognized_only_where_they_are_expected(word: str) -> None:
    assert one(f"create feed {word} from {word} as ${word} where ${word}[{word} = 1]") == CreateFeed(
        Name(word),
        QueryText(FeedTerm(Name(word), Name(word)), (Condition(Name(word), equal(word, 1.0)),)),
    )


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_reserved_words_are_names_only_in_double_quotes(word: str) -> None:
    quoted = one(f'create feed "{word}" from "{word}" where "{word}" = 1')
    assert quoted == CreateFeed(Name(word), QueryText(FeedTerm(Name(word)), (Condition(None, equal(word, 1.0)),)))
    for text in (f"drop feed {word}", f"drop feed {word.upper()}", f"create feed F from {word}"):
        with pytest.raises(StatementSyntaxError, match="reserved word"):
            parse(text)


def test_quoted_names_are_normalized_like_attributes() -> None:
    assert one('drop feed " cafe\u0301 "') == Drop(Name("café"))


@pytest.mark.parametrize("name", ['""', '"  "', '"a\nb"', '"\0"', f'"{"x" * 257}"', "x" * 257])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(StatementSyntaxError):
        parse(f"drop feed {name}")


@pytest.mark.parametrize(
    "text",
    [
        "register feed '' as A",
        "register feed 'a\nb' as A",
        "subscribe to A output rss ' '",
        "why item '' in A",
        "why item 'a\0' in A",
        "unsubscribe 99999999999999999999",
        "subscribe to A output rss ''",
    ],
)
def test_invalid_texts_and_numbers_are_rejected(text: str) -> None:
    with pytest.raises(StatementSyntaxError):
        parse(text)


def test_addresses_are_not_normalized() -> None:
    assert one("register feed 'cafe\u0301.xml' as A") == RegisterFeed(Name("A"), "cafe\u0301.xml")


def test_50_levels_of_nesting_are_accepted_and_51_rejected() -> None:
    deep = "(" * 50 + "a = 1" + ")" * 50
    assert condition(deep) == A
    assert condition(deep.replace("a = 1", "a in (1)")) == In(Attribute("a"), (1.0,))
    for text in (f"({deep})", "(" * 51 + "a = 1"):
        with pytest.raises(StatementSyntaxError, match="more than 50 levels"):
            condition(text)
    with pytest.raises(StatementSyntaxError, match="more than 50 levels"):
        query("from " + "(" * 51 + "A" + ")" * 51)


def test_nesting_of_the_canonical_text_is_limited() -> None:
    # Each level of the source becomes two in the canonical text: around the `and` and around the `not`.
    text = "a = 1 or b = 2 and not (" * 30 + "c = 3" + ")" * 30
    with pytest.raises(StatementSyntaxError, match="more than 50 levels"):
        condition(text)


def test_depth_starts_again_with_every_statement() -> None:
    assert len(parse(("create feed F from " + "(" * 30 + "A" + ")" * 30 + ";") * 4)) == 4


def test_conditions_on_variables_cannot_be_nested() -> None:
    with pytest.raises(InvalidConditionError, match="cannot contain another"):
        query("from A as $a where $a[$a[x = 1]]")
