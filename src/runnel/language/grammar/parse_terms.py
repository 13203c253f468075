"""Grammar rules for operator calls and comparisons of their results: `near('Bronx', ?m) and ?m < 2 * 500`.

In: the current token. Out: calls and constraints.
"""

from __future__ import annotations

from runnel.algebra.nodes.attributes import Ago
from runnel.algebra.nodes.calls import Arithmetic, Call, Variable
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.render import NOW
from runnel.language.grammar.parse_values import (
    finish_ago,
    finish_attribute,
    parse_enclosed,
    parse_list,
    take_literal,
)
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.literals import Literal, LocatedAttribute, read_binding, read_name, read_number
from runnel.language.syntax.operator_terms import (
    ParsedQuantity,
    build_arithmetic,
    build_call,
    build_choice,
    build_constraint,
    build_range,
)
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import BINDING, QUOTED, WORD, Token
from runnel.language.syntax.statements import Name

_QUANTITIES = (Literal, Variable, Arithmetic)
RELATIONS = frozenset({"=", "!=", "<>", "<", "<=", ">", ">="})


def finish_call(tokens: TokenReader, token: Token) -> Call:
    """Parse the rest of `name(argument, …)`; the name has been read."""
    name = Name(read_name(token), token.span)
    tokens.expect("(")
    if tokens.take(")"):
        return build_call(name, ())
    arguments = parse_list(tokens, _parse_argument)
    tokens.expect(")")
    return build_call(name, arguments)


def _parse_argument(tokens: TokenReader) -> Literal | Variable | LocatedAttribute:
    if tokens.kind == BINDING:
        return read_binding(tokens.take_token())
    if tokens.is_at_number():
        number = tokens.take_number()
        return Literal(read_number(number), number)
    literal = take_literal(tokens)
    if literal is not None:
        return literal
    if tokens.word == "item":
        return finish_attribute(tokens, tokens.take_token())
    if tokens.kind not in (WORD, QUOTED):
        raise tokens.unexpected(expects.ARGUMENT)
    return finish_attribute(tokens, tokens.expect_name(expects.ARGUMENT))


def parse_term(tokens: TokenReader) -> Expression | ParsedQuantity:
    """Parse a comparison of quantities. Return a quantity alone if `)` follows: the comparison may come after `)`."""
    return finish_term(tokens, _parse_factor(tokens))


def finish_term(tokens: TokenReader, first: ParsedQuantity) -> Expression | ParsedQuantity:
    """Parse the rest of a comparison as `parse_term` does; the first factor has been read."""
    left = _finish_quantity(tokens, first)
    relation, span = tokens.word, tokens.span
    if relation in RELATIONS:
        tokens.advance()
        return build_constraint(left, relation, _parse_bound(tokens), span)
    if relation == ")":
        tokens.note_expected("not", "between", "in", expects.RELATION)
        return left
    is_negated = tokens.take("not")
    if tokens.take("between"):
        low = _parse_bound(tokens)
        tokens.expect("and")
        return build_range(left, low, _parse_bound(tokens), outside=is_negated)
    if tokens.take("in"):
        return build_choice(left, parse_enclosed(tokens, _parse_bound), negated=is_negated)
    raise tokens.unexpected() if is_negated else tokens.unexpected(expects.RELATION)


def _parse_bound(tokens: TokenReader) -> ParsedQuantity:
    """Parse the right side of a comparison: a quantity or a constant."""
    if tokens.is_at_number():
        number = finish_ago(tokens, tokens.take_number())
        return number if isinstance(number.value, Ago) else _finish_quantity(tokens, number)
    if tokens.word == "now":
        return Literal(NOW, tokens.take_token())
    literal = take_literal(tokens)
    if literal is not None:
        return literal
    if tokens.kind != BINDING and tokens.word != "(":
        raise tokens.unexpected(expects.CONSTANT, expects.BINDING, "(")
    return _finish_quantity(tokens, _parse_factor(tokens))


def _finish_quantity(tokens: TokenReader, first: ParsedQuantity) -> ParsedQuantity:
    """Parse the rest of a sum or difference of products; the first factor has been read."""
    left = _finish_product(tokens, first)
    while tokens.word in ("+", "-"):
        sign = tokens.take_token()
        left = build_arithmetic(left, sign, _finish_product(tokens, _parse_factor(tokens)))
    tokens.note_expected(expects.CALCULATION)
    return left


def _finish_product(tokens: TokenReader, first: ParsedQuantity) -> ParsedQuantity:
    left = first
    while tokens.word in ("*", "/"):
        sign = tokens.take_token()
        left = build_arithmetic(left, sign, _parse_factor(tokens))
    return left


def _parse_factor(tokens: TokenReader) -> ParsedQuantity:
    if tokens.kind == BINDING:
        return read_binding(tokens.take_token())
    if tokens.is_at_number():
        number = tokens.take_number()
        return Literal(read_number(number), number)
    if tokens.word != "(":
        raise tokens.unexpected(expects.BINDING, expects.NUMBER, "(")
    tokens.open()
    quantity = _finish_quantity(tokens, _parse_factor(tokens))
    tokens.close()
    return quantity


def is_quantity(part: object) -> bool:
    """Return whether a rule returned a quantity instead of a condition."""
    return isinstance(part, _QUANTITIES)
