"""Validation of operator answers. In: an object that an operator returned. Out: rows of declared types, or a failure.

The answers of built-in operators and plug-ins are checked alike. Rows have the number of results that the
registration declares and values of the declared types. Rows are sorted and distinct, so that equal answers are equal
values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import islice

from runnel.matching.operators.plugins.contract import Answer, FailedCall
from runnel.matching.operators.plugins.encoding import plain
from runnel.model.item import MAX_TEXT, Value, clean_text, moment
from runnel.model.operator import HOLDS, Parameter, Row, Rows, ValueType

MAX_ROWS = 1_000
"""Maximum number of rows of one answer."""

_MAX_INTEGER = 2**53
"""Doubles cannot represent all integers beyond this number."""

_MAX_REASON = 500


class InvalidAnswerError(Exception):
    """An answer does not fit the operator's declaration."""


RawRows = tuple[tuple[object, ...], ...]
"""Rows that have not been checked."""


def rows_of(returned: object) -> RawRows:
    """Convert the return value of a plain function to rows, without checking them.

    >>> rows_of(None), rows_of(True), rows_of(3.0), rows_of((1.0, "a")), rows_of([1.0, 2.0])
    ((), ((),), ((3.0,),), ((1.0, 'a'),), ((1.0,), (2.0,)))
    """
    value = plain(returned)
    match value:
        case None | False:
            return ()
        case True:
            return HOLDS
        case tuple():
            return (value,)
        case str() | int() | float() | date():
            return ((value,),)
        case Mapping() | bytes():
            raise InvalidAnswerError(f"it returned a value of the type {type(value).__name__}")
        case _ if isinstance(value, Iterable):
            return tuple(row if isinstance(row, tuple) else (row,) for row in islice(value, MAX_ROWS + 1))
        case _:
            raise InvalidAnswerError(f"it returned a value of the type {type(value).__name__}")


def check_answers(returned: object, calls: int, name: str, results: Sequence[Parameter]) -> list[Answer]:
    """Check the answers to `calls` calls of the operator `name`. An invalid answer becomes a failure.

    Raise InvalidAnswerError if the operator did not return one answer per call.

    >>> check_answers([[(3,)], FailedCall("no model")], 2, "mob", (Parameter("people", "result", "int"),))
    [((3.0,),), FailedCall(reason='mob: no model', passing=True)]
    """
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes) or len(returned) != calls:
        raise InvalidAnswerError("it did not return one answer per call")
    return [_check_answer(answer, name, results) for answer in returned]


def _check_answer(answer: object, name: str, results: Sequence[Parameter]) -> Answer:
    if isinstance(answer, FailedCall):
        return FailedCall(f"{name}: {str(answer.reason)[:_MAX_REASON]}", bool(answer.passing))
    try:
        return check_rows(answer, results)
    except InvalidAnswerError as error:
        return FailedCall(f"{name}: {error}", passing=False)


def check_rows(answer: object, results: Sequence[Parameter]) -> Rows:
    """Return the rows of an answer with their declared types, sorted and distinct.

    Raise InvalidAnswerError if a row does not fit the declared results.

    >>> check_rows([("b", 2), ("a", 1), ("b", 2)], (Parameter("x", "result"), Parameter("y", "result", "number")))
    (('a', 1.0), ('b', 2.0))
    """
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes | Mapping):
        raise InvalidAnswerError("its answer is not a list of rows")
    rows: set[Row] = set()
    for count, row in enumerate(answer):
        if count >= MAX_ROWS:
            raise InvalidAnswerError(f"it returned more than {MAX_ROWS:,} rows")
        if not isinstance(row, Sequence) or isinstance(row, str | bytes):
            raise InvalidAnswerError(f"its answer contains {_format_value(row)} instead of a row")
        if len(row) != len(results):
            raise InvalidAnswerError(
                f"it returned a row with {len(row)} results, but the registration declares {len(results)}"
            )
        rows.add(tuple(_check_value(value, result) for value, result in zip(row, results, strict=True)))
    # Values of one column are of one type, so rows can be compared.
    return tuple(sorted(rows))


def _check_value(value: object, result: Parameter) -> Value:
    try:
        converted = _convert(plain(value), result.type)
    except (OverflowError, ValueError):
        converted = None
    if converted is None:
        expected = _EXPECTED[result.type]
        raise InvalidAnswerError(f"it returned {_format_value(value)} for ?{result.name}, which is not {expected}")
    return converted


def _convert(value: object, kind: ValueType) -> Value | None:
    """Convert a value to the declared type. Return None if it is of another type or out of range."""
    match kind, value:
        case "boolean", bool():
            return value
        case (("number" | "int" | "boolean"), bool()):
            return None
        case (("number" | "int"), int() | float()):
            return _number(value, whole=kind == "int")
        case "text", str():
            return clean_text(value) if len(value) <= MAX_TEXT else None
        case "date", datetime():
            return moment(value)
        case "date", date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case "date", str():
            return moment(datetime.fromisoformat(value.strip()[:40]))
        case _:
            return None


def _number(value: float, *, whole: bool) -> float | None:
    number = float(value) + 0.0  # -0.0 becomes 0.0
    if not math.isfinite(number) or (whole and (number != math.floor(number) or abs(number) > _MAX_INTEGER)):
        return None
    return number


_EXPECTED: dict[ValueType, str] = {
    "text": f"a text of at most {MAX_TEXT:,} characters",
    "number": "a finite number",
    "int": "an integer of at most 2^53",
    "boolean": "true or false",
    "date": "a date",
}


def _format_value(value: object) -> str:
    match value:
        case bool() | float() | None:
            return str(value).lower()
        case str():
            return repr(value[:40] + "…") if len(value) > 40 else repr(value)
        case _:
            return f"a value of the type {type(value).__name__}"
