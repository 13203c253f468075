"""The reference evaluator over a log: what each feed has once duplicates count, item by item, in order.

`accepts` looks at one item alone. A distinct feed looks back as well, and what it remembers is the log itself: this
is the definition that matching and commits are tested against. Slow and short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from runnel.algebra.nodes.query import Distinct, Node, Read, Union
from runnel.algebra.semantics.distinct import Key, key_of
from runnel.algebra.semantics.evaluate import accepts, views_below
from runnel.model.item import Attributes


@dataclass(frozen=True, slots=True)
class LoggedItem:
    """An item as it lies in the log; `feed` is the id of its source feed."""

    sequence: int
    accepted: datetime
    feed: int
    id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The feeds that an item is in.

    `duplicates` are those in which it is one, each with the sequence of the last item before it with the same key.
    """

    item: LoggedItem
    feeds: frozenset[int]
    duplicates: Mapping[int, int]


def evaluate_log(
    items: Iterable[LoggedItem], definitions: Mapping[int, Node], since: Mapping[int, int]
) -> Iterator[Evaluated]:
    """Evaluate virtual feeds on items in the order of their sequences.

    `since` has the feeds to evaluate, each with the sequence after which it is; so has a distinct feed that another
    one reads, or it counts from the beginning.

    >>> from datetime import UTC, timedelta
    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> news = {2: Distinct(Read(1), (Attribute("title"),), timedelta(days=2))}
    >>> days = [LoggedItem(n, datetime(2026, 11, n, tzinfo=UTC), 1, str(n), {"title": ("Muse",)}) for n in (1, 2, 4)]
    >>> [sorted(one.feeds) for one in evaluate_log(days, news, {2: 0})]
    [[2], [], [2]]
    """
    views = views_below(Union(tuple(map(Read, since))), definitions)
    before: dict[tuple[int, Key], tuple[int, datetime]] = {}
    for item in items:
        duplicates: dict[int, int] = {}
        for view in views:
            node = definitions[view]
            if not isinstance(node, Distinct) or item.sequence <= since.get(view, 0):
                continue
            key = key_of(node.by, item.id, item.attributes)
            if key is None or not _reaches(node.input, item, definitions, duplicates):
                continue
            # Acceptance never goes back, so the last one before decides for all.
            last = before.get((view, key))
            if last is not None and item.accepted - last[1] < node.window:
                duplicates[view] = last[0]
            before[view, key] = (item.sequence, item.accepted)
        feeds = {
            feed
            for feed, start in since.items()
            if item.sequence > start and _reaches(Read(feed), item, definitions, duplicates)
        }
        yield Evaluated(item, frozenset(feeds), duplicates)


def _reaches(node: Node, item: LoggedItem, definitions: Mapping[int, Node], duplicates: Mapping[int, int]) -> bool:
    return accepts(node, item.feed, item.attributes, definitions, item.accepted, duplicates.keys())
