"""Matching as a library: `runnel.compile(…).match` in this process and `runnel.spark.match` on any DataFrame."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import runnel
from runnel.errors import (
    CyclicFeedsError,
    DuplicateNameError,
    InputError,
    StatementError,
    StatementSyntaxError,
    UnknownNameError,
)
from runnel.testing import World

QUERIES = [
    "create feed Rock from Wire where title contains 'rock';",
    "create feed Loud from Rock where volume > 5 and not title contains 'quiet';",
    "create feed Tagged from Wire where tags = 'live' or seen.year = 2026;",
    "create feed Early from Wire where published < date '2026-06-01';",
]
ROWS: list[dict[str, Any]] = [
    {
        "id": "1",
        "title": "Rock am Ring",
        "volume": 9,
        "tags": ["live", "ring"],
        "published": datetime(2026, 5, 1, tzinfo=UTC),
    },
    {"id": "2", "title": "quiet rock", "volume": 9, "tags": [], "published": datetime(2026, 7, 1, tzinfo=UTC)},
    {"id": "3", "title": "jazz", "volume": None, "tags": None, "published": None},
    {"id": "4", "title": None, "volume": 7, "tags": ["live"], "published": datetime(2026, 5, 31, 23, 59, tzinfo=UTC)},
]
EXPECTED = [["Rock", "Loud", "Tagged", "Early"], ["Rock"], [], ["Tagged", "Early"]]
SCHEMA = "id string, title string, volume long, tags array<string>, published timestamp"


# --- without Spark -------------------------------------------------------------------------------------------------


def test_compiled_queries_match_mappings() -> None:
    plan = runnel.compile(QUERIES)
    assert plan.match(ROWS) == EXPECTED
    assert plan.match([]) == []
    assert plan.sources == {"Wire": 5}
    assert list(plan.queries.values()) == ["Rock", "Loud", "Tagged", "Early"]
    assert runnel.compile("\n".join(QUERIES)).match(ROWS) == EXPECTED


def test_item_must_name_its_feed_if_the_plan_reads_several() -> None:
    plan = runnel.compile("create feed One from A where n > 1; create feed Both from A | B where n > 2;")
    rows = [{"feed": "A", "n": 3}, {"feed": "B", "n": 3}, {"feed": "A", "n": 2}]
    assert plan.match(rows) == [["One", "Both"], ["Both"], ["One"]]
    with pytest.raises(StatementError, match="item 1 does not name a source feed") as refused:
        plan.match([{"n": 3}])
    assert refused.value.hint == "set `feed` to one of: A, B"
    with pytest.raises(StatementError, match="item 2"):
        plan.match([{"feed": "A"}, {"feed": "C"}])


@pytest.mark.parametrize(
    ("text", "kind", "message", "line"),
    [
        ("create feed A from W;\ncreate feed A from W;", DuplicateNameError, "a feed A already exists", 2),
        ("create feed A from B;\ncreate feed B from A;", CyclicFeedsError, "would read itself", 1),
        ("create feed A from W;\nsubscribe to A output log;", StatementError, "only `create feed`", 2),
        ("create feed A\nfrom W where $x[n > 1];", UnknownNameError, "no variable", 2),
        ("creat feed A from W;", StatementSyntaxError, "", 1),
        (
            "create feed A from W\nwhere n > 1 and mob(?n);",
            UnknownNameError,
            "`runnel.compile` does not support operators",
            2,
        ),
    ],
)
def test_invalid_statement_is_refused_with_its_position(
    text: str, kind: type[StatementError], message: str, line: int
) -> None:
    with pytest.raises(kind) as refused:
        runnel.compile(text)
    assert message in refused.value.message
    assert refused.value.span is not None
    assert refused.value.span.line == line
    assert "^" in refused.value.render()
    assert "register it first" not in (refused.value.hint or ""), "compile would refuse that too"
    assert ("use a workspace" in (refused.value.hint or "")) == ("operators" in message)


def test_plan_folder_is_deleted_with_its_object() -> None:
    plan = runnel.compile(QUERIES)
    folder = Path(plan.folder)
    assert any(folder.iterdir())
    del plan
    gc.collect()
    assert not folder.exists()


# --- on Spark ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_dataframe_rows_match_like_mappings(spark: Any) -> None:
    plan = runnel.compile(QUERIES)
    frame = spark.createDataFrame([tuple(row.values()) for row in ROWS], SCHEMA).repartition(3)
    matched = runnel.spark.match(frame, plan)
    assert matched.columns == [*frame.columns, "feeds"]
    feeds = {row["id"]: row["feeds"] for row in matched.collect()}
    assert feeds == dict(zip("1234", EXPECTED, strict=True))
    named = runnel.spark.match(frame, plan, feed="Wire", column="in_feeds").where("size(in_feeds) > 1")
    assert sorted(row["id"] for row in named.select("id").collect()) == ["1", "4"]


@pytest.mark.spark
def test_column_names_the_source_feed_of_a_row(spark: Any) -> None:
    world = World.generate(seed=5, feeds=4, items=120, queries=40)
    plan = runnel.compile([query.statement for query in world.queries])
    known = [item for item in world.items if item.feed in plan.sources]
    rows = [
        {
            "feed": item.feed,
            "id": item.id,
            "title": item.title,
            "description": item.description,
            "category": list(item.categories),
            "author": item.author,
            "published": item.published,
        }
        for item in known
    ]
    schema = (
        "feed string, id string, title string, description string, category array<string>, author string, "
        "published timestamp"
    )
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], schema)
    feeds = [row["feeds"] for row in runnel.spark.match(frame, plan).collect()]
    expected = plan.match(rows)
    assert feeds == expected
    assert sum(map(len, expected)) > 20


@pytest.mark.spark
def test_unsuitable_dataframe_is_refused_immediately(spark: Any) -> None:
    several = runnel.compile("create feed One from A where n > 1; create feed Two from B where n > 1;")
    frame = spark.createDataFrame([(1,)], "n long")
    refusals: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"column": "n"}, "the DataFrame already has a column n", "column="),
        ({}, "the plan reads 2 source feeds", "feed="),
        ({"feed": "C"}, "the plan does not read the feed C", "A, B"),
    )
    for arguments, message, hint in refusals:
        with pytest.raises(InputError, match=message) as refused:
            runnel.spark.match(frame, several, **arguments)
        assert hint in (refused.value.hint or "")
    assert runnel.spark.match(frame, several, feed="B").collect()[0]["feeds"] == []


@pytest.mark.spark
def test_row_from_an_unknown_feed_raises_a_clear_error(spark: Any) -> None:
    plan = runnel.compile("create feed One from A where n > 1; create feed Two from B where n > 1;")
    frame = spark.createDataFrame([("A", 2), ("C", 2)], "feed string, n long")
    with pytest.raises(Exception, match="which the plan does not read"):
        runnel.spark.match(frame, plan).collect()


@pytest.mark.spark
def test_plan_folder_lives_until_exit_if_a_dataframe_uses_it(spark: Any) -> None:
    frame = spark.createDataFrame([("rock",), ("jazz",)], "title string")
    matched = runnel.spark.match(frame, runnel.compile("create feed Rock from Wire where title contains 'rock';"))
    gc.collect()
    assert [row["feeds"] for row in matched.collect()] == [["Rock"], []]
