"""Expansion of prefixes in the patterns of a query. In: a parsed query. Out: the same query with full IRIs.

Every condition family defines in its `ConditionSyntax` which names of its patterns have prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from runnel.algebra.nodes.expressions import And, Expression, Not, Or, conjunction, disjunction, negation
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.families import find_family, load_part
from runnel.language.syntax.reader import ConditionSyntax, PrefixSyntax
from runnel.language.syntax.statements import QueryText


def expand_prefixes(query: QueryText, registered: Callable[[], Mapping[str, str]] = dict) -> QueryText:
    """Return a query with all prefixes expanded. Raise UnknownNameError if a prefix is not defined.

    `registered` returns the registered prefixes and their IRIs. It is called only if there is a prefix to expand;
    otherwise the result is the same object.
    """
    if not any(_has_prefixes(condition.expression) for condition in query.conditions):
        return query
    prefixes = registered()
    expanded = (
        replace(condition, expression=_expand_expression(condition.expression, prefixes))
        for condition in query.conditions
    )
    return replace(query, conditions=tuple(expanded))


def _has_prefixes(expression: Expression) -> bool:
    """Return whether a condition has prefixes to expand. `type` is faster than `match`; this runs per condition."""
    kind = type(expression)
    if kind is And or kind is Or:
        return any(map(_has_prefixes, expression.parts))  # type: ignore[union-attr]
    if kind is Not:
        return _has_prefixes(expression.part)  # type: ignore[union-attr]
    if not isinstance(expression, ItemPattern):
        return False
    syntax = _prefix_syntax(expression.family)
    return syntax is not None and syntax.is_used(expression)


def _prefix_syntax(family: str) -> PrefixSyntax | None:
    reference = find_family(family).syntax
    return None if reference is None else cast(ConditionSyntax, load_part(reference)).prefixes


def _expand_expression(expression: Expression, prefixes: Mapping[str, str]) -> Expression:
    match expression:
        case And(parts):
            return conjunction([_expand_expression(part, prefixes) for part in parts])
        case Or(parts):
            return disjunction([_expand_expression(part, prefixes) for part in parts])
        case Not(part):
            return negation(_expand_expression(part, prefixes))
        case ItemPattern():
            syntax = _prefix_syntax(expression.family)
            return expression if syntax is None else cast(ItemPattern, syntax.expand(expression, prefixes))
        case _:
            return expression
