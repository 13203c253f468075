"""Items. An item is a set of named attributes, each with one or more typed values (RoSeS §3.2)."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from runnel.errors import InvalidItemError
from runnel.model.structured_value import StructuredValue, kind_of_attribute

Value = str | float | bool | datetime
Attributes = Mapping[str, tuple[Value, ...]]

MOMENTS = frozenset({"published", "updated"})
"""The standard attributes whose values are dates. Texts given for them are parsed as dates."""

MAX_TEXT = 1 << 20
_MAX_MARKS = 30
_JOINER = "\u034f"
MAX_VALUES = 4096
MAX_NAME = 256
MAX_ID = 4096
_MAX_DEPTH = 8
_MAX_ELEMENTS = 16 * MAX_VALUES
"""Maximum number of elements of a list, including nulls and empty lists, which give no value."""


@dataclass(frozen=True, slots=True)
class Item:
    """One version of one item of one source feed.

    `feed` is the name of the source feed. `time` and `sequence` are assigned when the item is accepted into the log.
    A date given by the publisher is an attribute (`published`).
    """

    feed: str
    id: str
    attributes: Attributes
    version: int = 1
    sequence: int | None = None
    time: datetime | None = field(default=None, compare=False)

    def first(self, name: str) -> Value | None:
        """Return the first value of an attribute, or None.

        >>> Item("News", "1", {"title": ("Muse on tour",)}).first("title")
        'Muse on tour'
        """
        values = self.attributes.get(name)
        return values[0] if values else None


def attributes_of(raw: Mapping[str, Any], *, place: str = "item") -> dict[str, tuple[Value, ...]]:
    """Convert a JSON-like mapping to typed attributes: texts in NFC, numbers as doubles, dates in UTC.

    Missing values are dropped, lists become several values, and nested mappings become `outer:inner` attributes.

    >>> attributes_of({"title": "Rock", "tags": ["a", "b"], "price": 3, "author": {"name": "Ann"}, "x": None})
    {'title': ('Rock',), 'tags': ('a', 'b'), 'price': (3.0,), 'author:name': ('Ann',)}
    """
    # By type and value, to remove duplicates quickly: an item may have thousands of values.
    attributes: dict[str, dict[tuple[type, Value], Value]] = {}
    count = 0
    for name, value in _walk(raw, "", 0, place):
        typed = _typed(name, value, place)
        if typed is None:
            continue
        count += 1
        if count > MAX_VALUES:
            raise InvalidItemError(f"the item has more than {MAX_VALUES} values", place=place, hint="split the item")
        attributes.setdefault(name, {}).setdefault((type(typed), typed), typed)
    return {name: tuple(values.values()) for name, values in attributes.items()}


def _walk(raw: Mapping[str, Any], prefix: str, depth: int, place: str) -> Iterator[tuple[str, Any]]:
    if depth > _MAX_DEPTH:
        raise InvalidItemError(f"values are nested more than {_MAX_DEPTH} levels deep", place=place)
    for key, value in raw.items():
        name = prefix + clean_text(str(key)).strip()
        if not name or len(name) > MAX_NAME:
            raise InvalidItemError(
                f"an attribute's name must have 1 to {MAX_NAME} characters, not {len(name)}", place=place
            )
        stack = [value]
        while stack:
            element = stack.pop()
            if isinstance(element, list | tuple | set | frozenset):
                stack.extend(reversed(list(element)))
                if len(stack) > _MAX_ELEMENTS:
                    raise InvalidItemError(
                        f"{name} is a list of more than {_MAX_ELEMENTS} values", place=place, hint="split the item"
                    )
            elif isinstance(element, Mapping):
                yield from _walk(element, f"{name}:", depth + 1, place)
            else:
                yield name, element


def _typed(name: str, value: Any, place: str) -> Value | None:
    match value:
        case None:
            return None
        case bool():
            return value
        case int() | float():
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
            raise InvalidItemError(f"{name} is not a finite number", place=place)
        case datetime():
            return moment(value)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case StructuredValue() if type(value) is kind_of_attribute(name):
            return value
        case str():
            return _text(name, value, place)
        case _:
            kind = type(value).__name__
            raise InvalidItemError(f"{name} has a value of the unknown type {kind}", place=place)


def _text(name: str, value: str, place: str) -> Value | None:
    if len(value) > MAX_TEXT:
        raise InvalidItemError(f"{name} is longer than {MAX_TEXT} characters", place=place)
    if name in MOMENTS:
        try:
            return moment(datetime.fromisoformat(value.strip()))
        except (ValueError, OverflowError) as error:
            raise InvalidItemError(
                f"{name} is not a date: {value[:60]!r}", place=place, hint="write it as 2026-11-15T09:30:00Z"
            ) from error
    kind = kind_of_attribute(name)
    if kind is None:
        return clean_text(value) or None
    try:
        return kind.read(value, place=place) or None
    except InvalidItemError:
        raise
    except Exception as error:  # the type of a plug-in may raise anything
        raise InvalidItemError(
            f"{name} cannot be read as a {kind.kind}: {type(error).__name__}: {error}", place=place
        ) from error


def clean_text(value: str) -> str:
    """Return the text in NFC without lone surrogates and NUL, which file formats cannot store.

    Ordering very many combining marks on one letter takes quadratic time, so long runs of marks are split as in
    Unicode's stream-safe text format (UAX #15, section 13), with an invisible joiner.

    >>> clean_text("cafe\\u0301"), len(clean_text("a" + 31 * "\\u0316"))
    ('café', 33)
    """
    if value.isascii():
        return value.replace("\0", "")
    value = value.encode("utf-8", "replace").decode("utf-8")
    if _has_many_marks(value):
        value = "".join(_parted(value))
    return unicodedata.normalize("NFC", value).replace("\0", "")


def _has_many_marks(value: str) -> bool:
    """Return whether a run of combining marks is too long. Checking every n-th position is sufficient."""
    for index in range(0, len(value), _MAX_MARKS):
        if unicodedata.combining(value[index]):
            around = value[max(0, index - _MAX_MARKS) : index + _MAX_MARKS + 1]
            runs = "".join("m" if unicodedata.combining(character) else " " for character in around)
            if "m" * (_MAX_MARKS + 1) in runs:
                return True
    return False


def _parted(value: str) -> Iterator[str]:
    run = 0
    for character in value:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > _MAX_MARKS:
            yield _JOINER
            run = 1
        yield character


def moment(value: datetime) -> datetime:
    """Convert a date to UTC. A date without a time zone is taken as UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
