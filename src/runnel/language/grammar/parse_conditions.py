"""Rules for conditions: `and`, `or`, `not`, parentheses, variables of terms, and the table of the other rules.

In: the current token. Out: an expression, or the conjuncts of a `where`. The rules of the condition families in
`runnel.families` join the table when a script is parsed.
"""

from __future__ import annotations

from typing import cast

from runnel.algebra.nodes.expressions import FALSE, TRUE, Expression, conjunction, disjunction, negation
from runnel.errors import InvalidConditionError
from runnel.language.grammar.parse_filters import parse_filter
from runnel.language.grammar.parse_terms import finish_term, is_quantity, parse_term
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.conditions import Built, Conjuncts, unscoped
from runnel.language.syntax.literals import read_variable
from runnel.language.syntax.operator_terms import Written
from runnel.language.syntax.reader import ConditionSyntax, TokenReader
from runnel.language.syntax.script_tokens import BINDING, NUMBER, QUOTED, VARIABLE, WORD
from runnel.language.syntax.statements import Condition


def parse_condition(tokens: TokenReader) -> Built:
    """A whole condition."""
    return _condition(tokens, _parse_any(tokens))


def _parse_any(tokens: TokenReader) -> Built | Written:
    """Conditions with `or` between them. A quantity alone is given back, for the parentheses around it."""
    first = _parse_all(tokens)
    if not tokens.take("or"):
        return first
    parts = [_condition(tokens, first), _condition(tokens, _parse_all(tokens))]
    while tokens.take("or"):
        parts.append(_condition(tokens, _parse_all(tokens)))
    return disjunction([unscoped(part, "or") for part in parts])


def _parse_all(tokens: TokenReader) -> Built | Written:
    """Conditions with `and` between them, or a quantity alone."""
    first = _parse_one(tokens)
    if not tokens.take("and"):
        return first
    parts = [_condition(tokens, first), _condition(tokens, _parse_one(tokens))]
    while tokens.take("and"):
        parts.append(_condition(tokens, _parse_one(tokens)))
    if not any(isinstance(part, Conjuncts) for part in parts):
        return conjunction(cast(list[Expression], parts))
    scoped = [one for part in parts if isinstance(part, Conjuncts) for one in part.scoped]
    plain = [one for part in parts for one in (part.plain if isinstance(part, Conjuncts) else (part,))]
    return Conjuncts(tuple(scoped), tuple(plain))


def _parse_one(tokens: TokenReader) -> Built | Written:
    """One condition with any number of `not` before it, or a quantity alone."""
    negations = 0
    while tokens.word == "not":
        negations += 1
        tokens.advance()
    parse = tokens.conditions.get(tokens.word) or tokens.conditions.get(tokens.kind)
    if parse is None:
        raise tokens.unexpected(expects.CONDITION)
    part = parse(tokens)
    if not negations:
        return part
    negated = unscoped(_condition(tokens, part), "not")
    return negation(negated) if negations % 2 else negation(negation(negated))


def _condition(tokens: TokenReader, part: Built | Written) -> Built:
    """The part, if it is a condition; a quantity alone is not."""
    if is_quantity(part):
        raise tokens.unexpected()
    return cast(Built, part)


def _parse_group(tokens: TokenReader) -> Built | Written:
    """`(condition)`, or a comparison whose left side begins with a quantity in parentheses."""
    tokens.open()
    inner = _parse_any(tokens)
    tokens.close()
    return finish_term(tokens, cast(Written, inner)) if is_quantity(inner) else inner


def _parse_scoped(tokens: TokenReader) -> Conjuncts:
    """`$v[condition]`."""
    variable = read_variable(tokens.take_token())
    if tokens.is_scoped:
        raise InvalidConditionError(
            "a condition on a variable cannot hold another one",
            span=variable.span,
            hint="join them with and: $a[…] and $b[…]",
        )
    tokens.expect("[")
    tokens.is_scoped = True
    condition = cast(Expression, parse_condition(tokens))
    tokens.is_scoped = False
    tokens.expect("]")
    return Conjuncts((Condition(variable, condition),))


def _parse_truth(tokens: TokenReader) -> Expression:
    return TRUE if tokens.take_token().text.lower() == "true" else FALSE


def _parse_signed(tokens: TokenReader) -> Built | Written:
    """A comparison that begins with a signed number."""
    if not tokens.at_number():
        raise tokens.unexpected(expects.CONDITION)
    return parse_term(tokens)


CONDITIONS: tuple[ConditionSyntax, ...] = (
    ConditionSyntax(("(",), _parse_group),
    ConditionSyntax((VARIABLE,), _parse_scoped),
    ConditionSyntax(("true", "false"), _parse_truth),
    ConditionSyntax((WORD, QUOTED, "item"), parse_filter),
    ConditionSyntax((BINDING, NUMBER), parse_term),
    ConditionSyntax(("+", "-"), _parse_signed),
)
"""Filters, operators and what encloses conditions, by the tokens that begin them. A word comes before its kind."""
