"""Why an item is, or is not, in a feed: the evaluation as a tree that a person can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runnel.algebra.distinct import describe_distinct
from runnel.algebra.evaluate import accepts, holds, satisfies, values_of
from runnel.algebra.expressions import WHOLE, And, Expression, Not, Or, Truth
from runnel.algebra.places import Place, places
from runnel.algebra.query import Distinct, Filter, Node, Read, Union
from runnel.algebra.render import render
from runnel.model.item import Attributes, Value

_MOST_VIEWS = 40
_CONTEXT = 60
_LONGEST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that an atom looked at: of which attribute, and where in it the atom is satisfied (texts only)."""

    attribute: str
    value: Value
    places: tuple[Place, ...] = ()

    def in_context(self) -> str:
        """The value, short, with the places marked.

        >>> Seen("title", "Rock am Ring", ((0, 4),)).in_context()
        '»Rock« am Ring'
        """
        if not self.places or not isinstance(self.value, str):
            return _shorten(f"{self.value:g}" if isinstance(self.value, float) else str(self.value))
        if self.places == ((0, len(self.value)),):
            return _shorten(self.value)
        start = max(0, self.places[0][0] - _CONTEXT // 3)
        end = max(min(len(self.value), start + _CONTEXT), self.places[0][1])
        parts, at = ["…" if start else ""], start
        for first, last in self.places:
            if last <= end:
                parts += [self.value[at:first], "»", _shorten(self.value[first:last]), "«"]
                at = last
        return "".join([*parts, self.value[at:end], "…" if end < len(self.value) else ""])


@dataclass(frozen=True, slots=True)
class Trace:
    """One step of an evaluation: what was asked, whether it holds, the values that decided, and its parts."""

    label: str
    holds: bool
    values: tuple[Seen, ...] = ()
    parts: tuple[Trace, ...] = ()
    whole: bool = False
    """Whether the values are those of all attributes, so that their names must be said."""

    def lines(self, indent: str = "") -> list[str]:
        """The tree as text, a line a step.

        >>> print("\\n".join(Trace("all of", False, (), (Trace("a", True), Trace("b", False))).lines()))
        ✗ all of
          ✓ a
          ✗ b
        """
        named = (
            f"{seen.attribute}: {seen.in_context()}" if self.whole else seen.in_context() for seen in self.values
        )
        shown = f"  [{', '.join(list(named)[:3])}]" if self.values else ""
        own = f"{indent}{'✓' if self.holds else '✗'} {self.label}{shown}"
        return [own, *(line for part in self.parts for line in part.lines(indent + "  "))]

    def highlights(self) -> list[dict[str, Any]]:
        """What to mark in the item's texts, each once: the condition, the attribute, its text, and the places in it.

        Of a long text only a part is told, in which the first place is; places are those in that part.

        >>> Trace("title contains 'rock'", True, (Seen("title", "Rock", ((0, 4),)),)).highlights()
        [{'condition': "title contains 'rock'", 'attribute': 'title', 'text': 'Rock', 'places': [(0, 4)]}]
        """
        found = {(step.label, seen): None for step in self._steps() for seen in step.values if seen.places}
        told = ((label, seen.attribute, *_cut(str(seen.value), seen.places)) for label, seen in found)
        return [
            {"condition": label, "attribute": attribute, "text": text, "places": places}
            for label, attribute, text, places in told
        ]

    def _steps(self) -> Iterator[Trace]:
        yield self
        for part in self.parts:
            yield from part._steps()


def _cut(text: str, places: tuple[Place, ...]) -> tuple[str, list[Place]]:
    """A part of a text that is not too long, with the first place and all that fit in, counted from its beginning."""
    first, last = places[0]
    start = 0 if last <= _LONGEST_TEXT else max(0, first - _CONTEXT)
    end = start + _LONGEST_TEXT
    return text[start:end], [(first - start, min(last, end) - start) for first, last in places if first < end]


def trace_expression(expression: Expression, attributes: Attributes, accepted: datetime | None = None) -> Trace:
    """The evaluation of a condition on an item's attributes."""
    truth = holds(expression, attributes, accepted)
    match expression:
        case And(parts):
            return Trace("all of", truth, parts=tuple(trace_expression(one, attributes, accepted) for one in parts))
        case Or(parts):
            return Trace("any of", truth, parts=tuple(trace_expression(one, attributes, accepted) for one in parts))
        case Not(part):
            return Trace("not", truth, parts=(trace_expression(part, attributes, accepted),))
        case Truth():
            return Trace(render(expression), truth)
        case atom:
            looked_at = values_of(atom.attribute, attributes)
            decided = [(name, value) for name, value in looked_at if satisfies(atom, value, accepted)] or looked_at
            seen = tuple(Seen(name, value, tuple(places(atom, value, accepted))) for name, value in decided)
            return Trace(render(expression), truth, seen, whole=atom.attribute.name == WHOLE.name)


def trace_node(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    names: Mapping[int, str],
    accepted: datetime | None = None,
    shown: set[int] | None = None,
    duplicates: Mapping[int, str] | None = None,
) -> Trace:
    """The evaluation of a query on an item of the source feed `feed`, through views down to the source.

    A view that is reached by several ways is shown once; below a good many views nobody reads on. `duplicates` are
    the distinct feeds in which the item is one, each with what is said of the earlier item.
    """
    shown = set() if shown is None else shown
    duplicates = duplicates or {}
    truth = accepts(node, feed, attributes, definitions, accepted, duplicates)
    match node:
        case Read(read):
            name = names.get(read, f"#{read}")
            inner = definitions.get(read)
            if inner is None:
                return Trace(f"comes from {name}", truth)
            if read in shown or len(shown) >= _MOST_VIEWS:
                return Trace(f"is in {name}, as above" if read in shown else f"is in {name} …", truth)
            shown.add(read)
            below = trace_node(inner, feed, attributes, definitions, names, accepted, shown, duplicates)
            if not isinstance(inner, Distinct):
                return Trace(f"is in {name}", truth, parts=(below,))
            earlier = f": {duplicates[read]}" if read in duplicates else ""
            alone = Trace(f"{describe_distinct(inner)}{earlier}", read not in duplicates)
            # What does not come to the gate is not asked for there.
            return Trace(f"is in {name}", truth, parts=(below, alone) if below.holds else (below,))
        case Distinct(inner, _, _):
            return trace_node(inner, feed, attributes, definitions, names, accepted, shown, duplicates)
        case Union(inputs):
            ways = [
                trace_node(one, feed, attributes, definitions, names, accepted, shown, duplicates) for one in inputs
            ]
            # Where a way leads in, the ways that do not are no answer to "why".
            told = tuple(way for way in ways if way.holds or not truth)
            others = f", {len(ways) - len(told)} others do not lead here" if len(told) < len(ways) else ""
            return Trace(f"by one of {len(ways)} ways{others}", truth, parts=told)
        case Filter(inner, condition):
            steps = (
                trace_node(inner, feed, attributes, definitions, names, accepted, shown, duplicates),
                trace_expression(condition, attributes, accepted),
            )
            return Trace("both", truth, parts=steps)


def _shorten(text: str, limit: int = _CONTEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
