"""Joined items of a message: whatever they are, they fit into what the message may have."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.delivery.joined_items import MAX_MESSAGE_BYTES, RESERVED_BYTES, allow, fit
from runnel.model.annotation import Annotation, JoinedItems
from runnel.model.item import Item
from runnel.sinks.show_annotations import annotations_json

_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
_values = st.lists(
    st.one_of(st.text(max_size=50), st.integers(0, 5000).map("é".__mul__), st.floats(allow_nan=False), st.booleans()),
    min_size=1,
    max_size=5,
)
items = st.builds(
    Item,
    st.just("Photos"),
    st.integers(1, 4096).map("i".__mul__),
    st.dictionaries(_names, _values.map(tuple), max_size=8),
)


def annotations_of(lengths: list[int]) -> list[Annotation]:
    return [Annotation("photos", 7, tuple(range(length)), length + 3) for length in lengths]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=3000), st.integers(0, 2 * MAX_MESSAGE_BYTES))
def test_shares_fit_into_the_message(lengths: list[int], own_bytes: int) -> None:
    annotations = annotations_of(lengths)
    allowance = allow(annotations, own_bytes)
    shown = sum(len(allowance.shown(annotation)) for annotation in annotations)
    assert shown * allowance.item_bytes <= max(MAX_MESSAGE_BYTES - own_bytes, RESERVED_BYTES)
    assert allowance.most > 0, "1,000 items with three joins show at least the newest of each"


def test_many_annotations_show_only_their_newest_items() -> None:
    allowance = allow(annotations_of([100] * 1000), MAX_MESSAGE_BYTES - RESERVED_BYTES)
    assert allowance.most == 4
    assert [allowance.shown(annotation) for annotation in annotations_of([2, 100])] == [(0, 1), (0, 1, 2, 3)]
    assert allow([], 0).most == 0


@settings(max_examples=300, deadline=None, derandomize=True)
@given(items, st.integers(0, 20_000))
def test_fitting_item_keeps_its_smallest_attributes(item: Item, most_bytes: int) -> None:
    fitting, omitted, size = fit(item, most_bytes)
    if fitting is None:
        assert most_bytes < 250 + len(item.id)
        return
    assert size <= most_bytes
    assert len(fitting.attributes) + omitted == len(item.attributes)
    assert list(fitting.attributes) == [name for name in item.attributes if name in fitting.attributes]
    largest = max((size_of(item, name) for name in fitting.attributes), default=0)
    assert all(size_of(item, name) >= largest for name in item.attributes.keys() - fitting.attributes.keys())
    # The estimate is close to what is written, apart from escapes and quotes.
    written = json.dumps(annotations_json([JoinedItems("photos", (fitting,), 1)]), ensure_ascii=False)
    punctuation = 8 * sum(len(values) + 1 for values in fitting.attributes.values())
    escapes = 6 * written.count("\\")
    assert len(written.encode("utf-8")) <= size + punctuation + escapes


def size_of(item: Item, name: str) -> int:
    texts = (value if isinstance(value, str) else str(value) for value in item.attributes[name])
    return len(name.encode()) + sum(len(text.encode()) for text in texts)
