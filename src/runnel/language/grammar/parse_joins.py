"""The clause `join last … on … with $v[…]`. In: the token after the `from` clause. Out: the joins of a query."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.expressions import And, Expression, Or
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.joins import LONGEST_WINDOW, MAX_WINDOW_ITEMS, NO_INDEX, index_of
from runnel.algebra.semantics.window_conditions import atoms_of
from runnel.errors import InvalidConditionError
from runnel.language.grammar.parse_conditions import parse_condition
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.literals import read_duration, read_integer, read_variable
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import VARIABLE
from runnel.language.syntax.statements import JoinClause, Term

MAX_JOINS = 8
MAX_UNINDEXED_ITEMS = 10_000
"""The largest window in which every item may have to be compared, because the condition allows no index."""


def parse_joins(tokens: TokenReader, parse_term: Callable[[TokenReader], Term]) -> tuple[JoinClause, ...]:
    """Any number of `join last (duration | N items) on term with $v[condition]`."""
    joins: list[JoinClause] = []
    while tokens.is_at("join"):
        if len(joins) == MAX_JOINS:
            raise InvalidConditionError(
                f"a query has at most {MAX_JOINS} joins", span=tokens.span, hint="join a view that has some of them"
            )
        joins.append(_parse_join(tokens, parse_term))
    return tuple(joins)


def _parse_join(tokens: TokenReader, parse_term: Callable[[TokenReader], Term]) -> JoinClause:
    span = tokens.take_token().span
    tokens.expect("last")
    extent = _parse_extent(tokens)
    tokens.expect("on")
    window = parse_term(tokens)
    tokens.expect("with")
    variable = read_variable(tokens.expect_kind(VARIABLE, expects.VARIABLE))
    tokens.expect("[")
    start = tokens.start
    tokens.is_scoped = tokens.is_joined = True
    condition = cast(Expression, parse_condition(tokens))
    tokens.is_scoped = tokens.is_joined = False
    end = tokens.previous_end
    tokens.expect("]")
    problem = _problem_of(condition, extent)
    if problem is not None:
        message, hint = problem
        raise InvalidConditionError(message, span=tokens.script.span(start, end), hint=hint)
    return JoinClause(extent, window, variable, condition, span)


def _parse_extent(tokens: TokenReader) -> timedelta | int:
    """`3 months`, or `500 items`."""
    count = tokens.expect_integer()
    if tokens.take("items"):
        number = read_integer(count)
        if not 1 <= number <= MAX_WINDOW_ITEMS:
            raise InvalidConditionError(
                f"a window has 1 to {MAX_WINDOW_ITEMS:,} items",
                span=count.span,
                hint="write for example: join last 100 items on …",
            )
        return number
    duration = read_duration(count, tokens.expect_word(expects.UNIT))
    if duration.length > LONGEST_WINDOW:
        raise InvalidConditionError(
            f"a window has at most {LONGEST_WINDOW.days} days",
            span=duration.span,
            hint="join the last items instead: join last 100000 items on …",
        )
    return duration.length


def _problem_of(condition: Expression, extent: timedelta | int) -> tuple[str, str] | None:
    """Return why a join cannot decide a condition, or only by comparing an item with a whole large window."""
    atoms = list(atoms_of(condition))
    if any(isinstance(atom, Call | Constraint | ItemPattern) for atom in atoms):
        return (
            "the condition of a join cannot have operators or patterns",
            "move them to the where clause, which filters the items before they are joined",
        )
    if not any(isinstance(atom, WindowAtom) for atom in atoms):
        return (
            "the condition of a join must compare the item with items of the window",
            "compare an attribute with one of the window: with $v[title similar window.title]",
        )
    if not _has_index(condition) and (not isinstance(extent, int) or extent > MAX_UNINDEXED_ITEMS):
        return (
            "without an equality, words or links to look up, each item would be compared with the whole window",
            f"add a condition such as topic = window.topic, or join last {MAX_UNINDEXED_ITEMS} items or fewer",
        )
    return None


def _has_index(condition: Expression) -> bool:
    """Return whether an index can find the window items that may satisfy the condition."""
    match condition:
        case And(parts):
            return any(map(_has_index, parts))
        case Or(parts):
            return all(map(_has_index, parts))
        case WindowAtom():
            return index_of(condition) != NO_INDEX
        case _:
            return False
