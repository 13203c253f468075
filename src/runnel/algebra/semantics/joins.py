"""The gate `join last … on … with …`: an item passes if it joins an item of a window (RoSeS §3.2).

In: an item, and the earlier items of the window's feed. Out: the items that it joins. They become its annotation,
under the name of the join; the item itself does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import Any, ClassVar

from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.encode import decode_expression, encode_expression
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.gate_rules import GateRule, LoggedItem, Pass, Stop
from runnel.algebra.nodes.render import render
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import holds
from runnel.algebra.semantics.window_conditions import atoms_of, condition_given
from runnel.algebra.values.similarity import DEFAULT_LEAST

LONGEST_WINDOW = timedelta(days=366)
MAX_WINDOW_ITEMS = 1_000_000
NO_INDEX = "none"
_ANY_AGE = timedelta(days=36_500)
_MICROSECOND = timedelta(microseconds=1)
_INDEXES = {
    "=": "values",
    "similar": "words",
    "contains": "phrases",
    "shares": "links",
    "references": "targets",
    "extends": "folders",
}
_ALL_WORDS = "all words"
_LEAST_OF_WORDS = Fraction(1, 2)
"""For conditions with at least this similarity, an index has only the rarest words of each text."""

INDEXES = frozenset({*_INDEXES.values(), _ALL_WORDS, NO_INDEX})


def index_of(atom: WindowAtom) -> str:
    """Return the kind of index that finds the window items that may satisfy an atom, or NO_INDEX.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> title = Attribute("title")
    >>> index_of(WindowAtom("similar", title, title)), index_of(WindowAtom("<", title, title))
    ('words', 'none')
    """
    if atom.window.part is not None:
        return NO_INDEX
    if atom.relation == "similar" and (atom.least or DEFAULT_LEAST) < _LEAST_OF_WORDS:
        return _ALL_WORDS
    return _INDEXES.get(atom.relation, NO_INDEX)


@dataclass(frozen=True, slots=True)
class Join(GateRule):
    """An item passes if the condition holds of it and at least one item of the window.

    The window of an item has the earlier items of another feed: those that were accepted less than `extent` before
    it, or the last `extent` ones. `name` is the name of the annotation.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.window_atoms import WindowAtom
    >>> same = WindowAtom("=", Attribute("band"), Attribute("artist"))
    >>> Join(500, same, "photos").describe()
    'joins one of the last 500 items: band = window.artist'
    """

    kind: ClassVar[str] = "join"
    reaches_back: ClassVar[bool] = True

    extent: timedelta | int
    condition: Expression
    name: str

    @property
    def annotation_name(self) -> str:
        """The name of the join."""
        return self.name

    @property
    def window_rule(self) -> Window:
        """The rule of the window's own feed."""
        atoms = [atom for atom in atoms_of(self.condition) if isinstance(atom, WindowAtom)]
        return Window(tuple(sorted({(atom.window.name, index_of(atom)) for atom in atoms})))

    @property
    def lookback(self) -> timedelta:
        """The length of the window. The last items of a feed may be of any age."""
        return _ANY_AGE if isinstance(self.extent, int) else self.extent

    def history(self) -> JoinHistory:
        """Return a gate that no item has reached yet."""
        return JoinHistory(self)

    def encode(self) -> list[Any]:
        """Return the extent (a number of items, or seconds in a list), the name and the condition."""
        extent = self.extent if isinstance(self.extent, int) else [self.extent.total_seconds()]
        return [extent, self.name, encode_expression(self.condition)]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Join:
        """Return the rule of values that `encode` returned. Raise ValueError for others."""
        match values:
            case [bool(), _, _]:
                pass
            case [int(count), str(name), condition] if 1 <= count <= MAX_WINDOW_ITEMS:
                return Join(count, decode_expression(condition), name)
            case [[int() | float() as seconds], str(name), condition] if (
                0 < seconds <= LONGEST_WINDOW.total_seconds()
            ):
                return Join(timedelta(seconds=seconds), decode_expression(condition), name)
        raise ValueError(f"a stored join must be a list [extent of the window, name, condition], not {values!r}")

    def split(self) -> tuple[Join, int]:
        """Return the join with the extent `last 1 item`, and the original extent: items, or negative microseconds."""
        extent = self.extent if isinstance(self.extent, int) else -(self.extent // _MICROSECOND)
        return replace(self, extent=1), extent

    def with_number(self, number: int) -> Join:
        """Return the join with an extent that `split` returned."""
        return replace(self, extent=number if number > 0 else -number * _MICROSECOND)

    def render(self) -> str:
        """Return the extent of the window and the condition. The statement prints the feeds."""
        return f"join {self.extent_text} with [{render(self.condition)}]"

    def describe(self) -> str:
        """Return in words what holds for an item that passes."""
        items = f"{self.extent_text}" if isinstance(self.extent, int) else f"items of the {self.extent_text}"
        return f"joins one of the {items}: {render(self.condition)}"

    @property
    def extent_text(self) -> str:
        """The extent of the window as it is written."""
        return f"last {self.extent} items" if isinstance(self.extent, int) else f"last {render_duration(self.extent)}"


@dataclass(frozen=True, slots=True)
class Window(GateRule):
    """Every item passes. The gate exists so that its items are stored for the joins that compare with them.

    `columns` are the attributes that these joins read, each with the index that finds its values (see `index_of`).
    """

    kind: ClassVar[str] = "window"
    stores_items: ClassVar[bool] = True
    reaches_back: ClassVar[bool] = True

    columns: tuple[tuple[str, str], ...]

    @property
    def lookback(self) -> timedelta:
        """Nothing depends on earlier items."""
        return timedelta()

    def history(self) -> WindowHistory:
        """Return a gate that no item has reached yet."""
        return WindowHistory()

    def encode(self) -> list[Any]:
        """Return the columns."""
        return [list(column) for column in self.columns]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Window:
        """Return the rule of values that `encode` returned. Raise ValueError for others."""
        if values and all(_is_column(column) for column in values):
            return Window(tuple((name, index) for name, index in values))
        raise ValueError(f"a stored window must be a non-empty list of [attribute, index kind] pairs, not {values!r}")

    def render(self) -> str:
        """Return the attributes. Statements print a window as part of its join."""
        return f"window of {', '.join(dict.fromkeys(name for name, _ in self.columns))}"

    def describe(self) -> str:
        """Return in words what holds for an item that passes."""
        return "every item is in the window"


def _is_column(value: Any) -> bool:
    match value:
        case [str(), str(index)]:
            return index in INDEXES
    return False


class WindowHistory:
    """Nothing is remembered."""

    def add(self, item: LoggedItem, window: Sequence[LoggedItem] = ()) -> Stop | Pass:
        """Let every item pass."""
        return Pass()


@dataclass(frozen=True, slots=True)
class JoinHistory:
    """Joins depend on the items of their window alone, not on the items that reached the gate before."""

    rule: Join

    def add(self, item: LoggedItem, window: Sequence[LoggedItem] = ()) -> Stop | Pass:
        """Compare an item with the items of its window. Of several versions of an item, the newest is kept."""
        joined: dict[tuple[int, str], int] = {}
        for other in window_of(item, window, self.rule.extent):
            if holds(condition_given(self.rule.condition, other.attributes), item.attributes, item.accepted):
                joined[other.feed, other.id] = other.sequence
        return Pass(tuple(sorted(joined.values(), reverse=True))) if joined else Stop()


def window_of(item: LoggedItem, earlier: Sequence[LoggedItem], extent: timedelta | int) -> Sequence[LoggedItem]:
    """Return the items of a feed that are in an item's window, in order. An item is never in its own window."""
    before = [other for other in earlier if other.sequence < item.sequence]
    if isinstance(extent, int):
        return before[-extent:]
    return [other for other in before if item.accepted - other.accepted < extent]
