"""Construction of atoms on texts: words, patterns, stems, similarity, regular expressions, networks and links.

In: attributes and text constants with their tokens. Out: atoms in canonical form, or an InvalidConditionError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import (
    Contains,
    ContainsPattern,
    ContainsStems,
    Extends,
    InNetwork,
    References,
    RegularExpression,
    Shares,
    Similar,
)
from runnel.algebra.nodes.render import FRACTION_DIGITS, render_attribute
from runnel.algebra.values.links import canonical_host, canonical_link
from runnel.algebra.values.networks import canonical_network, enclosing_network
from runnel.algebra.values.regular_expressions import RefusedPatternError, compiled
from runnel.algebra.values.similarity import DEFAULT_LEAST
from runnel.algebra.values.stems import languages
from runnel.algebra.values.word_patterns import is_wild, word_patterns
from runnel.algebra.values.words import words
from runnel.errors import InvalidConditionError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.literals import LocatedAttribute, read_text, span_inside
from runnel.language.syntax.script_tokens import Token

Tokens = Sequence[Token]

_SIMILARITY = re.compile(rf"\+?(?:0*1(?:\.0*)?|0*\.[0-9]{{1,{FRACTION_DIGITS}}}0*)")
_MAX_SHOWN = 60


def build_contains(located: LocatedAttribute, token: Token, language: Token | None) -> Contains | ContainsStems:
    """Build `attribute contains 'words'`, or `… stemmed in language`."""
    attribute = require_text(located, "words")
    phrase = _read_phrase(token)
    return (
        Contains(attribute, phrase)
        if language is None
        else ContainsStems(attribute, _read_language(language), phrase)
    )


def _read_language(token: Token) -> str:
    name = token.text.lower()
    if name not in languages():
        raise InvalidConditionError(
            f"there is no stemmer for the language {token.text}",
            span=token.span,
            hint=did_you_mean(name, languages()) or f"supported languages: {', '.join(languages())}",
        )
    return name


def _read_phrase(token: Token) -> tuple[str, ...]:
    """Split the text of a condition into words. Reject a text without words."""
    phrase = tuple(words(read_text(token)))
    if not phrase:
        raise InvalidConditionError(
            "this text contains no word to search for",
            span=token.span,
            hint="words consist of letters and digits; to match any value write: attribute exists",
        )
    return phrase


def build_pattern(located: LocatedAttribute, token: Token) -> Contains | ContainsPattern:
    """Build `attribute contains pattern 'conc* h?ll'`."""
    attribute = require_text(located, "words")
    try:
        patterns = word_patterns(read_text(token))
    except ValueError:
        raise InvalidConditionError(
            "wildcards cannot be used with characters of a script without spaces, because each is a word by itself",
            span=token.span,
            hint="remove the * or ?; contains finds such characters anywhere in a text",
        ) from None
    if not patterns:
        raise InvalidConditionError(
            "this pattern contains no word to search for",
            span=token.span,
            hint="write words, with * for any number of characters and ? for one: 'conc* h?ll'",
        )
    return ContainsPattern(attribute, patterns) if any(map(is_wild, patterns)) else Contains(attribute, patterns)


def build_similar(located: LocatedAttribute, token: Token, least: Token | None) -> Similar:
    """Build `attribute similar to 'text' [at least 0.6]`."""
    attribute = require_text(located, "words")
    distinct = tuple(dict.fromkeys(_read_phrase(token)))
    return Similar(attribute, distinct, DEFAULT_LEAST if least is None else read_similarity(least))


def read_similarity(token: Token) -> Fraction:
    """Read the bound of a similarity."""
    share = Fraction(token.text) if _SIMILARITY.fullmatch(token.text) else Fraction(0)
    if share == 0:
        percent = re.fullmatch(r"[0-9]{1,3}", token.text)
        raise InvalidConditionError(
            f"similarity must be above 0 and at most 1, with at most {FRACTION_DIGITS} digits after the point",
            span=token.span,
            hint=f"write {token.text} percent as {int(token.text) / 100:g}"
            if percent and 1 < int(token.text) <= 100
            else "1 requires the same words, 0.5 requires that half of all words are common to both texts",
        )
    return share


def build_regular_expression(located: LocatedAttribute, token: Token) -> RegularExpression:
    """Build `attribute matches 'gr[ae]y'`."""
    attribute = require_text(located, "text")
    pattern = read_text(token)
    if not pattern:
        raise InvalidConditionError(
            "an empty regular expression matches every text",
            span=token.span,
            hint="to match any value write: attribute exists",
        )
    try:
        compiled(pattern)
    except RefusedPatternError as refused:
        raise InvalidConditionError(
            f"invalid regular expression: {_shorten(refused.reason)}",
            span=token.span if refused.place is None else span_inside(token, *refused.place),
            hint=_pattern_hint(refused.reason),
        ) from None
    return RegularExpression(attribute, pattern)


def _pattern_hint(reason: str) -> str:
    if "(?=" in reason or "(?!" in reason or "(?<" in reason:
        return "lookahead and lookbehind are not supported; combine two conditions with and"
    if re.search(r"escape sequence: \\[0-9]", reason):
        return "backreferences are not supported; repeat the group instead"
    if "too much memory" in reason or "more than" in reason or "repetition size" in reason:
        return "write a shorter expression, or one with fewer repetitions"
    return "the syntax is that of RE2; write special characters with a backslash: \\("


def build_in_network(located: LocatedAttribute, tokens: Tokens) -> InNetwork:
    """Build `attribute in network '10.0.0.0/8'`, or in one of several networks."""
    attribute = require_text(located, "addresses")
    return InNetwork(attribute, tuple(dict.fromkeys(map(_read_network, tokens))))


def _read_network(token: Token) -> str:
    text = read_text(token)
    try:
        return canonical_network(text)
    except ValueError:
        enclosing = enclosing_network(text)
        raise InvalidConditionError(
            f"{_shorten(text)!r} is not a network",
            span=token.span,
            hint=f"did you mean {enclosing}?"
            if enclosing
            else "write 10.0.0.0/8, 2001:db8::/32, or a single address",
        ) from None


def build_references(located: LocatedAttribute, token: Token) -> References:
    """Build `attribute references 'host or URL'`."""
    attribute = require_text(located, "links")
    text = read_text(token).strip()
    if "://" in text:
        return References(attribute, _read_link(token))
    host = canonical_host(f"[{text}]" if text.count(":") > 1 and "[" not in text else text)
    if host is None:
        raise InvalidConditionError(
            f"{_shorten(text)!r} is neither a host nor a URL",
            span=token.span,
            hint="write a host such as muse.example, or a URL with its scheme such as https://muse.example/news",
        )
    return References(attribute, host)


def build_extends(located: LocatedAttribute, token: Token) -> Extends:
    """Build `attribute extends 'https://host/path'`."""
    attribute = require_text(located, "links")
    link = _read_link(token)
    if "?" in link:
        raise InvalidConditionError(
            "extends compares the paths of links, so its URL cannot have a query string",
            span=token.span,
            hint="remove the ? and all that follows, or use references to find this exact URL",
        )
    folder = link.rstrip("/")
    return Extends(attribute, folder if folder.count("/") > 2 else f"{folder}/")


def build_shares(located: LocatedAttribute, tokens: Tokens) -> Shares:
    """Build `attribute shares 'https://…'`, or with one of several URLs."""
    attribute = require_text(located, "links")
    return Shares(attribute, tuple(dict.fromkeys(map(_read_link, tokens))))


def _read_link(token: Token) -> str:
    text = read_text(token)
    link = canonical_link(text)
    if link is None:
        raise InvalidConditionError(
            f"{_shorten(text)!r} is not a URL",
            span=token.span,
            hint="write a full URL with its scheme: https://muse.example/news",
        )
    return link


def require_text(located: LocatedAttribute, content: str) -> Attribute:
    """Return the attribute. Reject date parts, which are numbers and have no `content` such as words."""
    if located.attribute.part is None:
        return located.attribute
    raise InvalidConditionError(
        f"{render_attribute(located.attribute)} is a number and cannot contain {content}",
        span=located.token.span,
        hint="compare it with a number: published.year = 2026",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
