"""Conditions on one item: atoms and their Boolean combinations, as immutable values.

Two-valued logic: an atom on a missing attribute is false, `not` is the complement, `!=` is `not =`. On an attribute
with several values an atom holds if any value satisfies it. `evaluate.holds` is the definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from runnel.algebra.nodes.attributes import Attribute, Constant
from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.terms import Term

AtomRelation = Literal["=", "<", "<=", ">", ">="]


class _TypedConstants:
    """Equality that tells `x = 1` from `x = true`, which Python's own does not."""

    __slots__ = ()

    def _constants(self) -> tuple[Constant, ...]:
        raise AssertionError("every atom with constants names them")

    def _key(self) -> tuple[object, ...]:
        constants = self._constants()
        return (type(self), self.attribute, *constants, *map(type, constants))  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TypedConstants) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Contains:
    """The words occur next to each other, in this order, in a text value. Words are as `text.words` gives them."""

    attribute: Attribute
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainsPattern:
    """Words that fit the patterns stand next to each other; `*` is any run of letters, `?` one (see
    `word_patterns`).
    """

    attribute: Attribute
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainsStems:
    """Words with the stems of these words stand next to each other, by the stemmer of a language (see `stems`)."""

    attribute: Attribute
    language: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Similar:
    """A text value shares enough of its words with these distinct ones (see `similarity`)."""

    attribute: Attribute
    words: tuple[str, ...]
    least: Fraction


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """The regular expression, of RE2, is found somewhere in a text value (see `regular_expressions`)."""

    attribute: Attribute
    pattern: str


@dataclass(frozen=True, slots=True)
class InNetwork:
    """A text value is an IP address of one of the networks, which are in canonical form (see `networks`)."""

    attribute: Attribute
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class References:
    """A text value has a link to the target: a host and what is below it, or a URL (see `links`)."""

    attribute: Attribute
    target: str


@dataclass(frozen=True, slots=True)
class Extends:
    """A text value has a link to the URL or to something below its path."""

    attribute: Attribute
    prefix: str


@dataclass(frozen=True, slots=True)
class Shares:
    """A text value has one of the links."""

    attribute: Attribute
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Compare(_TypedConstants):
    """A value of the constant's type stands in this relation to the constant."""

    attribute: Attribute
    operator: AtomRelation
    constant: Constant

    def _constants(self) -> tuple[Constant, ...]:
        return (self.operator, self.constant)


@dataclass(frozen=True, slots=True, eq=False)
class Between(_TypedConstants):
    """A value lies between the two constants, both included."""

    attribute: Attribute
    low: Constant
    high: Constant

    def _constants(self) -> tuple[Constant, ...]:
        return (self.low, self.high)


@dataclass(frozen=True, slots=True, eq=False)
class In(_TypedConstants):
    """A value equals one of the constants."""

    attribute: Attribute
    constants: tuple[Constant, ...]

    def _constants(self) -> tuple[Constant, ...]:
        return self.constants


@dataclass(frozen=True, slots=True)
class Exists:
    """The attribute has a value."""

    attribute: Attribute


@dataclass(frozen=True, slots=True)
class Truth:
    """The condition that always, or never, holds."""

    value: bool


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Expression


WordAtom = Contains | ContainsPattern | ContainsStems | Similar
"""Atoms that look at the words of a text."""

LinkAtom = References | Extends | Shares
"""Atoms that look at the links of a text."""

TextAtom = WordAtom | LinkAtom | RegularExpression | InNetwork
"""Atoms that only a text can satisfy."""

Atom = TextAtom | Compare | Between | In | Exists | ItemPattern
Expression: TypeAlias = "Atom | Truth | And | Or | Not | Call | Constraint | Term"
"""A condition. Operators have calls and constraints (see `calls`), which become terms (see `terms`)."""

TRUE = Truth(True)
FALSE = Truth(False)


def conjunction(parts: list[Expression]) -> Expression:
    """All of the parts: flat, without `true`, false as soon as one part is.

    >>> conjunction([]) == TRUE, conjunction([FALSE, TRUE]) == FALSE
    (True, True)
    """
    flat: dict[Expression, None] = {}
    for part in parts:
        for one in part.parts if isinstance(part, And) else (part,):
            if one == FALSE:
                return FALSE
            if one != TRUE:
                flat[one] = None
    if not flat:
        return TRUE
    return next(iter(flat)) if len(flat) == 1 else And(tuple(flat))


def disjunction(parts: list[Expression]) -> Expression:
    """Any of the parts: flat, without `false`, true as soon as one part is.

    >>> disjunction([]) == FALSE, disjunction([FALSE, TRUE]) == TRUE
    (True, True)
    """
    flat: dict[Expression, None] = {}
    for part in parts:
        for one in part.parts if isinstance(part, Or) else (part,):
            if one == TRUE:
                return TRUE
            if one != FALSE:
                flat[one] = None
    if not flat:
        return FALSE
    return next(iter(flat)) if len(flat) == 1 else Or(tuple(flat))


def negation(part: Expression) -> Expression:
    """The complement, without double negation; that stays where variables are under it, which `not` makes local.

    >>> negation(Not(TRUE)) == TRUE, negation(Not(Call("mob"))) == Not(Not(Call("mob")))
    (True, True)
    """
    match part:
        case Not(inner) if not _has_variables(inner):
            return inner
        case Truth(value):
            return Truth(not value)
        case _:
            return Not(part)


def _has_variables(expression: Expression) -> bool:
    """Whether a condition has calls, constraints or item patterns as written; a term has no variables outside it."""
    match expression:
        case And(parts) | Or(parts):
            return any(map(_has_variables, parts))
        case Not(part):
            return _has_variables(part)
        case _:
            return isinstance(expression, Call | Constraint | ItemPattern)
