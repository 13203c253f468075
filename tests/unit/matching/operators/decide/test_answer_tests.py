"""Evaluating many answers together agrees with the reference, and `quick_bytes` agrees with `to_bytes`."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.nodes.calls import Argument, Call, Constraint, Literally, Quantity, Relation, Variable
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.bindings import term_solutions
from runnel.matching.operators.ask.question_keys import quick_bytes
from runnel.matching.operators.decide.answer_tests import AllTests, AnswerTest, CallTests
from runnel.matching.operators.plugins.encoding import to_bytes
from runnel.model.item import Value
from runnel.model.operator import Rows

CASES = settings(max_examples=200, deadline=None)
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
NUMBERS = st.sampled_from([-1.0, 0.0, 1.0, 2.5])
VALUES: st.SearchStrategy[Value] = NUMBERS | st.sampled_from(["", "a", "ä"]) | st.booleans() | st.just(MOMENT)
RELATIONS: tuple[Relation, ...] = ("<", "<=", ">", ">=", "=", "!=")
VARIABLES = (Variable("1"), Variable("2"))
ROWS: st.SearchStrategy[Rows] = st.lists(st.tuples(VALUES, VALUES), max_size=3).map(tuple)


@st.composite
def some_tests(draw: st.DrawFn) -> list[AnswerTest]:
    result = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 9)) == 0:
            result.append(AnswerTest(None))
            continue
        results: list[Argument] = [
            draw(st.one_of(st.sampled_from(VARIABLES), VALUES.map(Literally))) for _ in range(2)
        ]
        bound = [value for value in results if isinstance(value, Variable)]
        constraints = []
        for _ in range(draw(st.integers(0, 2)) if bound else 0):
            sides: list[Quantity] = [draw(st.sampled_from(bound)), draw(VALUES.map(Literally))]
            left, right = sides if draw(st.booleans()) else sides[::-1]
            constraints.append(Constraint(left, draw(st.sampled_from(RELATIONS)), right))
        term = Term((Call("pair", tuple(results), 1, (0, 1)),), tuple(constraints))
        result.append(AnswerTest(term, draw(st.booleans())))
    return result


def passes(test: AnswerTest, rows: Rows) -> bool:
    return test.term is None or bool(term_solutions(test.term, lambda _: rows, MOMENT)) != test.negated


@given(st.lists(some_tests(), min_size=1, max_size=3), st.data())
@CASES
def test_evaluating_many_answers_together_agrees_with_the_reference(
    calls: list[list[AnswerTest]], data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.integers(0, len(calls) - 1), max_size=5))
    answers = [data.draw(ROWS) for _ in asked]
    pairs = zip(asked, answers, strict=True)
    expected = [passes(test, rows) for call, rows in pairs for test in calls[call]]
    laid = AllTests([CallTests(tests) for tests in calls])
    assert laid.hold(np.array(asked, dtype=np.int64), answers, [MOMENT] * len(asked)).tolist() == expected


def test_a_row_without_the_result_passes_no_comparison() -> None:
    call = Call("pair", VARIABLES, 1, (0, 1))
    term = Term((call,), (Constraint(VARIABLES[1], "<", Literally(5.0)),))
    laid = AllTests([CallTests([AnswerTest(term)])])
    assert laid.hold(np.array([0, 0]), [((1.0,),), ((9.0, 1.0),)], [None, None]).tolist() == [False, True]


PARTS = st.text() | st.floats() | st.booleans() | st.datetimes(timezones=st.just(UTC)) | st.integers()


@given(st.recursive(PARTS, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=6))
@CASES
def test_quick_bytes_agree_with_to_bytes(value: object) -> None:
    assert quick_bytes(value) == to_bytes(value)
