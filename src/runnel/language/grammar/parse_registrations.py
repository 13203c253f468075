"""Rules for `register`: feeds and prefixes. In: the token behind `register`. Out: a statement, checked."""

from __future__ import annotations

from typing import Any

from runnel.errors import StatementSyntaxError
from runnel.language.grammar.parse_operators import parse_operator
from runnel.language.grammar.parse_values import parse_duration, parse_name, parse_tag_list
from runnel.language.graphs.iri_prefixes import KNOWN_PREFIXES, is_prefix, problem_of_iri
from runnel.language.syntax.literals import read_exact, read_integer
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import MaterialiseFeed, RegisterFeed, RegisterOperator, RegisterPrefix

LONGEST_TITLE = 500
"""The most characters of a feed's title, and of the address of its home page."""


def parse_register(
    tokens: TokenReader, keyword: Token
) -> RegisterFeed | MaterialiseFeed | RegisterOperator | RegisterPrefix:
    """`register feed …`, `register operator …` or `register prefix …`."""
    if tokens.take("operator"):
        return parse_operator(tokens)
    if tokens.take("prefix"):
        return _parse_prefix(tokens)
    tokens.expect("feed")
    return _parse_feed(tokens)


def _parse_feed(tokens: TokenReader) -> RegisterFeed | MaterialiseFeed:
    token = tokens.take_text()
    if token is not None:
        address, place = read_exact(token, "an address"), token.span
        tokens.expect("as")
        return RegisterFeed(parse_name(tokens), address, place=place, **_parse_clauses(tokens, is_polled=True))
    name = parse_name(tokens)
    if not tokens.take("apply"):
        return RegisterFeed(name, place=name.span, **_parse_clauses(tokens, is_polled=False))
    sheet = tokens.expect_text()
    text, place = read_exact(sheet, "a stylesheet's name"), sheet.span
    tokens.expect("as")
    return MaterialiseFeed(parse_name(tokens), name, text, place)


def _parse_clauses(tokens: TokenReader, *, is_polled: bool) -> dict[str, Any]:
    """The clauses of a feed, each once, as fields of the statement. Only a feed with an address is polled."""
    clauses: dict[str, Any] = {}
    while (keyword := tokens.take_one_of("every", "title", "home", "tagged", "open")) is not None:
        word = keyword.text.lower()
        field, value = _parse_clause(tokens, word)
        if field in clauses:
            raise StatementSyntaxError(
                f"{word} is given twice", span=keyword.span, hint="each clause may be written once: remove one"
            )
        if word == "every" and not is_polled:
            raise StatementSyntaxError(
                "only a feed with an address is polled",
                span=keyword.span,
                hint="leave `every` out: items come when they are published",
            )
        if word == "open" and is_polled:
            raise StatementSyntaxError(
                "a feed with an address cannot be open",
                span=keyword.span,
                hint="register a feed without an address for what others publish, and read the union of both",
            )
        if isinstance(value, str) and len(value) > LONGEST_TITLE:
            raise StatementSyntaxError(
                f"{word} may have at most {LONGEST_TITLE:,} characters, this one has {len(value):,}",
                span=keyword.span,
                hint="shorten it",
            )
        clauses[field] = value
    return clauses


def _parse_clause(tokens: TokenReader, word: str) -> tuple[str, object]:
    """The field that a clause sets, and its value."""
    match word:
        case "every":
            return "every", parse_duration(tokens).length
        case "tagged":
            return "tags", parse_tag_list(tokens)
        case "open":
            return "open_items", _parse_open(tokens)
        case _:
            return word, read_exact(tokens.expect_text(), f"a {word}")


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
            hint="choose another name, or declare it in the block: graph { prefix … }",
        )
    iri = read_exact(text, "what a prefix stands for")
    problem = problem_of_iri(iri)
    if problem is not None:
        hint = "write the beginning of IRIs in full, such as 'http://muse.example/'"
        raise StatementSyntaxError(f"this is not an IRI in full: {problem}", span=text.span, hint=hint)
    return RegisterPrefix(name, iri)
