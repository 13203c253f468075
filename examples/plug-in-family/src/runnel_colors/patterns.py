"""Color patterns, with the definition of when they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Constraint
from runnel.algebra.nodes.item_patterns import ItemPattern, PatternPart, PatternSearch, Solution, is_local
from runnel.errors import Span
from runnel.model.item import Value
from runnel_colors.values import Color

CHANNELS = ("red", "green", "blue")


@dataclass(frozen=True, slots=True)
class ColorPattern(ItemPattern):
    """A color has at least these amounts; all variables stand for it."""

    lows: tuple[int, int, int]
    shades: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

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
        return ColorPattern(self.lows, tuple(names[name] for name in self.shades), span=self.span)

    @classmethod
    def joined(cls, patterns: Sequence[ColorPattern]) -> ColorPattern:
        """One color that satisfies all."""
        lows = cast(tuple[int, int, int], tuple(map(max, *(pattern.lows for pattern in patterns), (0, 0, 0))))
        shades = dict.fromkeys(name for pattern in patterns for name in pattern.shades)
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
        solution = next(search.solutions(replace(self, shades=("shade",), names=())), None)
        by = "" if solution is None else solution["shade"]
        red, green, blue = self.lows
        parts = [ColorPattern(lows) for lows in ((red, 0, 0), (0, green, 0), (0, 0, blue)) if any(lows)]
        return [PatternPart(part._lows()[0], bool(search.holds(part)), by) for part in parts]
