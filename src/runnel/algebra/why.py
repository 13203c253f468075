"""Why an item is, or is not, in a feed: the evaluation as a tree that a person can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runnel.algebra.attributes import WHOLE
from runnel.algebra.bindings import Answers, asking, fitting, satisfied, solutions
from runnel.algebra.calls import Call, Constraint, Term
from runnel.algebra.distinct import describe_distinct
from runnel.algebra.evaluate import accepts, satisfies, values_of
from runnel.algebra.expressions import And, Expression, Not, Or, Truth
from runnel.algebra.places import Place, places
from runnel.algebra.query import Distinct, Filter, Node, Read, Union
from runnel.algebra.render import render
from runnel.model.bindings import Binding
from runnel.model.item import Attributes, Value
from runnel.model.operator import Rows

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


def unanswered(call: Call) -> Rows | None:
    """What operators say where nobody asks them."""
    return None


def trace_expression(
    expression: Expression,
    attributes: Attributes,
    accepted: datetime | None = None,
    answers: Answers = unanswered,
) -> Trace:
    """The evaluation of a condition on an item's attributes. `answers` is what operators say of the item."""
    holds = asking(answers)(expression, attributes, accepted)
    match expression:
        case And(parts):
            bound = solutions(
                And(tuple(one for one in parts if isinstance(one, Call))), attributes, answers, accepted
            )
            traces = (_trace_part(part, attributes, accepted, answers, bound) for part in parts)
            return Trace("all of", holds, parts=tuple(traces))
        case Or(parts):
            traces = (trace_expression(part, attributes, accepted, answers) for part in parts)
            return Trace("any of", holds, parts=tuple(traces))
        case Not(part):
            return Trace("not", holds, parts=(trace_expression(part, attributes, accepted, answers),))
        case Call():
            return _trace_call(expression, answers)
        case Truth() | Constraint() | Term():
            return Trace(render(expression), holds)
        case atom:
            looked_at = values_of(atom.attribute, attributes)
            decided = [(name, value) for name, value in looked_at if satisfies(atom, value, accepted)] or looked_at
            seen = tuple(Seen(name, value, tuple(places(atom, value, accepted))) for name, value in decided)
            return Trace(render(expression), holds, seen, whole=atom.attribute.name == WHOLE.name)


def _trace_part(
    part: Expression,
    attributes: Attributes,
    accepted: datetime | None,
    answers: Answers,
    bound: Sequence[Binding],
) -> Trace:
    """A part of a conjunction: a constraint is held against what the calls beside it are bound to."""
    match part:
        case Constraint():
            return Trace(render(part), any(satisfied(part, one, accepted) for one in bound))
        case Or(parts) if any(isinstance(one, Constraint) for one in parts):
            traces = tuple(_trace_part(one, attributes, accepted, answers, bound) for one in parts)
            return Trace("any of", any(one.holds for one in traces), parts=traces)
        case _:
            return trace_expression(part, attributes, accepted, answers)


def _trace_call(call: Call, answers: Answers) -> Trace:
    rows = answers(call)
    if rows is None:
        return Trace(f"{render(call)}: unknown, the operator gave no answer", False)
    found = fitting(call, rows)
    values = tuple(Seen(f"?{name}", value) for one in found[:3] for name, value in one.items())
    return Trace(render(call), bool(found), values, whole=True)


def trace_node(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    names: Mapping[int, str],
    accepted: datetime | None = None,
    *,
    duplicates: Mapping[int, str] | None = None,
    answers: Answers = unanswered,
) -> Trace:
    """The evaluation of a query on an item of the source feed `feed`, through views down to the source.

    A view that is reached by several ways is shown once; below a good many views nobody reads on. `duplicates` are
    the distinct feeds in which the item is one, each with what is said of the earlier item.
    """
    return _Tracer(feed, attributes, definitions, names, accepted, duplicates or {}, answers).node(node)


@dataclass
class _Tracer:
    """One item, and all that is known of the world it is held against."""

    feed: int
    attributes: Attributes
    definitions: Mapping[int, Node]
    names: Mapping[int, str]
    accepted: datetime | None
    duplicates: Mapping[int, str]
    answers: Answers
    shown: set[int] = field(default_factory=set)

    def node(self, node: Node) -> Trace:
        match node:
            case Read(read):
                return self._read(read, self._reached(node))
            case Distinct(inner, _, _):
                return self.node(inner)
            case Union(inputs):
                return self._union(inputs, self._reached(node))
            case Filter(inner, condition):
                told = trace_expression(condition, self.attributes, self.accepted, self.answers)
                return Trace("both", self._reached(node), parts=(self.node(inner), told))

    def _reached(self, node: Node) -> bool:
        holding = asking(self.answers)
        return accepts(
            node, self.feed, self.attributes, self.definitions, self.accepted, self.duplicates, holding=holding
        )

    def _read(self, read: int, reached: bool) -> Trace:
        name = self.names.get(read, f"#{read}")
        inner = self.definitions.get(read)
        if inner is None:
            return Trace(f"comes from {name}", reached)
        if read in self.shown or len(self.shown) >= _MOST_VIEWS:
            return Trace(f"is in {name}, as above" if read in self.shown else f"is in {name} …", reached)
        self.shown.add(read)
        below = self.node(inner)
        if not isinstance(inner, Distinct):
            return Trace(f"is in {name}", reached, parts=(below,))
        earlier = f": {self.duplicates[read]}" if read in self.duplicates else ""
        alone = Trace(f"{describe_distinct(inner)}{earlier}", read not in self.duplicates)
        # What does not come to the gate is not asked for there.
        return Trace(f"is in {name}", reached, parts=(below, alone) if below.holds else (below,))

    def _union(self, inputs: Sequence[Node], reached: bool) -> Trace:
        ways = [self.node(one) for one in inputs]
        # Where a way leads in, the ways that do not are no answer to "why".
        told = tuple(way for way in ways if way.holds or not reached)
        missing = len(ways) - len(told)
        others = f", {missing} {'other does' if missing == 1 else 'others do'} not lead here" if missing else ""
        return Trace(f"by one of {len(ways)} ways{others}", reached, parts=told)


def _shorten(text: str, limit: int = _CONTEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
