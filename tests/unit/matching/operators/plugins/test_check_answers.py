"""Operator answers are checked against the declared results, whatever an operator returns."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import CorruptDataError
from runnel.matching.operators.plugins.check_answers import (
    MAX_ROWS,
    InvalidAnswerError,
    check_answers,
    check_rows,
    rows_of,
)
from runnel.matching.operators.plugins.contract import FailedCall
from runnel.matching.operators.plugins.encoding import from_bytes, rows_from_bytes, to_bytes
from runnel.model.item import MAX_TEXT
from runnel.model.operator import HOLDS, Parameter, ValueType


def results(*kinds: ValueType) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"r{number}", "result", kind) for number, kind in enumerate(kinds))


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (None, ()),
        (False, ()),
        (np.False_, ()),
        (True, HOLDS),
        (np.True_, HOLDS),
        ("Bronx", (("Bronx",),)),
        (3, ((3,),)),
        (np.float32(0.5), ((0.5,),)),
        ((1.0, "a"), ((1.0, "a"),)),
        ([(1.0, "a"), (2.0, "b")], ((1.0, "a"), (2.0, "b"))),
        ({2.0}, ((2.0,),)),
        (np.array([1.0, 2.0]), ((1.0,), (2.0,))),
        ((number for number in (1, 2)), ((1,), (2,))),
        ([], ()),
        (date(2026, 1, 2), ((date(2026, 1, 2),),)),
    ],
)
def test_return_values_of_functions_are_converted_to_rows(value: object, rows: object) -> None:
    assert rows_of(value) == rows


@pytest.mark.parametrize("value", [{"a": 1}, b"bytes", object()])
def test_return_values_that_are_not_rows_are_refused(value: object) -> None:
    with pytest.raises(InvalidAnswerError, match="type"):
        rows_of(value)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("text", "cafe\u0301\0", "caf\u00e9"),
        ("number", 3, 3.0),
        ("number", np.int64(3), 3.0),
        ("number", -0.0, 0.0),
        ("int", 3.0, 3.0),
        ("int", np.uint8(7), 7.0),
        ("boolean", np.True_, True),
        ("boolean", False, False),
        ("date", date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)),
        ("date", datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=UTC)),
        ("date", datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 1, 2, 1, tzinfo=UTC)),
        ("date", "2026-01-02T03:00:00Z", datetime(2026, 1, 2, 3, tzinfo=UTC)),
    ],
)
def test_values_are_converted_to_the_declared_type(kind: ValueType, value: object, found: object) -> None:
    ((value,),) = check_rows([[value]], results(kind))
    assert value == found
    assert type(value) is type(found)
    assert str(value) == str(found)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", 3.0),
        ("text", "x" * (MAX_TEXT + 1)),
        ("text", None),
        ("number", "3"),
        ("number", True),
        ("number", float("nan")),
        ("number", float("inf")),
        ("number", 10**400),
        ("int", 1.5),
        ("int", 2**53 + 2),
        ("int", False),
        ("boolean", 1),
        ("boolean", "true"),
        ("date", 0.0),
        ("date", "yesterday"),
        ("date", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
        ("date", datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))),
    ],
)
def test_values_of_another_type_are_refused(kind: ValueType, value: object) -> None:
    with pytest.raises(InvalidAnswerError, match=r"\?r0"):
        check_rows([[value]], results(kind))


@pytest.mark.parametrize(
    ("given_rows", "kinds"),
    [
        ([(1.0,)], ()),
        ([()], ("number",)),
        ([(1.0, 2.0)], ("number",)),
        ("ab", ("text",)),
        ([3.0], ("number",)),
        (3, ()),
    ],
)
def test_rows_must_have_the_declared_number_of_results(given_rows: object, kinds: tuple[ValueType, ...]) -> None:
    with pytest.raises(InvalidAnswerError):
        check_rows(given_rows, results(*kinds))


def test_too_many_rows_are_refused_without_reading_all() -> None:
    assert len(check_rows(((number,) for number in range(MAX_ROWS)), results("int"))) == MAX_ROWS
    with pytest.raises(InvalidAnswerError, match="1,000 rows"):
        check_rows(((number,) for number in range(10**15)), results("int"))
    with pytest.raises(InvalidAnswerError, match="1,000 rows"):
        check_rows(rows_of(number for number in range(10**15)), results("int"))


def test_an_invalid_answer_fails_only_its_call() -> None:
    result = check_answers([[("a",)], [(1.0,)], FailedCall("no model", False)], 3, "mob", results("text"))
    assert result[0] == (("a",),)
    assert isinstance(result[1], FailedCall)
    assert not result[1].passing
    assert result[1].reason.startswith("mob: it returned 1.0 for ?r0")
    assert result[2] == FailedCall("mob: no model", False)


@pytest.mark.parametrize("answers", [[], [HOLDS, HOLDS], None, "a", 3])
def test_the_number_of_answers_must_equal_the_number_of_calls(answers: object) -> None:
    with pytest.raises(InvalidAnswerError, match="one answer"):
        check_answers(answers, 1, "mob", ())


_KINDS: dict[ValueType, st.SearchStrategy[object]] = {
    "text": st.text(max_size=9),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "int": st.integers(-(2**53), 2**53),
    "boolean": st.booleans(),
    "date": st.datetimes(timezones=st.just(UTC)),
}


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_equal_answers_are_equal_values_and_survive_encoding(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(_KINDS)), max_size=3))
    rows = data.draw(st.lists(st.tuples(*(_KINDS[kind] for kind in kinds)), max_size=6))
    shuffled = data.draw(st.permutations(rows + rows))
    result = check_rows(rows, results(*kinds))
    assert check_rows(shuffled, results(*kinds)) == result
    assert len(set(result)) == len(result)
    again = rows_from_bytes(to_bytes(result))
    assert again == result
    assert [[type(value) for value in row] for row in again] == [[type(value) for value in row] for row in result]
    assert check_rows(result, results(*kinds)) == result


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b'{"date":"never"}', b"\xff", b"9" * 5_000])
def test_invalid_json_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        from_bytes(data)


@pytest.mark.parametrize("data", [b"{}", b"[1]", b"[[null]]", b"[[[1.0]]]", b'[[{"a":1}]]', b"[[3]]"])
def test_json_that_is_not_an_answer_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        rows_from_bytes(data)


def test_bytes_distinguish_true_from_1() -> None:
    assert to_bytes((True,)) != to_bytes((1.0,))
    assert to_bytes(("a",)) != to_bytes((("a",),))
    assert to_bytes({"a": 1, "b": 2}) == to_bytes({"b": 2, "a": 1})
