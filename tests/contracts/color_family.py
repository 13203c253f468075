"""Color patterns: a condition family that exists only in tests, on a kind of value of its own.

`color { red >= 200 ?shade }` holds of an item with a color that has at least these amounts, and binds the color. All
of the family is in this module; `COLORS` and `COLOR_VALUES` are its entries in `runnel.families`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Constraint
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternPart, PatternSearch, Solution, is_local
from runnel.arrays import Array, Arrays
from runnel.errors import InvalidItemError, Span, TooExpensiveError
from runnel.families import Family, ValueKind
from runnel.language.syntax.reader import ConditionSyntax, TokenReader
from runnel.language.syntax.script_tokens import BINDING
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.patterns.contract import FoundSolutions, PatternKeys
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue
from runnel.plan.validate import check_ids

COLOR_VALUES = ValueKind("color", 100, "color", f"{__name__}:Color")
COLORS = Family(
    "color",
    kind="color",
    pattern=f"{__name__}:ColorPattern",
    index=f"{__name__}:COLOR_INDEX",
    syntax=f"{__name__}:COLOR_SYNTAX",
)

CHANNELS = ("red", "green", "blue")
UNDECIDABLE = "#0d0d0d"
"""A color that matching cannot compare, so that patterns on it stay undecided."""


class Color(StructuredValue):
    """A color as `#rrggbb`."""

    __slots__ = ()

    kind: ClassVar[str] = "color"

    @classmethod
    def read(cls, text: str, *, place: str = "item") -> Self:
        """The color of a text such as `#FF8800`."""
        if not re.fullmatch("#[0-9A-Fa-f]{6}", text):
            raise InvalidItemError(f"a color is written #rrggbb, not {text[:20]!r}", place=place)
        return cls(text.lower())

    @property
    def amounts(self) -> tuple[int, ...]:
        """Red, green and blue."""
        return tuple(int(self[place : place + 2], 16) for place in (1, 3, 5))


@dataclass(frozen=True, slots=True)
class ColorPattern(ItemPattern):
    """A color has at least these amounts; all variables stand for it."""

    lows: tuple[int, int, int]
    shades: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)
    place: Span | None = field(default=None, compare=False, repr=False)

    family: ClassVar[str] = "color"

    @property
    def attribute(self) -> Attribute:
        """The attribute `color`."""
        return Attribute("color")

    @property
    def size(self) -> int:
        """How many channels are compared."""
        return sum(low > 0 for low in self.lows)

    def variables(self) -> list[str]:
        """The names of the color."""
        return list(self.shades)

    def canonical(self) -> ColorPattern:
        """The pattern with numbered variables."""
        if self.names:
            return self
        numbers = tuple(str(number) for number in range(1, len(self.shades) + 1))
        return ColorPattern(self.lows, numbers, self.shades)

    def renamed(self, names: Mapping[str, str]) -> ColorPattern:
        """The pattern with other names for its variables."""
        return ColorPattern(self.lows, tuple(names[name] for name in self.shades), place=self.place)

    @classmethod
    def joined(cls, patterns: Sequence[ColorPattern]) -> ColorPattern:
        """One color that satisfies all."""
        lows = cast(tuple[int, int, int], tuple(map(max, *(one.lows for one in patterns), (0, 0, 0))))
        shades = dict.fromkeys(name for one in patterns for name in one.shades)
        return replace(patterns[0], lows=lows, shades=tuple(shades))

    def constrained(self, constraints: Sequence[Constraint]) -> tuple[ColorPattern, list[Constraint]]:
        """Colors check no constraints."""
        return self, list(constraints)

    def encode(self) -> list[Any]:
        """Amounts and variables."""
        return [list(self.lows), *self.shades]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> ColorPattern:
        """The pattern of values made by `encode`."""
        return ColorPattern(tuple(values[0]), tuple(values[1:]))

    def render(self) -> str:
        """The pattern as it would be written."""
        return f"color {{ {' '.join([*self._lows(), *(f'?{name}' for name in self.as_written().shades)])} }}"

    def _lows(self) -> list[str]:
        return [f"{name} >= {low}" for name, low in zip(CHANNELS, self.lows, strict=True) if low]

    def holds(self, value: Value) -> bool:
        """Whether a color has the amounts."""
        return isinstance(value, Color) and all(map(int.__ge__, value.amounts, self.lows))

    def solutions(self, value: Value) -> Iterator[Solution]:
        """The color, under each name."""
        if self.holds(value):
            yield dict.fromkeys(self.shades, str(value))

    def binding(self, solution: Solution) -> dict[str, Value]:
        """The color as text."""
        return {name: color for name, color in solution.items() if not is_local(name)}

    def trace(self, search: PatternSearch, bound: Sequence[Mapping[str, Value]]) -> list[PatternPart]:
        """Each amount, and the color that has all of them."""
        found = next(search.solutions(replace(self, shades=("shade",), names=())), None)
        by = "" if found is None else found["shade"]
        alone = [tuple(low if place == at else 0 for at, low in enumerate(self.lows)) for place in range(3)]
        parts = (ColorPattern(cast(tuple[int, int, int], lows)) for lows in alone if any(lows))
        return [PatternPart(one._lows()[0], bool(search.holds(one)), by) for one in parts]


@dataclass(frozen=True)
class ColorLayout:
    """The amounts and the key of every pattern."""

    lows: Array
    keys: Array

    @property
    def counters(self) -> dict[str, int]:
        """How many patterns there are."""
        return {"color patterns": len(self.keys)}

    def arrays(self) -> dict[str, Array]:
        """The arrays to store."""
        return {"color.lows": self.lows.reshape(-1), "color.keys": self.keys}

    def seldom(self) -> dict[str, Array]:
        """None."""
        return {}


@dataclass(frozen=True)
class ColorSolutions:
    """Sets of one solution each: the number of the color, as often as the pattern has variables."""

    pairs: Array
    colors: Array
    widths: Array

    @property
    def is_whole(self) -> Array:
        """A color has one solution."""
        return np.ones(len(self.pairs), dtype=np.bool_)

    def rows(self, number: int) -> Array:
        """The solution of a set."""
        return np.full((1, int(self.widths[number])), self.colors[number])

    def value(self, number: int) -> Value:
        """The color of a number."""
        return f"#{number:06x}"


@dataclass(frozen=True)
class ColorMatcher:
    """The patterns of a plan part at work."""

    layout: ColorLayout
    atom_keys: Array

    def keys(self, columns: ItemColumns) -> PatternKeys:
        """Which patterns hold of which rows."""
        rows, colors = _colors(columns)
        known = colors != int(UNDECIDABLE[1:], 16)
        places, patterns = np.nonzero(_holds(colors[known], self.layout.lows))
        doubted = np.repeat(rows[~known], len(self.layout.keys))
        return PatternKeys(
            rows[known][places],
            self.layout.keys[patterns],
            doubted,
            np.tile(self.layout.keys, int(np.count_nonzero(~known))),
        )

    def solutions(self, columns: ItemColumns, rows: Array, atoms: Array, named: Array) -> ColorSolutions:
        """The colors that satisfy the patterns."""
        value_rows, colors = _colors(columns)
        order = np.argsort(self.layout.keys)
        patterns = order[np.searchsorted(self.layout.keys[order], self.atom_keys[atoms])]
        fits = _holds(colors, self.layout.lows)[:, patterns].T & (value_rows == rows[:, None])
        pairs, places = np.nonzero(fits)
        widths = np.array([int(bits).bit_length() for bits in named.tolist()], dtype=np.int64)
        return ColorSolutions(pairs, colors[places], widths[pairs])


def _colors(columns: ItemColumns) -> tuple[Array, Array]:
    """The rows and the colors of a batch, as numbers."""
    positions = columns.names.get("color", np.empty(0, dtype=np.int64))
    positions = positions[columns.kinds[positions] == COLOR_VALUES.code]
    colors = [int(columns.texts[position][1:], 16) for position in positions.tolist()]
    return columns.value_rows[positions], np.array(colors, dtype=np.int64)


def _holds(colors: Array, lows: Array) -> Array:
    amounts = np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=-1)
    return np.asarray(np.all(amounts[:, None, :] >= lows[None, :, :], axis=2))


class ColorSearch:
    """Color patterns on one item."""

    def __init__(self, attributes: Attributes) -> None:
        self._values = attributes.get("color", ())

    def holds(self, pattern: ItemPattern) -> bool | None:
        """Whether a pattern holds; None where only a color that cannot be compared could satisfy it."""
        held = [value for value in self._values if pattern.holds(value)]
        return None if UNDECIDABLE in self._values and not set(held) - {UNDECIDABLE} else bool(held)

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """The solutions of a pattern."""
        return (one for value in self._values for one in pattern.solutions(value))

    def found(self, pattern: ItemPattern) -> FoundSolutions:
        """All solutions of a pattern."""
        return FoundSolutions(tuple(self.solutions(pattern)), True)


class ColorIndex:
    """The index of color patterns."""

    undecided = "the color cannot be compared"

    def lay_out(
        self, patterns: Sequence[ItemPattern], keys: Array, frequencies: Mapping[str, float] | None
    ) -> ColorLayout:
        """The amounts in arrays."""
        lows = [cast(ColorPattern, one).lows for one in patterns]
        return ColorLayout(np.array(lows, dtype=np.int32).reshape(-1, 3), keys)

    def stored(self, arrays: Arrays, keys: int) -> ColorLayout | None:
        """The layout among the arrays of a plan part, checked."""
        if "color.lows" not in arrays:
            return None
        found = ColorLayout(arrays["color.lows"].reshape(-1, 3), arrays["color.keys"])
        check_ids("color.keys", found.keys, 0, keys, len(found.lows))
        return found

    def matcher(self, layout: ColorLayout, atom_keys: Array) -> ColorMatcher:
        """A layout at work."""
        return ColorMatcher(layout, atom_keys)

    def holds(self, pattern: ItemPattern, columns: ItemColumns, row: int) -> bool:
        """Whether a pattern holds of one item of a batch."""
        held = ColorSearch(columns.attributes(row)).holds(pattern)
        if held is None:
            raise TooExpensiveError(self.undecided)
        return held

    def search(self, attributes: Attributes) -> ColorSearch:
        """A search on one item."""
        return ColorSearch(attributes)

    def words(self, values: Sequence[Value]) -> Iterable[str]:
        """Each color, as a word that is in no text."""
        return [f" {value}" for value in values if isinstance(value, Color)]


COLOR_INDEX = ColorIndex()


def parse_color(tokens: TokenReader) -> ColorPattern:
    """`color { red >= 200 ?shade }`."""
    place = tokens.span
    tokens.expect("color", "{")
    lows = dict.fromkeys(CHANNELS, 0)
    shades: list[str] = []
    while not tokens.take("}"):
        if shade := tokens.take_kind(BINDING, "a variable"):
            shades.append(shade.text[1:])
        elif channel := tokens.take_one_of(*CHANNELS):
            tokens.expect(">=")
            lows[channel.text.lower()] = int(tokens.expect_integer().text)
        else:
            raise tokens.unexpected()
    red, green, blue = lows.values()
    return ColorPattern((red, green, blue), tuple(shades), place=place)


COLOR_SYNTAX = ConditionSyntax(("color",), parse_color)
