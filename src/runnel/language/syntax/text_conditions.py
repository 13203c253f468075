"""Atoms on texts: words, patterns, stems, similarity, regular expressions, networks and links, checked when declared.

In: attributes and text constants with their tokens. Out: atoms in canonical form, or InvalidCondition at its place.
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
from runnel.language.syntax.literals import Located, read_text, span_inside
from runnel.language.syntax.script_tokens import Token

Tokens = Sequence[Token]

_SHARE = re.compile(rf"\+?(?:0*1(?:\.0*)?|0*\.[0-9]{{1,{FRACTION_DIGITS}}}0*)")
_SHOWN = 60


def build_contains(located: Located, token: Token, language: Token | None) -> Contains | ContainsStems:
    """`attribute contains 'words'`, or `… stemmed in language`."""
    attribute = require_textual(located, "no words")
    phrase = _phrase(token)
    return Contains(attribute, phrase) if language is None else ContainsStems(attribute, _language(language), phrase)


def _language(token: Token) -> str:
    name = token.text.lower()
    if name not in languages():
        raise InvalidConditionError(
            f"words of {token.text} cannot be stemmed",
            span=token.span,
            hint=did_you_mean(name, languages()) or f"languages are {', '.join(languages())}",
        )
    return name


def _phrase(token: Token) -> tuple[str, ...]:
    """The words that a condition looks for."""
    phrase = tuple(words(read_text(token)))
    if not phrase:
        raise InvalidConditionError(
            "there is no word to look for in this text",
            span=token.span,
            hint="contains finds words: letters and digits; for any value write: attribute exists",
        )
    return phrase


def build_pattern(located: Located, token: Token) -> Contains | ContainsPattern:
    """`attribute contains pattern 'conc* h?ll'`."""
    attribute = require_textual(located, "no words")
    try:
        patterns = word_patterns(read_text(token))
    except ValueError:
        raise InvalidConditionError(
            "a character of a script without spaces is a word by itself, so nothing can stand for a part of it",
            span=token.span,
            hint="leave the * or ? out; contains finds such characters anywhere in a text",
        ) from None
    if not patterns:
        raise InvalidConditionError(
            "there is no word to look for in this pattern",
            span=token.span,
            hint="write letters, with * for any run of them and ? for one: 'conc* h?ll'",
        )
    return ContainsPattern(attribute, patterns) if any(map(is_wild, patterns)) else Contains(attribute, patterns)


def build_similar(located: Located, token: Token, least: Token | None) -> Similar:
    """`attribute similar to 'text' [at least 0.6]`."""
    attribute = require_textual(located, "no words")
    distinct = tuple(dict.fromkeys(_phrase(token)))
    return Similar(attribute, distinct, DEFAULT_LEAST if least is None else read_share(least))


def read_share(token: Token) -> Fraction:
    """Read the bound of a similarity: above 0, and at most 1."""
    share = Fraction(token.text) if _SHARE.fullmatch(token.text) else Fraction(0)
    if share == 0:
        percent = re.fullmatch(r"[0-9]{1,3}", token.text)
        raise InvalidConditionError(
            f"this must lie above 0 and not above 1, with at most {FRACTION_DIGITS} digits behind the point",
            span=token.span,
            hint=f"{token.text} per cent are {int(token.text) / 100:g}"
            if percent and 1 < int(token.text) <= 100
            else "1 asks for the same words, 0.5 for half of all words in common",
        )
    return share


def build_regular_expression(located: Located, token: Token) -> RegularExpression:
    """`attribute matches 'gr[ae]y'`."""
    attribute = require_textual(located, "no text")
    pattern = read_text(token)
    if not pattern:
        raise InvalidConditionError(
            "an empty pattern is found in every text",
            span=token.span,
            hint="for any value write: attribute exists",
        )
    try:
        compiled(pattern)
    except RefusedPatternError as refused:
        raise InvalidConditionError(
            f"this is not a regular expression: {_cut(refused.reason)}",
            span=token.span if refused.place is None else span_inside(token, *refused.place),
            hint=_pattern_hint(refused.reason),
        ) from None
    return RegularExpression(attribute, pattern)


def _pattern_hint(reason: str) -> str:
    if "(?=" in reason or "(?!" in reason or "(?<" in reason:
        return "there is no looking ahead or behind; join two conditions with and"
    if re.search(r"escape sequence: \\[0-9]", reason):
        return "a group cannot be referred to again; write it out"
    if "too much memory" in reason or "more than" in reason or "repetition size" in reason:
        return "write a shorter one, or repeat less often"
    return "the syntax is that of RE2; a character with a meaning of its own is written with a backslash: \\("


def build_in_network(located: Located, tokens: Tokens) -> InNetwork:
    """`attribute in network '10.0.0.0/8'`, or one of several."""
    attribute = require_textual(located, "no address")
    return InNetwork(attribute, tuple(dict.fromkeys(map(_network, tokens))))


def _network(token: Token) -> str:
    text = read_text(token)
    try:
        return canonical_network(text)
    except ValueError:
        enclosing = enclosing_network(text)
        raise InvalidConditionError(
            f"{_cut(text)!r} is not a network",
            span=token.span,
            hint=f"the network that it is in is {enclosing}"
            if enclosing
            else "write 10.0.0.0/8, 2001:db8::/32, or one address",
        ) from None


def build_references(located: Located, token: Token) -> References:
    """`attribute references 'host or URL'`."""
    attribute = require_textual(located, "no links")
    text = read_text(token).strip()
    if "://" in text:
        return References(attribute, _link(token))
    host = canonical_host(f"[{text}]" if text.count(":") > 1 and "[" not in text else text)
    if host is None:
        raise InvalidConditionError(
            f"{_cut(text)!r} is neither a host nor a URL",
            span=token.span,
            hint="write a host alone, as in muse.example, or a URL with its scheme, as in https://muse.example/news",
        )
    return References(attribute, host)


def build_extends(located: Located, token: Token) -> Extends:
    """`attribute extends 'https://host/path'`."""
    attribute = require_textual(located, "no links")
    link = _link(token)
    if "?" in link:
        raise InvalidConditionError(
            "extends looks at the path of a link, not at what stands after ?",
            span=token.span,
            hint="leave out the ? and what follows, or write references for this one URL",
        )
    folder = link.rstrip("/")
    return Extends(attribute, folder if folder.count("/") > 2 else f"{folder}/")


def build_shares(located: Located, tokens: Tokens) -> Shares:
    """`attribute shares 'https://…'`, or one of several."""
    attribute = require_textual(located, "no links")
    return Shares(attribute, tuple(dict.fromkeys(map(_link, tokens))))


def _link(token: Token) -> str:
    text = read_text(token)
    link = canonical_link(text)
    if link is None:
        raise InvalidConditionError(
            f"{_cut(text)!r} is not a URL",
            span=token.span,
            hint="write it whole, with its scheme: https://muse.example/news",
        )
    return link


def require_textual(located: Located, nothing: str) -> Attribute:
    """The attribute, if its values can be texts."""
    if located.attribute.part is None:
        return located.attribute
    raise InvalidConditionError(
        f"{render_attribute(located.attribute)} is a number and holds {nothing}",
        span=located.token.span,
        hint="compare it with a number, as in published.year = 2026",
    )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
