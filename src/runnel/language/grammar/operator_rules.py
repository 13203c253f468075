"""The callbacks of the grammar's rules about operators: registrations, calls, and comparisons of results."""

from __future__ import annotations

from typing import Any

from lark import Token, Transformer, v_args

from runnel.algebra.nodes.calls import Arithmetic, Call, Constraint, Variable
from runnel.algebra.nodes.expressions import Expression
from runnel.language.syntax.literals import Duration, Literal, Located, read_binding, read_exact, read_value, span_of
from runnel.language.syntax.operator_registrations import (
    Option,
    build_registration,
    read_attributes,
    read_budget,
    read_configuration,
    read_count,
    read_input,
    read_parameters,
    read_policy,
    read_result,
    read_span,
)
from runnel.language.syntax.operator_terms import (
    Written,
    build_arithmetic,
    build_call,
    build_choice,
    build_constraint,
    build_range,
)
from runnel.language.syntax.statements import DropOperator, Name, Parsed, Show
from runnel.model.operator import Parameter


@v_args(inline=True)
class OperatorRules(Transformer[Token, Any]):
    """One method per rule or alias of grammar.lark that operators need."""

    # Statements.

    def register_operator(
        self,
        keyword: Token,
        name: Name,
        parameters: tuple[Parameter, ...] | None,
        source: Token,
        *options: Option,
    ) -> Parsed:
        return Parsed(build_registration(name, parameters, source, options), span_of(keyword))

    def drop_operator(self, keyword: Token, name: Name, cascade: Token | None) -> Parsed:
        return Parsed(DropOperator(name, cascade is not None), span_of(keyword))

    def show_operator(self, keyword: Token, name: Name) -> Parsed:
        return Parsed(Show("operator", name), span_of(keyword))

    def no_parameters(self) -> tuple[Parameter, ...]:
        return ()

    def parameters(self, *found: tuple[Parameter, Token]) -> tuple[Parameter, ...]:
        return read_parameters(found)

    def input_parameter(self, name: Token, kind: Token) -> tuple[Parameter, Token]:
        return read_input(name, kind)

    def result_parameter(self, name: Token, kind: Token) -> tuple[Parameter, Token]:
        return read_result(name, kind)

    def release_option(self, word: Token, text: Token) -> Option:
        return Option(word, {"release": read_exact(text, "a release")})

    def cost_option(self, word: Token, count: Token, unit: Token) -> Option:
        return Option(word, {"cost": read_span(count, unit)})

    def limit_option(self, word: Token, count: Token, unit: Token) -> Option:
        return Option(word, {"time_limit": read_span(count, unit)})

    def pure_option(self, word: Token) -> Option:
        return Option(word, {"pure": word.type == "PURE"})

    def reading_option(self, word: Token, *names: Name) -> Option:
        return read_attributes(word, names)

    def count_option(self, word: Token, count: Token) -> Option:
        return read_count(word, count)

    def budget_option(self, word: Token, count: Token, unit: Token) -> Option:
        return read_budget(word, count, unit)

    def error_option(self, word: Token, policy: Token, given: Token | None, length: Duration | None) -> Option:
        return read_policy(word, policy, given, length)

    def configuration_option(self, word: Token, *pairs: tuple[Name, str]) -> Option:
        return read_configuration(word, pairs)

    def pair(self, key: Name, value: Token) -> tuple[Name, str]:
        return key, read_value(value)

    # Conditions.

    def bare_call(self, name: Name) -> Call:
        return build_call(name, ())

    def call(self, name: Name, *arguments: Literal | Variable | Located) -> Call:
        return build_call(name, arguments)

    def attribute_argument(self, located: Located) -> Located:
        return located

    def binding(self, token: Token) -> Variable:
        return read_binding(token)

    def arithmetic(self, left: Written, sign: Token, right: Written) -> Arithmetic:
        return build_arithmetic(left, sign, right)

    def constraint(self, left: Written, operator: Token, right: Written) -> Constraint:
        return build_constraint(left, operator, right)

    def constrained_between(self, one: Written, low: Written, high: Written) -> Expression:
        return build_range(one, low, high)

    def constrained_outside(self, one: Written, low: Written, high: Written) -> Expression:
        return build_range(one, low, high, outside=True)

    def constrained_in(self, one: Written, *others: Written) -> Expression:
        return build_choice(one, others)

    def constrained_not_in(self, one: Written, *others: Written) -> Expression:
        return build_choice(one, others, without=True)
