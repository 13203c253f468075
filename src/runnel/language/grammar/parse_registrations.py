"""Rules for `register`: feeds, operators and prefixes. In: the token behind `register`. Out: a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from runnel.errors import StatementSyntaxError
from runnel.language.grammar.parse_values import (
    parse_duration,
    parse_enclosed,
    parse_list,
    parse_name,
    parse_tag_list,
)
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.iri_prefixes import KNOWN_PREFIXES, is_prefix, problem_of_iri
from runnel.language.syntax.literals import Duration, read_exact, read_integer, read_value
from runnel.language.syntax.operator_registrations import (
    Option,
    build_registration,
    read_attributes,
    read_budget,
    read_configuration,
    read_count,
    read_input,
    read_parameters,
    read_policy,
    read_result,
    read_span,
)
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.register_clauses import FeedClause, register_feed
from runnel.language.syntax.statements import (
    NOWHERE,
    MaterialiseFeed,
    Name,
    RegisterFeed,
    RegisterOperator,
    RegisterPrefix,
)
from runnel.language.syntax.tokens import BINDING, Token
from runnel.model.operator import Parameter


def parse_register(
    tokens: TokenReader, keyword: Token
) -> RegisterFeed | MaterialiseFeed | RegisterOperator | RegisterPrefix:
    """`register feed …`, `register operator …` or `register prefix …`."""
    if tokens.take("operator"):
        return _parse_operator(tokens)
    if tokens.take("prefix"):
        return _parse_prefix(tokens)
    tokens.expect("feed")
    return _parse_feed(tokens)


# Feeds.


def _parse_feed(tokens: TokenReader) -> RegisterFeed | MaterialiseFeed:
    address = tokens.take_text()
    if address is not None:
        span = address.span
        tokens.expect("as")
        name = parse_name(tokens)
        return register_feed(name, read_exact(address, "an address"), span, _parse_feed_clauses(tokens))
    name = parse_name(tokens)
    if not tokens.take("apply"):
        return register_feed(name, None, name.span, _parse_feed_clauses(tokens))
    sheet = tokens.expect_text()
    tokens.expect("as")
    return MaterialiseFeed(parse_name(tokens), name, read_exact(sheet, "a stylesheet's name"), sheet.span)


def _parse_feed_clauses(tokens: TokenReader) -> list[FeedClause]:
    clauses: list[FeedClause] = []
    while (word := tokens.take_one_of("every", "title", "home", "tagged", "open")) is not None:
        clauses.append(_parse_feed_clause(tokens, word))
    return clauses


def _parse_feed_clause(tokens: TokenReader, keyword: Token) -> FeedClause:
    match keyword.text.lower():
        case "every":
            return FeedClause("every", parse_duration(tokens).length, keyword.span)
        case "tagged":
            return FeedClause("tagged", parse_tag_list(tokens), NOWHERE)
        case "open":
            return FeedClause("open", _parse_open(tokens), keyword.span)
        case word:
            return FeedClause(word, read_exact(tokens.expect_text(), f"a {word}"), keyword.span)


def _parse_open(tokens: TokenReader) -> int:
    """`to 60 items per minute`, or nothing, which is 0: the setting decides."""
    if not tokens.take("to"):
        return 0
    items = tokens.expect_integer()
    tokens.expect("items", "per", "minute")
    limit = read_integer(items)
    if not limit:
        raise StatementSyntaxError(
            "an open feed takes at least one item per minute",
            span=items.span,
            hint="write 1 or more; a feed without `open` is closed",
        )
    return limit


# Prefixes.


def _parse_prefix(tokens: TokenReader) -> RegisterPrefix:
    name = parse_name(tokens)
    tokens.expect("as")
    text = tokens.expect_text()
    if not is_prefix(name.text):
        raise StatementSyntaxError(
            f"{name.text} cannot be a prefix",
            span=name.span,
            hint="a prefix begins with a letter and has letters, digits and _-. behind it",
        )
    if name.text in KNOWN_PREFIXES:
        raise StatementSyntaxError(
            f"the prefix {name.text} is known from the start: it stands for {KNOWN_PREFIXES[name.text]}",
            span=name.span,
            hint="give yours another name, or say it in the block: graph { prefix … }",
        )
    iri = read_exact(text, "what a prefix stands for")
    problem = problem_of_iri(iri)
    if problem is not None:
        hint = "write the beginning of IRIs in full, such as 'http://muse.example/'"
        raise StatementSyntaxError(f"this is not an IRI in full: {problem}", span=text.span, hint=hint)
    return RegisterPrefix(name, iri)


# Operators: inputs, attributes of the item and results (`?people int`), and what is known of their cost.


def _parse_operator(tokens: TokenReader) -> RegisterOperator:
    name = parse_name(tokens)
    parameters = _parse_parameters(tokens) if tokens.at("(") else None
    tokens.expect("from")
    source = tokens.expect_text()
    options: list[Option] = []
    while (word := tokens.take_one_of(*_OPTIONS)) is not None:
        options.append(_OPTIONS[word.text.lower()](tokens, word))
    return build_registration(name, parameters, source, options)


def _parse_parameters(tokens: TokenReader) -> tuple[Parameter, ...]:
    tokens.expect("(")
    if tokens.take(")"):
        return ()
    parameters = parse_list(tokens, _parse_parameter)
    tokens.expect(")")
    return read_parameters(parameters)


def _parse_parameter(tokens: TokenReader) -> tuple[Parameter, Token]:
    result = tokens.take_kind(BINDING, expects.BINDING)
    if result is not None:
        return read_result(result, tokens.expect_any_word(expects.TYPE))
    name = tokens.expect_name()
    return read_input(name, tokens.expect_any_word(expects.TYPE))


def _parse_release(tokens: TokenReader, word: Token) -> Option:
    return Option(word, {"release": read_exact(tokens.expect_text(), "a release")})


def _parse_cost(tokens: TokenReader, word: Token) -> Option:
    count = tokens.expect_number()
    return Option(word, {"cost": read_span(count, tokens.expect_any_word(expects.SHORT_UNIT))})


def _parse_limit(tokens: TokenReader, word: Token) -> Option:
    count = tokens.expect_number()
    return Option(word, {"time_limit": read_span(count, tokens.expect_any_word(expects.SHORT_UNIT))})


def _parse_pure(tokens: TokenReader, word: Token) -> Option:
    return Option(word, {"pure": word.text.lower() == "pure"})


def _parse_reading(tokens: TokenReader, word: Token) -> Option:
    return read_attributes(word, parse_list(tokens, parse_name))


def _parse_count(tokens: TokenReader, word: Token) -> Option:
    return read_count(word, tokens.expect_integer())


def _parse_budget(tokens: TokenReader, word: Token) -> Option:
    count = tokens.expect_number()
    unit = tokens.expect_any_word(expects.BUDGET_UNIT)
    tokens.expect("per", "minute")
    return read_budget(word, count, unit)


def _parse_on_error(tokens: TokenReader, word: Token) -> Option:
    tokens.expect("error")
    policy = tokens.expect_any_word(expects.POLICY)
    given = tokens.take_one_of("for")
    length: Duration | None = None if given is None else parse_duration(tokens)
    return read_policy(word, policy, given, length)


def _parse_configuration(tokens: TokenReader, word: Token) -> Option:
    return read_configuration(word, parse_enclosed(tokens, _parse_pair))


def _parse_pair(tokens: TokenReader) -> tuple[Name, str]:
    return parse_name(tokens), read_value(tokens.expect_text())


_OPTIONS: Mapping[str, Callable[[TokenReader, Token], Option]] = MappingProxyType(
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
