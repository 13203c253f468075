"""Formulas: conditions as nodes of one shared graph, so that a view used a thousand times is there once.

Expressions are trees, and views on views would make them exponentially large. A formula is an integer: equal
formulas have equal numbers, and children have smaller numbers than their parents, so every pass is a loop without
recursion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.encode import encode_constant, encode_expression
from runnel.algebra.nodes.expressions import (
    And,
    Atom,
    Compare,
    Contains,
    Expression,
    In,
    InNetwork,
    Not,
    Or,
    Shares,
    Similar,
    Truth,
)
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.terms import Term
from runnel.errors import RunnelError
from runnel.plan.logical_plan import FormulaKind

COMPOUND = frozenset([FormulaKind.NOT, FormulaKind.AND, FormulaKind.OR])
"""The kinds of formula whose children are formulas."""

NEVER, ALWAYS = 0, 1
"""The numbers of the constant formulas."""


class Formulas:
    """An append-only table of formulas and their atoms.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import Contains
    >>> formulas = Formulas()
    >>> rock = formulas.expression(Contains(Attribute("title"), ("rock",)))
    >>> formulas.conjunction([rock, ALWAYS]) == rock, formulas.disjunction([rock, formulas.negation(rock)])
    (True, 1)
    """

    def __init__(self) -> None:
        self.kinds: list[int] = [FormulaKind.CONSTANT, FormulaKind.CONSTANT]
        self.children: list[tuple[int, ...]] = [(0,), (1,)]
        self.atoms: list[Atom] = []
        self.atom_texts: list[str] = []
        self.terms: list[str] = []
        self.pattern_terms: set[int] = set()
        """The terms that ask no operator: the pattern next to them decides whether they hold."""
        self._terms: dict[tuple[str, tuple[str, ...], int | None], int] = {}
        self._atoms: dict[str, int] = {}
        self._words: dict[Contains, int] = {}
        self._formulas: dict[tuple[int, tuple[int, ...]], int] = {}

    def __len__(self) -> int:
        return len(self.kinds)

    def atom(self, atom: Atom) -> int:
        """The number of an atom (not of a formula)."""
        # In Python 1.0 == True, so atoms are compared by their stored forms, never directly.
        text = json.dumps(encode_expression(atom), separators=(",", ":"))
        number = self._atoms.setdefault(text, len(self.atoms))
        if number == len(self.atoms):
            self.atoms.append(atom)
            self.atom_texts.append(text)
        return number

    def term(self, term: Term, feed: int | None = None) -> int:
        """The number of a term, by its stored form (not of a formula).

        A term that binds variables of a feed has its own number: other terms of this form bind other variables.
        """
        text = json.dumps(encode_expression(term), separators=(",", ":"))
        number = self._terms.setdefault((text, term.names, feed if term.names else None), len(self.terms))
        if number == len(self.terms):
            self.terms.append(text)
            if not term.calls:
                self.pattern_terms.add(number)
        return number

    def literal(self, literal: int) -> int:
        """The formula of a literal, which is an atom's number twice, plus one where it is negated."""
        return self._node(FormulaKind.LITERAL, (literal,))

    def conjunction(self, parts: Iterable[int]) -> int:
        """All of the parts hold."""
        return self._combined(FormulaKind.AND, parts, neutral=ALWAYS, decisive=NEVER)

    def disjunction(self, parts: Iterable[int]) -> int:
        """Some part holds."""
        return self._combined(FormulaKind.OR, parts, neutral=NEVER, decisive=ALWAYS)

    def negation(self, part: int) -> int:
        """The part does not hold."""
        match self.kinds[part]:
            case FormulaKind.CONSTANT:
                return 1 - part
            case FormulaKind.LITERAL:
                return self.literal(self.children[part][0] ^ 1)
            case FormulaKind.NOT:
                return self.children[part][0]
            case _:
                return self._node(FormulaKind.NOT, (part,))

    def expression(self, expression: Expression, feed: int | None = None) -> int:
        """The formula of an expression in the definition of a feed, without recursion: it may be nested deeply."""
        results: list[int] = []
        stack: list[tuple[Expression, bool]] = [(expression, False)]
        while stack:
            current, ready = stack.pop()
            match current:
                case And(parts) | Or(parts) if not ready:
                    stack.append((current, True))
                    stack.extend((part, False) for part in reversed(parts))
                case And(parts) | Or(parts):
                    inner = results[len(results) - len(parts) :]
                    del results[len(results) - len(parts) :]
                    combine = self.conjunction if isinstance(current, And) else self.disjunction
                    results.append(combine(inner))
                case Not(part) if not ready:
                    stack.extend([(current, True), (part, False)])
                case Not():
                    results.append(self.negation(results.pop()))
                case Truth(value):
                    results.append(ALWAYS if value else NEVER)
                case Term():
                    # An item without these patterns is decided without asking an operator.
                    patterns = [self._of_atom(pattern.canonical()) for pattern in current.patterns]
                    term = self._node(FormulaKind.TERM, (self.term(current, feed),))
                    results.append(self.conjunction([*patterns, term]))
                case Call() | Constraint():
                    raise RunnelError("a condition with operators must be closed before it is optimized")
                case atom:
                    results.append(self._of_atom(canonical_atom(atom)))
        return results[0]

    def reachable(self, roots: Iterable[int]) -> list[int]:
        """The formulas below and including the roots, children first."""
        seen = set(roots)
        stack = list(seen)
        while stack:
            formula = stack.pop()
            if self.kinds[formula] in COMPOUND:
                fresh = [child for child in self.children[formula] if child not in seen]
                seen.update(fresh)
                stack.extend(fresh)
        return sorted(seen)

    def _of_atom(self, atom: Atom | Truth) -> int:
        if isinstance(atom, Truth):
            return ALWAYS if atom.value else NEVER
        if not isinstance(atom, Contains):
            return self.literal(2 * self.atom(atom))
        # Most atoms are words, which hold nothing but texts: these can be compared, and that is faster.
        known = self._words.get(atom)
        if known is None:
            known = self._words[atom] = self.literal(2 * self.atom(atom))
        return known

    def _combined(self, kind: int, parts: Iterable[int], *, neutral: int, decisive: int) -> int:
        kept = {part for part in parts if part != neutral}
        if decisive in kept:
            return decisive
        for part in kept:
            if (
                self.kinds[part] == FormulaKind.LITERAL
                and self._formulas.get((FormulaKind.LITERAL, (self.children[part][0] ^ 1,)), -1) in kept
            ):
                return decisive
        if len(kept) < 2:
            return next(iter(kept), neutral)
        return self._node(kind, tuple(sorted(kept)))

    def _node(self, kind: int, children: tuple[int, ...]) -> int:
        number = self._formulas.setdefault((kind, children), len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(kind)
            self.children.append(children)
        return number


def canonical_atom(atom: Atom) -> Atom | Truth:
    """The same atom in one form: lists sorted, without repetitions; a list of one is an equality, of none is false.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> canonical_atom(In(Attribute("category"), ("rock", "rock")))
    Compare(attribute=Attribute(name='category', part=None), operator='=', constant='rock')
    """
    match atom:
        case Similar(attribute, words, least):
            return Similar(attribute, tuple(sorted(words)), least)
        case InNetwork(attribute, networks):
            return InNetwork(attribute, tuple(sorted(networks)))
        case Shares(attribute, links):
            return Shares(attribute, tuple(sorted(links)))
        case In():
            return _canonical_list(atom)
        case ItemPattern():
            return atom.canonical()
        case _:
            return atom


def _canonical_list(atom: In) -> Atom | Truth:
    unique = {json.dumps(encode_constant(constant), sort_keys=True): constant for constant in atom.constants}
    constants = tuple(unique[key] for key in sorted(unique))
    if not constants:
        return Truth(False)
    return Compare(atom.attribute, "=", constants[0]) if len(constants) == 1 else In(atom.attribute, constants)
