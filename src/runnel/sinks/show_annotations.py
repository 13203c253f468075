"""Annotations as JSON and text.

In: the items that a match joined, by the name of the join. Out: their representation in each format, or nothing if
there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from runnel.model.annotation import JoinedItems
from runnel.model.item import Attributes, Item

_LINES = 5
"""Maximum number of joined items that are shown below a match."""


def attributes_json(attributes: Attributes) -> dict[str, list[Any]]:
    """Return attributes as a JSON value.

    >>> attributes_json({"price": (2.0,)})
    {'price': [2.0]}
    """
    return {
        name: [value.isoformat() if isinstance(value, datetime) else value for value in values]
        for name, values in attributes.items()
    }


def annotations_json(annotations: Sequence[JoinedItems]) -> dict[str, Any]:
    """Return the member of a JSON object that represents the annotations of a match.

    >>> photo = Item("Photos", "p1", {"title": ("Muse live",)})
    >>> annotations_json([JoinedItems("photos", (photo,), 1)])["annotations"]["photos"]["items"]
    [{'feed': 'Photos', 'id': 'p1', 'version': 1, 'attributes': {'title': ['Muse live']}}]
    >>> annotations_json([])
    {}
    """
    if not annotations:
        return {}
    return {
        "annotations": {
            joined.name: {
                "items": [_item_json(item, joined.omitted_from(item)) for item in joined.items],
                "count": joined.count,
            }
            for joined in annotations
        }
    }


def _item_json(item: Item, omitted: int) -> dict[str, Any]:
    return {
        "feed": item.feed,
        "id": item.id,
        "version": item.version,
        "attributes": attributes_json(item.attributes),
        **({"omitted": omitted} if omitted else {}),
    }


def annotation_lines(annotations: Sequence[JoinedItems]) -> list[str]:
    """Format the first items of each annotation, one per line, and the number of further items.

    >>> photo = Item("Photos", "p1", {"title": ("Muse live",)})
    >>> annotation_lines([JoinedItems("photos", (photo,), 3)])
    ['  photos: Muse live', '  photos: 2 more']
    """
    lines: list[str] = []
    for joined in annotations:
        shown = joined.items[:_LINES]
        lines += [f"  {joined.name}: {item.first('title') or item.id}" for item in shown]
        more = joined.count - len(shown)
        lines += [f"  {joined.name}: {more:,} more"] if more else []
    return lines
