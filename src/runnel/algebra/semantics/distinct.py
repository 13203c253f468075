"""When two items are the same: the keys of `distinct by …`, and how the clause is written.

In: an item's id and attributes, and the attributes to compare by. Out: its key; items with equal keys are duplicates.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.query import Distinct
from runnel.algebra.nodes.render import render_attribute
from runnel.algebra.semantics.evaluate import values_of
from runnel.algebra.values.links import canonical_link
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue

ID = Attribute("id")
"""The item's id, which is no attribute of it: `by id`."""

DEFAULT_WINDOW = timedelta(days=30)
LONGEST_WINDOW = timedelta(days=366)
MOST_ATTRIBUTES = 8
DIGEST = 16
"""The bytes of a key's digest. A digest is all that is kept of a key: keys may be long, and are nobody's business."""

Key = tuple[tuple[str | float | bool, ...], ...]


def key_of(by: Sequence[Attribute], item: str, attributes: Attributes) -> Key | None:
    """The key of an item by its id and attributes; None where it has none of the attributes, so is like no other.

    Texts are compared without regard to case and white space, those that are links as links, and ids letter by
    letter: an id and a path may differ in nothing but case. Structured values are compared by their
    canonical text.

    >>> key_of((Attribute("title"),), "1", {"title": ("Muse  on TOUR",)})
    (('text', 'muse on tour'),)
    >>> key_of((Attribute("title"), Attribute("link")), "1", {"price": (3.0,)}) is None
    True
    """
    parts = tuple(
        ("id", item) if one == ID else _flat([_told(value) for _, value in values_of(one, attributes)]) for one in by
    )
    return parts if any(parts) else None


def encode_key(key: Key) -> bytes:
    """A key as bytes: equal keys give equal bytes.

    >>> encode_key((("text", "a"),))
    b'[["text", "a"]]'
    """
    return json.dumps(key, ensure_ascii=True).encode("ascii")


def key_digest(key: bytes, history: bytes) -> bytes:
    """A short digest of an encoded key, by which it is remembered as part of a history.

    >>> key_digest(b"a", b"1") == key_digest(b"a", b"2")
    False
    """
    return hashlib.blake2b(key, digest_size=DIGEST, key=history).digest()


def _told(value: Value) -> tuple[str | float | bool, ...]:
    match value:
        case bool():
            return "truth", value
        case StructuredValue():
            return value.kind, str(value)
        case str():
            return _told_text(value)
        case datetime():
            return "moment", value.astimezone(UTC).isoformat()
        case _:
            return "number", float(value) + 0.0  # -0.0 is 0.0


def _told_text(text: str) -> tuple[str | float | bool, ...]:
    link = canonical_link(text) if "://" in text else None
    if link is not None:
        return "link", link
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    collapsed = " ".join(folded.split())
    return ("text", collapsed) if collapsed else ()


def _flat(values: list[tuple[str | float | bool, ...]]) -> tuple[str | float | bool, ...]:
    return tuple(part for value in values for part in value)


def render_distinct(by: Sequence[Attribute], window: timedelta) -> str:
    """The clause as it is written, in its shortest form.

    >>> render_distinct((Attribute("title"),), timedelta(days=2)), render_distinct((ID,), DEFAULT_WINDOW)
    ('distinct by title within 2 days', 'distinct')
    """
    key = "" if tuple(by) == (ID,) else f" by {', '.join(map(render_attribute, by))}"
    return f"distinct{key}{'' if window == DEFAULT_WINDOW else f' within {render_duration(window)}'}"


def describe_distinct(node: Distinct) -> str:
    """What a distinct feed compares, in words.

    >>> from runnel.algebra.nodes.query import Read
    >>> describe_distinct(Distinct(Read(1), (ID,), DEFAULT_WINDOW))
    'no earlier item with the same id within 30 days'
    """
    names = ", ".join(map(render_attribute, node.by))
    return f"no earlier item with the same {names} within {render_duration(node.window)}"
