"""Comparisons of nodes with constants: `= 'ACME'`, `between 2 and 5`, `not contains 'rock'`.

In: the current token, after a path or `.`. Out: a condition on the node, and whether it is negated.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from runnel.algebra.nodes.attributes import Ago, Attribute, Constant
from runnel.algebra.nodes.expressions import Contains
from runnel.algebra.trees.steps import Relation, ValueTest
from runnel.errors import InvalidConditionError
from runnel.language.grammar.parse_values import parse_constant, parse_enclosed
from runnel.language.syntax.conditions import check_order
from runnel.language.syntax.literals import DATE_HINT, Literal, LocatedAttribute
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.text_conditions import build_contains, build_regular_expression
from runnel.model.trees.document_tree import TREE
from runnel.model.trees.tree_nodes import collapse_space

RELATIONS = ("=", "!=", "<>", "<", "<=", ">", ">=")
KEYWORDS = ("between", "in", "contains", "matches")


class ParsedTest(NamedTuple):
    """A comparison. `is_negated` after `not`, and for `!=`, which means `not =`."""

    test: ValueTest
    is_negated: bool


def begins_test(tokens: TokenReader) -> bool:
    """Return whether the current token begins a comparison."""
    return tokens.word in RELATIONS or tokens.word in KEYWORDS or tokens.word == "not"


def take_test(tokens: TokenReader) -> ParsedTest | None:
    """Parse a comparison, or return None if the current token begins none."""
    word = tokens.word
    if word in RELATIONS:
        tokens.advance()
        return _read_comparison(word, parse_constant(tokens))
    if word == "not":
        tokens.advance()
        if tokens.word not in KEYWORDS:
            raise tokens.unexpected(*KEYWORDS)
        return ParsedTest(_parse_keyword(tokens), True)
    if word in KEYWORDS:
        return ParsedTest(_parse_keyword(tokens), False)
    tokens.note_expected("a comparison")
    return None


def _read_comparison(word: str, literal: Literal) -> ParsedTest:
    is_negated = word in ("!=", "<>")
    relation = "=" if is_negated else word
    if isinstance(literal.value, bool) and relation != "=":
        raise InvalidConditionError(
            "truth values have no order", span=literal.token.span, hint="compare them with = or !="
        )
    return ParsedTest(ValueTest(cast(Relation, relation), (_constant(literal),)), is_negated)


def _parse_keyword(tokens: TokenReader) -> ValueTest:
    word = tokens.take_token().text.lower()
    match word:
        case "between":
            low = parse_constant(tokens)
            tokens.expect("and")
            high = parse_constant(tokens)
            bounds = [literal._replace(value=_constant(literal)) for literal in (low, high)]
            check_order(*bounds)
            if isinstance(low.value, bool):
                raise InvalidConditionError(
                    "truth values have no order", span=low.token.span, hint="compare them with = or !="
                )
            return ValueTest("between", (bounds[0].value, bounds[1].value))
        case "in":
            constants = map(_constant, parse_enclosed(tokens, parse_constant))
            return ValueTest("in", tuple({(type(constant), constant): constant for constant in constants}.values()))
        case "contains":
            token = tokens.expect_text()
            atom = cast(Contains, build_contains(LocatedAttribute(Attribute(TREE), token), token, None))
            return ValueTest("contains", (" ".join(atom.words),))
        case _:
            token = tokens.expect_text()
            pattern = build_regular_expression(LocatedAttribute(Attribute(TREE), token), token).pattern
            return ValueTest("matches", (pattern,))


def _constant(literal: Literal) -> Constant:
    """Return the value of a constant. White space in texts is collapsed, like that of nodes."""
    match literal.value:
        case Ago():
            raise InvalidConditionError(
                "nodes cannot be compared with relative times", span=literal.token.span, hint=DATE_HINT
            )
        case str() as text:
            return collapse_space(text)
        case constant:
            return constant
