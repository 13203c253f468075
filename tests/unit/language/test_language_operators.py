"""Syntax of operators: registrations, calls, variables, comparisons of results, and error messages."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta

import pytest

from runnel.algebra.nodes.attributes import Ago, Attribute
from runnel.algebra.nodes.calls import Arithmetic, Call, Constraint, Literally, Variable
from runnel.algebra.nodes.expressions import And, Compare, Expression, Not, Or
from runnel.errors import InvalidConditionError, Span, StatementError, StatementSyntaxError
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import CreateFeed, DropOperator, Name, RegisterOperator, Show, Statement
from runnel.model.operator import Parameter

WHERE = "create feed A from B where "
X, Y, Z = Variable("x"), Variable("y"), Variable("z")


def condition(text: str) -> Expression:
    (parsed,) = parse(WHERE + text)
    assert isinstance(parsed.statement, CreateFeed)
    (entry,) = parsed.statement.query.conditions
    return entry.expression


def refused(text: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        parse(text)
    assert caught.value.render()
    return caught.value


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "register operator mobPattern(?people int) from 'city.vision:mob_pattern' cost 40 ms",
            RegisterOperator(
                Name("mobPattern"),
                "city.vision:mob_pattern",
                (Parameter("people", "result", "int"),),
                cost=timedelta(milliseconds=40),
            ),
        ),
        ("register operator f from 'distance'", RegisterOperator(Name("f"), "distance")),
        ("register operator f() from 'distance'", RegisterOperator(Name("f"), "distance", ())),
        (
            'REGISTER OPERATOR "my op"(place Text, field ATTRIBUTE, "on" date, ?metres number) FROM \'d\'',
            RegisterOperator(
                Name("my op"),
                "d",
                (
                    Parameter("place", "input", "text"),
                    Parameter("field", "attribute"),
                    Parameter("on", "input", "date"),
                    Parameter("metres", "result", "number"),
                ),
            ),
        ),
        (
            "register operator f from 'd' with (b 'it''s', a '') on error retry for 6 hours concurrency 4 impure "
            "budget 20.5 seconds per minute limit .5 seconds batch 64 reading title, batch release '2.1' cost 1.5 ms "
            "budget 100 calls per minute",
            RegisterOperator(
                Name("f"),
                "d",
                release="2.1",
                cost=timedelta(microseconds=1500),
                pure=False,
                reads=("title", "batch"),
                batch=64,
                time_limit=timedelta(milliseconds=500),
                concurrency=4,
                calls=100,
                seconds=20.5,
                on_error="retry",
                retry_for=timedelta(hours=6),
                configuration=(("a", ""), ("b", "it's")),
            ),
        ),
        ("register operator f from 'd' pure on error unknown", None),
        ("register operator cost from 'd' cost 3 us", None),
        ("drop operator f cascade", DropOperator(Name("f"), cascade=True)),
        ("drop operator operator", DropOperator(Name("operator"))),
        ("show operators", Show("operators")),
        ("show operator show", Show("operator", Name("show"))),
    ],
)
def test_registrations_are_parsed_and_printed(text: str, statement: Statement | None) -> None:
    (parsed,) = parse(text)
    assert statement is None or parsed.statement == statement
    assert parse(print_statement(parsed.statement))[0].statement == parsed.statement


def test_configuration_of_an_operator_is_not_in_its_repr() -> None:
    (parsed,) = parse("register operator f from 'd' with (token 'secret')")
    assert "secret" not in repr(parsed.statement)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("f()", Call("f")),
        ("f (a)", Call("f", (Attribute("a"),))),
        ('"my op"("dc:title", \'x\')', Call("my op", (Attribute("dc:title"), Literally("x")))),
        (
            "f(1, -2.5, true, FALSE, 'a', ?x, now, cost, date '2026-11-15')",
            Call(
                "f",
                (
                    Literally(1.0),
                    Literally(-2.5),
                    Literally(True),
                    Literally(False),
                    Literally("a"),
                    X,
                    Attribute("now"),
                    Attribute("cost"),
                    Literally(date(2026, 11, 15)),
                ),
            ),
        ),
        ("not f()", Not(Call("f"))),
        ("f = 1 and f(f)", And((Compare(Attribute("f"), "=", 1.0), Call("f", (Attribute("f"),))))),
        ("?x < 1000", Constraint(X, "<", Literally(1000.0))),
        ("1000 > ?x", Constraint(X, "<", Literally(1000.0))),
        ("10 - 1 != ?x", Constraint(X, "!=", Arithmetic("-", Literally(10.0), Literally(1.0)))),
        ("?x <> 'a'", Constraint(X, "!=", Literally("a"))),
        ("?x = true", Constraint(X, "=", Literally(True))),
        ("?x >= 2 days ago", Constraint(X, ">=", Literally(Ago(timedelta(days=2))))),
        (
            "?x < date '2026-11-15T10:00:00Z'",
            Constraint(X, "<", Literally(datetime(2026, 11, 15, 10, tzinfo=UTC))),
        ),
        ("?y > 2 * ?z", Constraint(Y, ">", Arithmetic("*", Literally(2.0), Z))),
        ("?x-2 > ?y", Constraint(Arithmetic("-", X, Literally(2.0)), ">", Y)),
        ("?x - -2 > ?y", Constraint(Arithmetic("-", X, Literally(-2.0)), ">", Y)),
        (
            "(?x + ?y) / 2 >= ?z",
            Constraint(Arithmetic("/", Arithmetic("+", X, Y), Literally(2.0)), ">=", Z),
        ),
        (
            "?x - (?y - ?z) = ?x - ?y - ?z",
            Constraint(Arithmetic("-", X, Arithmetic("-", Y, Z)), "=", Arithmetic("-", Arithmetic("-", X, Y), Z)),
        ),
        ("((?x)) > ((3))", Constraint(X, ">", Literally(3.0))),
        ("((?x > 3))", Constraint(X, ">", Literally(3.0))),
        (
            "?x between 1 and 5",
            And((Constraint(X, ">=", Literally(1.0)), Constraint(X, "<=", Literally(5.0)))),
        ),
        (
            "?x not between 1 and ?y + 1",
            And(
                (
                    Or(
                        (
                            Constraint(X, "<", Literally(1.0)),
                            Constraint(X, ">", Arithmetic("+", Y, Literally(1.0))),
                        )
                    ),
                    Constraint(Arithmetic("+", Y, Literally(1.0)), "=", Arithmetic("+", Y, Literally(1.0))),
                )
            ),
        ),
        ("?x in ('a', 'b', 'a')", Or((Constraint(X, "=", Literally("a")), Constraint(X, "=", Literally("b"))))),
        ("?x in (1)", Constraint(X, "=", Literally(1.0))),
        ("?x not in (1, true)", And((Constraint(X, "!=", Literally(1.0)), Constraint(X, "!=", Literally(True))))),
    ],
)
def test_calls_and_constraints_are_parsed(text: str, expression: Expression) -> None:
    assert condition(text) == expression
    assert condition(f"(({text}))") == expression


def test_calls_and_variables_have_spans() -> None:
    results = condition("x = 1 and\n  near('p', ?x) and 5 < ?x")
    assert isinstance(results, And)
    _, call, constraint = results.parts
    assert isinstance(call, Call)
    assert isinstance(constraint, Constraint)
    assert call.span == Span(2, 3, 7)
    assert isinstance(call.arguments[1], Variable)
    assert call.arguments[1].span == Span(2, 13, 15)
    assert isinstance(constraint.left, Variable)
    assert constraint.left.span == Span(2, 25, 27)


@pytest.mark.parametrize(
    ("text", "message", "columns", "hint"),
    [
        ("f(item)", "item cannot be passed to an operator", (3, 7), "pass the name of an attribute"),
        ("f(a.year)", "a.year cannot be passed", (3, 4), "pass the name of an attribute"),
        ("5 > 3", "comparison of two constants", (3, 4), "?people > 50"),
        ("?x = now", "relative times cannot be compared for equality", (6, 9), "<="),
        ("?x not in (1, 2 days ago)", "relative times cannot be compared for equality", (15, 16), "<="),
        ("?x between 5 and 1", "is above the upper bound", (12, 13), "swap"),
        ("?x between 5 and 'a'", "two constants of the same type", (18, 21), None),
        ("?x > 1e999", "too large", (6, 11), "doubles"),
    ],
)
def test_invalid_conditions_are_rejected(text: str, message: str, columns: tuple[int, int], hint: str | None) -> None:
    error = refused(WHERE + text)
    assert isinstance(error, InvalidConditionError)
    assert message in error.message
    assert error.span is not None
    assert (error.span.column - len(WHERE), error.span.end_column - len(WHERE)) == columns
    assert (error.hint is None) if hint is None else hint in (error.hint or "")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (WHERE + "f(", "expected an argument", "is not closed"),
        (WHERE + "f(,)", "expected an argument (an attribute, a constant, or a variable such as ?x)", None),
        (WHERE + "f(?x > 3)", "but found `>`", None),
        (WHERE + "f(a = 3)", "but found `=`", None),
        (WHERE + "?x", "a calculation (+ - * /)", None),
        (WHERE + "?x exists", "but found `exists`", None),
        (WHERE + "?x > price", "but found `price`", "on the left side"),
        (WHERE + "price > ?x", "but found `?x`", "pass both to an operator"),
        (WHERE + "?x > 'a' + 1", "but found `+`", None),
        (WHERE + "?", "expected a condition but found `?`", None),
        (
            WHERE + "?x > " + " + ".join("1" * 30),
            "nested more than 20 levels deep",
            "register an operator that computes the value",
        ),
        (WHERE + f"f({', '.join('1' * 33)})", "at most 32 arguments", None),
        (WHERE + "?" + "x" * 5000 + " > 3", "variable names must have at most", None),
        ("register operator f", "expected `from` or `(`", None),
        ("register operator f(a) from 'd'", "expected a type such as text", None),
        ("register operator f(a txt) from 'd'", "txt is not a type of a parameter", "did you mean text?"),
        ("register operator f(?a attribute) from 'd'", "attribute is not a type of a result", "use text"),
        ("register operator f(a text, ?a int) from 'd'", "two parameters have the name a", None),
        ("register operator f from ''", "an operator's source cannot be empty", None),
        (
            "register operator f from 'd' cost 3 hours",
            "hours is not a unit for costs and time limits",
            "us, ms, seconds",
        ),
        ("register operator f from 'd' cost 0 ms", "must be positive", None),
        ("register operator f from 'd' limit -1 seconds", "must be positive", None),
        ("register operator f from 'd' limit 1e300 minutes", "at most 60 minutes", None),
        (
            "register operator f from 'd' pure impure",
            "the option impure repeats or contradicts",
            "remove one of the two",
        ),
        (
            "register operator f from 'd' batch 3 cost 1 ms batch 3",
            "the option batch repeats or contradicts",
            "remove one of the two",
        ),
        ("register operator f from 'd' batch 0", "batch must be from 1 to 100,000", None),
        ("register operator f from 'd' concurrency 100000", "concurrency must be from 1 to 1,000", None),
        ("register operator f from 'd' budget 0 calls per minute", "must be positive", None),
        ("register operator f from 'd' budget 1.5 calls per minute", "a whole number of at most", None),
        ("register operator f from 'd' budget 5 euros per minute", "calls or seconds per minute", "budget 100 calls"),
        ("register operator f from 'd' on error retyr", "retyr is not", "did you mean retry?"),
        ("register operator f from 'd' on error unknown for 3 hours", "does not retry calls", "remove `for`"),
        ("register operator f from 'd' with (a 'b', a 'c')", "the key a is set twice", None),
        ("register operator f from 'd' with (a '\0')", "NUL", None),
        ("register operator f from 'd' costs 3 ms", "but found `costs`", "did you mean cost?"),
        ("show operator", "expected a name", None),
        ("drop operator", "expected a name", None),
    ],
)
def test_syntax_errors_of_operators(text: str, message: str, hint: str | None) -> None:
    error = refused(text)
    assert isinstance(error, StatementSyntaxError)
    assert message in error.message
    assert error.span is not None
    assert hint is None or hint in (error.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        WHERE + "?x > " + "(" * 100_000,
        WHERE + "?x > " + "1 + " * 100_000 + "1",
        WHERE + "?x > " + "-" * 100_000,
        WHERE + "f(" + "?x, " * 100_000 + "?x)",
        WHERE + "f(" * 100_000,
        "register operator f(" + ", ".join(f"p{n} text" for n in range(50_000)) + ") from 'd'",
        "register operator f from 'd' cost 1e" + "9" * 100_000 + " ms",
        "register operator f from 'd' " + "pure " * 50_000,
    ],
    ids=range(8),
)
def test_hostile_operator_texts_are_rejected_quickly(text: str) -> None:
    started = time.process_time()
    error = refused(text)
    assert len(error.message) < 400
    assert time.process_time() - started < 10


def test_nesting_of_calculations_and_conditions_is_added() -> None:
    deep = "?x > " + "".join("1 - (" for _ in range(18)) + "?y" + ")" * 18
    assert condition(deep)
    text = "f() and (" * 49 + deep
    assert isinstance(refused(WHERE + text), StatementSyntaxError)


@pytest.mark.parametrize("word", ["operator", "operators", "cost", "pure", "reading", "release", "budget", "batch"])
def test_keywords_of_operators_can_be_names(word: str) -> None:
    text = f"create feed {word} tagged {word} from {word} where {word} = 1 and {word}({word})"
    (parsed,) = parse(text)
    assert print_statement(parsed.statement) == f"{text};"
