"""The replies of document sandboxes: encode an AdaptedFeed or an InputError as bytes, and validate and decode them.

A reply is a series of records, each a tag, a length and bytes. The head and the problems are small JSON values. Items
are flat records of ids, names and values. If everything were JSON, a compromised sandbox could fill the memory of the
calling process: an empty list takes 3 bytes in JSON and 64 in Python.

Replies are not trusted. `read_reply` checks types, lengths, counts and order, and raises BadReplyError for everything
that `pack_reply` does not produce.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from runnel.errors import BrokenDocumentError, InputError, InvalidItemError
from runnel.model.item import MAX_ID, MAX_NAME, MAX_TEXT, MAX_VALUES, Item, Value
from runnel.model.structured_value import StructuredValue, kind_of_attribute
from runnel.sandbox.process import BadReplyError
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.bounds import MAX_ATTRIBUTES, MAX_DOCUMENT_VALUES, MAX_PROBLEMS
from runnel.sources.documents.document_head import MAX_LINKS, DocumentHead
from runnel.sources.documents.wire import DocumentKind

_RECORD = struct.Struct(">cI")
_MAX_HEAD = 512 << 10
_MAX_MESSAGE = 4000
_MAX_LINK = 8192
_MAX_TEXT = 4 * MAX_TEXT
"""Cleaned HTML and normalized text can be longer than the original text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ERRORS: dict[str, type[InputError]] = {
    "document": BrokenDocumentError,
    "item": InvalidItemError,
    "input": InputError,
}


def pack_reply(result: AdaptedFeed | InputError) -> bytes:
    """Encode a feed, or the error because of which it was rejected, as a reply.

    >>> error = BrokenDocumentError("the document is empty", place="a.xml:1")
    >>> pack_reply(error)
    b'R\\x00\\x00\\x006["document", "the document is empty", "a.xml:1", null]'
    """
    return b"".join(part for tag, data in _records(result) for part in (_RECORD.pack(tag, len(data)), data))


def _records(result: AdaptedFeed | InputError) -> Iterator[tuple[bytes, bytes]]:
    if isinstance(result, InputError):
        yield b"R", _pack_problem(result)
        return
    head = {
        "kind": result.kind.value,
        "title": result.title,
        "description": result.description,
        "link": _drop_if_long(result.link, _MAX_LINK),
        "note": result.note and result.note[:_MAX_MESSAGE],
        "ttl": result.head.ttl,
        "skip_hours": result.head.skip_hours,
        "skip_days": result.head.skip_days,
        "links": [(relation, link) for relation, link in result.head.links if len(relation + link) <= _MAX_LINK],
    }
    yield b"H", json.dumps(head).encode()
    for problem in result.problems:
        yield b"P", _pack_problem(problem)
    for item in result.items:
        yield b"I", item.id.encode()
        for name, values in item.attributes.items():
            yield b"A", name.encode()
            for value in values:
                yield _pack_value(value)


def _drop_if_long(text: str | None, limit: int) -> str | None:
    return text if text is None or len(text) <= limit else None


def _pack_problem(problem: InputError) -> bytes:
    kind = next(name for name, error in _ERRORS.items() if isinstance(problem, error))
    texts = [text and text[:_MAX_MESSAGE] for text in (problem.message, problem.place, problem.hint)]
    return json.dumps([kind, *texts]).encode()


def _pack_value(value: Value) -> tuple[bytes, bytes]:
    match value:
        case StructuredValue():
            return b"V", value.encode()
        case str():
            return b"S", value.encode()
        case bool():
            return b"B", b"1" if value else b"0"
        case datetime():
            return b"T", str((value - _EPOCH) // _MICROSECOND).encode()
        case _:
            return b"N", repr(float(value)).encode()


def read_reply(reply: memoryview, feed: str, max_items: int) -> AdaptedFeed | InputError:
    """Validate and decode a reply. The items get the given feed name.

    >>> read_reply(memoryview(pack_reply(InvalidItemError("the entry is empty"))), "News", 10)
    InvalidItemError('the entry is empty')
    """
    records = _split(reply)
    tag, data = next(records, (b"", memoryview(b"")))
    if tag == b"R" and next(records, None) is None:
        return _read_problem(data)
    if tag != b"H":
        raise BadReplyError("the reply has no head record")
    return _ReplyReader(feed, max_items).read(_read_json(data), records)


def _split(reply: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    position, end = 0, len(reply)
    while position < end:
        if position + _RECORD.size > end:
            raise BadReplyError("a record header is incomplete")
        tag, size = _RECORD.unpack_from(reply, position)
        position += _RECORD.size
        if position + size > end:
            raise BadReplyError("a record is longer than the reply")
        yield tag, reply[position : position + size]
        position += size


class _ReplyReader:
    """Builds the items of a reply from its records, and checks the limits."""

    def __init__(self, feed: str, max_items: int) -> None:
        self._feed = feed
        self._max_items = max_items
        self._items: dict[str, Item] = {}
        self._problems: list[InputError] = []
        self._names: dict[str, str] = {}
        """Interned attribute names: items share one string per name."""
        self._total = 0
        self._values = 0

    def read(self, head: Any, records: Iterator[tuple[bytes, memoryview]]) -> AdaptedFeed:
        """Build the feed from its head and the records after it."""
        attributes: dict[str, list[Value]] | None = None
        values: list[Value] | None = None
        for tag, data in records:
            if tag == b"I":
                self._finish_item(attributes)
                attributes, values = self._start_item(data), None
            elif tag == b"P":
                if attributes is not None or len(self._problems) >= MAX_PROBLEMS:
                    raise BadReplyError("there are too many problems, or a problem after the first item")
                self._problems.append(_read_problem(data))
            elif tag == b"A" and attributes is not None:
                name = self._read_name(data)
                if name in attributes or values == []:
                    raise BadReplyError("an attribute occurs twice, or has no values")
                values = attributes[name] = []
            elif values is not None and attributes is not None:
                self._values += 1
                if self._values > MAX_VALUES + 1:
                    raise BadReplyError("an item has too many values")
                values.append(_read_value(tag, data, name))
            else:
                raise BadReplyError("a record has an unknown tag or is in the wrong position")
        self._finish_item(attributes)
        return self._build_feed(head)

    def _start_item(self, data: memoryview) -> dict[str, list[Value]]:
        identifier = _read_text(data, MAX_ID)
        if not identifier or identifier in self._items or len(self._items) >= self._max_items:
            raise BadReplyError("an id is empty or occurs twice, or there are too many items")
        attributes: dict[str, list[Value]] = {}
        # Reserves the position of the item. `_finish_item` replaces it with the complete item.
        self._items[identifier] = Item(self._feed, identifier, {})
        self._last = identifier
        self._values = 0
        return attributes

    def _finish_item(self, attributes: dict[str, list[Value]] | None) -> None:
        if attributes is None:
            return
        if not all(attributes.values()):
            raise BadReplyError("an attribute has no values")
        self._total += self._values
        if self._total > MAX_DOCUMENT_VALUES + len(self._items):
            raise BadReplyError("there are too many values")
        complete = {name: tuple(values) for name, values in attributes.items()}
        self._items[self._last] = Item(self._feed, self._last, complete)

    def _read_name(self, data: memoryview) -> str:
        name = _read_text(data, MAX_NAME)
        if not name:
            raise BadReplyError("an attribute name is empty")
        if len(self._names) > MAX_ATTRIBUTES:
            raise BadReplyError("there are too many different attribute names")
        return self._names.setdefault(name, name)

    def _build_feed(self, head: Any) -> AdaptedFeed:
        match head:
            case {
                "kind": str() as kind,
                "title": str() | None as title,
                "description": str() | None as description,
                "link": str() | None as link,
                "note": str() | None as note,
                "ttl": int() | float() as ttl,
                "skip_hours": list() as hours,
                "skip_days": list() as days,
                "links": list() as links,
            } if 0 <= ttl < math.inf and _are_below(hours, 24) and _are_below(days, 7) and _are_links(links):
                return AdaptedFeed(
                    kind=DocumentKind(kind),
                    title=title,
                    description=description,
                    link=link,
                    items=list(self._items.values()),
                    problems=self._problems,
                    note=note,
                    head=DocumentHead(
                        float(ttl), tuple(hours), tuple(days), tuple((relation, link) for relation, link in links)
                    ),
                )
            case _:
                raise BadReplyError("the head record is incomplete or invalid")


def _are_below(numbers: list[Any], limit: int) -> bool:
    return len(numbers) <= limit and all(type(number) is int and 0 <= number < limit for number in numbers)


def _are_links(links: list[Any]) -> bool:
    return len(links) <= MAX_LINKS and all(
        isinstance(pair, list)
        and len(pair) == len(("relation", "address"))
        and all(isinstance(part, str) for part in pair)
        for pair in links
    )


def _read_json(data: memoryview) -> Any:
    if len(data) > _MAX_HEAD:
        raise BadReplyError("a record is too long")
    return json.loads(bytes(data))


def _read_problem(data: memoryview) -> InputError:
    match _read_json(data):
        case [str() as kind, str() as message, str() | None as place, str() | None as hint] if kind in _ERRORS:
            return _ERRORS[kind](_clean(message) or "", place=_clean(place), hint=_clean(hint))
        case _:
            raise BadReplyError("a problem record is invalid")


def _clean(text: str | None) -> str | None:
    """Shorten a text, and replace lone surrogates, which cannot be stored."""
    return text if text is None else text[:_MAX_MESSAGE].encode("utf-8", "replace").decode()


def _read_value(tag: bytes, data: memoryview, name: str) -> Value:
    match tag:
        case b"S":
            if text := _read_text(data, _MAX_TEXT):
                return text
        case b"N":
            if math.isfinite(number := float(bytes(data[:40]))):
                return number
        case b"B":
            if (bit := bytes(data[:2])) in (b"0", b"1"):
                return bit == b"1"
        case b"T":
            return _EPOCH + int(bytes(data[:24])) * _MICROSECOND
        case b"V" if kind := kind_of_attribute(name):
            try:
                if value := kind.read(_read_text(data, _MAX_TEXT)):
                    return value
            except InvalidItemError as error:
                raise BadReplyError(str(error)) from None
    raise BadReplyError("a value record is invalid")


def _read_text(data: memoryview, limit: int) -> str:
    text = str(data, "utf-8")
    if len(text) > limit or "\0" in text:
        raise BadReplyError("a text is too long, or contains a NUL character")
    return text
