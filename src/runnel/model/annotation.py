"""Annotations: the items that a match joined, by join (RoSeS §3.2).

In: for each query that an item matches, the joins on the way to it and the items that it joined there. Out: their
JSON, next to the bindings of the item's queries in the match log. Queries with the same annotations share them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from runnel.errors import CorruptDataError
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item


@dataclass(frozen=True, slots=True)
class Annotation:
    """The items that an item joined: their number, and the sequences of the newest, newest first.

    `gate` is the feed of the join, and `name` the name that its statement gives to the joined items.
    """

    name: str
    gate: int
    newest: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class MatchDetails:
    """The bindings and annotations of a match."""

    bindings: Bindings = NO_BINDINGS
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinedItems:
    """The items of all annotations with one name, newest first.

    `count` is their number. It can be larger than the number of items, because only the newest are kept, and because
    items that a reader may not see, or that were deleted, are only counted. `omitted` has the number of attributes
    that an item left out, by sequence, because a message would have been too large with them.
    """

    name: str
    items: tuple[Item, ...]
    count: int
    omitted: Mapping[int, int] = field(default_factory=dict)

    def omitted_from(self, item: Item) -> int:
        """Return the number of attributes that one of the items left out."""
        return self.omitted.get(item.sequence or 0, 0)


def encode_annotations(by_query: Mapping[int, Sequence[Annotation]]) -> str | None:
    """Encode the annotations of an item's queries as JSON. Return None if no query has any.

    >>> photos = Annotation("photos", 7, (12, 5), 2)
    >>> encode_annotations({8: [photos], 9: [photos]})
    '[{"queries":[8,9],"annotations":[["photos",7,[12,5],2]]}]'
    """
    groups: dict[tuple[Annotation, ...], list[int]] = {}
    for query in sorted(by_query):
        if by_query[query]:
            groups.setdefault(tuple(by_query[query]), []).append(query)
    encoded = [
        {"queries": queries, "annotations": [[each.name, each.gate, each.newest, each.count] for each in annotations]}
        for annotations, queries in groups.items()
    ]
    return json.dumps(encoded, separators=(",", ":")) if encoded else None


def decode_annotations(text: str, queries: Collection[int]) -> dict[int, tuple[Annotation, ...]]:
    """Decode the annotations of some queries. Raise CorruptDataError if the text is damaged.

    >>> decode_annotations('[{"queries":[8,9],"annotations":[["photos",7,[12,5],2]]}]', {9, 10})
    {9: (Annotation(name='photos', gate=7, newest=(12, 5), count=2),)}
    """
    by_query: dict[int, tuple[Annotation, ...]] = {}
    try:
        for group in json.loads(text):
            selected = [query for query in group["queries"] if query in queries]
            if selected and "annotations" in group:
                annotations = tuple(map(_decode, group["annotations"]))
                by_query |= {query: by_query.get(query, ()) + annotations for query in selected}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptDataError(f"the stored annotations of an item are invalid: {str(text)[:80]!r}") from error
    return by_query


def _decode(value: Any) -> Annotation:
    match value:
        case [str(name), int(gate), [*newest], int(count)] if all(isinstance(each, int) for each in newest):
            return Annotation(name, gate, tuple(newest), count)
    raise ValueError(f"{value!r} is not an annotation")


def unite_annotations(
    annotations: Sequence[Annotation], items: Mapping[int, Item], omitted: Mapping[int, int] = MappingProxyType({})
) -> tuple[JoinedItems, ...]:
    """Return the joined items by name, given those items that a reader may see and what they left out.

    If several joins have the same name, an item that both joined is counted once, as far as their items are known.
    Of several versions of an item, the newest is kept.
    """
    names = dict.fromkeys(annotation.name for annotation in annotations)
    return tuple(_unite(name, [each for each in annotations if each.name == name], items, omitted) for name in names)


def _unite(
    name: str, annotations: Sequence[Annotation], items: Mapping[int, Item], omitted: Mapping[int, int]
) -> JoinedItems:
    sequences = {sequence for annotation in annotations for sequence in annotation.newest}
    newest: dict[tuple[str, str], Item] = {}
    for sequence in sorted(sequences & items.keys()):
        item = items[sequence]
        newest[item.feed, item.id] = item
    repeated = sum(len(annotation.newest) for annotation in annotations) - len(sequences)
    replaced = len(sequences & items.keys()) - len(newest)
    count = sum(annotation.count for annotation in annotations) - repeated - replaced
    ordered = sorted(newest.values(), key=lambda item: item.sequence or 0, reverse=True)
    left_out = {number: omitted[number] for number in sorted(sequences & omitted.keys())}
    return JoinedItems(name, tuple(ordered), count, left_out)
