"""Rules for `register operator`. In: the token behind `operator`. Out: the registration, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from runnel.errors import StatementSyntaxError
from runnel.language.grammar.parse_values import parse_duration, parse_enclosed, parse_list, parse_name
from runnel.language.nearest import did_you_mean
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.literals import (
    read_binding,
    read_exact,
    read_integer,
    read_name,
    read_number,
    read_value,
)
from runnel.language.syntax.operator_terms import MOST_ARGUMENTS
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import BINDING, Token
from runnel.language.syntax.statements import Name, RegisterOperator
from runnel.model.operator import VALUE_TYPES, Parameter

MOST_BATCH = 100_000
MOST_CONCURRENCY = 1_000
LONGEST_SPAN = timedelta(hours=1)
"""The longest cost and time limit of one call."""

ATTRIBUTE = "attribute"
"""The type of a parameter that is given an attribute's name."""

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

Values = dict[str, Any]
"""What an option gives: fields of the statement."""


def parse_operator(tokens: TokenReader) -> RegisterOperator:
    """`register operator name [(parameters)] from 'source' option…`, each option once."""
    name = parse_name(tokens)
    parameters = _parse_parameters(tokens) if tokens.at("(") else None
    tokens.expect("from")
    token = tokens.expect_text()
    source, place = read_exact(token, "an operator's source"), token.span
    options: Values = {}
    while (word := tokens.take_one_of(*_OPTIONS)) is not None:
        values = _OPTIONS[word.text.lower()](tokens, word)
        if not options.keys().isdisjoint(values):
            raise StatementSyntaxError(
                f"{word.text.lower()} is given twice", span=word.span, hint="every option stands there once"
            )
        options |= values
    return RegisterOperator(name, source, parameters, **options, place=place)


# Parameters: inputs, attributes of the item, and results.


def _parse_parameters(tokens: TokenReader) -> tuple[Parameter, ...]:
    tokens.expect("(")
    if tokens.take(")"):
        return ()
    parameters = parse_list(tokens, _parse_parameter)
    tokens.expect(")")
    names: set[str] = set()
    for parameter, token in parameters:
        if parameter.name in names:
            raise StatementSyntaxError(f"the parameter {parameter.name} is there twice", span=token.span)
        names.add(parameter.name)
    if len(parameters) > MOST_ARGUMENTS:
        raise StatementSyntaxError(
            f"an operator has at most {MOST_ARGUMENTS} parameters", span=parameters[MOST_ARGUMENTS][1].span
        )
    return tuple(parameter for parameter, _ in parameters)


def _parse_parameter(tokens: TokenReader) -> tuple[Parameter, Token]:
    """`name type`, `name attribute` or `?name type`."""
    result = tokens.take_kind(BINDING, expects.BINDING)
    token = tokens.expect_name() if result is None else result
    name = read_name(token) if result is None else read_binding(result).name
    kind = tokens.expect_any_word(expects.TYPE)
    word = kind.text.lower()
    if word == ATTRIBUTE and result is None:
        return Parameter(name, "attribute"), token
    if word not in VALUE_TYPES:
        known = (*VALUE_TYPES, ATTRIBUTE) if result is None else VALUE_TYPES
        raise StatementSyntaxError(
            f"{kind.text} is not a type of {'parameters' if result is None else 'results'}",
            span=kind.span,
            hint=did_you_mean(word, known) or f"types are {', '.join(known)}",
        )
    return Parameter(name, "input" if result is None else "result", word), token


# Options.


def _parse_release(tokens: TokenReader, word: Token) -> Values:
    return {"release": read_exact(tokens.expect_text(), "a release")}


def _parse_cost(tokens: TokenReader, word: Token) -> Values:
    return {"cost": _parse_short_time(tokens)}


def _parse_limit(tokens: TokenReader, word: Token) -> Values:
    return {"time_limit": _parse_short_time(tokens)}


def _parse_short_time(tokens: TokenReader) -> timedelta:
    """A short time, of which there may be fractions: at least a microsecond, at most an hour."""
    count = tokens.expect_number()
    unit = tokens.expect_any_word(expects.SHORT_UNIT)
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


def _parse_pure(tokens: TokenReader, word: Token) -> Values:
    return {"pure": word.text.lower() == "pure"}


def _parse_reading(tokens: TokenReader, word: Token) -> Values:
    return {"reads": tuple(dict.fromkeys(name.text for name in parse_list(tokens, parse_name)))}


def _parse_count(tokens: TokenReader, word: Token) -> Values:
    """`batch 64` or `concurrency 4`."""
    name = word.text.lower()
    most = MOST_BATCH if name == "batch" else MOST_CONCURRENCY
    count = tokens.expect_integer()
    number = read_integer(count)
    if not 1 <= number <= most:
        raise StatementSyntaxError(f"{name} must be 1 to {most:,}", span=count.span)
    return {name: number}


def _parse_budget(tokens: TokenReader, word: Token) -> Values:
    """`budget 100 calls per minute` or `budget 20 seconds per minute`."""
    count = tokens.expect_number()
    unit = tokens.expect_any_word(expects.BUDGET_UNIT)
    tokens.expect("per", "minute")
    number = read_number(count)
    if number <= 0:
        raise StatementSyntaxError("a budget is more than nothing", span=count.span)
    match unit.text.lower():
        case "call" | "calls":
            if number != int(number) or number > 10**12:
                raise StatementSyntaxError("calls are counted in whole numbers", span=count.span)
            return {"calls": int(number)}
        case "second" | "seconds":
            return {"seconds": number}
    raise StatementSyntaxError(
        f"a budget is a number of calls or seconds per minute, not {unit.text}",
        span=unit.span,
        hint="write: budget 100 calls per minute, or: budget 20 seconds per minute",
    )


def _parse_on_error(tokens: TokenReader, word: Token) -> Values:
    """`on error unknown`, or `on error retry [for 6 hours]`."""
    tokens.expect("error")
    policy = tokens.expect_any_word(expects.POLICY)
    name = policy.text.lower()
    if name not in _POLICIES:
        raise StatementSyntaxError(
            f"{policy.text} is not an error policy",
            span=policy.span,
            hint=did_you_mean(name, _POLICIES) or "write: on error unknown, or: on error retry for 6 hours",
        )
    given = tokens.take_one_of("for")
    if given is None:
        return {"on_error": name}
    if name == "unknown":
        raise StatementSyntaxError(
            "with `on error unknown`, calls are not tried again", span=given.span, hint="leave `for` out"
        )
    return {"on_error": name, "retry_for": parse_duration(tokens).length}


def _parse_configuration(tokens: TokenReader, word: Token) -> Values:
    """`with (key 'value', …)`, each key once."""
    configuration: dict[str, str] = {}
    for key, value in parse_enclosed(tokens, _parse_pair):
        if key.text in configuration:
            raise StatementSyntaxError(f"{key.text} is given twice", span=key.span)
        configuration[key.text] = value
    return {"configuration": tuple(sorted(configuration.items()))}


def _parse_pair(tokens: TokenReader) -> tuple[Name, str]:
    return parse_name(tokens), read_value(tokens.expect_text())


_OPTIONS: Mapping[str, Callable[[TokenReader, Token], Values]] = MappingProxyType(
    {
        "release": _parse_release,
        "cost": _parse_cost,
        "pure": _parse_pure,
        "impure": _parse_pure,
        "reading": _parse_reading,
        "batch": _parse_count,
        "concurrency": _parse_count,
        "limit": _parse_limit,
        "budget": _parse_budget,
        "on": _parse_on_error,
        "with": _parse_configuration,
    }
)
"""The options of an operator, by the word that begins them."""
