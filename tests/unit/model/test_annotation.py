"""Annotations: how those of several joins are united, and what their stored form may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.errors import CorruptDataError
from runnel.model.annotation import (
    Annotation,
    JoinedItems,
    decode_annotations,
    encode_annotations,
    unite_annotations,
)
from runnel.model.item import Item

joins = st.lists(
    st.builds(
        Annotation,
        st.sampled_from(["photos", "join1"]),
        st.integers(1, 9),
        st.lists(st.integers(1, 50), max_size=4, unique=True).map(tuple),
        st.integers(0, 1000),
    ),
    min_size=1,
    max_size=3,
).map(tuple)


def photo(identifier: str, sequence: int, version: int = 1) -> Item:
    return Item("Photos", identifier, {"title": (identifier,)}, version, sequence)


@given(st.dictionaries(st.integers(1, 9), joins, min_size=1))
def test_stored_annotations_are_read_for_the_wanted_queries(by_query: dict[int, tuple[Annotation, ...]]) -> None:
    text = encode_annotations(by_query)
    assert text is not None
    assert decode_annotations(text, by_query) == by_query
    first = min(by_query)
    assert decode_annotations(text, {first, 100}) == {first: by_query[first]}
    assert encode_annotations({first: ()}) is None


@pytest.mark.parametrize(
    "text",
    [
        '[{"queries":',
        "[1]",
        "{}x",
        '[{"annotations":[]}]',
        '[{"queries":[8],"annotations":[["photos",7,[1.5],1]]}]',
        '[{"queries":[8],"annotations":[["photos",7,["1"],1]]}]',
        '[{"queries":[8],"annotations":[["photos",7,[1]]]}]',
        '[{"queries":[8],"annotations":3}]',
        "[" * 100_000,
    ],
)
def test_damaged_annotations_are_reported(text: str) -> None:
    with pytest.raises(CorruptDataError, match="annotations"):
        decode_annotations(text, {8})


def test_joins_with_the_same_name_are_united() -> None:
    several = [
        Annotation("photos", 7, (5, 3), 4),
        Annotation("tweets", 8, (4,), 1),
        Annotation("photos", 9, (5, 2), 2),
    ]
    items = {5: photo("a", 5), 3: photo("b", 3), 2: photo("c", 2), 4: photo("d", 4)}
    assert unite_annotations(several, items, {3: 2, 9: 1}) == (
        JoinedItems("photos", (items[5], items[3], items[2]), 5, {3: 2}),
        JoinedItems("tweets", (items[4],), 1),
    )
    [photos, _] = unite_annotations(several, items, {3: 2})
    assert [photos.omitted_from(item) for item in photos.items] == [0, 2, 0]


def test_newest_version_replaces_an_older_one() -> None:
    several = [Annotation("photos", 7, (5,), 1), Annotation("photos", 9, (3,), 1)]
    items = {5: photo("a", 5, version=2), 3: photo("a", 3)}
    assert unite_annotations(several, items) == (JoinedItems("photos", (items[5],), 1),)


def test_unknown_items_are_only_counted() -> None:
    assert unite_annotations([Annotation("photos", 7, (5, 3), 4)], {}) == (JoinedItems("photos", (), 4),)
