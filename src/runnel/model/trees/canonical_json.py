"""Canonical JSON (RFC 8785, JSON Canonicalization Scheme). In: a JSON text. Out: its value, and its canonical text.

Texts and keys are normalized to NFC like all other texts of items, and numbers are doubles.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NoReturn

from runnel.model.item import clean_text

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LEAST_WITHOUT_EXPONENT, _MOST_WITHOUT_EXPONENT = 1e-6, 1e21


def parse_json(text: str) -> Any:
    """Parse a JSON text. Raise ValueError, with the reason, for a text that is not valid JSON.

    >>> parse_json('{"price": 3, "tags": ["a"]}')
    {'price': 3.0, 'tags': ['a']}
    """
    try:
        return _read_value(
            json.loads(text, object_pairs_hook=_read_members, parse_int=_read_number, parse_constant=_refuse)
        )
    except RecursionError:
        raise ValueError("values are nested too deeply") from None


def render_json(value: Any) -> str:
    """Return the canonical text of a value that `parse_json` returned.

    >>> render_json({"b": [1e21, -0.5, None], "a": "é"})
    '{"a":"é","b":[1e+21,-0.5,null]}'
    """
    return "".join(_render(value))


def sorted_members(members: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the members of an object in canonical order: by the UTF-16 code units of their keys."""
    return sorted(members.items(), key=lambda member: member[0].encode("utf-16-be"))


def render_number(number: float) -> str:
    """Return the canonical text of a number, which is that of ECMAScript.

    >>> render_number(3.0), render_number(1e-7), render_number(-0.0), render_number(123456789012345680000.0)
    ('3', '1e-7', '0', '123456789012345680000')
    """
    if number == 0:
        return "0"
    shortest = repr(number)
    if _LEAST_WITHOUT_EXPONENT <= abs(number) < _MOST_WITHOUT_EXPONENT:
        return f"{Decimal(shortest):f}".removesuffix(".0")
    mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


def _render(value: Any) -> Iterator[str]:
    match value:
        case dict():
            yield "{"
            for position, (key, member) in enumerate(sorted_members(value)):
                yield f"{',' if position else ''}{_quote(key)}:"
                yield from _render(member)
            yield "}"
        case list():
            yield "["
            for position, element in enumerate(value):
                yield "," if position else ""
                yield from _render(element)
            yield "]"
        case str():
            yield _quote(value)
        case float():
            yield render_number(value)
        case _:
            yield json.dumps(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        name = _read_text(key)
        if name in members:
            raise ValueError(f"the key {name[:60]!r} occurs twice in an object")
        members[name] = _read_value(value)
    return members


def _read_value(value: Any) -> Any:
    match value:
        case str():
            return _read_text(value)
        case float() if not math.isfinite(value):
            raise ValueError("a number is too large")
        case list():
            return [_read_value(element) for element in value]
        case _:
            return value


def _read_text(text: str) -> str:
    if not text.isascii() and _LONE_SURROGATE.search(text):
        raise ValueError("a text contains a lone surrogate, which is not a character")
    return clean_text(text)


def _read_number(text: str) -> float:
    try:
        return float(text)
    except OverflowError:
        return math.inf


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
