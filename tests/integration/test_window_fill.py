"""Filling the windows of new joins: the limit on past items, and the progress that the runner logs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess, matched_ids
from tests.integration.test_joins_of_workspaces import texts

import runnel
from runnel.engine import Engine
from runnel.errors import StatementError
from runnel.streaming.worker.progress_mark import place_mark, read_reports
from runnel.testing import FakeClock

JOIN = "create feed {} from News as $n join last {} on Photos as $p with $n[title = window.title];"


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace", clock=clock, window_fill_items=5) as opened:
        opened.execute("register feed News; register feed Photos;")
        yield opened


def refusal(engine: Engine, script: str) -> StatementError:
    with pytest.raises(StatementError) as refused:
        engine.execute(script)
    return refused.value


def test_window_with_too_many_past_items_is_refused_with_their_number(engine: Engine, clock: FakeClock) -> None:
    engine.publish("Photos", texts(*"abcdef"))
    clock.advance(timedelta(days=2))
    engine.publish("Photos", texts(*"ghijk"))
    engine.execute(JOIN.format("Recent", "1 days"))
    for name, extent, number in (("Older", "3 days", 11), ("Counted", "2 items", 11)):
        error = refusal(engine, JOIN.format(name, extent))
        assert f"{number} past items would have to be matched" in error.message
        assert "the limit is 5" in error.message
        assert "window_fill_items" in str(error.hint)
        assert error.span is not None
        assert error.span.column == JOIN.format(name, extent).index("join") + 1
    assert "feed Older" not in str(engine.execute("show feeds;"))


def test_all_joins_of_a_query_and_of_its_parts_are_limited(engine: Engine, clock: FakeClock) -> None:
    engine.publish("Photos", texts(*"abcdef"))
    clock.advance(timedelta(hours=1))
    second = "join last 1 minutes on News as $w with $n[title = window.title]"
    long = "join last 3 days on Photos as $p with $n[title = window.title]"
    text = f"create feed Twice from News as $n {long} {second};"
    error = refusal(engine, text)
    assert error.span is not None
    assert error.span.column == text.index(long) + 1
    assert "6 past items" in refusal(engine, f"create feed Part from (News as $n | Photos) {long};").message
    assert "6 past items" in refusal(engine, f"create or replace feed Part from News as $n {long};").message


def test_window_that_is_filled_already_can_be_joined(engine: Engine) -> None:
    engine.execute(JOIN.format("First", "3 days") + "subscribe to First output log;")
    run = InProcess(engine)
    engine.publish("Photos", texts(*"abcdef"))
    engine.publish("News", texts("a"))
    run.match()
    engine.execute(JOIN.format("Second", "2 days") + "subscribe to Second output log;")
    assert "7 past items" in refusal(engine, JOIN.format("Third", "4 days")).message
    engine.publish("News", texts("b"))
    run.match()
    run.close()
    assert matched_ids(engine, "Second") == ["b"]


def test_fill_reports_its_progress(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.streaming.fill_windows._REPORT_SECONDS", 0.0)
    place_mark(engine.workspace.storage)
    run = InProcess(engine)
    engine.publish("Photos", texts(*"abc"))
    engine.publish("Photos", texts(*"de"))
    run.match()
    engine.execute(JOIN.format("Second", "3 days") + "subscribe to Second output log;")
    engine.execute(JOIN.format("First", "3 days") + "subscribe to First output log;")
    engine.publish("News", texts("a"))
    run.match()
    run.close()
    reports, position = read_reports(engine.workspace.storage, 0)
    *before, last = [text for _, text in reports]
    assert before == [
        "filling the window of First and 1 more with 5 past items",
        "filling the window of First and 1 more: 3 of 5 items",
        "filling the window of First and 1 more: 5 of 5 items",
    ]
    assert last.startswith("filled the window of First and 1 more in ")
    assert read_reports(engine.workspace.storage, position) == ([], position)
