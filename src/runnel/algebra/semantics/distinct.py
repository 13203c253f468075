"""The gate `distinct by … within …`, which stops an item if an earlier one has the same key.

In: the ID and the attributes of an item, and the names of the key attributes. Out: the key of the item. Items with
equal keys are duplicates.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.encode import decode_attribute, encode_attribute
from runnel.algebra.nodes.gate_rules import GateRule, LoggedItem, Pass, Stop
from runnel.algebra.nodes.render import render_attribute
from runnel.algebra.semantics.evaluate import values_of
from runnel.algebra.values.links import canonical_link
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue

ID = Attribute("id")
"""Stands for the ID of an item, which is not one of its attributes: `by id`."""

DEFAULT_WINDOW = timedelta(days=30)
MAX_WINDOW = timedelta(days=366)
MAX_ATTRIBUTES = 8
DIGEST = 16
"""The size of a key's digest in bytes. Only digests are stored, because keys may be long or confidential."""

Part = tuple[str | float | bool, ...]
Key = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Distinct(GateRule):
    """An item passes unless an earlier item has the same key and was accepted less than `window` before it.

    Every item that reaches the gate counts as an earlier one, whether it passed or not. An item without a key always
    passes.

    >>> Distinct((Attribute("title"),), timedelta(days=2)).render(), Distinct().render()
    ('distinct by title within 2 days', 'distinct')
    >>> Distinct().describe()
    'no earlier item with the same id within 30 days'
    """

    kind: ClassVar[str] = "distinct"

    by: tuple[Attribute, ...] = (ID,)
    window: timedelta = DEFAULT_WINDOW

    @property
    def lookback(self) -> timedelta:
        """The window."""
        return self.window

    def history(self) -> DistinctHistory:
        """Return the history of a gate that no item has reached yet."""
        return DistinctHistory(self)

    def encode(self) -> list[Any]:
        """Return the window in seconds, and the attributes."""
        return [self.window.total_seconds(), *map(encode_attribute, self.by)]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Distinct:
        """Return the rule of values that `encode` returned."""
        seconds, *by = values
        rule = Distinct(tuple(map(decode_attribute, by)), timedelta(seconds=seconds))
        if not rule.by or rule.window <= timedelta():
            raise ValueError(f"distinct needs attributes and a positive window, not {values!r}")
        return rule

    def render(self) -> str:
        """Return the clause in its shortest form."""
        key = "" if self.by == (ID,) else f" by {self._names()}"
        return f"distinct{key}{'' if self.window == DEFAULT_WINDOW else f' within {render_duration(self.window)}'}"

    def describe(self) -> str:
        """Return the reason for which an item passes, as a phrase."""
        return f"no earlier item with the same {self._names()} within {render_duration(self.window)}"

    def _names(self) -> str:
        return ", ".join(map(render_attribute, self.by))


@dataclass
class DistinctHistory:
    """The last item of every key, by sequence and time of acceptance."""

    rule: Distinct
    last: dict[Key, tuple[int, datetime]] = field(default_factory=dict)

    def add(self, item: LoggedItem, window: Sequence[LoggedItem] = ()) -> Stop | Pass:
        """Add an item. Stop it if it duplicates an earlier item."""
        key = key_of(self.rule.by, item.id, item.attributes)
        if key is None:
            return Pass()
        # Acceptance times never decrease, so the last item with the key decides for all of them.
        last = self.last.get(key)
        self.last[key] = item.sequence, item.accepted
        return Stop(last[0]) if last is not None and item.accepted - last[1] < self.rule.window else Pass()


def key_of(by: Sequence[Attribute], item: str, attributes: Attributes) -> Key | None:
    """Return the key of an item, or None if it has none of the attributes and therefore cannot be a duplicate.

    Texts are compared ignoring case and differences in whitespace, and links in canonical form. IDs are compared
    exactly, because two IDs may differ only in case. Structured values are compared by their canonical text.

    >>> key_of((Attribute("title"),), "1", {"title": ("Muse  on TOUR",)})
    (('text', 'muse on tour'),)
    >>> key_of((Attribute("title"), Attribute("link")), "1", {"price": (3.0,)}) is None
    True
    """
    parts = tuple(
        ("id", item)
        if attribute == ID
        else _flatten([_comparable(value) for _, value in values_of(attribute, attributes)])
        for attribute in by
    )
    return parts if any(parts) else None


def encode_key(key: Key) -> bytes:
    """Return a key as bytes. Equal keys have equal bytes.

    >>> encode_key((("text", "a"),))
    b'[["text", "a"]]'
    """
    return json.dumps(key, ensure_ascii=True).encode("ascii")


def key_digest(key: bytes, history: bytes) -> bytes:
    """Return a short digest of an encoded key. The digests of gates with different `history` values differ.

    >>> key_digest(b"a", b"1") == key_digest(b"a", b"2")
    False
    """
    return hashlib.blake2b(key, digest_size=DIGEST, key=history).digest()


def _comparable(value: Value) -> Part:
    match value:
        case bool():
            return "truth", value
        case StructuredValue():
            return value.kind, str(value)
        case str():
            return _comparable_text(value)
        case datetime():
            return "moment", value.astimezone(UTC).isoformat()
        case _:
            return "number", float(value) + 0.0  # turns -0.0 into 0.0


def _comparable_text(text: str) -> Part:
    link = canonical_link(text) if "://" in text else None
    if link is not None:
        return "link", link
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    collapsed = " ".join(folded.split())
    return ("text", collapsed) if collapsed else ()


def _flatten(values: list[Part]) -> Part:
    return tuple(part for value in values for part in value)
