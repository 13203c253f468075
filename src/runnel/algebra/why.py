"""Why an item is, or is not, in a feed: the evaluation as a tree that a person can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runnel.algebra.evaluate import accepts, holds, satisfies, values_of
from runnel.algebra.expressions import And, Expression, Not, Or, Truth
from runnel.algebra.query import Filter, Node, Read, Union
from runnel.algebra.render import render
from runnel.model.item import Attributes, Value

_MOST_VIEWS = 40


@dataclass(frozen=True, slots=True)
class Trace:
    """One step of an evaluation: what was asked, whether it holds, the values that decided, and its parts."""

    label: str
    holds: bool
    values: tuple[Value, ...] = ()
    parts: tuple[Trace, ...] = ()

    def lines(self, indent: str = "") -> list[str]:
        """The tree as text, a line a step.

        >>> print("\\n".join(Trace("all of", False, (), (Trace("a", True), Trace("b", False))).lines()))
        ✗ all of
          ✓ a
          ✗ b
        """
        shown = f"  [{', '.join(_shorten(value) for value in self.values[:3])}]" if self.values else ""
        own = f"{indent}{'✓' if self.holds else '✗'} {self.label}{shown}"
        return [own, *(line for part in self.parts for line in part.lines(indent + "  "))]


def trace_expression(expression: Expression, attributes: Attributes) -> Trace:
    """The evaluation of a condition on an item's attributes."""
    truth = holds(expression, attributes)
    match expression:
        case And(parts):
            return Trace("all of", truth, parts=tuple(trace_expression(one, attributes) for one in parts))
        case Or(parts):
            return Trace("any of", truth, parts=tuple(trace_expression(one, attributes) for one in parts))
        case Not(part):
            return Trace("not", truth, parts=(trace_expression(part, attributes),))
        case Truth():
            return Trace(render(expression), truth)
        case atom:
            looked_at = values_of(atom.attribute, attributes)
            decided = [value for value in looked_at if satisfies(atom, value)] or looked_at
            return Trace(render(expression), truth, values=tuple(decided))


def trace_node(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    names: Mapping[int, str],
    shown: set[int] | None = None,
) -> Trace:
    """The evaluation of a query on an item of the source feed `feed`, through views down to the source.

    A view that is reached by several ways is shown once; below a good many views nobody reads on.
    """
    shown = set() if shown is None else shown
    truth = accepts(node, feed, attributes, definitions)
    match node:
        case Read(read):
            name = names.get(read, f"#{read}")
            inner = definitions.get(read)
            if inner is None:
                return Trace(f"comes from {name}", truth)
            if read in shown or len(shown) >= _MOST_VIEWS:
                return Trace(f"is in {name}, as above" if read in shown else f"is in {name} …", truth)
            shown.add(read)
            below = trace_node(inner, feed, attributes, definitions, names, shown)
            return Trace(f"is in {name}", truth, parts=(below,))
        case Union(inputs):
            ways = [trace_node(one, feed, attributes, definitions, names, shown) for one in inputs]
            # Where a way leads in, the ways that do not are no answer to "why".
            told = tuple(way for way in ways if way.holds or not truth)
            others = f", {len(ways) - len(told)} others do not lead here" if len(told) < len(ways) else ""
            return Trace(f"by one of {len(ways)} ways{others}", truth, parts=told)
        case Filter(inner, condition):
            steps = (
                trace_node(inner, feed, attributes, definitions, names, shown),
                trace_expression(condition, attributes),
            )
            return Trace("both", truth, parts=steps)


def _shorten(value: Value, limit: int = 60) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
