"""Conditions as canonical text: what is printed here parses to the same expression again."""

from __future__ import annotations

import re
from datetime import date, datetime

from runnel.algebra.expressions import (
    And,
    Attribute,
    Between,
    Compare,
    Constant,
    Contains,
    Exists,
    Expression,
    In,
    Not,
    Or,
    Truth,
)

RESERVED = frozenset(
    [
        "and",
        "or",
        "not",
        "contains",
        "between",
        "in",
        "exists",
        "true",
        "false",
        "date",
        "where",
        "from",
        "join",
        "on",
        "with",
        "using",
        "as",
        "feed",
        "item",
        "last",
        "item",
        "items",
        "every",
        "for",
        "apply",
        "output",
        "to",
        "over",
        "graph",
        "tree",
        "window",
    ]
)
"""Words that cannot be bare attribute or feed names: quote them with double quotes."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def render(expression: Expression) -> str:
    """The canonical text of a condition.

    >>> from runnel.algebra.expressions import Attribute, Contains
    >>> render(Not(Contains(Attribute("title"), ("rock", "concert"))))
    "not title contains 'rock concert'"
    """
    match expression:
        case And(parts):
            return " and ".join(_operand(part, inside="and") for part in parts)
        case Or(parts):
            return " or ".join(_operand(part, inside="or") for part in parts)
        case Not(part):
            return f"not {_operand(part, inside='not')}"
        case Truth(value):
            return "true" if value else "false"
        case Contains(attribute, phrase):
            return f"{render_attribute(attribute)} contains {quote(' '.join(phrase))}"
        case Compare(attribute, operator, constant):
            return f"{render_attribute(attribute)} {operator} {render_constant(constant)}"
        case Between(attribute, low, high):
            bounds = f"{render_constant(low)} and {render_constant(high)}"
            return f"{render_attribute(attribute)} between {bounds}"
        case In(attribute, constants):
            return f"{render_attribute(attribute)} in ({', '.join(map(render_constant, constants))})"
        case Exists(attribute):
            return f"{render_attribute(attribute)} exists"


def _operand(part: Expression, *, inside: str) -> str:
    match part:
        case And() | Or():
            return f"({render(part)})"
        case Not() if inside == "not":
            return f"({render(part)})"
        case _:
            return render(part)


def render_attribute(attribute: Attribute) -> str:
    """An attribute as written: bare where it can be, in double quotes elsewhere.

    >>> render_attribute(Attribute("dc:creator")), render_attribute(Attribute("published", "year"))
    ('"dc:creator"', 'published.year')
    """
    name = render_name(attribute.name)
    return f"{name}.{attribute.part}" if attribute.part else name


def render_name(name: str) -> str:
    """A feed's or attribute's name, quoted where it must be."""
    if _BARE.match(name) and name.lower() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def render_constant(constant: Constant) -> str:
    """A constant as written.

    >>> render_constant(3.0), render_constant("it's"), render_constant(True), render_constant(date(2026, 11, 15))
    ('3', "'it''s'", 'true', "date '2026-11-15'")
    """
    match constant:
        case bool():
            return "true" if constant else "false"
        case str():
            return quote(constant)
        case datetime():
            return f"date '{constant.isoformat().replace('+00:00', 'Z')}'"
        case date():
            return f"date '{constant.isoformat()}'"
        case _:
            return str(int(constant)) if constant == int(constant) and abs(constant) < 1e15 else repr(constant)


def quote(text: str) -> str:
    """A text in single quotes, quotes inside doubled."""
    return "'" + text.replace("'", "''") + "'"
