"""Atoms of a join's condition: an attribute of an item, compared with an attribute of an item in the window.

`title similar to window.title` is `WindowAtom("similar", title, title, 1/2)`. Such an atom occurs only in the
condition of a join, next to ordinary atoms. `window_conditions` defines what it means.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from runnel.algebra.nodes.attributes import Attribute

WindowRelation = Literal["=", "<", "<=", ">", ">=", "contains", "similar", "references", "extends", "shares"]


@dataclass(frozen=True, slots=True)
class WindowAtom:
    """`attribute relation window.other`; `least` is the bound of `similar`, and None for other relations."""

    relation: WindowRelation
    attribute: Attribute
    window: Attribute
    least: Fraction | None = None
