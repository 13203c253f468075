"""Grammar rules for `register`. In: the token after `register`. Out: a statement."""

from __future__ import annotations

from typing import Any

from runnel.errors import StatementSyntaxError
from runnel.language.grammar.parse_operators import parse_operator
from runnel.language.grammar.parse_tables import parse_table
from runnel.language.grammar.parse_values import parse_duration, parse_name, parse_tag_list
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES, find_iri_problem, is_prefix
from runnel.language.syntax.literals import read_integer, read_verbatim
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import (
    MaterializeFeed,
    RegisterFeed,
    RegisterOperator,
    RegisterPrefix,
    RegisterTable,
)

MAX_TITLE_LENGTH = 500
"""How many characters the title of a feed, and the URL of its home page, can have."""


def parse_register(
    tokens: TokenReader, keyword: Token
) -> RegisterFeed | MaterializeFeed | RegisterOperator | RegisterPrefix | RegisterTable:
    """Parse `register feed …`, `register operator …`, `register prefix …` or `register table …`."""
    if tokens.take("operator"):
        return parse_operator(tokens)
    if tokens.take("prefix"):
        return _parse_prefix(tokens)
    if tokens.take("table"):
        return parse_table(tokens)
    tokens.expect("feed")
    return _parse_feed(tokens)


def _parse_feed(tokens: TokenReader) -> RegisterFeed | MaterializeFeed:
    token = tokens.take_text()
    if token is not None:
        address, span = read_verbatim(token, "the address"), token.span
        tokens.expect("as")
        return RegisterFeed(parse_name(tokens), address, address_span=span, **_parse_clauses(tokens, is_polled=True))
    name = parse_name(tokens)
    if not tokens.take("apply"):
        return RegisterFeed(name, address_span=name.span, **_parse_clauses(tokens, is_polled=False))
    sheet = tokens.expect_text()
    text, span = read_verbatim(sheet, "the name of a stylesheet"), sheet.span
    tokens.expect("as")
    return MaterializeFeed(parse_name(tokens), name, text, span)


def _parse_clauses(tokens: TokenReader, *, is_polled: bool) -> dict[str, Any]:
    """Parse the clauses of a feed and return them as fields of the statement. `is_polled` means it has an address."""
    clauses: dict[str, Any] = {}
    while (keyword := tokens.take_one_of("every", "title", "home", "tagged", "open")) is not None:
        word = keyword.text.lower()
        field, value = _parse_clause(tokens, word)
        if field in clauses:
            raise StatementSyntaxError(
                f"the clause {word} is given twice", span=keyword.span, hint="remove one of the two"
            )
        if word == "every" and not is_polled:
            raise StatementSyntaxError(
                "only feeds with an address are polled, so only they can have `every`",
                span=keyword.span,
                hint="remove `every`; this feed receives its items when they are published",
            )
        if word == "open" and is_polled:
            raise StatementSyntaxError(
                "only feeds without an address can be open",
                span=keyword.span,
                hint="register a second feed without an address for published items, and read the union of both",
            )
        if isinstance(value, str) and len(value) > MAX_TITLE_LENGTH:
            raise StatementSyntaxError(
                f"{word} can have at most {MAX_TITLE_LENGTH:,} characters, this one has {len(value):,}",
                span=keyword.span,
                hint="shorten it",
            )
        clauses[field] = value
    return clauses


def _parse_clause(tokens: TokenReader, word: str) -> tuple[str, object]:
    """Parse the value of a clause. Return the field of the statement that it sets, and the value."""
    match word:
        case "every":
            return "every", parse_duration(tokens).length
        case "tagged":
            return "tags", parse_tag_list(tokens)
        case "open":
            return "open_items", _parse_open(tokens)
        case _:
            return word, read_verbatim(tokens.expect_text(), f"the {word}")


def _parse_open(tokens: TokenReader) -> int:
    """Parse `to 60 items per minute`. Return 0, which means the default setting, if it is omitted."""
    if not tokens.take("to"):
        return 0
    items = tokens.expect_integer()
    tokens.expect("items", "per", "minute")
    limit = read_integer(items)
    if not limit:
        raise StatementSyntaxError(
            "an open feed must accept at least one item per minute",
            span=items.span,
            hint="write 1 or more; to close the feed, remove `open`",
        )
    return limit


def _parse_prefix(tokens: TokenReader) -> RegisterPrefix:
    name = parse_name(tokens)
    tokens.expect("as")
    text = tokens.expect_text()
    if not is_prefix(name.text):
        raise StatementSyntaxError(
            f"{name.text} cannot be a prefix",
            span=name.span,
            hint="a prefix begins with a letter, has only letters, digits and _-., no -- and no dot at its end",
        )
    if name.text in PREDEFINED_PREFIXES:
        raise StatementSyntaxError(
            f"the prefix {name.text} is predefined and stands for {PREDEFINED_PREFIXES[name.text]}",
            span=name.span,
            hint="choose another name, or redefine the prefix inside a block: graph { prefix … }",
        )
    iri = read_verbatim(text, "the IRI of a prefix")
    problem = find_iri_problem(iri)
    if problem is not None:
        hint = "write an absolute IRI, such as 'http://muse.example/'"
        raise StatementSyntaxError(f"this is not an absolute IRI: {problem}", span=text.span, hint=hint)
    return RegisterPrefix(name, iri)
