"""Formulas: conditions as nodes of a shared graph, so that a view that many queries read is stored once.

Expressions are trees, which views on views would make exponentially large. A formula is a number: equal formulas have
equal numbers, and children have smaller numbers than their parents, so every pass is a loop without recursion.
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
"""The kinds of formulas whose children are formulas."""

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
        """The terms without operator calls. They hold if their patterns hold, which are separate atoms."""
        self._terms: dict[tuple[str, tuple[str, ...], int | None], int] = {}
        self._atoms: dict[str, int] = {}
        self._words: dict[Contains, int] = {}
        self._formulas: dict[tuple[int, tuple[int, ...]], int] = {}

    def __len__(self) -> int:
        return len(self.kinds)

    def atom(self, atom: Atom) -> int:
        """Return the number of an atom, which is not the number of a formula. Add the atom if it is new."""
        # Compare atoms by their stored forms, because 1.0 == True in Python.
        text = json.dumps(encode_expression(atom), separators=(",", ":"))
        number = self._atoms.setdefault(text, len(self.atoms))
        if number == len(self.atoms):
            self.atoms.append(atom)
            self.atom_texts.append(text)
        return number

    def term(self, term: Term, feed: int | None = None) -> int:
        """Return the number of a term, which is not the number of a formula. Add the term if it is new.

        Terms of the same stored form have different numbers if they bind variables of different names or feeds.
        """
        text = json.dumps(encode_expression(term), separators=(",", ":"))
        number = self._terms.setdefault((text, term.names, feed if term.names else None), len(self.terms))
        if number == len(self.terms):
            self.terms.append(text)
            if not term.calls:
                self.pattern_terms.add(number)
        return number

    def literal(self, literal: int) -> int:
        """Return the formula of a literal, which is `atom * 2`, or `atom * 2 + 1` for a negated atom."""
        return self._node(FormulaKind.LITERAL, (literal,))

    def conjunction(self, parts: Iterable[int]) -> int:
        """Return the formula of a conjunction."""
        return self._combine(FormulaKind.AND, parts, neutral=ALWAYS, decisive=NEVER)

    def disjunction(self, parts: Iterable[int]) -> int:
        """Return the formula of a disjunction."""
        return self._combine(FormulaKind.OR, parts, neutral=NEVER, decisive=ALWAYS)

    def negation(self, part: int) -> int:
        """Return the formula of a negation."""
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
        """Return the formula of an expression in the definition of a feed. Not recursive: nesting may be deep."""
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
                    # The patterns are separate conjuncts, so that an item that does not match them needs no operator
                    # call.
                    patterns = [self._atom_formula(pattern.canonical()) for pattern in current.patterns]
                    term = self._node(FormulaKind.TERM, (self.term(current, feed),))
                    results.append(self.conjunction([*patterns, term]))
                case Call() | Constraint():
                    raise RunnelError("a condition with operators must be closed before it is optimized")
                case atom:
                    results.append(self._atom_formula(canonical_atom(atom)))
        return results[0]

    def reachable(self, roots: Iterable[int]) -> list[int]:
        """Return the roots and all formulas below them in ascending order, so that children come first."""
        seen = set(roots)
        stack = list(seen)
        while stack:
            formula = stack.pop()
            if self.kinds[formula] in COMPOUND:
                fresh = [child for child in self.children[formula] if child not in seen]
                seen.update(fresh)
                stack.extend(fresh)
        return sorted(seen)

    def _atom_formula(self, atom: Atom | Truth) -> int:
        if isinstance(atom, Truth):
            return ALWAYS if atom.value else NEVER
        if not isinstance(atom, Contains):
            return self.literal(2 * self.atom(atom))
        # Most atoms are words. They have only texts, so a dictionary of atoms is correct, and faster than stored
        # forms.
        formula = self._words.get(atom)
        if formula is None:
            formula = self._words[atom] = self.literal(2 * self.atom(atom))
        return formula

    def _combine(self, kind: int, parts: Iterable[int], *, neutral: int, decisive: int) -> int:
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
    """Return the canonical form of an atom: lists are sorted, without repetitions.

    `in` with one constant becomes an equality, and without constants `false`.


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
