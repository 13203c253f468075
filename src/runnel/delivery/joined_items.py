"""Joined items of a message: how many are shown, and in how much space.

In: the annotations of a message's items, and the size of these items. Out: an allowance, and joined items that fit
into it. The joined items share what the message's own items leave of its size equally. If there are very many, only
the newest of each annotation are shown. An item that is larger than its share leaves out its largest attributes.
Everything follows from the recorded message, so a repeated message shows the same items.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runnel.model.annotation import Annotation
from runnel.model.item import Item, Value

MAX_MESSAGE_BYTES = 4 << 20
"""Maximum size of a message's items together with the items that they joined. A single item may be larger."""

RESERVED_BYTES = 1 << 20
"""The part of a message that joined items can always use."""

OVERHEAD_BYTES = 250
"""The approximate size of a joined item without its id and attributes."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The number of joined items of each annotation that a message shows, and the maximum size of each."""

    most: int
    item_bytes: int

    def shown(self, annotation: Annotation) -> Sequence[int]:
        """Return the sequences of the joined items that are shown, newest first."""
        return annotation.newest[: self.most]


@dataclass(frozen=True, slots=True)
class JoinedContent:
    """The joined items that a message shows, by sequence, and how many attributes they left out.

    `bytes` is the approximate size of all of them, repeated as often as they are shown.
    """

    allowance: Allowance = Allowance(0, 0)
    items: Mapping[int, Item] = field(default_factory=dict)
    omitted: Mapping[int, int] = field(default_factory=dict)
    bytes: int = 0

    def known(self, annotations: Iterable[Annotation]) -> dict[int, Item]:
        """Return the items that one item of the message shows, by sequence."""
        shown = {number for annotation in annotations for number in self.allowance.shown(annotation)}
        return {number: self.items[number] for number in shown if number in self.items}


NOTHING_JOINED = JoinedContent()


def allow(annotations: Collection[Annotation], own_bytes: int) -> Allowance:
    """Return what a message with these annotations, whose own items have a size, shows of the joined items.

    >>> allow([Annotation("photos", 7, (12, 5), 2)], own_bytes=0)
    Allowance(most=2, item_bytes=2097152)
    """
    free = max(MAX_MESSAGE_BYTES - own_bytes, RESERVED_BYTES)
    lengths = [len(annotation.newest) for annotation in annotations]
    most = max(lengths, default=0)
    while most and sum(min(length, most) for length in lengths) * OVERHEAD_BYTES > free:
        most -= 1
    return Allowance(most, free // max(sum(min(length, most) for length in lengths), 1))


def fit(item: Item, most_bytes: int) -> tuple[Item | None, int, int]:
    """Return an item without its largest attributes, their number, and the item's approximate size.

    Return None instead of the item if not even its id fits.

    >>> photo = Item("Photos", "p1", {"content": ("x" * 1000,), "title": ("Muse live",)})
    >>> shown, omitted, size = fit(photo, 500)
    >>> shown.attributes, omitted, size
    ({'title': ('Muse live',)}, 1, 266)
    """
    size = OVERHEAD_BYTES + len(item.id.encode("utf-8", "replace"))
    if size > most_bytes:
        return None, 0, 0
    sizes = {name: _size(name, values) for name, values in item.attributes.items()}
    kept: set[str] = set()
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        if size + sizes[name] > most_bytes:
            break
        size += sizes[name]
        kept.add(name)
    if len(kept) == len(sizes):
        return item, 0, size
    attributes = {name: values for name, values in item.attributes.items() if name in kept}
    return replace(item, attributes=attributes), len(sizes) - len(kept), size


def _size(name: str, values: Sequence[Value]) -> int:
    texts = (value if isinstance(value, str) else str(value) for value in values)
    return len(name.encode("utf-8", "replace")) + sum(len(text.encode("utf-8", "replace")) for text in texts)
