"""Grammar rules for conditions: `and`, `or`, `not`, parentheses, conditions on variables, and a table of all rules.

In: the current token. Out: an expression, or the conjuncts of a `where`. The parser adds the rules of the condition
families in `runnel.families` to the table.
"""

from __future__ import annotations

from typing import cast

from runnel.algebra.nodes.expressions import FALSE, TRUE, Expression, conjunction, disjunction, negation
from runnel.errors import InvalidConditionError
from runnel.language.grammar.parse_filters import parse_filter
from runnel.language.grammar.parse_terms import finish_term, is_quantity, parse_term
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.conditions import Conjuncts, ParsedCondition, require_unscoped
from runnel.language.syntax.literals import read_variable
from runnel.language.syntax.operator_terms import ParsedQuantity
from runnel.language.syntax.reader import ConditionSyntax, TokenReader
from runnel.language.syntax.script_tokens import BINDING, NUMBER, QUOTED, VARIABLE, WORD
from runnel.language.syntax.statements import Condition


def parse_condition(tokens: TokenReader) -> ParsedCondition:
    """Parse a complete condition."""
    return _require_condition(tokens, _parse_disjunction(tokens))


def _parse_disjunction(tokens: TokenReader) -> ParsedCondition | ParsedQuantity:
    """Parse conditions that are joined by `or`. A quantity such as `?x + 1` may come alone; see `_parse_group`."""
    first = _parse_conjunction(tokens)
    if not tokens.take("or"):
        return first
    parts = [_require_condition(tokens, first), _require_condition(tokens, _parse_conjunction(tokens))]
    while tokens.take("or"):
        parts.append(_require_condition(tokens, _parse_conjunction(tokens)))
    return disjunction([require_unscoped(part, "or") for part in parts])


def _parse_conjunction(tokens: TokenReader) -> ParsedCondition | ParsedQuantity:
    """Parse conditions that are joined by `and`, or a quantity alone."""
    first = _parse_negation(tokens)
    if not tokens.take("and"):
        return first
    parts = [_require_condition(tokens, first), _require_condition(tokens, _parse_negation(tokens))]
    while tokens.take("and"):
        parts.append(_require_condition(tokens, _parse_negation(tokens)))
    if not any(isinstance(part, Conjuncts) for part in parts):
        return conjunction(cast(list[Expression], parts))
    scoped = [condition for part in parts if isinstance(part, Conjuncts) for condition in part.scoped]
    plain = [expression for part in parts for expression in (part.plain if isinstance(part, Conjuncts) else (part,))]
    return Conjuncts(tuple(scoped), tuple(plain))


def _parse_negation(tokens: TokenReader) -> ParsedCondition | ParsedQuantity:
    """Parse one condition with any number of `not` before it, or a quantity alone."""
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
    negated = require_unscoped(_require_condition(tokens, part), "not")
    return negation(negated) if negations % 2 else negation(negation(negated))


def _require_condition(tokens: TokenReader, part: ParsedCondition | ParsedQuantity) -> ParsedCondition:
    """Return the part if it is a condition. A quantity alone is not one; raise a syntax error."""
    if is_quantity(part):
        raise tokens.unexpected()
    return cast(ParsedCondition, part)


def _parse_group(tokens: TokenReader) -> ParsedCondition | ParsedQuantity:
    """Parse `(condition)`, or a comparison whose left side begins with a quantity in parentheses."""
    tokens.open()
    inner = _parse_disjunction(tokens)
    tokens.close()
    return finish_term(tokens, cast(ParsedQuantity, inner)) if is_quantity(inner) else inner


def _parse_scoped(tokens: TokenReader) -> Conjuncts:
    """Parse `$v[condition]`."""
    variable = read_variable(tokens.take_token())
    if tokens.is_scoped:
        raise InvalidConditionError(
            "a condition on a variable cannot contain another one",
            span=variable.span,
            hint="combine them with `and`: $a[…] and $b[…]",
        )
    tokens.expect("[")
    tokens.is_scoped = True
    condition = cast(Expression, parse_condition(tokens))
    tokens.is_scoped = False
    tokens.expect("]")
    return Conjuncts((Condition(variable, condition),))


def _parse_truth(tokens: TokenReader) -> Expression:
    return TRUE if tokens.take_token().text.lower() == "true" else FALSE


def _parse_signed(tokens: TokenReader) -> ParsedCondition | ParsedQuantity:
    """Parse a comparison that begins with a signed number."""
    if not tokens.is_at_number():
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
"""The built-in rules, by the tokens that begin a condition. A rule for a word precedes a rule for its token kind."""
