"""The text that an operator looks at: an ask in; the texts of attributes that its call names, or of the item, out."""

from __future__ import annotations

from collections.abc import Sequence

from runnel.algebra.semantics.evaluate import is_text
from runnel.matching.operators.plugins.contract import Ask, Failed
from runnel.model.item import Value

TEXT = ("title", "description")
"""The attributes that stand for an item where a call names none."""


def text_of(ask: Ask, attributes: Sequence[str], most: int) -> str:
    """The texts of an ask, one after another, and of a long one the beginning.

    Attributes that the call names come as tuples among its inputs. Where there are none, the configured ones count.

    >>> text_of(Ask({"title": ("Muse",), "description": ("On tour",)}), TEXT, 100)
    'Muse\\nOn tour'
    >>> text_of(Ask({}, (("Muse", 7.0), "phrase")), TEXT, 100)
    'Muse'
    """
    named = [one for one in ask.inputs if isinstance(one, tuple)]
    chosen = named or [ask.attributes.get(name, ()) for name in attributes]
    parts = [value[:most] for values in chosen for value in values if is_text(value)]
    return "\n".join(parts)[:most].strip()


def constants_of(ask: Ask) -> list[Value]:
    """The inputs of a call that are constants.

    >>> constants_of(Ask({}, (("Muse",), "phrase", 3.0)))
    ['phrase', 3.0]
    """
    return [one for one in ask.inputs if not isinstance(one, tuple)]


def only_text(ask: Ask, what: str) -> str | Failed:
    """The one constant of a call that wants one text, or what is wrong with it."""
    match constants_of(ask):
        case [str(text)] if text.strip():
            return text.strip()
        case _:
            return Failed(f"a call needs {what} as its one constant", passing=False)
