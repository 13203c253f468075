"""Hidden feeds, such as the windows of joins, appear in no listing, count, quota or export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess

import runnel
from runnel.catalog.access.owners import Quotas
from runnel.catalog.declared import feeds
from runnel.engine import Engine
from runnel.engine.ask.slow_queries import attribute_costs, sample_costs
from runnel.engine.opml import export_feeds
from runnel.engine.upkeep.backup import back_up
from runnel.errors import NotFoundError, QuotaExceededError
from runnel.model.feed import is_hidden
from runnel.model.learned.query_costs import Cost, Costs
from runnel.testing import FakeClock
from runnel.web.collect_report import collect_report
from runnel.web.report import render_report

SCRIPT = """
register feed 'https://news.example/feed.xml' as News tagged press;
register feed Photos tagged press;
create feed Shown tagged art from News as $n join last 3 days on Photos as $photos
  with $n[title similar window.title] join last 9 items on all feeds tagged press as $others
  with $n[link shares window.link or title = window.title] where $photos[category = 'rock'];
create feed Whole from all feeds;
subscribe to Shown output log; subscribe to Whole output log;
"""


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace", clock=clock) as opened:
        opened.execute(SCRIPT)
        opened.publish("Photos", [{"id": "p1", "title": "Muse live", "category": "rock"}])
        opened.publish("News", [{"id": "n1", "title": "Muse live"}])
        yield opened


def hidden_feeds(engine: Engine) -> dict[int, str]:
    with engine.workspace.catalog.read() as connection:
        return {feed: name for feed, name in feeds.feed_names(connection).items() if is_hidden(name)}


def test_no_answer_names_or_counts_a_hidden_feed(engine: Engine, tmp_path: Path) -> None:
    run = InProcess(engine)
    run.match()
    sample_costs(engine.workspace, run.epoch)
    hidden = hidden_feeds(engine)
    assert len(hidden) == 3, "two windows, and the inner join"
    answers = engine.execute(
        "show feeds; show subscriptions; show quarantine; show feed Shown; show feed News; explain feed Shown;"
    )
    answers += [engine.usage(), engine.usage(tag="art"), engine.why("n1", "Shown"), engine.why("n1", "Whole")]
    answers += [engine.test(), engine.preview("Shown"), engine.explain("Shown", steps=True)]
    shown = [json.dumps(answer.to_json()) + "\n".join(answer.lines) for answer in answers]
    shown += ["\n".join(engine.status().lines()), str(back_up(engine.workspace, tmp_path / "backup"))]
    report = collect_report(engine, "A run")
    shown += [export_feeds(engine).decode(), render_report(report)]
    for text in shown:
        assert not [name for feed, name in hidden.items() if name in text or re.search(rf"#{feed}\b", text)], text
    assert [feed.name for feed in engine.feeds()] == ["News", "Photos", "Shown", "Whole"]
    assert engine.status().matched_feeds == 2
    assert [item.item.id for item in engine.matches("Whole")] == ["p1", "n1"], "no window is a member of a group"
    assert [(query.name, query.matches) for query in report.matches_per_query] == [("Whole", 2), ("Shown", 1)]
    assert report.joins is not None
    assert {(join.queries, join.items) for join in report.joins.joins} == {("Shown", 1)}
    assert "<h2>Joins</h2>" in render_report(report)
    assert [(feed.name, feed.matches) for feed in report.feeds] == [("News", 2), ("Photos", 1)]


def test_tests_and_tags_select_no_hidden_feed(engine: Engine) -> None:
    assert {name for name, _ in engine.test().counts} == {"Shown", "Whole"}
    assert [name for name, _ in engine.usage(tag="art").counts] == []
    for name in hidden_feeds(engine).values():
        with pytest.raises(NotFoundError):
            engine.why("n1", name)


def test_hidden_feeds_use_up_no_quota(engine: Engine) -> None:
    engine.owners.add("ann")
    engine.owners.quota("ann", Quotas(queries=1))
    ann = engine.acting_as("ann")
    ann.execute(
        "create feed Mine from News as $n join last 3 days on Photos with $n[link = window.link]"
        " join last 5 days on News with $n[title = window.title]; subscribe to Mine output log;"
    )
    with pytest.raises(QuotaExceededError):
        ann.execute("create feed Second from News;")


def test_a_failure_in_a_hidden_feed_is_reported_for_the_queries_that_read_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.matching.joins.find_pairs.MAX_CANDIDATES", 0)
    InProcess(engine).match()
    failed = [(entry.kind, entry.query) for entry in engine.quarantine()]
    assert failed == [("evaluation", "Shown")] * len(failed)
    assert failed


def test_costs_of_hidden_feeds_are_divided_among_the_queries_that_read_them(engine: Engine) -> None:
    engine.execute("create feed Again from Shown; subscribe to Again output log;")
    window = min(hidden_feeds(engine))
    with engine.workspace.catalog.read() as connection:
        costs = attribute_costs(connection, Costs(1.0, {window: Cost(900.0, "Similar", "title")}))
        names = feeds.feed_names(connection)
    assert {names[query]: cost.nanoseconds for query, cost in costs.queries.items()} == {"Shown": 900.0}
