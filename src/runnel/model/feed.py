"""Feeds as declared: source feeds come from outside, virtual feeds are defined by a query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b

ADMIN = 1
"""The owner id of the admin. Other owners can read the admin's feeds; all other feeds are private."""


HIDDEN = 0
"""The owner id of hidden feeds, such as the windows of joins. Nobody sees them; all readers share them."""

_HIDDEN_PREFIX = "hidden "


def hidden_name(definition: str) -> str:
    """Return the name of the hidden feed with an encoded definition. No statement can contain such a name.

    >>> hidden_name("[]") == hidden_name("[]") != hidden_name("[1]")
    True
    """
    return f"{_HIDDEN_PREFIX}{blake2b(definition.encode(), digest_size=16).hexdigest()}"


def is_hidden(name: str) -> bool:
    """Return whether a name is that of a hidden feed."""
    return name.startswith(_HIDDEN_PREFIX)


class FeedKind(StrEnum):
    """The kind of a feed: its items come from outside (source), from a query (virtual), or change rows (table)."""

    SOURCE = "source"
    VIRTUAL = "virtual"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Feed:
    """A named stream of items.

    `id` is assigned by the catalog and never reused; it is also the query's id in match logs. `statement` is the
    canonical text that declares the feed. `address` is the origin of a source feed's items (empty: only `publish`),
    and `every` its polling interval. A materialized feed is a source feed whose items the stylesheet at the path
    `sheet` creates from those of the feed `origin`. `title` is the display name of a source feed, and `home` its home
    page. Anyone may publish `open_items` items per minute into an open feed (0: the limit of the settings).
    """

    id: int
    name: str
    kind: FeedKind
    statement: str
    address: str | None = None
    revision: int = 1
    paused: bool = False
    owner: int = ADMIN
    every: timedelta | None = None
    origin: int | None = None
    sheet: str | None = None
    title: str | None = None
    home: str | None = None
    open_items: int | None = None
