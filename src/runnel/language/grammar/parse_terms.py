"""Rules for operators in conditions: calls, and comparisons of their results: `near('Bronx', ?m) and ?m < 2 * 500`.

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
from runnel.language.syntax.literals import Literal, Located, read_binding, read_name, read_number
from runnel.language.syntax.operator_terms import (
    Written,
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
    """`name(argument, …)`, of which the name is taken already."""
    name = Name(read_name(token), token.span)
    tokens.expect("(")
    if tokens.take(")"):
        return build_call(name, ())
    arguments = parse_list(tokens, _parse_argument)
    tokens.expect(")")
    return build_call(name, arguments)


def _parse_argument(tokens: TokenReader) -> Literal | Variable | Located:
    if tokens.kind == BINDING:
        return read_binding(tokens.take_token())
    if tokens.at_number():
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


def parse_term(tokens: TokenReader) -> Expression | Written:
    """A comparison of quantities. A quantity alone, before `)`, is given back: what follows `)` may compare it."""
    return finish_term(tokens, _parse_factor(tokens))


def finish_term(tokens: TokenReader, first: Written) -> Expression | Written:
    """As `parse_term`, with the first factor taken already."""
    left = _finish_quantity(tokens, first)
    relation, span = tokens.word, tokens.span
    if relation in RELATIONS:
        tokens.advance()
        return build_constraint(left, relation, _parse_bound(tokens), span)
    if relation == ")":
        tokens.miss("not", "between", "in", expects.RELATION)
        return left
    is_negated = tokens.take("not")
    if tokens.take("between"):
        low = _parse_bound(tokens)
        tokens.expect("and")
        return build_range(left, low, _parse_bound(tokens), outside=is_negated)
    if tokens.take("in"):
        return build_choice(left, parse_enclosed(tokens, _parse_bound), without=is_negated)
    raise tokens.unexpected() if is_negated else tokens.unexpected(expects.RELATION)


def _parse_bound(tokens: TokenReader) -> Written:
    """What a quantity is compared with: a quantity or a constant."""
    if tokens.at_number():
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


def _finish_quantity(tokens: TokenReader, first: Written) -> Written:
    """Sums and differences of products; the first factor is taken already."""
    left = _finish_product(tokens, first)
    while tokens.word in ("+", "-"):
        sign = tokens.take_token()
        left = build_arithmetic(left, sign, _finish_product(tokens, _parse_factor(tokens)))
    tokens.miss(expects.CALCULATION)
    return left


def _finish_product(tokens: TokenReader, first: Written) -> Written:
    left = first
    while tokens.word in ("*", "/"):
        sign = tokens.take_token()
        left = build_arithmetic(left, sign, _parse_factor(tokens))
    return left


def _parse_factor(tokens: TokenReader) -> Written:
    if tokens.kind == BINDING:
        return read_binding(tokens.take_token())
    if tokens.at_number():
        number = tokens.take_number()
        return Literal(read_number(number), number)
    if tokens.word != "(":
        raise tokens.unexpected(expects.BINDING, expects.NUMBER, "(")
    tokens.open()
    quantity = _finish_quantity(tokens, _parse_factor(tokens))
    tokens.close()
    return quantity


def is_quantity(part: object) -> bool:
    """Whether a rule gave a quantity back, which is no condition yet."""
    return isinstance(part, _QUANTITIES)
