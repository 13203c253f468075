"""Windows over feeds with gates, operators and graph patterns: past items are in them as the definition says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.gated_runs import verify
from tests.integration.in_process import InProcess, matched_ids
from tests.integration.test_joins_of_workspaces import texts

import runnel
from runnel.catalog.logs import undecided
from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.engine import Engine
from runnel.logs.items.supplements import log_again
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.testing import FakeClock

OPERATORS = "tests.crash.city_operators"
JOIN = (
    "create feed Shown from News as $n join last 3 days on {} as $p with $n[title = window.title];"
    "subscribe to Shown output log;"
)


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace", clock=clock, operator_modules=(OPERATORS,)) as opened:
        OperatorEnvironment.of(opened.workspace.settings).keep(opened.workspace.storage)
        opened.execute("register feed News; register feed Photos;")
        yield opened


@pytest.fixture
def run(engine: Engine) -> Iterator[InProcess]:
    opened = InProcess(engine)
    yield opened
    opened.close()


@pytest.mark.parametrize("is_matched", [True, False])
def test_duplicates_from_before_the_start_of_a_distinct_feed_are_in_its_window(
    engine: Engine, run: InProcess, clock: FakeClock, is_matched: bool
) -> None:
    """`distinct` decides only about items after the start of its feed, in batches and in windows alike."""
    engine.publish("Photos", [{"id": f"old {number}", "title": "a"} for number in range(2)])
    if is_matched:
        run.match()
    engine.execute(f"create feed Single from Photos distinct by title within 1 days; {JOIN.format('Single')}")
    engine.publish("Photos", [{"id": f"new {number}", "title": "a"} for number in range(2)])
    engine.publish("News", texts("a"))
    run.match()
    verify(engine)
    [shown] = engine.matches("Shown")
    [joined] = shown.annotations
    assert [item.id for item in joined.items] == ["new 0", "old 1", "old 0"]
    clock.advance(timedelta(hours=1))
    engine.publish("News", [{"id": "later", "title": "a"}])
    run.match()
    verify(engine)


def test_items_from_before_the_start_of_a_joined_feed_need_to_join(engine: Engine, run: InProcess) -> None:
    """A feed that reads a join which starts later gets no waiting item without the join."""
    engine.execute("create feed Reader from News; subscribe to Reader output log;")
    engine.publish("Photos", texts("a"))
    engine.publish("News", texts("a", "b"))
    engine.execute(JOIN.format("Photos"))
    engine.execute("create or replace feed Reader from Shown;")
    engine.publish("News", texts("c"))
    run.match()
    assert matched_ids(engine, "Reader") == ["a"], "it has matched News from the beginning"
    assert matched_ids(engine, "Shown") == []


def test_past_items_are_in_a_window_if_operators_accept_them(engine: Engine, run: InProcess) -> None:
    engine.execute(f"register operator loudness(?level int) from '{OPERATORS}:loudness' reading volume;")
    photos = [{"id": f"p{volume}", "title": f"t{volume}", "volume": volume} for volume in (3, 5)]
    engine.publish("Photos", photos)
    run.match()
    engine.execute(f"create feed Loud from Photos where loudness(?level) and ?level > 4; {JOIN.format('Loud')}")
    engine.publish("News", texts("t3", "t5"))
    run.match()
    assert matched_ids(engine, "Shown") == ["t5"]


def test_items_that_were_logged_again_for_another_query_are_in_a_window_once(
    engine: Engine, run: InProcess, tmp_path: Path
) -> None:
    switch = tmp_path / "switch"
    engine.execute(f"register operator moody(switch text) from '{OPERATORS}:moody' on error retry for 6 hours;")
    engine.execute(f"create feed Moody from Photos where moody('{switch}'); subscribe to Moody output log;")
    engine.publish("Photos", [{"id": f"p{volume}", "title": "a", "volume": volume} for volume in range(8)])
    run.match()
    switch.touch()
    with engine.workspace.catalog.write() as connection:
        assert undecided.undecided_count(connection) > 0
        connection.execute(schema.undecided.update().values(not_before=now(connection)))
    assert log_again(engine.workspace.catalog, engine.workspace.storage, epoch=run.epoch) > 0
    run.match()
    engine.execute(JOIN.format("Photos"))
    engine.publish("News", texts("a"))
    run.match()
    [shown] = engine.matches("Shown")
    [joined] = shown.annotations
    assert joined.count == 8
    assert [item.sequence for item in joined.items] == list(range(8, 0, -1))


@pytest.mark.parametrize("is_past", [True, False])
def test_window_over_a_graph_pattern(engine: Engine, run: InProcess, is_past: bool) -> None:
    if not is_past:
        engine.execute(JOIN.format("Photos").replace(";", " where $p[graph { ?s <urn:in> ?place }];", 1))
    graph = "<urn:x> <urn:in> <urn:paris> ."
    engine.publish("Photos", [{"id": "p1", "title": "a", "graph": graph}, {"id": "p2", "title": "b"}])
    run.match()
    if is_past:
        engine.execute(JOIN.format("Photos").replace(";", " where $p[graph { ?s <urn:in> ?place }];", 1))
    engine.publish("News", texts("a", "b"))
    run.match()
    verify(engine)
    assert matched_ids(engine, "Shown") == ["a"]
