"""Bindings as JSON, XML and text.

In: the bindings of a match. Out: their representation in each format, with numbers as the language prints them, or
nothing if there are no bindings.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from runnel.model.bindings import Binding, Bindings
from runnel.model.item import Value

INCOMPLETE = "there may be more bindings: the search was limited"
"""The note on a match if the search did not find all of its bindings."""

_LINES = 5
"""Maximum number of rows that are shown below a match."""

_WHOLE = 1e15
"""Numbers from this value on are printed as floating-point numbers."""


def bindings_json(bindings: Bindings) -> dict[str, Any]:
    """Return the members of a JSON object that represent an item's bindings.

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
    """Format a value as text.

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
    """Return the type of a value, as in `register operator`."""
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
    """Format a row for people.

    >>> binding_text({"people": 60.0, "place": "Bronx"})
    'people: 60, place: Bronx'
    """
    return ", ".join(f"{name}: {printed(value)}" for name, value in row.items())


def binding_lines(bindings: Bindings) -> list[str]:
    """Format the first rows of a match, one per line, and the number of further rows.

    >>> binding_lines(Bindings(({"people": 60.0},), 3))
    ['  where people: 60', '  and 2 more rows']
    """
    lines = [f"  where {binding_text(row)}" for row in bindings.rows[:_LINES]]
    more = bindings.count - len(lines)
    lines += [f"  and {more:,} more row{'s' if more > 1 else ''}"] if more else []
    return lines if bindings.is_whole else [*lines, f"  {INCOMPLETE}"]


def _is_whole(value: float) -> bool:
    return value == int(value) and abs(value) < _WHOLE
