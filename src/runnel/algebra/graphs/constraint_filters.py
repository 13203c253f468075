"""Conversion of comparisons outside a graph pattern into filters of the pattern.

In: a constraint on variables that a pattern binds. Out: the equivalent filter. Therefore a comparison of such
variables with each other or with constants has the same meaning inside and outside the braces.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, GraphFilter, Node
from runnel.algebra.graphs.rdf_terms import BOOLEAN, DOUBLE, INTEGER, XSD
from runnel.algebra.nodes.attributes import Ago, Constant
from runnel.algebra.nodes.calls import Constraint, Literally, Quantity, Relation, Variable
from runnel.model.graph import escape_text

_MAX_INTEGER = 1e15


def as_filter(constraint: Constraint) -> GraphFilter | None:
    """Return the filter that is equivalent to a constraint, or None for calculations and relative times.

    >>> as_filter(Constraint(Variable("y"), ">", Literally(2003.0))).right
    '"2003"^^<http://www.w3.org/2001/XMLSchema#integer>'
    """
    left, right = constraint.left, constraint.right
    match left, right:
        case Variable(), Literally(date() as day) if not isinstance(day, datetime):
            return _compare_with_day(left, constraint.relation, day)
        case Literally(date() as day), Variable() if not isinstance(day, datetime):
            return _compare_with_day(right, MIRRORED[constraint.relation], day)
    first, second = _node(left), _node(right)
    return None if first is None or second is None else Comparison(first, constraint.relation, second)


MIRRORED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _node(quantity: Quantity) -> Node | None:
    match quantity:
        case Variable(name):
            return Variable(name)
        case Literally(value):
            return _term(value)
        case _:
            return None


def _term(value: Constant) -> str | None:
    """Return a constant as a term, or None for days, which `_compare_with_day` handles, and for relative times."""
    match value:
        case bool():
            return f'"{str(value).lower()}"^^<{BOOLEAN}>'
        case str():
            return f'"{escape_text(value)}"'
        case datetime():
            return f'"{value.astimezone(UTC).isoformat().replace("+00:00", "Z")}"^^<{XSD}dateTime>'
        case date() | Ago():
            return None
        case _ if value == int(value) and abs(value) < _MAX_INTEGER:
            return f'"{int(value)}"^^<{INTEGER}>'
        case _:
            return f'"{value!r}"^^<{DOUBLE}>'


def _compare_with_day(variable: Variable, relation: Relation, day: date) -> GraphFilter | None:
    """Return a filter that compares a variable with a whole day: with the date itself and with the times in it.

    Other terms compare as in a filter with the date: `!=` holds for a text, a number or an IRI.
    """
    compared = Variable(variable.name)
    try:
        begin, end = (_term(datetime.combine(each, time(), UTC)) or "" for each in (day, day + timedelta(days=1)))
    except OverflowError:
        return None
    date_term = f'"{day.isoformat()}"^^<{XSD}date>'
    within = AllOf((Comparison(compared, ">=", begin), Comparison(compared, "<", end)))
    match relation:
        case "=":
            return AnyOf((Comparison(compared, "=", date_term), within))
        case "!=":
            return AllOf((Comparison(compared, "!=", date_term), Complement(Certain(within))))
        case "<" | ">=":
            return AnyOf((Comparison(compared, relation, date_term), Comparison(compared, relation, begin)))
        case _:
            bound_relation: Relation = "<" if relation == "<=" else ">="
            return AnyOf((Comparison(compared, relation, date_term), Comparison(compared, bound_relation, end)))
