"""How close two items are to satisfying the condition of a join, and what they lack.

In: the condition, the attributes of an item and those of a window item. Out: a number from 0 to 1, and texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import TypeAlias, cast

from runnel.algebra.nodes.expressions import And, Expression, Not, Or
from runnel.algebra.nodes.render import render, render_attribute
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import holds, is_text, values_of
from runnel.algebra.semantics.window_conditions import atoms_of, condition_given
from runnel.algebra.values.similarity import DEFAULT_LEAST, similarity
from runnel.algebra.values.words import words
from runnel.model.item import Attributes, Value

Condition: TypeAlias = "Expression | WindowAtom"

_SHOWN_CHARACTERS = 30


@dataclass(frozen=True, slots=True)
class PairOfItems:
    """An item with its time of acceptance, and an item of its window."""

    attributes: Attributes
    window: Attributes
    accepted: datetime | None = None

    def satisfies(self, condition: Condition) -> bool:
        """Return whether the condition holds for the pair."""
        return holds(condition_given(cast(Expression, condition), self.window), self.attributes, self.accepted)

    def closeness(self, condition: Condition) -> float:
        """Return how close the pair is to satisfying the condition: 1 if it does, less if it does not.

        >>> from runnel.algebra.nodes.attributes import Attribute
        >>> title, band = Attribute("title"), Attribute("band")
        >>> condition = And((WindowAtom("similar", title, title), WindowAtom("=", band, band)))
        >>> pair = PairOfItems({"title": ("Muse live",)}, {"title": ("Muse in the old town",)})
        >>> pair.closeness(condition)
        0.16666666666666666
        """
        match condition:
            case And(parts) if parts:
                return sum(map(self.closeness, parts)) / len(parts)
            case Or(parts) if parts:
                return max(map(self.closeness, parts))
            case WindowAtom() if condition.relation == "similar" and not self.satisfies(condition):
                return float(self._similarity(condition) / (condition.least or DEFAULT_LEAST))
            case _:
                return float(self.satisfies(condition))

    def lacks(self, condition: Condition) -> Iterator[str]:
        """Yield what the pair lacks to satisfy the condition.

        >>> from runnel.algebra.nodes.attributes import Attribute
        >>> title = Attribute("title")
        >>> pair = PairOfItems({"title": ("Muse live",)}, {"title": ("Muse in town",)})
        >>> list(pair.lacks(WindowAtom("similar", title, title)))
        ['title: similarity 0.25, needs 0.50']
        """
        match condition:
            case And(parts):
                for part in parts:
                    yield from self.lacks(part)
            case Or(parts) if parts and not self.satisfies(condition):
                yield from self.lacks(max(parts, key=self.closeness))
            case _ if self.satisfies(condition):
                return
            case WindowAtom():
                yield self._failure(condition)
            case Not(part):
                yield f"satisfies {render(part)}"
            case _:
                yield f"the item does not satisfy {render(condition)}"

    def similarity(self, condition: Condition) -> float | None:
        """Return the highest similarity that the condition compares, or None if it compares none."""
        atoms = [
            atom
            for atom in atoms_of(cast(Expression, condition))
            if isinstance(atom, WindowAtom) and atom.relation == "similar"
        ]
        return float(max(map(self._similarity, atoms))) if atoms else None

    def _similarity(self, atom: WindowAtom) -> Fraction:
        texts = [words(value) for _, value in values_of(atom.attribute, self.attributes) if is_text(value)]
        others = [words(value) for _, value in values_of(atom.window, self.window) if is_text(value)]
        return max((similarity(own, other) for own in texts for other in others), default=Fraction(0))

    def _failure(self, atom: WindowAtom) -> str:
        """Describe why an atom fails: the similarity, or the values that it compares."""
        own = [value for _, value in values_of(atom.attribute, self.attributes)]
        other = [value for _, value in values_of(atom.window, self.window)]
        if atom.relation == "similar" and any(map(is_text, own)) and any(map(is_text, other)):
            name, found = render_attribute(atom.attribute), float(self._similarity(atom))
            return f"{name}: similarity {found:.2f}, needs {float(atom.least or DEFAULT_LEAST):.2f}"
        return f"{render(cast(Expression, atom))} fails: {_described(own)} and {_described(other)}"


def _described(values: Sequence[Value]) -> str:
    if not values:
        return "no value"
    text = f"{values[0]:g}" if isinstance(values[0], float) else str(values[0])
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
    return f"'{shown}'" if len(values) == 1 else f"'{shown}' and {len(values) - 1} more"
