"""The fast side of the family: all color patterns of a plan at once, on a batch of items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from runnel.algebra.nodes.item_patterns import ItemPattern, Solution
from runnel.arrays import Array, Arrays
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.patterns.contract import FoundSolutions, PatternKeys
from runnel.model.item import Attributes, Value
from runnel.plan.validate import check_ids
from runnel_colors import COLOR_VALUES
from runnel_colors.patterns import ColorPattern
from runnel_colors.values import Color


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
        positions, patterns = np.nonzero(_holds(colors, self.layout.lows))
        none = np.empty(0, dtype=np.int64)  # Comparing colors takes so few steps that none is given up.
        return PatternKeys(rows[positions], self.layout.keys[patterns], none, none)

    def solutions(self, columns: ItemColumns, rows: Array, atoms: Array, named: Array) -> ColorSolutions:
        """The colors that satisfy the patterns."""
        value_rows, colors = _colors(columns)
        order = np.argsort(self.layout.keys)
        patterns = order[np.searchsorted(self.layout.keys[order], self.atom_keys[atoms])]
        fits = _holds(colors, self.layout.lows)[:, patterns].T & (value_rows == rows[:, None])
        pairs, positions = np.nonzero(fits)
        widths = np.array([int(bits).bit_length() for bits in named.tolist()], dtype=np.int64)
        return ColorSolutions(pairs, colors[positions], widths[pairs])


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

    def holds(self, pattern: ItemPattern) -> bool:
        """Whether a pattern holds."""
        return any(map(pattern.holds, self._values))

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """The solutions of a pattern."""
        return (solution for value in self._values for solution in pattern.solutions(value))

    def find_all(self, pattern: ItemPattern) -> FoundSolutions:
        """All solutions of a pattern."""
        return FoundSolutions(tuple(self.solutions(pattern)), True)


class ColorIndex:
    """The index of color patterns."""

    undecided = "the color cannot be compared"

    def compute_layout(
        self, patterns: Sequence[ItemPattern], keys: Array, frequencies: Mapping[str, float] | None
    ) -> ColorLayout:
        """The amounts in arrays."""
        lows = [cast(ColorPattern, pattern).lows for pattern in patterns]
        return ColorLayout(np.array(lows, dtype=np.int32).reshape(-1, 3), keys)

    def stored(self, arrays: Arrays, keys: int) -> ColorLayout | None:
        """The layout among the arrays of a plan part, checked."""
        if "color.lows" not in arrays:
            return None
        color_layout = ColorLayout(arrays["color.lows"].reshape(-1, 3), arrays["color.keys"])
        check_ids("color.keys", color_layout.keys, 0, keys, len(color_layout.lows))
        return color_layout

    def matcher(self, layout: ColorLayout, atom_keys: Array) -> ColorMatcher:
        """A layout at work."""
        return ColorMatcher(layout, atom_keys)

    def holds(self, pattern: ItemPattern, columns: ItemColumns, row: int) -> bool:
        """Whether a pattern holds of one item of a batch."""
        return ColorSearch(columns.attributes(row)).holds(pattern)

    def search(self, attributes: Attributes) -> ColorSearch:
        """A search on one item."""
        return ColorSearch(attributes)

    def words(self, values: Sequence[Value]) -> Iterable[str]:
        """Each color, as a word that is in no text."""
        return [f" {value}" for value in values if isinstance(value, Color)]


COLOR_INDEX = ColorIndex()
