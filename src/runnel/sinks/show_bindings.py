"""Bindings as they are shown: in JSON, in XML and in a line of text.

In: the bindings of a match. Out: what the formats put into an entry, with numbers as the language prints them. Where
there are no bindings nothing is put there.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from runnel.model.bindings import Binding, Bindings
from runnel.model.item import Value

INCOMPLETE = "there may be more bindings: the search was limited"
"""The note on a match if not all of its bindings were searched."""

_LINES = 5
"""Rows of a match that are shown below it."""

_WHOLE = 1e15
"""Numbers from here on are printed as doubles are."""


def bindings_json(bindings: Bindings) -> dict[str, Any]:
    """What a JSON object says of an item's bindings.

    >>> bindings_json(Bindings(({"people": 60.0},), 3)), bindings_json(Bindings())
    ({'bindings': [{'people': 60}], 'more_bindings': 2}, {})
    """
    if bindings.is_empty:
        return {}
    rows = [{name: _json_value(value) for name, value in row.items()} for row in bindings.rows]
    more = {"more_bindings": bindings.more} if bindings.more else {}
    return {"bindings": rows} | more | ({} if bindings.is_whole else {"bindings_incomplete": True})


def _json_value(value: Value) -> str | int | float | bool:
    match value:
        case datetime():
            return value.isoformat()
        case bool() | str():
            return value
        case _:
            return int(value) if _is_whole(value) else value


def printed(value: Value) -> str:
    """A value as text.

    >>> printed(60.0), printed(0.5), printed(True), printed("Bronx")
    ('60', '0.5', 'true', 'Bronx')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case str():
            return value
        case _:
            return str(int(value)) if _is_whole(value) else repr(value)


def kind_of(value: Value) -> str:
    """The type of a value, as `register operator` names it."""
    match value:
        case bool():
            return "boolean"
        case datetime():
            return "date"
        case str():
            return "text"
        case _:
            return "number"


def binding_text(row: Binding) -> str:
    """A row as a person reads it.

    >>> binding_text({"people": 60.0, "place": "Bronx"})
    'people: 60, place: Bronx'
    """
    return ", ".join(f"{name}: {printed(value)}" for name, value in row.items())


def binding_lines(bindings: Bindings) -> list[str]:
    """The first rows of a match as lines below it, and how many others there are.

    >>> binding_lines(Bindings(({"people": 60.0},), 3))
    ['  where people: 60', '  and 2 more rows']
    """
    lines = [f"  where {binding_text(row)}" for row in bindings.rows[:_LINES]]
    more = bindings.count - len(lines)
    lines += [f"  and {more:,} more row{'s' if more > 1 else ''}"] if more else []
    return lines if bindings.is_whole else [*lines, f"  {INCOMPLETE}"]


def _is_whole(value: float) -> bool:
    return value == int(value) and abs(value) < _WHOLE
