"""Traces: a readable tree that explains why an item is in a feed or not.

In: a condition or query node, and an item. Out: a `Trace` whose steps show what holds and the values that decided.
"""

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
from runnel.algebra.semantics.bindings import (
    MAX_INPUTS,
    Answers,
    ReferencePatternSearch,
    asking,
    fitting,
    grounded,
    solutions,
)
from runnel.algebra.semantics.close_conditions import free_variables
from runnel.algebra.semantics.evaluate import accepts, satisfies, values_of
from runnel.algebra.semantics.highlights import Highlight, highlights
from runnel.model.item import Attributes, Value
from runnel.model.operator import Rows

_MAX_VIEWS = 40
_MAX_INPUTS = 20
"""How many inputs of a union are shown."""
_CONTEXT = 60
_MAX_TEXT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class SeenValue:
    """A value that an atom was evaluated on, its attribute, and the ranges of a text that satisfy the atom."""

    attribute: str
    value: Value
    ranges: tuple[Highlight, ...] = ()

    def in_context(self) -> str:
        """Return the value, shortened, with its highlights marked.

        >>> SeenValue("title", "Rock am Ring", ((0, 4),)).in_context()
        '»Rock« am Ring'
        """
        if not self.ranges or not isinstance(self.value, str):
            return _shorten(f"{self.value:g}" if isinstance(self.value, float) else str(self.value))
        if self.ranges == ((0, len(self.value)),):
            return _shorten(self.value)
        start = max(0, self.ranges[0][0] - _CONTEXT // 3)
        end = max(min(len(self.value), start + _CONTEXT), self.ranges[0][1])
        parts, offset = ["…" if start else ""], start
        for first, last in self.ranges:
            if last <= end:
                parts += [self.value[offset:first], "»", _shorten(self.value[first:last]), "«"]
                offset = last
        return "".join([*parts, self.value[offset:end], "…" if end < len(self.value) else ""])


@dataclass(frozen=True, slots=True)
class Trace:
    """One step of an evaluation: its label, whether it holds, the values that decided, and its parts."""

    label: str
    holds: bool
    values: tuple[SeenValue, ...] = ()
    parts: tuple[Trace, ...] = ()
    whole: bool = False
    """Whether the values are of several attributes, so that their names are shown."""

    def lines(self, indent: str = "") -> list[str]:
        """Return the tree as text, one line per step.

        >>> print("\\n".join(Trace("all of", False, (), (Trace("a", True), Trace("b", False))).lines()))
        ✗ all of
          ✓ a
          ✗ b
        """
        named = (
            f"{seen.attribute}: {seen.in_context()}" if self.whole else seen.in_context() for seen in self.values
        )
        shown = f"  [{', '.join(list(named)[:3])}]" if self.values else ""
        first = f"{indent}{'✓' if self.holds else '✗'} {self.label}{shown}"
        return [first, *(line for part in self.parts for line in part.lines(indent + "  "))]

    def highlights(self) -> list[dict[str, Any]]:
        """Return what to highlight in the item's texts, without repetitions.

        Each entry has a condition, an attribute, its text, and the ranges (`places`) that satisfy the condition. For
        a long text, it has only an extract that contains the first range.

        >>> Trace("title contains 'rock'", True, (SeenValue("title", "Rock", ((0, 4),)),)).highlights()
        [{'condition': "title contains 'rock'", 'attribute': 'title', 'text': 'Rock', 'places': [(0, 4)]}]
        """
        highlighted = {(step.label, seen): None for step in self._steps() for seen in step.values if seen.ranges}
        entries = ((label, seen.attribute, *_extract(str(seen.value), seen.ranges)) for label, seen in highlighted)
        return [
            {"condition": label, "attribute": attribute, "text": text, "places": ranges}
            for label, attribute, text, ranges in entries
        ]

    def _steps(self) -> Iterator[Trace]:
        yield self
        for part in self.parts:
            yield from part._steps()


def _extract(text: str, ranges: tuple[Highlight, ...]) -> tuple[str, list[Highlight]]:
    """Return an extract of a text that contains the first range, and the ranges with offsets in the extract."""
    first, last = ranges[0]
    start = 0 if last <= _MAX_TEXT_LENGTH else max(0, first - _CONTEXT)
    end = start + _MAX_TEXT_LENGTH
    return text[start:end], [(first - start, min(last, end) - start) for first, last in ranges if first < end]


def unanswered(call: Call) -> Rows | None:
    """Return no answer for any call: operators are not called."""
    return None


def trace_expression(
    expression: Expression,
    attributes: Attributes,
    accepted: datetime | None = None,
    answers: Answers = unanswered,
    search: PatternSearch | None = None,
) -> Trace:
    """Return the trace of a condition on an item's attributes.

    `answers` returns the answers of operators for the item, and `search` evaluates item patterns on it.
    """
    return _ConditionTracer(attributes, accepted, answers, search or ReferencePatternSearch(attributes)).trace(
        expression
    )


@dataclass(frozen=True, slots=True)
class _ConditionTracer:
    """Traces conditions on one item."""

    attributes: Attributes
    accepted: datetime | None
    answers: Answers
    search: PatternSearch

    def trace(self, expression: Expression, context: tuple[Expression, ...] = ()) -> Trace:
        """Return the trace of a condition. `context` has the calls and patterns that bind its variables."""
        match expression:
            case And(parts):
                inner_context = (*context, *(part for part in parts if isinstance(part, Call | ItemPattern)))
                traces = (self.trace(part, inner_context) for part in parts)
                return Trace("all of", self._holds(expression, context), parts=tuple(traces))
            case Or(parts):
                return Trace(
                    "any of",
                    self._holds(expression, context),
                    parts=tuple(self.trace(part, context) for part in parts),
                )
            case Not(part):
                return Trace("not", self._holds(expression, ()), parts=(self.trace(part),))
            case Call():
                return self._trace_call(expression, context)
            case ItemPattern():
                return self._trace_pattern(expression, context)
            case Truth() | Constraint() | Term():
                return Trace(render(expression), self._holds(expression, context))
            case atom:
                values = values_of(atom.attribute, self.attributes)
                satisfying = [(name, value) for name, value in values if satisfies(atom, value, self.accepted)]
                seen = (
                    SeenValue(name, value, tuple(highlights(atom, value, self.accepted)))
                    for name, value in satisfying or values
                )
                return Trace(render(atom), bool(satisfying), tuple(seen), whole=atom.attribute.name == WHOLE.name)

    def _holds(self, expression: Expression, context: tuple[Expression, ...]) -> bool:
        """Return whether a condition holds together with the calls and patterns that bind its variables."""
        free = free_variables(expression)
        binding = [part for part in context if free & free_variables(part)]
        if any(isinstance(part, Call) and part.given for part in binding):
            binding = [
                *(part for part in context if isinstance(part, ItemPattern)),
                *(part for part in binding if isinstance(part, Call)),
            ]
        whole = conjunction([*binding, expression]) if binding else expression
        return asking(self.answers, self.search)(whole, self.attributes, self.accepted)

    def _trace_pattern(self, pattern: ItemPattern, context: tuple[Expression, ...]) -> Trace:
        patterns = [part for part in context if isinstance(part, ItemPattern)]
        if pattern_values(pattern, self.attributes):
            pattern_parts = pattern.trace(self.search, self._bound(patterns) if len(patterns) > 1 else ())
        else:
            pattern_parts = [PatternPart(f"the item has the attribute {pattern.attribute.name}", False)]
        parts = (Trace(f"{part.text}{f'  [{part.by}]' if part.by else ''}", part.holds) for part in pattern_parts)
        return Trace(pattern.render(), self._holds(pattern, ()), parts=tuple(parts))

    def _bound(self, patterns: Sequence[ItemPattern]) -> list[dict[str, Value]]:
        return solutions(And(tuple(patterns)), self.attributes, self.answers, rows_of=self.search.rows)

    def _trace_call(self, call: Call, context: tuple[Expression, ...]) -> Trace:
        patterns = [part for part in context if isinstance(part, ItemPattern)]
        rows = self._bound(patterns) if call.given else []
        calls = list(grounded(call, rows).values())[:MAX_INPUTS] if call.given else [call]
        answers = [(each, self.answers(each)) for each in calls]
        matching = [(each, row) for each, answer in answers for row in fitting(each, answer or ())]
        if not matching and any(answer is None for _, answer in answers):
            return Trace(f"{render(call)}: unknown, the operator gave no answer", False)
        values = [SeenValue(f"?{name}", value) for _, row in matching[:3] for name, value in row.items()]
        label = f"{render(call)} as {render(matching[0][0])}" if call.given and matching else render(call)
        return Trace(label, bool(matching), tuple(values), whole=True)


def trace_node(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    names: Mapping[int, str],
    accepted: datetime | None = None,
    *,
    stopped: Mapping[int, str] | None = None,
    at_gates: Mapping[int, Sequence[Trace]] | None = None,
    answers: Answers = unanswered,
    search: PatternSearch | None = None,
) -> Trace:
    """Return the trace of a query on an item of the source feed `feed`, through all views down to the source.

    A view that several inputs read is shown once, and only the first `_MAX_VIEWS` views are shown in full. `stopped`
    maps the feeds whose gates stopped the item to the cause, or to an empty text, and `at_gates` maps feeds to the
    steps of their gates.
    """
    search = search or ReferencePatternSearch(attributes)
    tracer = _NodeTracer(
        feed, attributes, definitions, names, accepted, stopped or {}, at_gates or {}, answers, search
    )
    return tracer.node(node)


@dataclass
class _NodeTracer:
    """Traces query nodes on one item."""

    feed: int
    attributes: Attributes
    definitions: Mapping[int, Node]
    names: Mapping[int, str]
    accepted: datetime | None
    stopped: Mapping[int, str]
    at_gates: Mapping[int, Sequence[Trace]]
    answers: Answers
    search: PatternSearch
    shown: set[int] = field(default_factory=set)

    def node(self, node: Node) -> Trace:
        match node:
            case Read(read):
                return self._trace_read(read, self._reached(node))
            case ReadAll():
                raise unexpanded(node)
            case Gated(inner, _):
                return self.node(inner)
            case Union(inputs):
                return self._trace_union(inputs, self._reached(node))
            case Filter(inner, condition):
                filtered = trace_expression(condition, self.attributes, self.accepted, self.answers, self.search)
                return Trace("both", self._reached(node), parts=(self.node(inner), filtered))

    def _reached(self, node: Node) -> bool:
        holding = asking(self.answers, self.search)
        return accepts(
            node, self.feed, self.attributes, self.definitions, self.accepted, self.stopped, holding=holding
        )

    def _trace_read(self, read: int, reached: bool) -> Trace:
        name = self.names.get(read, f"#{read}")
        inner = self.definitions.get(read)
        if inner is None:
            return Trace(f"comes from {name}", reached)
        if read in self.shown or len(self.shown) >= _MAX_VIEWS:
            return Trace(f"is in {name}, as above" if read in self.shown else f"is in {name} …", reached)
        self.shown.add(read)
        below = self.node(inner)
        if not isinstance(inner, Gated) or not below.holds:  # an item that does not reach the gate is not shown to it
            return Trace(f"is in {name}", reached, parts=(below,))
        cause = f": {self.stopped[read]}" if self.stopped.get(read) else ""
        steps = tuple(self.at_gates.get(read, ()))
        gate = Trace(f"{inner.rule.describe()}{cause}", read not in self.stopped, parts=steps)
        return Trace(f"is in {name}", reached, parts=(below, gate))

    def _trace_union(self, inputs: Sequence[Node], reached: bool) -> Trace:
        traces = [self.node(each) for each in inputs]
        # If an input contains the item, the inputs that do not contain it explain nothing.
        shown = tuple(trace for trace in traces if trace.holds or not reached)[:_MAX_INPUTS]
        hidden = f", {len(traces) - len(shown)} not shown" if len(shown) < len(traces) else ""
        return Trace(f"is in at least one of {len(traces)} inputs{hidden}", reached, parts=shown)


def _shorten(text: str, limit: int = _CONTEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
