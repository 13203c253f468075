"""Conditions on a pair of items: what `window.x` means in the condition of a join (RoSeS §3.2).

In: a condition with window atoms, and the attributes of an item in the window. Out: the condition on the other item
that remains. `title similar to window.title` holds of two items if `title similar to 'T'` holds of the first one for
some title T of the second one.
"""

from __future__ import annotations

from collections.abc import Iterator

from runnel.algebra.nodes.expressions import (
    And,
    Compare,
    Contains,
    Expression,
    Extends,
    Not,
    Or,
    References,
    Shares,
    Similar,
    conjunction,
    disjunction,
    negation,
)
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import is_text, values_of
from runnel.algebra.values.links import canonical_host, links_in
from runnel.algebra.values.similarity import DEFAULT_LEAST
from runnel.algebra.values.words import words
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue


def atoms_of(condition: Expression) -> Iterator[Expression | WindowAtom]:
    """Yield the atoms of a condition, window atoms included."""
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from atoms_of(part)
        case Not(part):
            yield from atoms_of(part)
        case _:
            yield condition


def condition_given(condition: Expression, window: Attributes) -> Expression:
    """Return what the condition of a join asks of an item, given the attributes of an item in the window.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> title = Attribute("title")
    >>> condition_given(WindowAtom("contains", title, title), {"title": ("Muse", "U2 live")})
    Or(parts=(Contains(attribute=Attribute(name='title', part=None), words=('muse',)), \
Contains(attribute=Attribute(name='title', part=None), words=('u2', 'live'))))
    """
    match condition:
        case And(parts):
            return conjunction([condition_given(part, window) for part in parts])
        case Or(parts):
            return disjunction([condition_given(part, window) for part in parts])
        case Not(part):
            return negation(condition_given(part, window))
        case WindowAtom():
            values = values_of(condition.window, window)
            return disjunction([atom for _, value in values for atom in _atoms_given(condition, value)])
        case _:
            return condition


def _atoms_given(atom: WindowAtom, value: Value) -> Iterator[Expression]:
    """Yield the atoms that a window atom means for one value of the window item. Each of them suffices."""
    attribute, relation = atom.attribute, atom.relation
    if relation in ("=", "<", "<=", ">", ">="):
        if not isinstance(value, StructuredValue):
            yield Compare(attribute, relation, value)
    elif not is_text(value):
        return
    elif relation in ("contains", "similar"):
        phrase = tuple(words(value))
        if phrase and relation == "contains":
            yield Contains(attribute, phrase)
        elif phrase:
            yield Similar(attribute, tuple(dict.fromkeys(phrase)), atom.least or DEFAULT_LEAST)
    elif relation == "shares":
        links = tuple(dict.fromkeys(link.url for link in links_in(value)))
        if links:
            yield Shares(attribute, links)
    else:
        yield from _link_atoms(atom, value)


def _link_atoms(atom: WindowAtom, text: str) -> Iterator[Expression]:
    """Yield the atoms for the links of a text. For `references`, a text without links may be the name of a host."""
    links = list(dict.fromkeys(link.url for link in links_in(text)))
    if atom.relation == "extends":
        yield from (Extends(atom.attribute, link.partition("?")[0]) for link in links)
    elif links:
        yield from (References(atom.attribute, link) for link in links)
    elif (host := canonical_host(text.strip())) is not None:
        yield References(atom.attribute, host)
