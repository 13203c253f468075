"""Read the inputs of a call to a text operator: the text to evaluate, and the constants."""

from __future__ import annotations

from collections.abc import Sequence

from runnel.algebra.semantics.evaluate import is_text
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall
from runnel.model.item import Value

TEXT = ("title", "description")
"""The attributes whose text is evaluated if neither the call nor the configuration names attributes."""


def text_of(call: OperatorCall, attributes: Sequence[str], max_length: int) -> str:
    """Join the texts of the attributes that a call names, or of `attributes`, and cut them to `max_length`.

    The attributes that a call names are tuples in its inputs.

    >>> text_of(OperatorCall({"title": ("Muse",), "description": ("On tour",)}), TEXT, 100)
    'Muse\\nOn tour'
    >>> text_of(OperatorCall({}, (("Muse", 7.0), "phrase")), TEXT, 100)
    'Muse'
    """
    named = [values for values in call.inputs if isinstance(values, tuple)]
    chosen = named or [call.attributes.get(name, ()) for name in attributes]
    parts = [value[:max_length] for values in chosen for value in values if is_text(value)]
    return "\n".join(parts)[:max_length].strip()


def constants_of(call: OperatorCall) -> list[Value]:
    """Return the inputs of a call that are constants.

    >>> constants_of(OperatorCall({}, (("Muse",), "phrase", 3.0)))
    ['phrase', 3.0]
    """
    return [value for value in call.inputs if not isinstance(value, tuple)]


def only_text(call: OperatorCall, label: str) -> str | FailedCall:
    """Return the only constant of a call, which must be a text, or FailedCall. `label` names it in the message."""
    match constants_of(call):
        case [str(text)] if text.strip():
            return text.strip()
        case _:
            return FailedCall(f"a call needs exactly one constant, {label}", passing=False)
