"""Decodes JSON Feed 1.0 and 1.1, and JSON lines (one object per line, or an array of objects), to a wire document.

In: the text. Out: a WireDocument with entries, or with records and their line numbers. A line that is not an object
is a problem and does not affect the other lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runnel.errors import BrokenDocumentError, InvalidItemError
from runnel.sources.documents.bounds import MAX_ITEMS, MAX_PROBLEMS, ProblemList, refuse_more_items
from runnel.sources.documents.wire import DocumentKind, TextForm, WireDocument, WireEntry, WireField, WireRecord

MAX_DEPTH = 100
MAX_BROKEN_LINES = 10_000
_MAX_DIGITS = 4000
_MAX_HUBS = 63
_LINE = re.compile(r"[^\n]*\n?")
_JSON_FEED = ("https://jsonfeed.org/version/", "http://jsonfeed.org/version/")
_BROKEN_LINE_HINT = "each line must be one JSON object"
_JSON_TYPES = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"} | {
    type(None): "null"
}


class _UnreadableError(ValueError):
    """A JSON value that is not accepted, such as an object with duplicate keys."""


def decode_json(text: str, name: str, max_items: int = MAX_ITEMS, *, skips_null: bool = False) -> WireDocument:
    """Decode a JSON text. With `skips_null`, a value null is no problem.

    >>> decode_json('{"id": 1}\\n{"id": 2}', "a.jsonl").records[1]
    WireRecord(line=2, value={'id': 2})
    """
    start = len(text) - len(text.lstrip())
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return _decode_lines(text, name, error, max_items, skips_null)
    if text[end:].strip():
        return _decode_lines(text, name, None, max_items, skips_null)
    if isinstance(value, Mapping) and str(value.get("version", "")).startswith(_JSON_FEED):
        return _decode_feed(value, name, max_items)
    if is_too_deep(value):
        raise BrokenDocumentError(f"values are nested more than {MAX_DEPTH} levels deep", place=f"{name}:1")
    values = value if isinstance(value, list) else [value]
    return _build_records(name, ((_line_of(text, start), member) for member in values), max_items, skips_null)


def read_one(text: str, name: str, *, hint: str) -> Any:
    """Parse a text that must be one JSON value.

    >>> read_one('{"a": 1}', "a.json", hint="")
    {'a': 1}
    """
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise _broken(text, name, error, hint) from error


def _decode_lines(text: str, name: str, error: Exception | None, max_items: int, skips_null: bool) -> WireDocument:
    if "\n" not in text.strip():
        raise _broken(text, name, error)
    document = _build_records(name, _lines(text), max_items, skips_null)
    if not document.records:
        raise _broken(text, name, error)
    return document


def _lines(text: str) -> Iterator[tuple[int, Any]]:
    # Only "\n" ends a line, because JSON texts may contain U+2028 and similar characters.
    for number, match in enumerate(_LINE.finditer(text), start=1):
        line = match[0]
        if not line.strip():
            continue
        try:
            value = _DECODER.decode(line)
            yield (
                number,
                _UnreadableError(f"values are nested more than {MAX_DEPTH} levels deep")
                if is_too_deep(value)
                else value,
            )
        except RecursionError:
            yield number, _UnreadableError(f"values are nested more than {MAX_DEPTH} levels deep")
        except ValueError as error:
            yield number, error


def _build_records(name: str, values: Iterator[tuple[int, Any]], max_items: int, skips_null: bool) -> WireDocument:
    records: list[WireRecord] = []
    problems = ProblemList(name, limit=MAX_PROBLEMS // 2)
    broken = 0
    for line, value in values:
        if isinstance(value, Mapping):
            records.append(WireRecord(line, value))
            refuse_more_items(len(records), max_items, f"{name}:{line}")
            continue
        if value is None and skips_null:
            continue
        if isinstance(value, json.JSONDecodeError):
            message = f"not JSON: {value.msg} at column {value.colno}"
        elif isinstance(value, _UnreadableError):
            message = str(value)
        else:
            message = f"expected a JSON object, found {_JSON_TYPES.get(type(value), 'another value')}"
        problems.add(InvalidItemError(message, place=f"{name}:{line}", hint=_BROKEN_LINE_HINT))
        broken += 1
        if broken > MAX_BROKEN_LINES:
            raise BrokenDocumentError(
                f"more than {MAX_BROKEN_LINES} lines are not JSON objects",
                place=f"{name}:{line}",
                hint=_BROKEN_LINE_HINT,
            )
    return WireDocument(DocumentKind.JSON_LINES, name, records=tuple(records), problems=tuple(problems.summary()))


def _broken(text: str, name: str, error: Exception | None, hint: str = _BROKEN_LINE_HINT) -> BrokenDocumentError:
    match error:
        case json.JSONDecodeError():
            line, column, message = error.lineno, error.colno, f"not JSON: {error.msg}"
        case RecursionError():
            line, column, message = 1, 1, f"values are nested more than {MAX_DEPTH} levels deep"
        case None:
            line, column, message = _line_of(text, 0), 1, "no line of the document is a JSON object"
        case _:
            line, column, message = 1, 1, str(error)
    return BrokenDocumentError(message, place=f"{name}:{line}:{column}", hint=hint)


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Raise an error for duplicate keys, because parsers disagree on which value counts."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _UnreadableError(f"the key {key[:60]!r} occurs twice in an object")
            seen.add(key)
    return result


def _integer(digits: str) -> float | int:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


# NaN and Infinity are parsed, so that the error of `attributes_of` can name the attribute.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer)


def is_too_deep(value: Any) -> bool:
    """Return whether values are nested more than `MAX_DEPTH` levels deep.

    >>> is_too_deep([[1]])
    False
    """
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        layer = [inner for outer in layer for inner in _inside(outer)]
        if not layer:
            return False
    return True


def _inside(value: Any) -> Sequence[Any]:
    match value:
        case dict():
            return [inner for inner in value.values() if isinstance(inner, dict | list)]
        case list():
            return [inner for inner in value if isinstance(inner, dict | list)]
        case _:
            return ()


def _decode_feed(feed: Mapping[str, Any], name: str, max_items: int) -> WireDocument:
    items = feed.get("items")
    if not isinstance(items, list):
        raise BrokenDocumentError("the feed has no list of items", place=f"{name}:1", hint='add "items": []')
    refuse_more_items(len(items), max_items, f"{name}:1")
    problems = ProblemList(name, limit=MAX_PROBLEMS // 2)
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            problems.add(InvalidItemError(f"entry {number} is not an object", place=f"{name}:1"))
    return WireDocument(
        kind=DocumentKind.JSON_FEED,
        name=name,
        title=_string(feed.get("title")),
        description=_string(feed.get("description")),
        link=_string(feed.get("home_page_url")),
        language=_string(feed.get("language")),
        entries=tuple(_entry(item) for item in items if isinstance(item, dict)),
        problems=tuple(problems.summary()),
        links=_links(feed),
    )


def _links(feed: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the WebSub hubs of a feed and its `feed_url`, as pairs of relation and address."""
    hubs = [hub for hub in _list(feed.get("hubs"))[:_MAX_HUBS] if isinstance(hub, dict)]
    hub_urls = [hub.get("url") for hub in hubs if str(hub.get("type", "")).strip().lower() == "websub"]
    links = [*(("hub", address) for address in hub_urls), ("self", feed.get("feed_url"))]
    return tuple((relation, address) for relation, address in links if isinstance(address, str) and address)


def _entry(item: Mapping[str, Any]) -> WireEntry:
    fields = [
        WireField(attribute, text, form)
        for key, attribute, form in _FIELDS
        for text in (_string(item.get(key)),)
        if text is not None
    ]
    fields.extend(_people(item))
    fields.extend(WireField("category", text) for tag in _list(item.get("tags")) if (text := _string(tag)))
    for attachment in _list(item.get("attachments")):
        if isinstance(attachment, dict) and (url := _string(attachment.get("url"))):
            fields.append(WireField("enclosure", url, TextForm.LINK))
            fields.append(WireField("enclosure:type", _string(attachment.get("mime_type")) or ""))
    for key, value in item.items():
        if key.startswith("_") and isinstance(value, dict):
            fields.extend(
                WireField(f"{key}:{inner}", text)
                for inner, member in value.items()
                if (text := _string(member)) is not None
            )
    return WireEntry(_string(item.get("id")) or None, 1, tuple(fields))


def _people(item: Mapping[str, Any]) -> Iterator[WireField]:
    for person in (*_list(item.get("authors")), item.get("author")):
        if isinstance(person, dict):
            yield WireField("author", _string(person.get("name")) or "")
            yield WireField("author:link", _string(person.get("url")) or "", TextForm.LINK)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _string(value: Any) -> str | None:
    match value:
        case str():
            return value
        case bool() | None:
            return None
        case int() | float():
            return str(value) if not isinstance(value, int) or value.bit_length() < 1024 else None
        case _:
            return None


_FIELDS = (
    ("title", "title", TextForm.PLAIN),
    ("summary", "description", TextForm.PLAIN),
    ("content_html", "content", TextForm.MARKUP),
    ("content_text", "content", TextForm.PLAIN),
    ("url", "link", TextForm.LINK),
    ("external_url", "link:related", TextForm.LINK),
    ("image", "image", TextForm.LINK),
    ("banner_image", "image", TextForm.LINK),
    ("date_published", "published", TextForm.DATE),
    ("date_modified", "updated", TextForm.DATE),
    ("language", "language", TextForm.PLAIN),
)
"""Keys of JSON Feed, our attributes, and how they are converted. `content_html` takes precedence over text."""
