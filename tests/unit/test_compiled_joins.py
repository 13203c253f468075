"""Joins in plans that are compiled as a library, and their refusal where they cannot be evaluated."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

import runnel
from runnel.errors import InputError

MUSE = "create feed Shown from News as $n join last 3 months on Photos as $photos with $n[title similar window.title]"


def photo(number: int, **attributes: Any) -> dict[str, Any]:
    return {"feed": "Photos", "id": f"p{number}", **attributes}


def news(number: int, **attributes: Any) -> dict[str, Any]:
    return {"feed": "News", "id": f"n{number}", **attributes}


def test_an_item_passes_if_it_joins_an_earlier_item_of_the_window() -> None:
    plan = runnel.compile([MUSE, "create feed Paris from Shown where title contains 'paris'"])
    items = [
        photo(1, title="Muse live in Paris"),
        photo(2, title="Cooking pasta"),
        news(1, title="Muse live in Paris tonight"),
        news(2, title="Weather"),
        photo(3, title="Weather"),
    ]
    assert plan.match(items) == [[], [], ["Shown", "Paris"], [], []]


def test_conditions_on_the_window_count_only_the_items_that_satisfy_them() -> None:
    query = (
        "create feed F from News as $n join last 2 items on Photos as $p with $n[band = window.band]"
        " where $p[category = 'rock']"
    )
    plan = runnel.compile(query)
    photos = [
        photo(n, band="Muse" if n < 5 else "Oasis", category="rock" if n in (1, 4, 7) else "pop")
        for n in range(1, 11)
    ]
    assert plan.match([*photos, news(1, band="Muse")])[-1] == ["F"]
    assert plan.match([*photos, photo(11, category="rock"), news(1, band="Muse")])[-1] == []


def test_a_joined_part_of_the_source_leaves_the_other_parts_alone() -> None:
    plan = runnel.compile(
        "create feed F from (News as $n | Blog) join last 9 items on Photos with $n[title = window.title]"
    )
    items = [photo(1, title="a"), news(1, title="a"), news(2, title="b"), {"feed": "Blog", "title": "b"}]
    assert plan.match(items) == [[], ["F"], [], ["F"]]


def test_windows_span_batches_and_remain_after_parts_are_merged() -> None:
    plan = runnel.compile(MUSE)
    matcher = plan.matcher
    titles = [f"word{number} word{number + 1}" for number in range(80)]
    results = []
    for number, title in enumerate(titles):
        batch = plan.batch([photo(number, title=title), news(number, title=titles[number // 2])])
        moved = batch.records.set_column(
            0, batch.records.schema.field(0), pa.array([2 * number + 1, 2 * number + 2], pa.int64())
        )
        matches = matcher.match(type(batch)(moved))
        results.append(len(matches.row(1)))
    assert results == [1] * len(titles)


def test_annotations_name_the_joined_items_through_views_the_newest_first() -> None:
    plan = runnel.compile([MUSE, "create feed All from Shown | Blog"])
    items = [
        photo(1, title="Muse live in Paris"),
        photo(2, title="Muse live in Rome"),
        photo(1, title="Muse live in Paris, again"),
        photo(3, title="Cooking pasta"),
        news(1, title="Muse live in Paris tonight"),
        {"feed": "Blog", "id": "b1"},
    ]
    *before, joined, blog = plan.match_annotated(items)
    assert before == [[], [], [], []]
    assert [match.query for match in joined] == ["Shown", "All"]
    for match in joined:
        assert list(match.joined) == ["photos"]
        photos = match.joined["photos"]
        assert [(item.feed, item.id, item.first("title")) for item in photos.items] == [
            ("Photos", "p1", "Muse live in Paris, again"),
            ("Photos", "p2", "Muse live in Rome"),
        ]
        assert photos.count == 2
    assert [(match.query, dict(match.joined)) for match in blog] == [("All", {})]
    assert [[match.query for match in row] for row in plan.match_annotated(items)] == plan.match(items)


def test_rows_of_a_dataframe_are_refused_because_they_have_no_order() -> None:
    with pytest.raises(InputError, match=r"join last 90 days .* depends on the order of items") as refused:
        runnel.spark.match(cast(Any, None), runnel.compile(MUSE))
    assert "plan.match" in str(refused.value.hint)


def test_a_plan_lists_its_joins_among_the_clauses_that_need_an_order() -> None:
    assert runnel.compile(MUSE).gates == ("join last 90 days with [title similar window.title]",)
