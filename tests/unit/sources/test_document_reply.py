"""Replies of document sandboxes: valid replies are decoded unchanged, and invalid ones are rejected."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import BrokenDocumentError, InputError, InvalidItemError
from runnel.model.graph import read_ntriples
from runnel.model.item import MAX_ID, MAX_NAME, MAX_VALUES, Item
from runnel.sandbox.process import BadReplyError
from runnel.sources import document_reply
from runnel.sources.document_reply import pack_reply, read_reply
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.bounds import MAX_PROBLEMS
from runnel.sources.documents.document_head import DocumentHead
from runnel.sources.documents.wire import DocumentKind

HEAD: dict[str, Any] = {
    "kind": "rss", "title": None, "description": None, "link": None, "note": None,
    "ttl": 0.0, "skip_hours": [], "skip_days": [], "links": [],
}  # fmt: skip
VALUES = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def record(tag: bytes, data: bytes) -> bytes:
    return struct.pack(">cI", tag, len(data)) + data


def head(**changes: Any) -> bytes:
    return record(b"H", json.dumps(HEAD | changes).encode())


def read(data: bytes, max_items: int = 100) -> AdaptedFeed | InputError:
    return read_reply(memoryview(data), "News", max_items)


def feed_of(items: list[Item], problems: list[InputError] | None = None) -> AdaptedFeed:
    return AdaptedFeed(
        DocumentKind.RSS, "t", None, "https://muse.example/", items, problems or [], "note",
        DocumentHead(60.0, (1, 2), (6,), (("hub", "https://hub.example/"),)),
    )  # fmt: skip


@settings(deadline=None)
@given(
    st.dictionaries(
        NAMES, st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=3).map(tuple), max_size=3), max_size=3
    )
)
def test_items_are_decoded_with_their_types(attributes: dict[str, dict[str, tuple[Any, ...]]]) -> None:
    items = [Item("News", identifier, values) for identifier, values in attributes.items()]
    assert repr(read(pack_reply(feed_of(items)))) == repr(feed_of(items))


def test_graphs_and_problems_are_decoded() -> None:
    items = [Item("News", "1", {"graph": (read_ntriples('<urn:a> <urn:b> "é" .'),)})]
    problems = [InvalidItemError("m", place="p", hint="h"), BrokenDocumentError("m"), InputError("m", place="\ud800")]
    decoded = read(pack_reply(feed_of(items, problems)))
    assert isinstance(decoded, AdaptedFeed)
    assert repr(decoded.items) == repr(items)
    assert [(type(problem), str(problem)) for problem in decoded.problems] == [
        (InvalidItemError, "p: m (h)"),
        (BrokenDocumentError, "m"),
        (InputError, "?: m"),
    ]


def test_reply_cannot_choose_the_feed_of_an_item() -> None:
    decoded = read(pack_reply(feed_of([Item("Other", "1", {})])))
    assert isinstance(decoded, AdaptedFeed)
    assert [item.feed for item in decoded.items] == ["News"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"H",
        b"garbage",
        record(b"X", b""),
        record(b"H", b"{}"),
        record(b"H", b"[" * 100_000),
        record(b"H", b"1" * 10_000),
        record(b"H", b"\xff"),
        record(b"H", b" " * (1 << 20)),
        head(kind="exe"),
        head(kind=7),
        head(title=["t"]),
        head(ttl="1"),
        head(ttl=-1),
        head(ttl=float("inf")),
        head(skip_hours=[24]),
        head(skip_hours=[True]),
        head(skip_hours=[1] * 25),
        head(skip_days=["Monday"]),
        head(links=[["hub"]]),
        head(links=[["hub", 7]]),
        head(links=[["hub", "a"]] * 65),
        head() + head(),
        head() + struct.pack(">cI", b"I", 1000) + b"1",
        head() + b"I\0\0",
        head() + record(b"I", b""),
        head() + record(b"I", b"\xff"),
        head() + record(b"I", b"a\0"),
        head() + record(b"I", b"1") * 2,
        head() + record(b"I", b"x" * (MAX_ID + 1)),
        head() + record(b"A", b"title"),
        head() + record(b"S", b"text"),
        head() + record(b"I", b"1") + record(b"S", b"text"),
        head() + record(b"I", b"1") + record(b"A", b""),
        head() + record(b"I", b"1") + record(b"A", b"title"),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"A", b"b") + record(b"S", b"x"),
        head() + record(b"I", b"1") + (record(b"A", b"a") + record(b"S", b"x")) * 2,
        head() + record(b"I", b"1") + record(b"A", b"x" * (MAX_NAME + 1)) + record(b"S", b"x"),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"S", b""),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"N", b"nan"),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"N", b"many"),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"B", b"2"),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"T", b"9" * 24),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"T", b"-"),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"V", b"<urn:a> <urn:b> 'c' .\n"),
        head() + record(b"I", b"1") + record(b"A", b"graph") + record(b"V", b"no triples"),
        head() + record(b"I", b"1") + record(b"A", b"a") + record(b"Z", b"x"),
        head() + record(b"I", b"1") + record(b"P", b'["item", "m", null, null]'),
        head() + record(b"P", b'["item", "m", null]'),
        head() + record(b"P", b'["os", "m", null, null]'),
        head() + record(b"P", b'["item", 7, null, null]'),
        head() + record(b"P", b'["item", "m", null, null]') * (MAX_PROBLEMS + 1),
        record(b"R", b'["document", "m", null, null]') + head(),
        record(b"R", b"{}"),
    ],
)  # fmt: skip
def test_invalid_reply_is_rejected(data: bytes) -> None:
    with pytest.raises((BadReplyError, ValueError, OverflowError, RecursionError)):
        read(data)


def test_counts_are_accepted_up_to_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    items = b"".join(record(b"I", str(number).encode()) for number in range(3))
    assert len(read(head() + items, 3).items) == 3  # type: ignore[union-attr]
    with pytest.raises(BadReplyError, match="too many items"):
        read(head() + items, 2)
    values = record(b"I", b"1") + record(b"A", b"a") + record(b"S", b"x") * (MAX_VALUES + 1)
    assert read(head() + values)
    with pytest.raises(BadReplyError, match="too many values"):
        read(head() + values + record(b"S", b"x"))
    monkeypatch.setattr(document_reply, "MAX_DOCUMENT_VALUES", 10)
    with pytest.raises(BadReplyError, match="too many values"):
        read(head() + values)
    monkeypatch.setattr(document_reply, "MAX_ATTRIBUTES", 1)
    names = b"".join(record(b"A", bytes([97 + number])) + record(b"S", b"x") for number in range(3))
    with pytest.raises(BadReplyError, match="too many different attribute names"):
        read(head() + record(b"I", b"1") + names)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_modified_reply_is_rejected_or_still_valid(data: st.DataObject) -> None:
    now = datetime(2026, 11, 15, tzinfo=UTC)
    items = [Item("News", "1", {"title": ("a", 2.5, True, now)}), Item("News", "2", {})]
    sent = bytearray(pack_reply(feed_of(items, [InvalidItemError("m")])))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(sent) - 1))
        sent[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        decoded = read(bytes(sent))
    except (ValueError, OverflowError, RecursionError):
        return
    assert isinstance(decoded, AdaptedFeed | InputError)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the error depends on the bytes
        read(data)
