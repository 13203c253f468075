"""What operators say, checked: whatever an operator gave in, rows of the declared types or a failure out.

Every answer passes here, from built-in operators and plug-ins alike. Rows are as wide as the registration says, their
values of its types, each row once, in one order, so that equal answers are equal values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import islice

from runnel.matching.operators.plugins.contract import Answer, Failed
from runnel.matching.operators.plugins.encoding import plain
from runnel.model.item import MAX_TEXT, Value, clean_text, moment
from runnel.model.operator import HOLDS, Parameter, Row, Rows, ValueType

MOST_ROWS = 1_000
"""Rows of one answer."""

_MOST_WHOLE = 2**53
"""Whole numbers beyond this are not told apart as doubles."""

_MAX_REASON = 500


class InvalidAnswerError(Exception):
    """An answer that does not fit its declaration; the reason in words."""


RawRows = tuple[tuple[object, ...], ...]
"""Rows that were not checked yet."""


def rows_of(given: object) -> RawRows:
    """The rows that a plain function's value stands for, not checked yet.

    >>> rows_of(None), rows_of(True), rows_of(3.0), rows_of((1.0, "a")), rows_of([1.0, 2.0])
    ((), ((),), ((3.0,),), ((1.0, 'a'),), ((1.0,), (2.0,)))
    """
    given = plain(given)
    match given:
        case None | False:
            return ()
        case True:
            return HOLDS
        case tuple():
            return (given,)
        case str() | int() | float() | date():
            return ((given,),)
        case Mapping() | bytes():
            raise InvalidAnswerError(f"it gave a value of the type {type(given).__name__}")
        case _ if isinstance(given, Iterable):
            return tuple(one if isinstance(one, tuple) else (one,) for one in islice(given, MOST_ROWS + 1))
        case _:
            raise InvalidAnswerError(f"it gave a value of the type {type(given).__name__}")


def checked_answers(given: object, asks: int, name: str, results: Sequence[Parameter]) -> list[Answer]:
    """The answers to so many asks, each checked; Wrong where they are not one for each.

    >>> checked_answers([[(3,)], Failed("no model")], 2, "mob", (Parameter("people", "result", "int"),))
    [((3.0,),), Failed(reason='mob: no model', passing=True)]
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or len(given) != asks:
        raise InvalidAnswerError("it did not give one answer for every question")
    return [_checked(one, name, results) for one in given]


def _checked(given: object, name: str, results: Sequence[Parameter]) -> Answer:
    if isinstance(given, Failed):
        return Failed(f"{name}: {str(given.reason)[:_MAX_REASON]}", bool(given.passing))
    try:
        return checked_rows(given, results)
    except InvalidAnswerError as wrong:
        return Failed(f"{name}: {wrong}", passing=False)


def checked_rows(given: object, results: Sequence[Parameter]) -> Rows:
    """Rows of an operator as they are declared, each once and in order; Wrong where they do not fit.

    >>> checked_rows([("b", 2), ("a", 1), ("b", 2)], (Parameter("x", "result"), Parameter("y", "result", "number")))
    (('a', 1.0), ('b', 2.0))
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise InvalidAnswerError("its answer is not a list of rows")
    found: set[Row] = set()
    for count, row in enumerate(given):
        if count >= MOST_ROWS:
            raise InvalidAnswerError(f"it gave more than {MOST_ROWS:,} rows")
        if not isinstance(row, Sequence) or isinstance(row, str | bytes):
            raise InvalidAnswerError("its answer has something that is not a row")
        if len(row) != len(results):
            raise InvalidAnswerError(f"it gave {len(row)} results, and the registration has {len(results)}")
        found.add(tuple(_typed(value, one) for value, one in zip(row, results, strict=True)))
    # Values of one column are of one type, so rows can be compared.
    return tuple(sorted(found))


def _typed(value: object, result: Parameter) -> Value:
    try:
        found = _value(plain(value), result.type)
    except (OverflowError, ValueError):
        found = None
    if found is None:
        raise InvalidAnswerError(f"it gave {_shown(value)} for ?{result.name}, which is not {_WORDS[result.type]}")
    return found


def _value(value: object, kind: ValueType) -> Value | None:
    """A value as its type has it, or None where it is of another."""
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
    number = float(value) + 0.0  # one zero, not two
    if not math.isfinite(number) or (whole and (number != math.floor(number) or abs(number) > _MOST_WHOLE)):
        return None
    return number


_WORDS: dict[ValueType, str] = {
    "text": f"a text of at most {MAX_TEXT:,} characters",
    "number": "a finite number",
    "int": "a whole number below 2^53",
    "boolean": "true or false",
    "date": "a date",
}


def _shown(value: object) -> str:
    match value:
        case bool() | float() | None:
            return str(value).lower()
        case str():
            return repr(value[:40] + "…") if len(value) > 40 else repr(value)
        case _:
            return f"a value of the type {type(value).__name__}"
