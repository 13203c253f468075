"""A condition family for Runnel: `color { red >= 200 ?shade }` holds of items with such a color, and binds it.

This module says where the parts of the family are. It imports none of them, because every process loads it, and few
processes need all parts.
"""

from __future__ import annotations

from runnel.families import Family, ValueKind

COLOR_VALUES = ValueKind("color", code=100, attribute="color", type="runnel_colors.values:Color")
COLORS = Family(
    "color",
    kind=COLOR_VALUES,
    pattern="runnel_colors.patterns:ColorPattern",
    index="runnel_colors.index:COLOR_INDEX",
    syntax="runnel_colors.syntax:COLOR_SYNTAX",
)
