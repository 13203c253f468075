"""The parts of `register operator`, checked. In: tokens. Out: parameters, options, and the statement they make."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, cast

from runnel.algebra.nodes.render import render_constant
from runnel.errors import StatementSyntaxError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.literals import (
    Duration,
    read_binding,
    read_exact,
    read_integer,
    read_name,
    read_number,
)
from runnel.language.syntax.operator_terms import MOST_ARGUMENTS
from runnel.language.syntax.statements import Name, RegisterOperator
from runnel.language.syntax.tokens import Token
from runnel.model.operator import VALUE_TYPES, ErrorPolicy, Parameter

MOST_BATCH = 100_000
MOST_CONCURRENCY = 1_000
LONGEST_SPAN = timedelta(hours=1)
"""The longest cost and time limit of one call."""

ATTRIBUTE = "attribute"
_POLICIES = ("unknown", "retry")
_MICROSECONDS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
}
_SHOWN_UNITS = ("us", "ms", "seconds", "minutes")


class Option(NamedTuple):
    """What an option of a registration says, and the word that begins it."""

    word: Token
    values: dict[str, Any]


def read_parameter(name: str, token: Token, kind: Token, *, is_result: bool) -> Parameter:
    """`name type`, `name attribute` or `?name type`."""
    word = kind.text.lower()
    if word == ATTRIBUTE and not is_result:
        return Parameter(name, "attribute")
    if word not in VALUE_TYPES:
        known = VALUE_TYPES if is_result else (*VALUE_TYPES, ATTRIBUTE)
        raise StatementSyntaxError(
            f"{kind.text} is not a type of {'results' if is_result else 'parameters'}",
            span=kind.span,
            hint=did_you_mean(word, known) or f"types are {', '.join(known)}",
        )
    return Parameter(name, "result" if is_result else "input", word)


def read_input(token: Token, kind: Token) -> tuple[Parameter, Token]:
    """A parameter that a call gives."""
    return read_parameter(read_name(token), token, kind, is_result=False), token


def read_result(token: Token, kind: Token) -> tuple[Parameter, Token]:
    """A parameter that a call is given back."""
    return read_parameter(read_binding(token).name, token, kind, is_result=True), token


def read_parameters(found: Sequence[tuple[Parameter, Token]]) -> tuple[Parameter, ...]:
    """The parameters of an operator, each name once."""
    names: set[str] = set()
    for one, token in found:
        if one.name in names:
            raise StatementSyntaxError(f"the parameter {one.name} is there twice", span=token.span)
        names.add(one.name)
    if len(found) > MOST_ARGUMENTS:
        raise StatementSyntaxError(
            f"an operator has at most {MOST_ARGUMENTS} parameters", span=found[MOST_ARGUMENTS][1].span
        )
    return tuple(one for one, _ in found)


def read_span(count: Token, unit: Token) -> timedelta:
    """A short time, of which there may be fractions: at least a microsecond, at most an hour."""
    word = unit.text.lower()
    size = _MICROSECONDS.get(word) or _MICROSECONDS.get(word.removesuffix("s"))
    if size is None:
        raise StatementSyntaxError(
            f"{unit.text} is not a unit of short times",
            span=unit.span,
            hint=did_you_mean(word, _SHOWN_UNITS) or f"use {', '.join(_SHOWN_UNITS)}",
        )
    total = read_number(count) * size
    if not 0 < total <= LONGEST_SPAN / timedelta(microseconds=1):
        raise StatementSyntaxError("this must be longer than nothing and at most 60 minutes", span=count.span)
    return timedelta(microseconds=max(1, round(total)))


def render_span(length: timedelta) -> str:
    """A short time in the largest unit that divides it.

    >>> render_span(timedelta(milliseconds=40)), render_span(timedelta(microseconds=1500))
    ('40 ms', '1500 us')
    """
    microseconds = length // timedelta(microseconds=1)
    if microseconds % 1_000_000 == 0:
        seconds = microseconds // 1_000_000
        return f"{seconds} second{'' if seconds == 1 else 's'}"
    return f"{microseconds // 1_000} ms" if microseconds % 1_000 == 0 else f"{microseconds} us"


def read_count(word: Token, count: Token) -> Option:
    """`batch 64` or `concurrency 4`."""
    name = word.text.lower()
    most = MOST_BATCH if name == "batch" else MOST_CONCURRENCY
    number = read_integer(count)
    if not 1 <= number <= most:
        raise StatementSyntaxError(f"{name} must be 1 to {most:,}", span=count.span)
    return Option(word, {name: number})


def read_budget(word: Token, count: Token, unit: Token) -> Option:
    """`budget 100 calls per minute` or `budget 20 seconds per minute`."""
    number = read_number(count)
    if number <= 0:
        raise StatementSyntaxError("a budget is more than nothing", span=count.span)
    match unit.text.lower():
        case "call" | "calls":
            if number != int(number) or number > 10**12:
                raise StatementSyntaxError("calls are counted in whole numbers", span=count.span)
            return Option(word, {"calls": int(number)})
        case "second" | "seconds":
            return Option(word, {"seconds": number})
    raise StatementSyntaxError(
        f"a budget is so many calls or seconds per minute, not {unit.text}",
        span=unit.span,
        hint="write: budget 100 calls per minute, or: budget 20 seconds per minute",
    )


def read_policy(word: Token, policy: Token, given: Token | None, length: Duration | None) -> Option:
    """`on error unknown`, or `on error retry [for 6 hours]`."""
    name = policy.text.lower()
    if name not in _POLICIES:
        raise StatementSyntaxError(
            f"{policy.text} is not what can be done on errors",
            span=policy.span,
            hint=did_you_mean(name, _POLICIES) or "write: on error unknown, or: on error retry for 6 hours",
        )
    if given is not None and name == "unknown":
        raise StatementSyntaxError("what is left unknown is not tried again", span=given.span, hint="leave `for` out")
    values: dict[str, Any] = {"on_error": cast(ErrorPolicy, name)}
    return Option(word, values if length is None else {**values, "retry_for": length.length})


def read_configuration(word: Token, pairs: Sequence[tuple[Name, str]]) -> Option:
    """`with (key 'value', …)`, each key once."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if key.text in found:
            raise StatementSyntaxError(f"{key.text} is given twice", span=key.span)
        found[key.text] = value
    return Option(word, {"configuration": tuple(sorted(found.items()))})


def read_attributes(word: Token, names: Sequence[Name]) -> Option:
    """`reading title, description`, each attribute once."""
    return Option(word, {"reads": tuple(dict.fromkeys(name.text for name in names))})


def build_registration(
    name: Name, parameters: tuple[Parameter, ...] | None, source: Token, options: Sequence[Option]
) -> RegisterOperator:
    """The statement of a registration; every option is there at most once."""
    found: dict[str, Any] = {}
    for word, values in options:
        if not found.keys().isdisjoint(values):
            raise StatementSyntaxError(
                f"{word.text.lower()} is given twice", span=word.span, hint="every option stands there once"
            )
        found |= values
    return RegisterOperator(name, read_exact(source, "an operator's source"), parameters, **found, place=source.span)


def render_budget(calls: int | None, seconds: float | None) -> list[str]:
    """The options that say what an operator may use.

    >>> render_budget(100, 2.5)
    ['budget 100 calls per minute', 'budget 2.5 seconds per minute']
    """
    said = [] if calls is None else [f"budget {calls} calls per minute"]
    return said if seconds is None else [*said, f"budget {render_constant(seconds)} seconds per minute"]
