"""Comparisons next to a graph pattern as filters of the pattern.

In: a constraint on variables that a pattern binds. Out: the filter that says the same. So a comparison of such
variables with one another or with constants means the same inside and outside the braces.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, GraphFilter, Node
from runnel.algebra.graphs.rdf_terms import BOOLEAN, DOUBLE, INTEGER, XSD
from runnel.algebra.nodes.attributes import Ago, Constant
from runnel.algebra.nodes.calls import Constraint, Literally, Quantity, Relation, Variable
from runnel.model.graph import escape_text

_LARGEST_WHOLE = 1e15


def as_filter(constraint: Constraint) -> GraphFilter | None:
    """A constraint as a filter of a pattern that binds its variables; None where only the other says it.

    >>> as_filter(Constraint(Variable("y"), ">", Literally(2003.0))).right
    '"2003"^^<http://www.w3.org/2001/XMLSchema#integer>'
    """
    left, right = constraint.left, constraint.right
    match left, right:
        case Variable(), Literally(date() as day) if not isinstance(day, datetime):
            return _of_day(left, constraint.relation, day)
        case Literally(date() as day), Variable() if not isinstance(day, datetime):
            return _of_day(right, TURNED[constraint.relation], day)
    first, second = _node(left), _node(right)
    return None if first is None or second is None else Comparison(first, constraint.relation, second)


TURNED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _node(one: Quantity) -> Node | None:
    match one:
        case Variable(name):
            return Variable(name)
        case Literally(value):
            return _term(value)
        case _:
            return None


def _term(value: Constant) -> str | None:
    """A constant as a term; None for a time that counts from the acceptance of the item."""
    match value:
        case bool():
            return f'"{str(value).lower()}"^^<{BOOLEAN}>'
        case str():
            return f'"{escape_text(value)}"'
        case datetime():
            return f'"{value.astimezone(UTC).isoformat().replace("+00:00", "Z")}"^^<{XSD}dateTime>'
        case date() | Ago():
            return None
        case _ if value == int(value) and abs(value) < _LARGEST_WHOLE:
            return f'"{int(value)}"^^<{INTEGER}>'
        case _:
            return f'"{value!r}"^^<{DOUBLE}>'


def _of_day(variable: Variable, relation: Relation, day: date) -> GraphFilter | None:
    """A comparison with a date holds for the whole day: for the date and for the moments in it.

    Of other terms it says what a filter says of them and the day: `!=` holds of a text, a number or an IRI.
    """
    own = Variable(variable.name)
    try:
        begin, end = (_term(datetime.combine(one, time(), UTC)) or "" for one in (day, day + timedelta(days=1)))
    except OverflowError:
        return None
    whole = f'"{day.isoformat()}"^^<{XSD}date>'
    within = AllOf((Comparison(own, ">=", begin), Comparison(own, "<", end)))
    match relation:
        case "=":
            return AnyOf((Comparison(own, "=", whole), within))
        case "!=":
            return AllOf((Comparison(own, "!=", whole), Complement(Certain(within))))
        case "<" | ">=":
            return AnyOf((Comparison(own, relation, whole), Comparison(own, relation, begin)))
        case _:
            beyond: Relation = "<" if relation == "<=" else ">="
            return AnyOf((Comparison(own, relation, whole), Comparison(own, beyond, end)))
