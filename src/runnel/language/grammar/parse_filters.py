"""Grammar rules for conditions that begin with a name: `title contains 'rock'`, `price < 20`, `near('Bronx', ?m)`.

The name is an attribute, or an operator if `(` follows. In: the current token. Out: an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from runnel.algebra.nodes.expressions import (
    AtomRelation,
    Compare,
    Exists,
    Expression,
    Not,
    conjunction,
    disjunction,
    negation,
)
from runnel.algebra.nodes.render import RESERVED
from runnel.language.grammar.parse_terms import RELATIONS, finish_call
from runnel.language.grammar.parse_values import (
    finish_attribute,
    parse_constant,
    parse_duration,
    parse_enclosed,
    parse_text_or_texts,
    parse_texts,
)
from runnel.language.grammar.parse_window_atoms import parse_window_atom
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.conditions import build_between, build_one_of, build_within
from runnel.language.syntax.literals import LocatedAttribute, coerce_constant, coerce_equality_constant
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.text_conditions import (
    build_contains,
    build_extends,
    build_in_network,
    build_pattern,
    build_references,
    build_regular_expression,
    build_shares,
    build_similar,
)

ParseAtom = Callable[[TokenReader, LocatedAttribute], Expression]


def parse_filter(tokens: TokenReader) -> Expression:
    """Parse a condition that begins with a name: an atom on an attribute, or an operator call."""
    if tokens.word in RESERVED and tokens.word != "item":
        raise tokens.unexpected(expects.CONDITION)
    if tokens.word == "item":
        return _parse_atom(tokens, finish_attribute(tokens, tokens.take_token()))
    name = tokens.expect_name()
    if tokens.is_at("("):
        return finish_call(tokens, name)
    return _parse_atom(tokens, finish_attribute(tokens, name))


def _parse_atom(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    """Parse the rest of an atom, after its attribute."""
    word = tokens.word
    parse = ATOMS.get(word)
    if parse is not None:
        tokens.advance()
        return parse(tokens, located)
    if word in RELATIONS:
        tokens.advance()
        return _parse_comparison(tokens, located, word)
    if word != "not":
        raise tokens.unexpected(*ATOMS, "not", expects.RELATION)
    tokens.advance()
    parse = ATOMS.get(tokens.word)
    if parse is None:
        raise tokens.unexpected(*ATOMS)
    tokens.advance()
    return negation(parse(tokens, located))


def _parse_comparison(tokens: TokenReader, located: LocatedAttribute, relation: str) -> Expression:
    if tokens.word == "window":
        is_different = relation in ("!=", "<>")
        atom = parse_window_atom(tokens, located, "=" if is_different else relation)
        return Not(atom) if is_different else atom
    literal = parse_constant(tokens)
    if relation in ("!=", "<>"):
        return Not(Compare(located.attribute, "=", coerce_equality_constant(located, literal)))
    constant = (coerce_equality_constant if relation == "=" else coerce_constant)(located, literal)
    return Compare(located.attribute, cast(AtomRelation, relation), constant)


def _parse_contains(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    if tokens.word == "window":
        return parse_window_atom(tokens, located, "contains")
    phrase = tokens.take_text()
    if phrase is not None:
        return build_contains(located, phrase, _parse_language(tokens))
    if tokens.take("pattern"):
        return build_pattern(located, tokens.expect_text())
    quantifier = tokens.take_one_of("all", "any")
    if quantifier is None:
        raise tokens.unexpected()
    combine = conjunction if quantifier.text.lower() == "all" else disjunction
    if tokens.take("pattern"):
        return combine([build_pattern(located, pattern) for pattern in parse_texts(tokens)])
    phrases = parse_texts(tokens)
    language = _parse_language(tokens)
    return combine([build_contains(located, phrase, language) for phrase in phrases])


def _parse_language(tokens: TokenReader) -> Token | None:
    """Parse an optional `stemmed in language`."""
    if not tokens.take("stemmed"):
        return None
    tokens.expect("in")
    return tokens.expect_word(expects.LANGUAGE)


def _parse_similar(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    if not tokens.take("to") and tokens.word != "window":  # `similar window.title` needs no `to`
        raise tokens.unexpected()
    if tokens.word == "window":
        return parse_window_atom(tokens, located, "similar")
    text = tokens.expect_text()
    if not tokens.take("at"):
        return build_similar(located, text, None)
    tokens.expect("least")
    return build_similar(located, text, tokens.expect_number())


def _parse_references(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    if tokens.word == "window":
        return parse_window_atom(tokens, located, "references")
    return build_references(located, tokens.expect_text())


def _parse_extends(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    if tokens.word == "window":
        return parse_window_atom(tokens, located, "extends")
    return build_extends(located, tokens.expect_text())


def _parse_shares(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    if tokens.word == "window":
        return parse_window_atom(tokens, located, "shares")
    return build_shares(located, parse_text_or_texts(tokens))


def _parse_between(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    low = parse_constant(tokens)
    tokens.expect("and")
    return build_between(located, low, parse_constant(tokens))


def _parse_within(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    tokens.expect("last")
    return build_within(located, parse_duration(tokens))


def _parse_in(tokens: TokenReader, located: LocatedAttribute) -> Expression:
    if tokens.take("network"):
        return build_in_network(located, parse_text_or_texts(tokens))
    return build_one_of(located, parse_enclosed(tokens, parse_constant))


ATOMS: Mapping[str, ParseAtom] = MappingProxyType(
    {
        "contains": _parse_contains,
        "similar": _parse_similar,
        "matches": lambda tokens, located: build_regular_expression(located, tokens.expect_text()),
        "between": _parse_between,
        "within": _parse_within,
        "in": _parse_in,
        "references": _parse_references,
        "extends": _parse_extends,
        "shares": _parse_shares,
        "exists": lambda tokens, located: Exists(located.attribute),
    }
)
"""Rules for the rest of an atom after its attribute, by keyword. All of them can be negated by `not`."""
