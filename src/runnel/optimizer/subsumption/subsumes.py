"""Whether one condition subsumes another: by the values that satisfy atoms, and by the shape of the conditions.

An atom holds if any value of its attribute satisfies it. So between two atoms on one attribute the values decide
(each value that satisfies `b` satisfies `a`), but nothing follows for two conditions that different values may
satisfy: `x > 10 and x < 5` can hold, and `not x > 10` is not `x <= 10`.
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

_LARGEST = 4096
"""The most pairs of subconditions that are compared; beyond it, two conditions are taken to be unrelated."""


def subsumes(wide: Expression, narrow: Expression) -> bool:
    """Whether every item that matches `narrow` surely matches `wide`.

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
    """Two conditions and all their parts, each pair of parts compared once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Expression, Expression], bool] = {}

    def subsumes(self, wide: Expression, narrow: Expression) -> bool:
        if wide in (narrow, TRUE) or narrow == FALSE:
            return True
        known = self._known.get((wide, narrow))
        if known is None:
            if len(self._known) >= _LARGEST:
                return False
            known = self._known[wide, narrow] = self._compare(wide, narrow)
        return known

    def _compare(self, wide: Expression, narrow: Expression) -> bool:
        match wide, narrow:
            case (_, Or(parts)):
                return all(self.subsumes(wide, part) for part in parts)
            case (And(parts), _):
                return all(self.subsumes(part, narrow) for part in parts)
            case (Not(And() | Or() | Not() as inner), _):
                return self.subsumes(_pushed(inner), narrow)
            case (_, Not(And() | Or() | Not() as inner)):
                return self.subsumes(wide, _pushed(inner))
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


def _pushed(negated: And | Or | Not) -> Expression:
    """What the negation of a compound condition means, by De Morgan."""
    match negated:
        case And(parts):
            return Or(tuple(map(Not, parts)))
        case Or(parts):
            return And(tuple(map(Not, parts)))
        case Not(part):
            return part


def atom_subsumes(wide: Atom, narrow: Atom) -> bool:
    """Whether every item for which the atom `narrow` holds has `wide` hold too. Atoms of other kinds: only the same.

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
            # Every atom needs a value to look at, and a part of a moment needs the moment.
            return covers(attribute, narrow.attribute) or covers(attribute, Attribute(narrow.attribute.name))
        case _ if not covers(wide.attribute, narrow.attribute):
            return False
        case (Contains() | ContainsPattern(), In(_, constants)):
            values = (Compare(narrow.attribute, "=", one) for one in constants)
            return all(steps_within(wide, value) for value in values)
        case (Contains() | ContainsPattern(), _):
            return steps_within(wide, narrow)
        case _:
            return _values_within(wide, narrow) or _same_condition(wide, narrow)


def covers(wide: Attribute, narrow: Attribute) -> bool:
    """Whether what looks at one attribute looks at all values of another: the same, or the whole item."""
    return wide == narrow or (wide.name == WHOLE.name and wide.part == narrow.part)


def _same_condition(wide: Atom, narrow: Atom) -> bool:
    """Whether the atoms ask the same of a value; the attributes were compared already."""
    if isinstance(narrow, ItemPattern):
        return wide == narrow
    return type(wide) is type(narrow) and replace(narrow, attribute=wide.attribute) == wide


def _values_within(wide: Atom, narrow: Atom) -> bool:
    """Whether the values that satisfy one comparison lie within those that satisfy another."""
    inner, outer = intervals_of(narrow), intervals_of(wide)
    if inner is None or outer is None:
        return False
    return all(any(one in interval for interval in outer) for one in inner)
