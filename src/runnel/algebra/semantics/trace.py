"""Why an item is, or is not, in a feed: the evaluation as a tree that a person can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runnel.algebra.nodes.attributes import WHOLE
from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.expressions import And, Expression, Not, Or, Truth, conjunction
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternPart, PatternSearch, pattern_values
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union, unexpanded
from runnel.algebra.nodes.render import render
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.bindings import MOST_INPUTS, Answers, Definition, asking, fitting, grounded, solutions
from runnel.algebra.semantics.close_conditions import free_variables
from runnel.algebra.semantics.evaluate import accepts, satisfies, values_of
from runnel.algebra.semantics.highlights import Highlight, highlights
from runnel.model.item import Attributes, Value
from runnel.model.operator import Rows

_MOST_VIEWS = 40
_MOST_WAYS = 20
"""The most ways of a union that are shown."""
_CONTEXT = 60
_LONGEST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class SeenValue:
    """A value that an atom looked at: of which attribute, and where in it the atom is satisfied (texts only)."""

    attribute: str
    value: Value
    places: tuple[Highlight, ...] = ()

    def in_context(self) -> str:
        """The value, short, with the places marked.

        >>> SeenValue("title", "Rock am Ring", ((0, 4),)).in_context()
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
    values: tuple[SeenValue, ...] = ()
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

        >>> Trace("title contains 'rock'", True, (SeenValue("title", "Rock", ((0, 4),)),)).highlights()
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


def _cut(text: str, places: tuple[Highlight, ...]) -> tuple[str, list[Highlight]]:
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
    search: PatternSearch | None = None,
) -> Trace:
    """The evaluation of a condition on an item's attributes.

    `answers` is what operators say of the item, `search` decides item patterns on it.
    """
    return _Conditions(attributes, accepted, answers, search or Definition(attributes)).trace(expression)


@dataclass(frozen=True, slots=True)
class _Conditions:
    """One item, and what operators say of it."""

    attributes: Attributes
    accepted: datetime | None
    answers: Answers
    search: PatternSearch

    def trace(self, expression: Expression, beside: tuple[Expression, ...] = ()) -> Trace:
        """A condition; `beside` are the calls and patterns around it, which bind its variables."""
        match expression:
            case And(parts):
                around = (*beside, *(one for one in parts if isinstance(one, Call | ItemPattern)))
                traces = (self.trace(part, around) for part in parts)
                return Trace("all of", self._holds(expression, beside), parts=tuple(traces))
            case Or(parts):
                return Trace(
                    "any of", self._holds(expression, beside), parts=tuple(self.trace(one, beside) for one in parts)
                )
            case Not(part):
                return Trace("not", self._holds(expression, ()), parts=(self.trace(part),))
            case Call():
                return self._call(expression, beside)
            case ItemPattern():
                return self._pattern(expression, beside)
            case Truth() | Constraint() | Term():
                return Trace(render(expression), self._holds(expression, beside))
            case atom:
                looked_at = values_of(atom.attribute, self.attributes)
                holding = [one for one in looked_at if satisfies(atom, one[1], self.accepted)]
                seen = (
                    SeenValue(name, value, tuple(highlights(atom, value, self.accepted)))
                    for name, value in holding or looked_at
                )
                return Trace(render(atom), bool(holding), tuple(seen), whole=atom.attribute.name == WHOLE.name)

    def _holds(self, expression: Expression, beside: tuple[Expression, ...]) -> bool:
        """Whether a condition holds, together with what binds its variables."""
        free = free_variables(expression)
        tied = [one for one in beside if free & free_variables(one)]
        if any(isinstance(one, Call) and one.given for one in tied):
            tied = [
                *(one for one in beside if isinstance(one, ItemPattern)),
                *(one for one in tied if isinstance(one, Call)),
            ]
        whole = conjunction([*tied, expression]) if tied else expression
        return asking(self.answers, self.search)(whole, self.attributes, self.accepted)

    def _pattern(self, pattern: ItemPattern, beside: tuple[Expression, ...]) -> Trace:
        others = [one for one in beside if isinstance(one, ItemPattern)]
        if pattern_values(pattern, self.attributes):
            found = pattern.trace(self.search, self._bound(others) if len(others) > 1 else ())
        else:
            found = [PatternPart(f"the item has the attribute {pattern.attribute.name}", False)]
        parts = (Trace(f"{one.text}{f'  [{one.by}]' if one.by else ''}", one.holds) for one in found)
        return Trace(pattern.render(), self._holds(pattern, ()), parts=tuple(parts))

    def _bound(self, patterns: Sequence[ItemPattern]) -> list[dict[str, Value]]:
        return solutions(And(tuple(patterns)), self.attributes, self.answers, rows_of=self.search.rows)

    def _call(self, call: Call, beside: tuple[Expression, ...]) -> Trace:
        patterns = [one for one in beside if isinstance(one, ItemPattern)]
        rows = self._bound(patterns) if call.given else []
        asked = list(grounded(call, rows).values())[:MOST_INPUTS] if call.given else [call]
        said = [(one, self.answers(one)) for one in asked]
        found = [(one, row) for one, some in said for row in fitting(one, some or ())]
        if not found and any(some is None for _, some in said):
            return Trace(f"{render(call)}: unknown, the operator gave no answer", False)
        told = [(one if call.given else None, row) for one, row in found[:3]]
        values = [SeenValue(f"?{name}", value) for _, row in told for name, value in row.items()]
        label = render(call) if not call.given or not told else f"{render(call)} as {render(told[0][0] or call)}"
        return Trace(label, bool(found), tuple(values), whole=True)


def trace_node(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    names: Mapping[int, str],
    accepted: datetime | None = None,
    *,
    stopped: Mapping[int, str] | None = None,
    answers: Answers = unanswered,
    search: PatternSearch | None = None,
) -> Trace:
    """The evaluation of a query on an item of the source feed `feed`, through views down to the source.

    A view that is reached by several ways is shown once; below a good many views nobody reads on. `stopped` are the
    feeds whose gates stopped the item, each with the cause, or with an empty text.
    """
    decides = search or Definition(attributes)
    return _Tracer(feed, attributes, definitions, names, accepted, stopped or {}, answers, decides).node(node)


@dataclass
class _Tracer:
    """One item, and all that is known of the world it is held against."""

    feed: int
    attributes: Attributes
    definitions: Mapping[int, Node]
    names: Mapping[int, str]
    accepted: datetime | None
    stopped: Mapping[int, str]
    answers: Answers
    search: PatternSearch
    shown: set[int] = field(default_factory=set)

    def node(self, node: Node) -> Trace:
        match node:
            case Read(read):
                return self._read(read, self._reached(node))
            case ReadAll():
                raise unexpanded(node)
            case Gated(inner, _):
                return self.node(inner)
            case Union(inputs):
                return self._union(inputs, self._reached(node))
            case Filter(inner, condition):
                told = trace_expression(condition, self.attributes, self.accepted, self.answers, self.search)
                return Trace("both", self._reached(node), parts=(self.node(inner), told))

    def _reached(self, node: Node) -> bool:
        holding = asking(self.answers, self.search)
        return accepts(
            node, self.feed, self.attributes, self.definitions, self.accepted, self.stopped, holding=holding
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
        if not isinstance(inner, Gated) or not below.holds:  # the gate has not seen an item that did not reach it
            return Trace(f"is in {name}", reached, parts=(below,))
        cause = f": {self.stopped[read]}" if self.stopped.get(read) else ""
        gate = Trace(f"{inner.rule.describe()}{cause}", read not in self.stopped)
        return Trace(f"is in {name}", reached, parts=(below, gate))

    def _union(self, inputs: Sequence[Node], reached: bool) -> Trace:
        ways = [self.node(one) for one in inputs]
        # Where a way leads in, the ways that do not are no answer to "why".
        told = tuple(way for way in ways if way.holds or not reached)[:_MOST_WAYS]
        missing = len(ways) - len(told)
        others = f", {missing} {'other does' if missing == 1 else 'others do'} not lead here" if missing else ""
        return Trace(f"by one of {len(ways)} ways{others}", reached, parts=told)


def _shorten(text: str, limit: int = _CONTEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
