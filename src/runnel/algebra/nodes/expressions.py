"""Conditions on one item: atoms and their Boolean combinations, as immutable values.

Two-valued logic: an atom on a missing attribute is false, `not` is the complement, `!=` is `not =`. On an attribute
with several values an atom holds if any value satisfies it. `evaluate.holds` defines all of this.
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
    """Equality that distinguishes `x = 1` from `x = true`, unlike Python's own."""

    __slots__ = ()

    def _constants(self) -> tuple[Constant, ...]:
        raise AssertionError("every atom with constants overrides this")

    def _key(self) -> tuple[object, ...]:
        constants = self._constants()
        return (type(self), self.attribute, *constants, *map(type, constants))  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TypedConstants) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Contains:
    """A text value contains these words, adjacent and in this order. `values.words` splits texts into words."""

    attribute: Attribute
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainsPattern:
    """A text value contains adjacent words that match the patterns: `*` is any number of letters, `?` is one.

    See `values.word_patterns`.
    """

    attribute: Attribute
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainsStems:
    """A text value contains adjacent words with the same stems as these words, in a language (see `values.stems`)."""

    attribute: Attribute
    language: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Similar:
    """A text value has at least the similarity `least` to these distinct words (see `values.similarity`)."""

    attribute: Attribute
    words: tuple[str, ...]
    least: Fraction


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """The RE2 regular expression matches some part of a text value (see `values.regular_expressions`)."""

    attribute: Attribute
    pattern: str


@dataclass(frozen=True, slots=True)
class InNetwork:
    """A text value is an IP address in one of the networks, which are in canonical form (see `values.networks`)."""

    attribute: Attribute
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class References:
    """A text value has a link to the target: to a host or one of its subdomains, or to a URL (see `values.links`)."""

    attribute: Attribute
    target: str


@dataclass(frozen=True, slots=True)
class Extends:
    """A text value has a link to the URL, or to a URL below its path."""

    attribute: Attribute
    prefix: str


@dataclass(frozen=True, slots=True)
class Shares:
    """A text value has one of the links."""

    attribute: Attribute
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Compare(_TypedConstants):
    """A value of the constant's type satisfies the comparison with the constant."""

    attribute: Attribute
    operator: AtomRelation
    constant: Constant

    def _constants(self) -> tuple[Constant, ...]:
        return (self.operator, self.constant)


@dataclass(frozen=True, slots=True, eq=False)
class Between(_TypedConstants):
    """A value is between the two constants, both inclusive."""

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
    """At least one part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Expression


WordAtom = Contains | ContainsPattern | ContainsStems | Similar
"""Atoms on the words of a text."""

LinkAtom = References | Extends | Shares
"""Atoms on the links of a text."""

TextAtom = WordAtom | LinkAtom | RegularExpression | InNetwork
"""Atoms that only text values can satisfy."""

Atom = TextAtom | Compare | Between | In | Exists | ItemPattern
Expression: TypeAlias = "Atom | Truth | And | Or | Not | Call | Constraint | Term"
"""A condition. Calls of operators and constraints (see `calls`) become terms (see `terms`)."""

TRUE = Truth(True)
FALSE = Truth(False)


def conjunction(parts: list[Expression]) -> Expression:
    """Return the conjunction of parts: flattened, without `true`, and `false` if one part is.

    >>> conjunction([]) == TRUE, conjunction([FALSE, TRUE]) == FALSE
    (True, True)
    """
    flat: dict[Expression, None] = {}
    for part in parts:
        for conjunct in part.parts if isinstance(part, And) else (part,):
            if conjunct == FALSE:
                return FALSE
            if conjunct != TRUE:
                flat[conjunct] = None
    if not flat:
        return TRUE
    return next(iter(flat)) if len(flat) == 1 else And(tuple(flat))


def disjunction(parts: list[Expression]) -> Expression:
    """Return the disjunction of parts: flattened, without `false`, and `true` if one part is.

    >>> disjunction([]) == FALSE, disjunction([FALSE, TRUE]) == TRUE
    (True, True)
    """
    flat: dict[Expression, None] = {}
    for part in parts:
        for disjunct in part.parts if isinstance(part, Or) else (part,):
            if disjunct == TRUE:
                return TRUE
            if disjunct != FALSE:
                flat[disjunct] = None
    if not flat:
        return FALSE
    return next(iter(flat)) if len(flat) == 1 else Or(tuple(flat))


def negation(part: Expression) -> Expression:
    """Return the complement. Remove a double negation, except over variables, which `not` makes local.

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
    """Return whether a condition has calls, constraints or item patterns. The variables of a term are all local."""
    match expression:
        case And(parts) | Or(parts):
            return any(map(_has_variables, parts))
        case Not(part):
            return _has_variables(part)
        case _:
            return isinstance(expression, Call | Constraint | ItemPattern)
