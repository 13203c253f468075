"""Tokens to values: names, texts, numbers, dates and durations, each checked and refused at its place.

In: tokens. Out: values of the model and the algebra, or a StatementError with a span and a hint.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import NamedTuple

from runnel.algebra.nodes.attributes import PARTS, WHOLE, Ago, Attribute, Constant
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.durations import UNITS
from runnel.algebra.nodes.render import render_attribute
from runnel.errors import InvalidConditionError, Span, StatementSyntaxError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import Name
from runnel.model.item import MAX_ID, MAX_NAME, MOMENTS, clean_text, moment

LONGEST = timedelta(days=36_500)
LARGEST_NUMBER = 2**63 - 1
DATE_HINT = "write a date as 2026-11-15 or 2026-11-15T09:30:00Z"

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(_DAY.pattern + r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
"""Stricter than `fromisoformat`, which takes almost any run of digits for a date."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Literal(NamedTuple):
    """A constant as written: its value, and the token that gives its place."""

    value: Constant
    token: Token


class Located(NamedTuple):
    """An attribute, and the token that gives its place."""

    attribute: Attribute
    token: Token


class Duration(NamedTuple):
    """A length of time, and its place."""

    length: timedelta
    span: Span


def read_name(token: Token) -> str:
    """A bare or double-quoted name, as names are kept: in NFC and without spaces around it."""
    if token.text[0] != '"':
        return token.text
    text = token.text[1:-1].replace('""', '"')
    if _CONTROL.search(text):
        raise StatementSyntaxError("a name cannot hold line breaks or control characters", span=token.span)
    name = clean_text(text).strip()
    if not 1 <= len(name) <= MAX_NAME:
        raise StatementSyntaxError(
            f"a name must have 1 to {MAX_NAME} characters, not {len(name)}",
            span=token.span,
            hint="double quotes enclose names; texts are written in single quotes" if not name else None,
        )
    return name


def read_variable(token: Token) -> Name:
    """A variable's name, without its `$`."""
    if len(token.text) > MAX_NAME + 1:
        raise StatementSyntaxError(f"a variable's name has at most {MAX_NAME} characters", span=token.span)
    return Name(token.text[1:], token.span)


def read_binding(token: Token) -> Variable:
    """A variable of a condition or a result of an operator, without its `?`."""
    if len(token.text) > MAX_NAME + 1:
        raise StatementSyntaxError(f"a variable's name has at most {MAX_NAME} characters", span=token.span)
    return Variable(token.text[1:], token.span)


def read_text(token: Token) -> str:
    """A text constant: doubled quotes undone, in NFC, without what no item can hold."""
    return clean_text(_unquoted(token))


def read_exact(token: Token, what: str) -> str:
    """An address or a target: kept letter by letter, because it names something outside."""
    text = _unquoted(token)
    if not text.strip():
        raise StatementSyntaxError(f"{what} cannot be empty", span=token.span)
    if _CONTROL.search(text):
        raise StatementSyntaxError(f"{what} cannot hold line breaks or control characters", span=token.span)
    return text


def read_item_id(token: Token) -> str:
    """An item's id, letter by letter."""
    text = _unquoted(token)
    if not 1 <= len(text) <= MAX_ID or _UNSTORABLE.search(text):
        raise StatementSyntaxError(f"an item's id has 1 to {MAX_ID} characters and no NUL", span=token.span)
    return text


def read_value(token: Token) -> str:
    """A value for somebody else to read: letter by letter, on several lines where it is so written."""
    text = _unquoted(token)
    if _UNSTORABLE.search(text):
        raise StatementSyntaxError("a value cannot hold NUL characters or lone surrogates", span=token.span)
    return text


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def span_inside(token: Token, start: int, end: int) -> Span:
    """The place of some characters of a text constant, counted without its quotes and with doubled ones undone."""
    if read_text(token) != _unquoted(token):
        return token.span  # normalizing the text has shifted its characters
    written = token.text
    offsets: list[int] = []
    position = 1
    while position < len(written) - 1:
        offsets.append(position)
        position += 2 if written[position] == "'" else 1
    offsets.append(position)
    last = len(offsets) - 1
    return token.span_inside(offsets[min(start, last)], offsets[min(end, last)])


def read_number(token: Token) -> float:
    """A number constant, as a double."""
    # The sum turns -0.0 into 0.0, so that equal numbers have one canonical text.
    number = float(token.text) + 0.0
    if math.isfinite(number):
        return number
    raise InvalidConditionError(
        "this number is too large", span=token.span, hint="numbers are doubles: the largest is about 1.8e308"
    )


def read_integer(token: Token) -> int:
    """A whole number: a subscription's, or the count of a duration."""
    # Digits are counted first: turning a text of many digits into an int is quadratic.
    digits = token.text.lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > LARGEST_NUMBER:
        raise StatementSyntaxError("this whole number is too large", span=token.span)
    return int(digits)


def read_duration(count: Token, unit: Token) -> Duration:
    """A length of time in whole seconds, at least one and at most a hundred years."""
    word = unit.text.lower()
    seconds = UNITS.get(word) or UNITS.get(word.removesuffix("s"))
    if seconds is None:
        raise StatementSyntaxError(
            f"{unit.text} is not a unit of time",
            span=unit.span,
            hint=did_you_mean(unit.text, (f"{one}s" for one in UNITS))
            or f"use {', '.join(f'{one}s' for one in UNITS)}",
        )
    start, end = count.span, unit.span
    span = Span(start.line, start.column, end.end_column if end.line == start.line else start.end_column)
    total = read_integer(count) * seconds
    if total == 0:
        raise StatementSyntaxError(
            "a duration must be longer than nothing", span=span, hint="write at least 1 second"
        )
    if total > LONGEST.total_seconds():
        raise StatementSyntaxError(
            "a duration of more than 100 years", span=span, hint="leave the clause out for no limit"
        )
    return Duration(timedelta(seconds=total), span)


def read_ago(count: Token, unit: Token) -> Ago:
    """A moment that lies a whole number of some unit before an item's acceptance."""
    if not count.text.isdigit():
        raise InvalidConditionError(
            "a time ago is counted in whole units", span=count.span, hint="write 36 hours ago, not 1.5 days ago"
        )
    try:
        return Ago(read_duration(count, unit).length)
    except StatementSyntaxError as problem:
        raise InvalidConditionError(
            problem.message,
            span=problem.span,
            hint="write now, or at least 1 second ago and at most 100 years ago",
        ) from None


def read_date(text: str, token: Token) -> date | datetime:
    """A whole day, or an instant in UTC; an instant without a zone is in UTC already."""
    text = text.strip()
    # Refused below: the 31st of November, or an instant before the year 1 once it is in UTC.
    with suppress(ValueError, OverflowError):
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
        if _INSTANT.fullmatch(text):
            return moment(datetime.fromisoformat(text))
    shown = text if len(text) <= 40 else text[:40] + "…"
    raise InvalidConditionError(f"{shown!r} is not a date", span=token.span, hint=DATE_HINT)


def read_attribute(name: Token, part: Token | None) -> Located:
    """An attribute, or a part of its moments; `item` is all of them."""
    is_whole = name.text.lower() == "item"
    read = WHOLE.name if is_whole else read_name(name)
    if read == WHOLE.name and not is_whole:
        raise InvalidConditionError(
            "no attribute can be named *", span=name.span, hint="for any value of any attribute write: item"
        )
    if part is None:
        return Located(Attribute(read), name)
    wanted = part.text.lower()
    if wanted not in PARTS:
        raise InvalidConditionError(
            f"{part.text} is not a part of a date",
            span=part.span,
            hint=did_you_mean(part.text, PARTS)
            or f"parts are {', '.join(PARTS)}; an attribute with a point in its name is written in double quotes",
        )
    return Located(Attribute(read, wanted), name)


def fitting(located: Located, literal: Literal) -> Constant:
    """The constant as this attribute can be compared with it; parts are numbers, moments are dates."""
    attribute, (value, token) = located.attribute, literal
    if attribute.part is not None and (isinstance(value, bool) or not isinstance(value, float)):
        raise InvalidConditionError(
            f"{render_attribute(attribute)} is a number and is compared with numbers only",
            span=token.span,
            hint="weekdays count from Monday = 1 to Sunday = 7" if attribute.part == "weekday" else None,
        )
    if attribute.part is None and attribute.name in MOMENTS and isinstance(value, str):
        return read_date(value, token)
    return value


def fitting_exactly(located: Located, literal: Literal) -> Constant:
    """As `fitting`, for a constant that a value must be equal to."""
    if isinstance(literal.value, Ago):
        raise InvalidConditionError(
            "a time that passes is hardly ever met exactly",
            span=literal.token.span,
            hint="compare it with <, <=, > or >=, or write: published within last 2 days",
        )
    return fitting(located, literal)
