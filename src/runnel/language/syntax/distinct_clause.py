"""The clause `distinct by … within …`, checked. In: attributes and a duration, with their places. Out: values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.render import render_attribute
from runnel.algebra.semantics.distinct import LONGEST_WINDOW, MOST_ATTRIBUTES
from runnel.errors import InvalidConditionError
from runnel.language.syntax.literals import Duration, Located


def read_keys(located: Sequence[Located]) -> tuple[Attribute, ...]:
    """The attributes that items are compared by: each once, and not all of an item."""
    found: dict[Attribute, None] = {}
    for attribute, token in located:
        if attribute.name == WHOLE.name:
            raise InvalidConditionError(
                "items are compared by some of their attributes, not by all",
                span=token.span,
                hint="name them: distinct by title, link",
            )
        if attribute in found:
            raise InvalidConditionError(f"{render_attribute(attribute)} is given twice", span=token.span)
        if len(found) == MOST_ATTRIBUTES:
            raise InvalidConditionError(
                f"items are compared by at most {MOST_ATTRIBUTES} attributes",
                span=token.span,
                hint="those that tell items apart are enough",
            )
        found[attribute] = None
    return tuple(found)


def read_window(duration: Duration) -> timedelta:
    """How far apart duplicates may be accepted."""
    if duration.length <= LONGEST_WINDOW:
        return duration.length
    raise InvalidConditionError(
        f"duplicates are looked for over at most {LONGEST_WINDOW.days} days",
        span=duration.span,
        hint="what has been seen is remembered for so long",
    )
