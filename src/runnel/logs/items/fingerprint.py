"""Fingerprints: detect whether an item that arrives again is unchanged or a new version.

In: an item. Out: 16 bytes that depend only on its attributes and are the same in every process and Python version.
"""

from __future__ import annotations

import hashlib
import struct
from datetime import UTC, datetime

from runnel.model.item import Item, Value

VOLATILE = frozenset({"slash:comments", "slash:hit_parade", "thr:total", "media:statistics", "media:starRating"})
"""Attributes that change on their own (counts of comments, views, votes). They do not make a new version."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fingerprint(item: Item) -> bytes:
    """Return the fingerprint of an item's attributes. The order of values matters, that of names does not.

    >>> fingerprint(Item("News", "1", {"title": ("Muse",)})).hex()
    'fa681c06929b0603969b03e58695662f'
    """
    digest = hashlib.blake2b(digest_size=16, person=b"runnel item/1")
    for name in sorted(item.attributes):
        if name in VOLATILE:
            continue
        values = item.attributes[name]
        digest.update(_framed(name.encode("utf-8", "replace")) + struct.pack(">I", len(values)))
        for value in values:
            digest.update(_canonical(value))
    return digest.digest()


def _canonical(value: Value) -> bytes:
    match value:
        case bool():
            return b"b" + bytes([value])
        case str():
            return b"t" + _framed(value.encode("utf-8", "replace"))
        case datetime():
            since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
            return b"m" + struct.pack(">qii", since.days, since.seconds, since.microseconds)
        case _:
            # Adding zero turns -0.0 into 0.0, which compares equal.
            return b"n" + struct.pack(">d", float(value) + 0.0)


def _framed(data: bytes) -> bytes:
    return struct.pack(">Q", len(data)) + data
