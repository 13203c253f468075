"""Parsing of the clause `distinct by … within …`. In: the token after `distinct`. Out: a `Distinct` gate rule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.render import render_attribute
from runnel.algebra.semantics.distinct import DEFAULT_WINDOW, ID, MAX_ATTRIBUTES, MAX_WINDOW, Distinct
from runnel.errors import InvalidConditionError
from runnel.language.grammar.parse_values import parse_attribute, parse_duration, parse_list
from runnel.language.syntax.describe_problem import Problem
from runnel.language.syntax.literals import Duration, LocatedAttribute
from runnel.language.syntax.reader import GateSyntax, TokenReader


def parse_distinct(tokens: TokenReader) -> Distinct:
    """Parse `distinct [by attribute, …] [within duration]`; the word `distinct` has been read."""
    keys = _read_keys(parse_list(tokens, parse_attribute)) if tokens.take("by") else (ID,)
    window = _read_window(parse_duration(tokens)) if tokens.take("within") else DEFAULT_WINDOW
    return Distinct(keys, window)


def _read_keys(located: Sequence[LocatedAttribute]) -> tuple[Attribute, ...]:
    """Return the attributes that identify duplicates. Reject `item` and repeated attributes."""
    keys: dict[Attribute, None] = {}
    for attribute, token in located:
        if attribute.name == WHOLE.name:
            raise InvalidConditionError(
                "distinct by compares named attributes, not the whole item",
                span=token.span,
                hint="name the attributes: distinct by title, link",
            )
        if attribute in keys:
            raise InvalidConditionError(f"distinct by names {render_attribute(attribute)} twice", span=token.span)
        if len(keys) == MAX_ATTRIBUTES:
            raise InvalidConditionError(
                f"distinct by takes at most {MAX_ATTRIBUTES} attributes",
                span=token.span,
                hint="name only the attributes that identify duplicates",
            )
        keys[attribute] = None
    return tuple(keys)


def _read_window(duration: Duration) -> timedelta:
    """Return the time window in which items count as duplicates. Reject windows that are too long."""
    if duration.length <= MAX_WINDOW:
        return duration.length
    raise InvalidConditionError(
        f"distinct within takes at most {MAX_WINDOW.days} days",
        span=duration.span,
        hint="choose a shorter duration",
    )


def _hint(problem: Problem) -> str | None:
    """Recognize the clause under another name or in the wrong position."""
    match problem.word:
        case "distinct" if problem.expects("and", "over"):
            return "write distinct before where: from A | B distinct by title within 2 days where …"
        case "unique" | "dedupe" | "deduplicate" | "deduplicated" if problem.expects("distinct"):
            return "write: distinct by title within 2 days"
        case "on" | "using" if problem.expects("by"):
            return "write by: distinct by title within 2 days"
    return None


DISTINCT_SYNTAX = GateSyntax("distinct", parse_distinct, _hint)
