"""Distinct feeds from statement to match log: with a runner in this process, and once on Spark.

For any declarations, batches and crashes, the match log equals the result of the reference evaluator on the item log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.gated_runs import stop, verify
from tests.integration.in_process import InProcess, matched_ids

import runnel
from runnel.catalog.declared import feeds
from runnel.catalog.logs import gate_states, match_segments
from runnel.catalog.store.connection import Catalog
from runnel.engine import Engine
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.upkeep.restore import restore
from runnel.errors import InputError, StatementError
from runnel.storage.file_storage import Storage
from runnel.streaming.worker import match_job
from runnel.streaming.worker.failures import ReportedError
from runnel.testing import FakeClock

SCRIPT = """
register feed Wire; register feed Agency;
create feed News from Wire | Agency distinct by title within 2 days where title contains 'muse';
create feed Cheap from News where price < 10;
create feed Either from (News | Agency as $a) where $a[price > 100];
create feed Once from Either distinct;
subscribe to News output log; subscribe to Cheap output log; subscribe to Once output log;
"""


def items(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"id": f"{title}/{price}", "title": title, "price": price} for title, price in rows]


def test_next_runner_remembers_committed_keys(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse on tour", 5), ("Jazz", 5)))
    run.match()
    stop(engine, run)
    other = InProcess(engine)  # another lineage, as after an update
    engine.publish("Agency", items(("MUSE  on tour", 500), ("Muse again", 50)))
    assert other.match() == 1
    assert matched_ids(engine, "News") == ["Muse on tour/5", "Muse again/50"]
    assert matched_ids(engine, "Cheap") == ["Muse on tour/5"]
    assert matched_ids(engine, "Once") == ["Muse on tour/5", "MUSE  on tour/500", "Muse again/50"]
    clock.advance(timedelta(days=2))
    engine.publish("Wire", items(("muse on tour", 6)))
    other.match()
    assert matched_ids(engine, "News")[-1] == "muse on tour/6"
    verify(engine)
    other.close()


def test_only_a_changed_feed_starts_a_new_history(engine: Engine) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)

    def publish(price: float) -> list[str]:
        engine.publish("Wire", items(("Muse", price)))
        run.match()
        return matched_ids(engine, "News")

    assert publish(1) == ["Muse/1"]
    engine.execute(
        "create or replace feed News from Wire | Agency distinct by title within 2 days where title contains 'MUSE';"
    )
    assert publish(2) == ["Muse/1"]
    engine.execute(
        "create or replace feed News from Wire | Agency distinct by title within 3 days where title contains 'muse';"
    )
    assert publish(3) == ["Muse/1", "Muse/3"]
    (answer,) = engine.execute("why item 'Muse/3' in News;")
    assert (answer.to_json()["holds"], answer.to_json()["recorded"], answer.to_json()["stopped_by"]) == (
        True,
        True,
        {},
    )
    assert publish(4) == ["Muse/1", "Muse/3"]
    engine.execute("create or replace feed News from Wire | Agency where title contains 'muse';")
    assert publish(5) == ["Muse/1", "Muse/3", "Muse/5"]
    assert matched_ids(engine, "Cheap") == ["Muse/1", "Muse/3", "Muse/5"]
    run.close()


def test_expired_keys_are_deleted(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1), ("Muse on tour", 2)))
    run.match()

    def remembered() -> dict[str, int]:
        with engine.workspace.catalog.read() as connection:
            ids = {name: feed for feed, name in feeds.feed_names(connection).items()}
            return {name: gate_states.count_states(connection, ids[name]) for name in ("News", "Once")}

    assert remembered() == {"News": 2, "Once": 2}
    # An item that waits was accepted when the keys still counted.
    engine.publish("Agency", items(("muse", 3)))
    clock.advance(timedelta(days=3))
    assert run_maintenance(engine.workspace, run.epoch, chores=True).forgotten == 0
    run.match()
    assert matched_ids(engine, "News") == ["Muse/1", "Muse on tour/2"]
    assert run_maintenance(engine.workspace, run.epoch, chores=True).forgotten == 0, "the log's time has not gone on"
    engine.publish("Wire", items(("later", 4)))
    run.match()
    assert run_maintenance(engine.workspace, run.epoch, chores=True).forgotten == 2
    assert remembered() == {"News": 0, "Once": 2}
    engine.execute("drop feed Once cascade;")
    assert run_maintenance(engine.workspace, run.epoch, chores=True).forgotten == 2
    run.close()


def test_why_explain_and_preview_of_a_distinct_feed(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1)))
    clock.advance(timedelta(hours=1))
    engine.publish("Agency", items(("MUSE", 2), ("Muse live", 3)))
    run.match()
    (answer,) = engine.execute("why item 'MUSE/2' in Cheap;")
    assert not answer.to_json()["holds"]
    assert answer.to_json()["recorded"] is False
    assert answer.to_json()["stopped_by"] == {"News": {"source": "Wire", "item": "Muse/1", "sequence": 1}}
    assert any("same title within 2 days: Wire item Muse/1, accepted" in line for line in answer.lines)
    (answer,) = engine.execute("why item 'Muse live/3' in Cheap;")
    assert answer.to_json()["holds"]
    assert answer.to_json()["recorded"] is True
    assert answer.to_json()["stopped_by"] == {}
    explained = unwrapped(engine.execute("explain feed Cheap;")[0].lines)
    assert "must pass the gate of News (distinct by title within 2 days)" in explained
    assert "4 queries" in explained
    explained = unwrapped(engine.execute("explain feed Once;")[0].lines)
    assert "the gate of News (distinct by title within 2 days), then Once (distinct)" in explained
    (answer,) = engine.execute("preview create feed T from Wire | Agency distinct by title over last 7 days;")
    assert answer.to_json()["matched"] == 2
    assert "`distinct by title` was applied to these items only" in answer.message
    (answer,) = engine.execute("show feed News;")
    assert answer.to_json()["statement"].startswith(
        "create feed News from Wire | Agency distinct by title within 2 days"
    )
    run.close()


def unwrapped(lines: Iterable[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_from_last_has_no_duplicates(engine: Engine, clock: FakeClock) -> None:
    """Items accepted before the feed was matched are evaluated per message, looking back over the whole window."""
    engine.execute("register feed Wire; create feed News from Wire distinct by title within 2 days;")
    for title in ("a", "b", "A", "c", "B", "d"):
        engine.publish("Wire", items((title, len(title) + engine.workspace.items.last_sequence())))
        clock.advance(timedelta(hours=6))
    engine.execute("subscribe to News output jsonl 'news.jsonl' from last 7 days;")
    run = InProcess(engine)
    run.run()
    lines = (engine.workspace.out / "news.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["attributes"]["title"] for line in lines] == [["a"], ["b"], ["c"], ["d"]]
    run.close()


def test_backup_contains_the_keys_of_distinct_feeds(engine: Engine, tmp_path: Path, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1)))
    run.match()
    run.close()
    back_up(engine.workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again", clock=clock)
    with runnel.connect(tmp_path / "again", clock=clock) as again:
        other = InProcess(again)
        again.publish("Agency", items(("MUSE", 2), ("Muse live", 3)))
        other.match()
        assert matched_ids(again, "News") == ["Muse/1", "Muse live/3"]
        verify(again)
        other.close()


def test_dataframes_refuse_distinct_feeds() -> None:
    from runnel.spark import match

    plan = runnel.compile("create feed News from Wire distinct by title")
    assert plan.gates == ("distinct by title",)
    with pytest.raises(InputError, match="no order"):
        match(None, plan)
    first, second = {"title": "a"}, {"title": "A"}
    assert plan.match([first, second]) == [["News"], []]
    assert plan.match([second]) == [["News"]]
    batches = [plan.batch([first]), plan.batch([second])]
    assert [plan.matcher.match(batch).total for batch in batches] == [1, 0]


def test_invalid_distinct_clauses_are_refused(engine: Engine) -> None:
    engine.execute("register feed Wire;")
    with pytest.raises(StatementError, match="366 days") as caught:
        engine.execute("create feed N from Wire distinct within 2 years;")
    assert caught.value.span is not None
    assert caught.value.span.column == 41


@pytest.mark.spark
def test_distinct_feed_on_spark_from_statement_to_file(engine: Engine, clock: FakeClock, spark: Any) -> None:
    engine.execute(SCRIPT + "subscribe to Cheap output jsonl 'cheap.jsonl';")
    engine.publish("Wire", items(*((f"Muse {number % 40}", number) for number in range(1200))))
    engine.run(once=True)
    engine.publish("Agency", items(*((f"muse  {number % 60}", number) for number in range(300))))
    engine.run(once=True)
    verify(engine)
    assert len(matched_ids(engine, "News")) == 60
    assert len((engine.workspace.out / "cheap.jsonl").read_text("utf-8").splitlines()) == 10
    preview = engine.preview("preview feed News", since=timedelta(days=1))
    assert preview.matched == 60


def test_part_deleted_before_the_commit_is_not_committed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1)))
    real = run.writer._resolve

    def collected(catalog: Catalog, storage: Storage, parts: Any, written: Any) -> Any:
        resolved = real(catalog, storage, parts, written)
        storage.delete(resolved.parts[0].path if resolved else parts[0].path)
        return resolved

    monkeypatch.setattr(run.writer, "_resolve", collected)
    with pytest.raises(ReportedError, match="deleted before its batch was committed"):
        run.match()
    assert engine.workspace.matches.matched_upto() == 0
    monkeypatch.undo()
    run.match()
    assert matched_ids(engine, "News") == ["Muse/1"]
    run.close()


def test_size_of_claims_counts_towards_the_buffer_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.execute("register feed Wire; create feed News from Wire distinct by title; subscribe to News output log;")
    monkeypatch.setattr(match_job, "MAX_BUFFER_BYTES", 1)
    run = InProcess(engine, slice_items=2)
    engine.publish("Wire", items(*((f"title {number % 5}", number) for number in range(10))))
    run.match()
    with engine.workspace.catalog.read() as connection:
        assert len(match_segments.match_parts(connection, 0, 10, limit=100)) == 5, (
            "every slice has claims and nothing else"
        )
    assert len(matched_ids(engine, "News")) == 5
    run.close()
