"""Binding of operator calls to registrations: versions, results, types, and error messages."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Constraint, Literally, Variable
from runnel.algebra.nodes.encode import decode_node, encode_node
from runnel.algebra.nodes.expressions import And, Exists, Not
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union
from runnel.algebra.semantics.bindings import solutions
from runnel.algebra.semantics.distinct import Distinct
from runnel.errors import InvalidConditionError, StatementError, UnknownNameError
from runnel.language.binding.bind_operators import bind_node, signature
from runnel.language.binding.bind_query import bind_query
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import CreateFeed
from runnel.model.operator import OperatorDeclaration, Parameter, Rows, ValueType


def result(name: str, kind: ValueType) -> Parameter:
    return Parameter(name, "result", kind)


def given_as(name: str, kind: ValueType) -> Parameter:
    return Parameter(name, "input", kind)


OPERATORS = {
    operator_declaration.name: operator_declaration
    for operator_declaration in (
        OperatorDeclaration("mob", 3, "city:mob", (result("people", "int"),)),
        OperatorDeclaration("near", 1, "distance", (given_as("place", "text"), result("metres", "number"))),
        OperatorDeclaration("name", 2, "city:name", (result("name", "text"),)),
        OperatorDeclaration("dated", 1, "city:dated", (given_as("day", "date"), result("when", "date"))),
        OperatorDeclaration("alike", 1, "similarity", (Parameter("field", "attribute"), given_as("least", "int"))),
        OperatorDeclaration("holds", 7, "city:holds"),
        OperatorDeclaration("flag", 1, "city:flag", (given_as("wanted", "boolean"), result("is", "boolean"))),
    )
}
FEEDS = {"A": 1, "B": 2}


def bound(text: str) -> Node:
    (parsed,) = parse(f"create feed F from A as $a | B as $b where {text}")
    assert isinstance(parsed.statement, CreateFeed)
    return bind_query(parsed.statement.query, FEEDS.get, lambda: FEEDS, OPERATORS.get, lambda: OPERATORS)


def condition(text: str) -> object:
    node = bound(text)
    assert isinstance(node, Filter)
    return node.condition


START = len("create feed F from A as $a | B as $b where ")


def refused(text: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        bound(text)
    return caught.value


def test_bound_calls_have_versions_and_results() -> None:
    assert condition("holds() and near('Bronx', ?x) and ?x < 10") == And(
        (
            Call("holds", (), 7, ()),
            Call("near", (Literally("Bronx"), Variable("x")), 1, (1,)),
            Constraint(Variable("x"), "<", Literally(10.0)),
        )
    )
    assert condition("mob(50)") == Call("mob", (Literally(50.0),), 3, (0,))
    assert condition("not alike(title, 3)") == Not(Call("alike", (Attribute("title"), Literally(3.0)), 1, ()))


def test_day_is_its_first_moment_as_input_and_the_whole_day_as_result() -> None:
    results = condition("dated(date '2026-11-15', date '2026-11-16')")
    assert results == Call(
        "dated", (Literally(datetime(2026, 11, 15, tzinfo=UTC)), Literally(date(2026, 11, 16))), 1, (1,)
    )


def test_binding_keeps_spans() -> None:
    results = condition("mob(?n)")
    assert isinstance(results, Call)
    assert results.span is not None
    assert results.span.column == START + 1


def test_conditions_on_variables_are_bound() -> None:
    assert bound("$a[mob(?n) and ?n > 5] and $b[mob(?m) and ?m < 5]") == Union(
        (
            Filter(
                Read(1),
                And((Call("mob", (Variable("n"),), 3, (0,)), Constraint(Variable("n"), ">", Literally(5.0)))),
            ),
            Filter(
                Read(2),
                And((Call("mob", (Variable("m"),), 3, (0,)), Constraint(Variable("m"), "<", Literally(5.0)))),
            ),
        )
    )


def test_operators_are_not_looked_up_without_calls() -> None:
    (parsed,) = parse("create feed F from A where x = 1")
    assert isinstance(parsed.statement, CreateFeed)
    query = parsed.statement.query
    assert bind_query(query, FEEDS.get, list, lambda name: pytest.fail(name), lambda: pytest.fail("names"))


@pytest.mark.parametrize(
    ("text", "kind", "message", "column", "hint"),
    [
        ("mbo(?n)", UnknownNameError, "there is no operator mbo", 1, "did you mean mob?"),
        (
            "x = 1 and xyzzy(?n)",
            UnknownNameError,
            "there is no operator xyzzy",
            11,
            "register operator xyzzy(…) from '…'",
        ),
        ("mob()", InvalidConditionError, "mob takes 1 argument, not 0", 1, "registered as mob(?people int)"),
        ("near('a')", InvalidConditionError, "near takes 2 arguments, not 1", 1, "near(place text, ?metres number)"),
        ("holds(1)", InvalidConditionError, "holds takes no arguments, not 1", 1, "holds()"),
        ("near(?p, ?x)", InvalidConditionError, "?p is not bound here", 6, "a variable of a pattern in the same"),
        ("near(title, ?x)", InvalidConditionError, "not the attribute title", 1, "in single quotes: 'title'"),
        ("near(5, ?x)", InvalidConditionError, "place is a text, not 5", 1, "near(place text"),
        ("near('a', 'b')", InvalidConditionError, "metres is a number, not 'b'", 1, "near(place text"),
        ("near('a', title)", InvalidConditionError, "metres is a result", 1, "near(place text"),
        ("mob(50.5)", InvalidConditionError, "people is a whole number, not 50.5", 1, "mob(?people int)"),
        ("mob(true)", InvalidConditionError, "people is a whole number, not true", 1, "mob(?people int)"),
        ("flag(1, ?x)", InvalidConditionError, "wanted is a truth value, not 1", 1, "flag(wanted boolean"),
        ("dated('2026-11-15', ?x)", InvalidConditionError, "day is a date, not '2026-11-15'", 1, "date '2026-11-15'"),
        (
            "alike('title', 1)",
            InvalidConditionError,
            "field takes the name of an attribute",
            1,
            "remove the quotes: title",
        ),
        ("alike(?f, 1)", InvalidConditionError, "field takes the name of an attribute", 1, "alike(field attribute"),
        ("alike(5, 1)", InvalidConditionError, "field takes the name of an attribute", 1, "alike(field attribute"),
        (
            "holds() and ?x > 3",
            InvalidConditionError,
            "?x is not bound here",
            13,
            "a pattern in the same conjunction",
        ),
        ("mob(?n) and not ?n > 3", InvalidConditionError, "?n is not bound here", 17, "under `not` are local"),
        ("not (mob(?n) and ?m > 3)", InvalidConditionError, "?m is not bound here", 18, "bind it by an operator"),
        ("name(?x) and ?x > 3", InvalidConditionError, "a text is compared with a number", 14, "of one type"),
        (
            "name(?x) and ?x != 3",
            InvalidConditionError,
            "?x != 3 has the same result for every value",
            14,
            "of one type",
        ),
        ("mob(?n) and ?n in ('a', 'b')", InvalidConditionError, "compared with a text", 13, "of one type"),
        ("mob(?n) and ?n = 3.5", InvalidConditionError, "never equals a fraction", 13, "< or >"),
        ("mob(?n) and name(?x) and ?n > ?x", InvalidConditionError, "is compared with a text", 26, "of one type"),
        ("name(?x) and ?x + 1 > 3", InvalidConditionError, "?x is a text, but calculations need numbers", 14, None),
        ("mob(?n) and dated(date '2026-11-15', ?d) and ?n < 2 * ?d", InvalidConditionError, "?d is a date", 55, None),
        (
            "mob(?x) and name(?x)",
            InvalidConditionError,
            "a whole number for mob and a text for name",
            18,
            "different variables",
        ),
        ("$a[mob(?n)] and ?n > 3", InvalidConditionError, "?n is used in two conditions", 17, "the same brackets"),
        ("$a[mob(?n)] and mob(?n)", InvalidConditionError, "?n is used in two conditions", 21, "the same brackets"),
        ("$a[mob(?n)] and $a[near('a', ?n)]", InvalidConditionError, "?n is used in two", 30, "the same brackets"),
        (
            " and ".join(f"(near('a', ?x) or near('{n}', ?x))" for n in range(7)),
            InvalidConditionError,
            "more than 64 disjuncts",
            2,
            "combine fewer conditions",
        ),
    ],
)
def test_invalid_calls_are_rejected(
    text: str, kind: type[StatementError], message: str, column: int, hint: str | None
) -> None:
    error = refused(text)
    assert isinstance(error, kind)
    assert message in error.message
    assert error.span is not None
    assert error.span.column - START == column
    assert (error.hint is None) if hint is None else hint in (error.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "mob(?n) and near('a', ?n)",
        "mob(?n) and ?n = 3 and ?n < 3.5",
        "(mob(?x) or name(?x))",
        "(mob(?x) or name(?x)) and ?x = 'a'",
        "not name(?x) and mob(?x)",
        "dated(date '2026-11-15', ?d) and ?d > 2 days ago and ?d != date '2026-11-15'",
        "$a[not mob(?n)] and mob(?n)",
        "flag(true, ?x) and ?x = false",
        "mob(?n) and (?n > 3 or ?n * 2 < -1)",
    ],
)
def test_valid_calls_are_accepted(text: str) -> None:
    assert decode_node(encode_node(bound(text))) == bound(text)


def test_bound_call_can_be_bound_to_another_registration() -> None:
    node = Gated(bound("$a[mob(?n) and ?n > 3] and holds()"), Distinct((Attribute("title"),), timedelta(days=1)))
    newer = OPERATORS | {"mob": OPERATORS["mob"].as_version(4)}
    again = bind_node(node, newer.get, list)
    assert again == bind_node(again, newer.get, list)
    assert str(again) == str(node).replace("version=3", "version=4")
    other = OPERATORS | {"mob": OperatorDeclaration("mob", 4, "city:mob", (result("people", "text"),))}
    with pytest.raises(InvalidConditionError, match="a text is compared with a number"):
        bind_node(node, other.get, list)


def test_signatures() -> None:
    assert signature(OPERATORS["alike"]) == "alike(field attribute, least int)"
    assert signature(OPERATORS["holds"]) == "holds()"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 9), max_size=4), st.integers(0, 9), st.integers(0, 9))
def test_bound_condition_evaluates_as_written(people: list[int], low: int, high: int) -> None:
    rows: Rows = tuple((float(person),) for person in people)
    node = bound(f"mob(?n) and ?n between {min(low, high)} and {max(low, high)} and not mob({low})")
    assert isinstance(node, Filter)
    results = {solution["n"] for solution in solutions(node.condition, {}, lambda call: rows)}
    inside = {float(person) for person in people if min(low, high) <= person <= max(low, high)}
    assert results == (set() if low in people else inside)


@pytest.mark.parametrize(
    "text",
    [
        "not (not mob(?x))",
        "mob(?x) and not (not near('Bronx', ?x))",
        "not (not (mob(?x) and ?x > 3))",
        "not (not graph { ?x <urn:a> ?y })",
        "graph { ?x <urn:a> ?y } and not (not graph { ?y <urn:b> ?z })",
    ],
)
def test_double_negation_of_variables_is_kept(text: str) -> None:
    node = bound(text)
    assert isinstance(node, Filter)
    stored = decode_node(json.loads(json.dumps(encode_node(node))))
    assert stored == node
    assert "Not(part=Not(part=" in repr(stored)
    (parsed,) = parse(f"create feed F from A as $a | B as $b where {text};")
    assert parse(print_statement(parsed.statement))[0].statement == parsed.statement


def test_double_negation_of_filters_is_removed() -> None:
    assert condition("not (not title exists)") == Exists(Attribute("title"))


def test_variable_under_two_negations_is_not_joined_with_an_outer_variable() -> None:
    def answers(call: Call) -> Rows:
        return ((1.0,),) if call.operator == "mob" else ((2.0,),)

    written = condition("mob(?x) and not (not near('Bronx', ?x))")
    assert solutions(written, {}, answers) == [{"x": 1.0}]  # type: ignore[arg-type]
    assert solutions(condition("mob(?x) and near('Bronx', ?x)"), {}, answers) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("?x in (1, 6 / ?y)", {(1, 2), (3, 2)}),
        ("?x not in (1, 6 / ?y)", {(5, 2)}),
        ("?x between 6 / ?y and 3", {(3, 2)}),
        ("?x not between 6 / ?y and 4", {(1, 2), (5, 2)}),
    ],
)
def test_lists_and_ranges_with_an_undefined_bound_do_not_hold(text: str, values: set[tuple[int, int]]) -> None:
    written = condition(f"mob(?x) and near('Bronx', ?y) and {text}")
    for x, y in itertools.product((1, 3, 5), (0, 2)):
        results = solutions(written, {}, lambda call, x=x, y=y: ((float(x if call.operator == "mob" else y),),))  # type: ignore[misc,arg-type]
        assert bool(results) == ((x, y) in values), (x, y)
    (parsed,) = parse(f"create feed F from A where mob(?x) and near('Bronx', ?y) and {text};")
    assert parse(print_statement(parsed.statement))[0].statement == parsed.statement


@pytest.mark.parametrize("text", ["?x in (1, 2 / 0)", "?x < 1 / (2 - 2)", "?x > ?x + 3 / 0", "?x not in (1, 2 / 0)"])
def test_calculation_of_constants_without_a_value_is_rejected(text: str) -> None:
    assert "has no value" in refused(f"mob(?x) and {text}").message
