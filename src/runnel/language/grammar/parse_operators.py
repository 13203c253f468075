"""Grammar rules for `register operator`. In: the token after `operator`. Out: a validated RegisterOperator."""

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
    read_integer,
    read_name,
    read_number,
    read_option_value,
    read_verbatim,
)
from runnel.language.syntax.operator_terms import MAX_ARGUMENTS
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import BINDING, Token
from runnel.language.syntax.statements import Name, RegisterOperator
from runnel.model.operator import VALUE_TYPES, Parameter

MAX_BATCH = 100_000
MAX_CONCURRENCY = 1_000
MAX_CALL_TIME = timedelta(hours=1)
"""Maximum of the declared cost and the time limit of a call."""

ATTRIBUTE = "attribute"
"""The type of a parameter that takes the name of an attribute."""

_ERROR_POLICIES = ("unknown", "retry")
_MICROSECONDS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
}
_SHOWN_UNITS = ("us", "ms", "seconds", "minutes")

Fields = dict[str, Any]
"""Fields of the statement that an option sets."""


def parse_operator(tokens: TokenReader) -> RegisterOperator:
    """Parse `register operator name [(parameters)] from 'source' option…`; the word `operator` has been read."""
    name = parse_name(tokens)
    parameters = _parse_parameters(tokens) if tokens.is_at("(") else None
    tokens.expect("from")
    token = tokens.expect_text()
    source, span = read_verbatim(token, "an operator's source"), token.span
    options: Fields = {}
    while (word := tokens.take_one_of(*_OPTIONS)) is not None:
        fields = _OPTIONS[word.text.lower()](tokens, word)
        if not options.keys().isdisjoint(fields):
            raise StatementSyntaxError(
                f"the option {word.text.lower()} repeats or contradicts an earlier option",
                span=word.span,
                hint="remove one of the two options",
            )
        options |= fields
    return RegisterOperator(name, source, parameters, **options, source_span=span)


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
            raise StatementSyntaxError(f"two parameters have the name {parameter.name}", span=token.span)
        names.add(parameter.name)
    if len(parameters) > MAX_ARGUMENTS:
        raise StatementSyntaxError(
            f"an operator can have at most {MAX_ARGUMENTS} parameters", span=parameters[MAX_ARGUMENTS][1].span
        )
    return tuple(parameter for parameter, _ in parameters)


def _parse_parameter(tokens: TokenReader) -> tuple[Parameter, Token]:
    """Parse `name type`, `name attribute` or `?name type`."""
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
            f"{kind.text} is not a type of {'a parameter' if result is None else 'a result'}",
            span=kind.span,
            hint=did_you_mean(word, known) or f"use {', '.join(known)}",
        )
    return Parameter(name, "input" if result is None else "result", word), token


# Options.


def _parse_release(tokens: TokenReader, word: Token) -> Fields:
    return {"release": read_verbatim(tokens.expect_text(), "a release")}


def _parse_cost(tokens: TokenReader, word: Token) -> Fields:
    return {"cost": _parse_short_time(tokens)}


def _parse_limit(tokens: TokenReader, word: Token) -> Fields:
    return {"time_limit": _parse_short_time(tokens)}


def _parse_short_time(tokens: TokenReader) -> timedelta:
    """Parse a duration of at most one hour, such as `1.5 ms`. Round it to microseconds, at least one."""
    count = tokens.expect_number()
    unit = tokens.expect_any_word(expects.SHORT_UNIT)
    word = unit.text.lower()
    size = _MICROSECONDS.get(word) or _MICROSECONDS.get(word.removesuffix("s"))
    if size is None:
        raise StatementSyntaxError(
            f"{unit.text} is not a unit for costs and time limits",
            span=unit.span,
            hint=did_you_mean(word, _SHOWN_UNITS) or f"use {', '.join(_SHOWN_UNITS)}",
        )
    total = read_number(count) * size
    if not 0 < total <= MAX_CALL_TIME / timedelta(microseconds=1):
        raise StatementSyntaxError("duration must be positive and at most 60 minutes", span=count.span)
    return timedelta(microseconds=max(1, round(total)))


def _parse_pure(tokens: TokenReader, word: Token) -> Fields:
    return {"pure": word.text.lower() == "pure"}


def _parse_reading(tokens: TokenReader, word: Token) -> Fields:
    return {"reads": tuple(dict.fromkeys(name.text for name in parse_list(tokens, parse_name)))}


def _parse_count(tokens: TokenReader, word: Token) -> Fields:
    """Parse the number of `batch 64` or `concurrency 4`."""
    name = word.text.lower()
    maximum = MAX_BATCH if name == "batch" else MAX_CONCURRENCY
    count = tokens.expect_integer()
    number = read_integer(count)
    if not 1 <= number <= maximum:
        raise StatementSyntaxError(f"{name} must be from 1 to {maximum:,}", span=count.span)
    return {name: number}


def _parse_budget(tokens: TokenReader, word: Token) -> Fields:
    """Parse `budget 100 calls per minute` or `budget 20 seconds per minute`; the word `budget` has been read."""
    count = tokens.expect_number()
    unit = tokens.expect_any_word(expects.BUDGET_UNIT)
    tokens.expect("per", "minute")
    number = read_number(count)
    if number <= 0:
        raise StatementSyntaxError("budget must be positive", span=count.span)
    match unit.text.lower():
        case "call" | "calls":
            if number != int(number) or number > 10**12:
                raise StatementSyntaxError(
                    "a budget of calls must be a whole number of at most 10^12", span=count.span
                )
            return {"calls": int(number)}
        case "second" | "seconds":
            return {"seconds": number}
    raise StatementSyntaxError(
        f"a budget is a number of calls or seconds per minute, not of {unit.text}",
        span=unit.span,
        hint="write: budget 100 calls per minute, or: budget 20 seconds per minute",
    )


def _parse_on_error(tokens: TokenReader, word: Token) -> Fields:
    """Parse `on error unknown`, or `on error retry [for 6 hours]`; the word `on` has been read."""
    tokens.expect("error")
    policy = tokens.expect_any_word(expects.POLICY)
    name = policy.text.lower()
    if name not in _ERROR_POLICIES:
        raise StatementSyntaxError(
            f"{policy.text} is not an error policy",
            span=policy.span,
            hint=did_you_mean(name, _ERROR_POLICIES) or "write: on error unknown, or: on error retry for 6 hours",
        )
    keyword = tokens.take_one_of("for")
    if keyword is None:
        return {"on_error": name}
    if name == "unknown":
        raise StatementSyntaxError(
            "`on error unknown` does not retry calls, so it takes no duration", span=keyword.span, hint="remove `for`"
        )
    return {"on_error": name, "retry_for": parse_duration(tokens).length}


def _parse_configuration(tokens: TokenReader, word: Token) -> Fields:
    """Parse `with (key 'value', …)`; the word `with` has been read."""
    configuration: dict[str, str] = {}
    for key, value in parse_enclosed(tokens, _parse_pair):
        if key.text in configuration:
            raise StatementSyntaxError(f"the key {key.text} is set twice", span=key.span)
        configuration[key.text] = value
    return {"configuration": tuple(sorted(configuration.items()))}


def _parse_pair(tokens: TokenReader) -> tuple[Name, str]:
    return parse_name(tokens), read_option_value(tokens.expect_text())


_OPTIONS: Mapping[str, Callable[[TokenReader, Token], Fields]] = MappingProxyType(
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
"""Rules for the options of an operator, by keyword."""
