"""Subsumption of two conditions, by the values that satisfy their atoms and by their structure.

An atom holds if any value of its attribute satisfies it. So an atom `a` subsumes an atom `b` on the same attribute if
each value that satisfies `b` satisfies `a`. But different values may satisfy different atoms: `x > 10 and x < 5` can
hold, and `not x > 10` is not equivalent to `x <= 10`.
"""

from __future__ import annotations

from dataclasses import replace

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.expressions import (
    FALSE,
    TRUE,
    And,
    Atom,
    Compare,
    Contains,
    ContainsPattern,
    Exists,
    Expression,
    In,
    Not,
    Or,
    Truth,
)
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.terms import Term
from runnel.optimizer.subsumption.intervals import intervals_of
from runnel.optimizer.subsumption.word_steps import steps_within

_MAX_COMPARISONS = 4096
"""How many pairs of subconditions are compared. Beyond that, the result is that there is no subsumption."""


def subsumes(wide: Expression, narrow: Expression) -> bool:
    """Return True if every item that matches `narrow` also matches `wide`. False means that this is not known.

    >>> price = Attribute("price")
    >>> subsumes(Compare(price, ">", 10.0), Compare(price, ">", 20.0))
    True
    >>> subsumes(Not(Compare(price, ">", 10.0)), Compare(price, "<=", 10.0))  # the item may have both prices
    False
    >>> rock, jazz = Contains(Attribute("title"), ("rock",)), Contains(Attribute("title"), ("jazz",))
    >>> subsumes(Or((rock, jazz)), rock), subsumes(rock, And((rock, jazz))), subsumes(And((rock, jazz)), rock)
    (True, True, False)
    """
    return _Comparison().subsumes(wide, narrow)


class _Comparison:
    """Compares two conditions and all their parts, each pair of parts once."""

    def __init__(self) -> None:
        self._results: dict[tuple[Expression, Expression], bool] = {}

    def subsumes(self, wide: Expression, narrow: Expression) -> bool:
        if wide in (narrow, TRUE) or narrow == FALSE:
            return True
        result = self._results.get((wide, narrow))
        if result is None:
            if len(self._results) >= _MAX_COMPARISONS:
                return False
            result = self._results[wide, narrow] = self._compare(wide, narrow)
        return result

    def _compare(self, wide: Expression, narrow: Expression) -> bool:
        match wide, narrow:
            case (_, Or(parts)):
                return all(self.subsumes(wide, part) for part in parts)
            case (And(parts), _):
                return all(self.subsumes(part, narrow) for part in parts)
            case (Not(And() | Or() | Not() as inner), _):
                return self.subsumes(_push_negation(inner), narrow)
            case (_, Not(And() | Or() | Not() as inner)):
                return self.subsumes(wide, _push_negation(inner))
            case (Or(parts), And(others)):
                by_wide = any(self.subsumes(part, narrow) for part in parts)
                return by_wide or any(self.subsumes(wide, part) for part in others)
            case (Or(parts), _):
                return any(self.subsumes(part, narrow) for part in parts)
            case (_, And(parts)):
                return any(self.subsumes(wide, part) for part in parts)
            case (Not(left), Not(right)):
                return self.subsumes(right, left)  # contraposition
            case (Not() | Truth(), _) | (_, Not() | Truth()):
                return False
            case (Call() | Constraint() | Term(), _) | (_, Call() | Constraint() | Term()):
                return wide == narrow
            case _:
                return atom_subsumes(wide, narrow)


def _push_negation(negated: And | Or | Not) -> Expression:
    """Push the negation of a compound condition to its parts, by De Morgan's laws."""
    match negated:
        case And(parts):
            return Or(tuple(map(Not, parts)))
        case Or(parts):
            return And(tuple(map(Not, parts)))
        case Not(part):
            return part


def atom_subsumes(wide: Atom, narrow: Atom) -> bool:
    """Return True if every item that satisfies the atom `narrow` also satisfies `wide`. False means not known.

    >>> title = Attribute("title")
    >>> atom_subsumes(Contains(title, ("rock",)), Contains(title, ("red", "rock")))
    True
    >>> atom_subsumes(Contains(title, ("rock",)), Compare(title, "=", "Rock am Ring"))
    True
    >>> atom_subsumes(Contains(WHOLE, ("rock",)), Contains(title, ("rock",)))
    True
    """
    if wide == narrow:
        return True
    match wide, narrow:
        case (Exists(attribute), _):
            # Every atom needs a value of its attribute, and a date part needs the date.
            return covers(attribute, narrow.attribute) or covers(attribute, Attribute(narrow.attribute.name))
        case _ if not covers(wide.attribute, narrow.attribute):
            return False
        case (Contains() | ContainsPattern(), In(_, constants)):
            values = (Compare(narrow.attribute, "=", constant) for constant in constants)
            return all(steps_within(wide, value) for value in values)
        case (Contains() | ContainsPattern(), _):
            return steps_within(wide, narrow)
        case _:
            return _values_within(wide, narrow) or _same_condition(wide, narrow)


def covers(wide: Attribute, narrow: Attribute) -> bool:
    """Return whether an attribute includes all values of another: it is the same attribute, or the whole item."""
    return wide == narrow or (wide.name == WHOLE.name and wide.part == narrow.part)


def _same_condition(wide: Atom, narrow: Atom) -> bool:
    """Return whether two atoms are equal except for their attributes."""
    if isinstance(narrow, ItemPattern):
        return wide == narrow
    return type(wide) is type(narrow) and replace(narrow, attribute=wide.attribute) == wide


def _values_within(wide: Atom, narrow: Atom) -> bool:
    """Return whether all values that satisfy the comparison `narrow` satisfy `wide`."""
    inner, outer = intervals_of(narrow), intervals_of(wide)
    if inner is None or outer is None:
        return False
    return all(any(interval in other for other in outer) for interval in inner)
