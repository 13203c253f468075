"""The clause `distinct by … within …`. In: the token after its first word. Out: the rule of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.render import render_attribute
from runnel.algebra.semantics.distinct import DEFAULT_WINDOW, ID, LONGEST_WINDOW, MOST_ATTRIBUTES, Distinct
from runnel.errors import InvalidConditionError
from runnel.language.grammar.parse_values import parse_attribute, parse_duration, parse_list
from runnel.language.syntax.describe_problem import Problem
from runnel.language.syntax.literals import Duration, Located
from runnel.language.syntax.reader import GateSyntax, TokenReader


def parse_distinct(tokens: TokenReader) -> Distinct:
    """`distinct [by attribute, …] [within duration]`, after its first word."""
    by = _read_keys(parse_list(tokens, parse_attribute)) if tokens.take("by") else (ID,)
    window = _read_window(parse_duration(tokens)) if tokens.take("within") else DEFAULT_WINDOW
    return Distinct(by, window)


def _read_keys(located: Sequence[Located]) -> tuple[Attribute, ...]:
    """The attributes by which items are compared: each once, and not the whole item."""
    keys: dict[Attribute, None] = {}
    for attribute, token in located:
        if attribute.name == WHOLE.name:
            raise InvalidConditionError(
                "items are compared by some of their attributes, not by all",
                span=token.span,
                hint="name them: distinct by title, link",
            )
        if attribute in keys:
            raise InvalidConditionError(f"{render_attribute(attribute)} is given twice", span=token.span)
        if len(keys) == MOST_ATTRIBUTES:
            raise InvalidConditionError(
                f"items are compared by at most {MOST_ATTRIBUTES} attributes",
                span=token.span,
                hint="those that tell items apart are enough",
            )
        keys[attribute] = None
    return tuple(keys)


def _read_window(duration: Duration) -> timedelta:
    """How far apart duplicates may be accepted."""
    if duration.length <= LONGEST_WINDOW:
        return duration.length
    raise InvalidConditionError(
        f"duplicates are looked for over at most {LONGEST_WINDOW.days} days",
        span=duration.span,
        hint="what has been seen is remembered for so long",
    )


def _hint(problem: Problem) -> str | None:
    """The clause under another name, or in another position."""
    match problem.word:
        case "distinct" if problem.expects("and", "over"):
            return "distinct stands before where: from A | B distinct by title within 2 days where …"
        case "unique" | "dedupe" | "deduplicate" | "deduplicated" if problem.expects("distinct"):
            return "write: distinct by title within 2 days"
        case "on" | "using" if problem.expects("by"):
            return "write by: distinct by title within 2 days"
    return None


DISTINCT_SYNTAX = GateSyntax("distinct", parse_distinct, _hint)
