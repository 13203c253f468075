"""Small generated worlds: conditions that combine filters, operator calls and constraints, and operator answers.

Answers are drawn from few values, so that joins meet, and depend on the item, the operator and its inputs alone.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st
from tests.unit.optimizer.generated_worlds import NAMES, SOURCES, atoms

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Argument, Arithmetic, Call, Constraint, Literally, Quantity, Relation, Variable
from runnel.algebra.nodes.encode import encode_operators
from runnel.algebra.nodes.expressions import And, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.algebra.semantics.bindings import Answers
from runnel.algebra.semantics.close_conditions import close_condition
from runnel.errors import InvalidConditionError
from runnel.model.item import Attributes, Item
from runnel.model.item_batch import ItemBatch
from runnel.model.operator import Rows

VARIABLES = ("x", "y")
VALUES = (1.0, 2.0, 3.0)
SIGNATURES = {"flag": 0, "count": 1, "pair": 2, "kind": 1}
"""The number of results of each operator. The results of `kind` are texts."""

TEXTS = ("a", "b")


def _constant(operator: str) -> st.SearchStrategy[Literally]:
    return st.builds(Literally, st.sampled_from(TEXTS if operator == "kind" else VALUES))


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw a call with at most one input, and results that are variables (also repeated) or constants."""
    operator = draw(st.sampled_from(sorted(SIGNATURES)))
    inputs: list[Argument] = draw(
        st.lists(st.sampled_from([Literally("i"), Literally("j"), Attribute("title")]), max_size=1)
    )
    result: st.SearchStrategy[Argument] = st.one_of(
        st.builds(Variable, st.sampled_from(VARIABLES)), _constant(operator)
    )
    results = [draw(result) for _ in range(SIGNATURES[operator])]
    places = tuple(range(len(inputs), len(inputs) + len(results)))
    return Call(operator, (*inputs, *results), 1, places)


_variables: st.SearchStrategy[Quantity] = st.builds(Variable, st.sampled_from(VARIABLES))
_quantities: st.SearchStrategy[Quantity] = st.one_of(
    st.builds(Literally, st.sampled_from(VALUES)),
    _variables,
    st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "/"]), _variables, st.just(Literally(2.0))),
)
_relations: st.SearchStrategy[Relation] = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
constraints: st.SearchStrategy[Constraint] = st.builds(Constraint, _variables, _relations, _quantities)


def _wider(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(And, several), st.builds(Or, several), st.builds(Not, inner))


_leaves: st.SearchStrategy[Expression] = st.one_of(calls(), calls(), constraints, atoms)
_anything: st.SearchStrategy[Expression] = st.recursive(_leaves, _wider, max_leaves=6)


@st.composite
def conditions(draw: st.DrawFn) -> Expression:
    """Draw a condition in which every used variable is bound."""
    expression = draw(_anything)
    try:
        close_condition(expression)
    except InvalidConditionError:
        assume(False)
    return expression


@dataclass(frozen=True)
class OperatorWorld:
    """Views by ID, items of the source feeds, and a seed for the answers of operators."""

    definitions: dict[int, Node]
    items: tuple[Item, ...]
    seed: int
    failing: int

    @property
    def batch(self) -> ItemBatch:
        return ItemBatch.of(self.items, {name: feed for feed, name in NAMES.items()})

    def says(self, call: Call, attributes: Attributes) -> Rows | None:
        """Return the answer of an operator, or None if it fails. One in `failing` answers fails, if that is not 0."""
        messages = json.dumps(encode_operators(call.question)) + repr(sorted(attributes.items())) + str(self.seed)
        dice = zlib.crc32(messages.encode())
        if self.failing and dice % self.failing == 0:
            return None
        return answer(call.operator, dice >> 8)

    def answers(self, attributes: Attributes) -> Answers:
        """Return the answers of operators about an item."""
        return lambda call: self.says(call, attributes)


def answer(operator: str, dice: int) -> Rows:
    """Draw random rows of an operator."""
    if SIGNATURES[operator] == 0:
        return ((),) if dice % 2 else ()
    values: tuple[float | str, ...] = TEXTS if operator == "kind" else VALUES
    rows = set()
    for _ in range(dice % 4):
        dice = zlib.crc32(str(dice).encode())
        rows.add(tuple(values[(dice >> (4 * index)) % len(values)] for index in range(SIGNATURES[operator])))
    return tuple(sorted(rows))


@st.composite
def _nodes(draw: st.DrawFn, readable: tuple[int, ...]) -> Node:
    parts: list[Node] = []
    for feed in draw(st.lists(st.sampled_from(readable), min_size=1, max_size=2, unique=True)):
        condition = draw(st.one_of(st.none(), conditions()))
        parts.append(Read(feed) if condition is None else Filter(Read(feed), condition))
    whole: Node = parts[0] if len(parts) == 1 else Union(tuple(parts))
    return Filter(whole, draw(conditions())) if draw(st.booleans()) else whole


_TITLES = ("rock", "Rock concert", "straße 東京", "true")


@st.composite
def operator_worlds(draw: st.DrawFn, failing: tuple[int, ...] = (0,)) -> OperatorWorld:
    """Draw a world whose views read sources and earlier views. `failing` has the candidates for the failure rate."""
    definitions: dict[int, Node] = {}
    for feed in range(10, 10 + draw(st.integers(1, 4))):
        definitions[feed] = draw(_nodes((*SOURCES, *definitions)))
    items = [
        Item(draw(st.sampled_from(sorted(NAMES.values()))), str(number), {"title": (draw(st.sampled_from(_TITLES)),)})
        for number in range(draw(st.integers(1, 5)))
    ]
    return OperatorWorld(definitions, tuple(items), draw(st.integers(0, 1000)), draw(st.sampled_from(failing)))
