"""Colors, the values that the family reads."""

from __future__ import annotations

import re
from typing import ClassVar, Self

from runnel.errors import InvalidItemError
from runnel.model.structured_value import StructuredValue


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
        return tuple(int(self[start : start + 2], 16) for start in (1, 3, 5))
