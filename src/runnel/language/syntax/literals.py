"""Conversion of tokens into names, texts, numbers, dates and durations.

In: tokens. Out: validated values of the model and the algebra, or a StatementError with a span and a hint.
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

MAX_DURATION = timedelta(days=36_500)
MAX_INTEGER = 2**63 - 1
DATE_HINT = "write a date as 2026-11-15 or 2026-11-15T09:30:00Z"

_CONTROL_CHARACTER = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(_DAY.pattern + r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
"""Stricter than `fromisoformat`, which accepts almost any string of digits as a date."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Literal(NamedTuple):
    """The value of a constant, and its token for error messages."""

    value: Constant
    token: Token


class LocatedAttribute(NamedTuple):
    """An attribute, and its token for error messages."""

    attribute: Attribute
    token: Token


class Duration(NamedTuple):
    """A duration, and its span for error messages."""

    length: timedelta
    span: Span


def read_name(token: Token) -> str:
    """Read a bare or double-quoted name. Normalize it to NFC and strip surrounding spaces."""
    if token.text[0] != '"':
        return token.text
    text = token.text[1:-1].replace('""', '"')
    if _CONTROL_CHARACTER.search(text):
        raise StatementSyntaxError("names cannot contain line breaks or control characters", span=token.span)
    name = clean_text(text).strip()
    if not 1 <= len(name) <= MAX_NAME:
        raise StatementSyntaxError(
            f"names must have 1 to {MAX_NAME} characters, this one has {len(name)}",
            span=token.span,
            hint="double quotes enclose names; use single quotes for texts" if not name else None,
        )
    return name


def read_variable(token: Token) -> Name:
    """Read a variable that names a term of a `from` clause, and drop its `$`."""
    if len(token.text) > MAX_NAME + 1:
        raise StatementSyntaxError(f"variable names must have at most {MAX_NAME} characters", span=token.span)
    return Name(token.text[1:], token.span)


def read_binding(token: Token) -> Variable:
    """Read a variable of a condition or an operator result, and drop its `?`."""
    if len(token.text) > MAX_NAME + 1:
        raise StatementSyntaxError(f"variable names must have at most {MAX_NAME} characters", span=token.span)
    return Variable(token.text[1:], token.span)


def read_text(token: Token) -> str:
    """Read a text constant. Normalize it to NFC and remove characters that items cannot contain."""
    return clean_text(_unquote(token))


def read_verbatim(token: Token, label: str) -> str:
    """Read a URL, a target or another text without normalizing it. `label` names it in error messages."""
    text = _unquote(token)
    if not text.strip():
        raise StatementSyntaxError(f"{label} cannot be empty", span=token.span)
    if _CONTROL_CHARACTER.search(text):
        raise StatementSyntaxError(f"{label} cannot contain line breaks or control characters", span=token.span)
    return text


def read_item_id(token: Token) -> str:
    """Read an item ID without normalizing it."""
    text = _unquote(token)
    if not 1 <= len(text) <= MAX_ID or _UNSTORABLE.search(text):
        raise StatementSyntaxError(
            f"item IDs must have 1 to {MAX_ID} characters and cannot contain NUL or lone surrogates", span=token.span
        )
    return text


def read_option_value(token: Token) -> str:
    """Read the value of an operator's option without normalizing it. It may contain line breaks."""
    text = _unquote(token)
    if _UNSTORABLE.search(text):
        raise StatementSyntaxError("values cannot contain NUL or lone surrogates", span=token.span)
    return text


def _unquote(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def span_inside(token: Token, start: int, end: int) -> Span:
    """Return the span of the characters `start` to `end` of a text constant.

    Offsets refer to the value of the constant: without its quotes, and with doubled quotes counted once.
    """
    if read_text(token) != _unquote(token):
        return token.span  # normalization has shifted the offsets
    source = token.text
    source_offsets: list[int] = []
    offset = 1
    while offset < len(source) - 1:
        source_offsets.append(offset)
        offset += 2 if source[offset] == "'" else 1
    source_offsets.append(offset)
    last = len(source_offsets) - 1
    return token.span_inside(source_offsets[min(start, last)], source_offsets[min(end, last)])


def read_number(token: Token) -> float:
    """Read a number constant as a double."""
    # Adding 0.0 turns -0.0 into 0.0, so that equal numbers have the same canonical text.
    number = float(token.text) + 0.0
    if math.isfinite(number):
        return number
    raise InvalidConditionError(
        "number is too large", span=token.span, hint="numbers are doubles, at most about 1.8e308"
    )


def read_integer(token: Token) -> int:
    """Read an integer, such as the number of a subscription or the count of a duration."""
    # Check the number of digits first: converting a long string to an int takes quadratic time.
    digits = token.text.lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > MAX_INTEGER:
        raise StatementSyntaxError("whole number is too large", span=token.span)
    return int(digits)


def read_duration(count: Token, unit: Token) -> Duration:
    """Read a duration of at least one second and at most 100 years."""
    word = unit.text.lower()
    seconds = UNITS.get(word) or UNITS.get(word.removesuffix("s"))
    if seconds is None:
        units = [f"{name}s" for name in UNITS]
        raise StatementSyntaxError(
            f"{unit.text} is not a unit of time",
            span=unit.span,
            hint=did_you_mean(unit.text, units) or f"use {', '.join(units)}",
        )
    start, end = count.span, unit.span
    span = Span(start.line, start.column, end.end_column if end.line == start.line else start.end_column)
    total = read_integer(count) * seconds
    if total == 0:
        raise StatementSyntaxError("duration must be positive", span=span, hint="write at least 1 second")
    if total > MAX_DURATION.total_seconds():
        raise StatementSyntaxError("duration exceeds 100 years", span=span, hint="write at most 100 years")
    return Duration(timedelta(seconds=total), span)


def read_ago(count: Token, unit: Token) -> Ago:
    """Read `N UNITS ago`, a time relative to the acceptance of an item."""
    if not count.text.isdigit():
        raise InvalidConditionError(
            "a relative time needs a positive whole number before its unit",
            span=count.span,
            hint="write 36 hours ago, not 1.5 days ago",
        )
    try:
        return Ago(read_duration(count, unit).length)
    except StatementSyntaxError as problem:
        raise InvalidConditionError(
            problem.message,
            span=problem.span,
            hint="write `now`, or a time from `1 second ago` to `100 years ago`",
        ) from None


def read_date(text: str, token: Token) -> date | datetime:
    """Read a date, or a time and convert it to UTC. A time without a zone is in UTC."""
    text = text.strip()
    # Dates such as November 31, and times that are before year 1 in UTC, are rejected below.
    with suppress(ValueError, OverflowError):
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
        if _INSTANT.fullmatch(text):
            return moment(datetime.fromisoformat(text))
    shown = text if len(text) <= 40 else text[:40] + "…"
    raise InvalidConditionError(f"{shown!r} is not a date", span=token.span, hint=DATE_HINT)


def read_attribute(name: Token, part: Token | None) -> LocatedAttribute:
    """Read an attribute with an optional date part, such as `published.year`. `item` stands for all attributes."""
    is_whole = name.text.lower() == "item"
    attribute = WHOLE.name if is_whole else read_name(name)
    if attribute == WHOLE.name and not is_whole:
        raise InvalidConditionError(
            "attributes cannot be named *", span=name.span, hint="to match any attribute, write: item"
        )
    if part is None:
        return LocatedAttribute(Attribute(attribute), name)
    part_name = part.text.lower()
    if part_name not in PARTS:
        raise InvalidConditionError(
            f"{part.text} is not a part of a date",
            span=part.span,
            hint=did_you_mean(part.text, PARTS)
            or f"use {', '.join(PARTS)}; put an attribute name that contains a dot in double quotes",
        )
    return LocatedAttribute(Attribute(attribute, part_name), name)


def coerce_constant(located: LocatedAttribute, literal: Literal) -> Constant:
    """Convert a constant to the type of the attribute it is compared with.

    Date parts are compared with numbers, date attributes with dates, and other attributes with the constant as it is.
    """
    attribute, (value, token) = located.attribute, literal
    if attribute.part is not None and (isinstance(value, bool) or not isinstance(value, float)):
        raise InvalidConditionError(
            f"{render_attribute(attribute)} is a number and can only be compared with numbers",
            span=token.span,
            hint="weekdays are numbered from 1 (Monday) to 7 (Sunday)" if attribute.part == "weekday" else None,
        )
    if attribute.part is None and attribute.name in MOMENTS and isinstance(value, str):
        return read_date(value, token)
    return value


def coerce_equality_constant(located: LocatedAttribute, literal: Literal) -> Constant:
    """Convert a constant that is compared for equality, as `coerce_constant` does. Reject relative times."""
    if isinstance(literal.value, Ago):
        raise InvalidConditionError(
            "relative times cannot be compared for equality",
            span=literal.token.span,
            hint="use <, <=, > or >=, or write: published within last 2 days",
        )
    return coerce_constant(located, literal)
