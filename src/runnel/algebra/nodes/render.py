"""The canonical text of conditions, which parses to the same expression."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from fractions import Fraction

from runnel.algebra.nodes.attributes import WHOLE, Ago, Attribute, Constant
from runnel.algebra.nodes.calls import (
    Argument,
    Arithmetic,
    Call,
    Constraint,
    Given,
    Literally,
    Quantity,
    Variable,
)
from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.expressions import (
    And,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    ContainsStems,
    Exists,
    Expression,
    Extends,
    In,
    InNetwork,
    Not,
    Or,
    References,
    RegularExpression,
    Shares,
    Similar,
    TextAtom,
    Truth,
)
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.terms import Term
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.values.similarity import DEFAULT_LEAST
from runnel.families import registry

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
"""Words that need double quotes as names of attributes or feeds."""

NOW = Ago(timedelta(0))
"""The time of an item's acceptance."""

FRACTION_DIGITS = 6
"""How many digits after the point `at least` accepts."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def render(expression: Expression) -> str:
    """Return the canonical text of a condition.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import Contains
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
        case Compare(attribute, operator, constant):
            return f"{render_attribute(attribute)} {operator} {render_constant(constant)}"
        case Between(attribute, Ago(length), high) if high == NOW and length:
            return f"{render_attribute(attribute)} within last {render_duration(length)}"
        case Between(attribute, low, high):
            bounds = f"{render_constant(low)} and {render_constant(high)}"
            return f"{render_attribute(attribute)} between {bounds}"
        case In(attribute, constants):
            return f"{render_attribute(attribute)} in ({', '.join(map(render_constant, constants))})"
        case Exists(attribute):
            return f"{render_attribute(attribute)} exists"
        case Call() | Constraint() | Term():
            return render_operators(expression)
        case ItemPattern():
            return expression.render()
        case WindowAtom(relation, attribute, window, least):
            text = f"{render_attribute(attribute)} {relation} window.{render_attribute(window)}"
            return text if least is None or least == DEFAULT_LEAST else f"{text} at least {_render_fraction(least)}"
        case atom:
            return f"{render_attribute(atom.attribute)} {_render_text_atom(atom)}"


def render_operators(part: Call | Constraint | Term) -> str:
    """Return the canonical text of a call, a constraint or a term.

    >>> render_operators(Constraint(Variable("y"), ">", Arithmetic("*", Literally(2.0), Variable("z"))))
    '?y > 2 * ?z'
    """
    match part:
        case Call(operator, arguments):
            return f"{render_name(operator)}({', '.join(map(_render_argument, arguments))})"
        case Constraint(left, relation, right):
            return f"{render_quantity(left)} {relation} {render_quantity(right)}"
        case Term(calls, constraints, patterns=patterns):
            own = [*map(render_operators, calls), *map(render_operators, constraints)]
            return " and ".join([*(pattern.render() for pattern in patterns), *own])


def _render_argument(argument: Argument) -> str:
    match argument:
        case Attribute():
            return render_attribute(argument)
        case Given(name):
            return f"?{name}"
        case _:
            return render_quantity(argument)


def render_quantity(quantity: Quantity, inside: str = "") -> str:
    """Return the text of a quantity.

    `inside` is the sign of the enclosing calculation, followed by `)` if the quantity is its right operand.
    """
    match quantity:
        case Variable(name):
            return f"?{name}"
        case Literally(value):
            return render_constant(value)
        case Arithmetic(sign, left, right):
            # A right operand of equal precedence needs parentheses: a - (b - c).
            text = f"{render_quantity(left, sign)} {sign} {render_quantity(right, sign + ')')}"
            binds_less = inside[:1] in ("*", "/") and sign in ("+", "-")
            binds_more = inside[:1] in ("+", "-") and sign in ("*", "/")
            is_right = inside.endswith(")")
            return f"({text})" if binds_less or (is_right and not binds_more) else text


def _render_text_atom(atom: TextAtom) -> str:
    match atom:
        case Contains(_, phrase):
            return f"contains {quote(' '.join(phrase))}"
        case ContainsPattern(_, patterns):
            return f"contains pattern {quote(' '.join(patterns))}"
        case ContainsStems(_, language, phrase):
            return f"contains {quote(' '.join(phrase))} stemmed in {language}"
        case Similar(_, phrase, least):
            bound = "" if least == DEFAULT_LEAST else f" at least {_render_fraction(least)}"
            return f"similar to {quote(' '.join(phrase))}{bound}"
        case RegularExpression(_, pattern):
            return f"matches {quote(pattern)}"
        case InNetwork(_, networks):
            return f"in network {_render_texts(networks)}"
        case References(_, target):
            return f"references {quote(target)}"
        case Extends(_, prefix):
            return f"extends {quote(prefix)}"
        case Shares(_, links):
            return f"shares {_render_texts(links)}"


def _render_texts(texts: tuple[str, ...]) -> str:
    """Return one text, or several in parentheses."""
    return quote(texts[0]) if len(texts) == 1 else f"({', '.join(map(quote, texts))})"


def _render_fraction(fraction: Fraction) -> str:
    """Return a fraction as a decimal number with as many digits as it needs, at most `FRACTION_DIGITS`."""
    digits = 0
    while digits < FRACTION_DIGITS and (fraction * 10**digits).denominator != 1:
        digits += 1
    return f"{float(fraction):.{digits}f}"


def _operand(part: Expression, *, inside: str) -> str:
    match part:
        case And() | Or():
            return f"({render(part)})"
        case Not() if inside == "not":
            return f"({render(part)})"
        case _:
            return render(part)


def render_attribute(attribute: Attribute) -> str:
    """Return the text of an attribute, in double quotes if it needs them.

    >>> render_attribute(Attribute("dc:creator")), render_attribute(Attribute("published", "year"))
    ('"dc:creator"', 'published.year')
    """
    name = "item" if attribute.name == WHOLE.name else render_name(attribute.name)
    return f"{name}.{attribute.part}" if attribute.part else name


def render_name(name: str) -> str:
    """Return the name of a feed or attribute, in double quotes if it needs them."""
    if _BARE.match(name) and name.lower() not in RESERVED and name.lower() not in registry().families:
        return name
    return '"' + name.replace('"', '""') + '"'


def render_constant(constant: Constant) -> str:
    """Return the text of a constant.

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
        case Ago(length):
            return "now" if constant == NOW else f"{render_duration(length)} ago"
        case _:
            return str(int(constant)) if constant == int(constant) and abs(constant) < 1e15 else repr(constant)


def quote(text: str) -> str:
    """Return a text in single quotes. Quotes inside it are doubled."""
    return "'" + text.replace("'", "''") + "'"
