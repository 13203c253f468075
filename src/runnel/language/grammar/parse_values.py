"""Grammar rules for names, tags, attributes, constants and durations. In: the current token. Out: valid values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from runnel.algebra.nodes.durations import UNITS
from runnel.algebra.nodes.render import NOW, RESERVED
from runnel.language.nearest import nearest
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.literals import (
    Duration,
    Literal,
    LocatedAttribute,
    read_ago,
    read_attribute,
    read_date,
    read_duration,
    read_name,
    read_number,
    read_text,
    read_variable,
    read_verbatim,
)
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import DATE, NUMBER, TEXT, TRUTH, VARIABLE, WORD, Token
from runnel.language.syntax.statements import Name
from runnel.language.syntax.tag_names import read_tags

_AGO_UNITS = frozenset(word for unit in UNITS for word in (unit, f"{unit}s"))
_TRUTHS = {"true": True, "false": False}

Entry = TypeVar("Entry")


def parse_list(tokens: TokenReader, parse_entry: Callable[[TokenReader], Entry]) -> list[Entry]:
    """Parse `entry, entry, …` with at least one entry."""
    entries = [parse_entry(tokens)]
    while tokens.take(","):
        entries.append(parse_entry(tokens))
    return entries


def parse_enclosed(tokens: TokenReader, parse_entry: Callable[[TokenReader], Entry]) -> list[Entry]:
    """Parse `(entry, entry, …)` or a parameter that is a list. The parentheses do not count as nesting."""
    tokens.open_list()
    entries = parse_list(tokens, parse_entry)
    tokens.expect(")")
    return entries


def parse_name(tokens: TokenReader) -> Name:
    """Parse a bare or double-quoted name."""
    token = tokens.expect_name()
    return Name(read_name(token), token.span)


def parse_variable(tokens: TokenReader) -> Name | None:
    """Parse an optional `as $v`."""
    return read_variable(tokens.expect_kind(VARIABLE, expects.VARIABLE)) if tokens.take("as") else None


def parse_tag_list(tokens: TokenReader) -> tuple[str, ...]:
    """Parse `tag, 'a tag', …`."""
    return read_tags(parse_list(tokens, _parse_tag))


def _parse_tag(tokens: TokenReader) -> Name:
    token = tokens.take_text()
    return parse_name(tokens) if token is None else Name(read_verbatim(token, "a tag"), token.span)


def parse_tags(tokens: TokenReader) -> tuple[str, ...]:
    """Parse an optional `tagged tag, …`."""
    return parse_tag_list(tokens) if tokens.take("tagged") else ()


def parse_attribute(tokens: TokenReader) -> LocatedAttribute:
    """Parse `name`, `"name"` or `item`, with an optional date part such as `published.year`."""
    return finish_attribute(tokens, tokens.take_token() if tokens.is_at("item") else tokens.expect_name())


def finish_attribute(tokens: TokenReader, name: Token) -> LocatedAttribute:
    """Parse the optional date part of an attribute; its name has been read."""
    return read_attribute(name, tokens.expect_word(expects.PART) if tokens.take(".") else None)


def parse_duration(tokens: TokenReader) -> Duration:
    """Parse a duration such as `3 hours`."""
    count = tokens.expect_integer()
    return read_duration(count, tokens.expect_word(expects.UNIT))


def parse_constant(tokens: TokenReader) -> Literal:
    """Parse a number, a text, a truth value, a date, or a relative time such as `2 days ago` and `now`."""
    if tokens.kind == NUMBER or tokens.is_at_number():
        return finish_ago(tokens, tokens.take_number())
    if tokens.word == "now":
        return Literal(NOW, tokens.take_token())
    literal = take_literal(tokens)
    if literal is None:
        raise tokens.unexpected(expects.CONSTANT)
    return literal


def take_literal(tokens: TokenReader) -> Literal | None:
    """Parse a text, a truth value or a date. Return None if the current token begins none of them."""
    if tokens.kind == TEXT:
        token = tokens.take_token()
        return Literal(read_text(token), token)
    if tokens.word in _TRUTHS:
        return Literal(_TRUTHS[tokens.word], tokens.take_token())
    if tokens.word == "date":
        tokens.advance()
        token = tokens.expect_text()
        return Literal(read_date(read_text(token), token), token)
    if tokens.kind == DATE:
        token = tokens.take_token()
        return Literal(read_date(read_text(token), token), token)
    if tokens.kind == TRUTH:
        token = tokens.take_token()
        return Literal(_TRUTHS[token.text], token)
    return None


def finish_ago(tokens: TokenReader, count: Token) -> Literal:
    """Parse the rest of a number or of a relative time such as `2 days ago`; the number has been read."""
    if tokens.word not in _AGO_UNITS:
        # Only reserved words can follow a number, so a word that resembles a unit is a misspelled unit.
        if tokens.kind == WORD and tokens.word not in RESERVED and nearest(tokens.word, _AGO_UNITS):
            raise tokens.unexpected(expects.AGO_UNIT)
        tokens.note_expected(expects.AGO_UNIT)
        return Literal(read_number(count), count)
    unit = tokens.take_token()
    tokens.expect("ago")
    return Literal(read_ago(count, unit), count)


def parse_texts(tokens: TokenReader) -> list[Token]:
    """Parse `('text', …)`."""
    return parse_enclosed(tokens, TokenReader.expect_text)


def parse_text_or_texts(tokens: TokenReader) -> list[Token]:
    """Parse `'text'` or `('text', …)`."""
    token = tokens.take_text()
    return parse_texts(tokens) if token is None else [token]
