"""Structured values: attribute values other than texts, numbers, booleans and dates.

Such a value is stored as a canonical text in its own notation, so that equal values are equal texts. Files,
fingerprints and outputs treat it as that text. Conditions on text do not read it; only the patterns of a condition
family do. `runnel.families` lists the kinds.
"""

from __future__ import annotations

from typing import ClassVar, Self, cast

from runnel.errors import InputError
from runnel.families import load_part, registry


class StructuredValue(str):
    """A value in the canonical text of its kind."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name of its kind."""

    @classmethod
    def read(cls, text: str, *, place: str = "item") -> Self:
        """Parse a text into a canonical value, which may be empty. Raise InvalidItemError if it is not valid."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


def kind_of_attribute(name: str) -> type[StructuredValue] | None:
    """Return the kind of an attribute's values, or None for ordinary values.

    >>> kind_of_attribute("graph"), kind_of_attribute("title")
    (<class 'runnel.model.graph.RdfGraph'>, None)
    """
    for kind in registry().kinds.values():
        if kind.attribute == name:
            return cast(type[StructuredValue], load_part(kind.type))
    return None


def kind_of_code(code: int) -> type[StructuredValue]:
    """Return the kind with this code in item files. Raise InputError if there is none."""
    for kind in registry().kinds.values():
        if kind.code == code:
            return cast(type[StructuredValue], load_part(kind.type))
    raise InputError(
        f"no kind of value has the code {code}",
        hint="install the package of the condition family that reads such values",
    )
