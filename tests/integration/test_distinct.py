"""Distinct feeds from statement to match log: by the runner's own parts in this process, and once in Spark.

Whatever is declared, however the items are cut into batches, and wherever a runner dies, the match log says what the
reference evaluator says of the item log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.in_process import InProcess, matched_ids
from tests.unit.matching.distinct.distinct_worlds import SOURCES, START, DistinctWorld, distinct_worlds

import runnel
from runnel.algebra.nodes.query import Distinct, Filter, Node, Read, Union
from runnel.algebra.nodes.render import render
from runnel.algebra.semantics.distinct import render_distinct
from runnel.algebra.semantics.evaluate_log import LoggedItem, evaluate_log
from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, seen_keys
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.engine import Engine, connect
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.upkeep.restore import restore
from runnel.errors import InputError, StatementError
from runnel.logs.garbage import collect_garbage
from runnel.storage.file_storage import Storage
from runnel.streaming.worker import match_job
from runnel.streaming.worker.failures import ReportedError
from runnel.streaming.worker.match_job import match_slices
from runnel.testing import FakeClock

SCRIPT = """
register feed Wire; register feed Agency;
create feed News from Wire | Agency distinct by title within 2 days where title contains 'muse';
create feed Cheap from News where price < 10;
create feed Either from (News | Agency as $a) where $a[price > 100];
create feed Once from Either distinct;
subscribe to News output log; subscribe to Cheap output log; subscribe to Once output log;
"""


def logged(engine: Engine) -> list[LoggedItem]:
    """The item log as the evaluator takes it."""
    items = engine.root.items
    return [
        LoggedItem(item.sequence or 0, item.time or START, int(feed), item.id, item.attributes)
        for batch in items.read(0, items.last_sequence())
        for feed, item in zip(batch.feeds, batch.items({}), strict=True)
    ]


def verify(engine: Engine) -> None:
    """The match log, one row an item and nothing twice, is what the evaluator says."""
    with engine.root.catalog.read() as connection:
        definitions, since = feeds.definitions(connection), feeds.since_of(connection)
    expected = {
        one.item.sequence: sorted(one.feeds) for one in evaluate_log(logged(engine), definitions, since) if one.feeds
    }
    found: dict[int, list[int]] = {}
    for rows in engine.root.matches.read(0, engine.root.items.last_sequence()):
        for row, sequence in enumerate(rows.sequences.tolist()):
            assert sequence not in found
            found[sequence] = rows.queries[rows.offsets[row] : rows.offsets[row + 1]].tolist()
    assert found == expected
    assert engine.status().matches == sum(map(len, found.values()))


def statement(name: str, node: Node, names: dict[int, str]) -> str:
    """A generated definition in the language."""
    clause, conditions = "", []
    if isinstance(node, Distinct):
        clause, node = f" {render_distinct(node.by, node.window)}", node.input
    if isinstance(node, Filter) and not isinstance(node.input, Read):
        conditions.append(f"({render(node.condition)})")
        node = node.input
    terms = []
    for number, term in enumerate(node.inputs if isinstance(node, Union) else (node,)):
        match term:
            case Filter(Read(feed), condition):
                terms.append(f"{names[feed]} as $v{number}")
                conditions.append(f"$v{number}[{render(condition)}]")
            case Filter(Filter(Read(feed), inner), condition):
                terms.append(f"{names[feed]} as $v{number}")
                conditions += [f"$v{number}[{render(one)}]" for one in (inner, condition)]
            case Read(feed):
                terms.append(names[feed])
            case _:
                raise AssertionError(term)
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return f"create feed {name} from {' | '.join(terms)}{clause}{where};"


def script(world: DistinctWorld) -> str:
    names = SOURCES | {feed: f"F{feed}" for feed in world.definitions}
    lines = [f"register feed {name};" for name in SOURCES.values()]
    lines += [statement(names[feed], node, names) for feed, node in world.definitions.items()]
    lines += [f"subscribe to {names[feed]} output log;" for feed in world.definitions]
    return "\n".join(lines)


@given(distinct_worlds(), st.data())
@settings(deadline=None, max_examples=15)
def test_any_world_in_any_batches(world: DistinctWorld, data: st.DataObject) -> None:
    clock = FakeClock(START)
    with tempfile.TemporaryDirectory() as folder, runnel.connect(Path(folder) / "root", clock=clock) as engine:
        engine.execute(script(world))
        run = InProcess(engine, slice_items=data.draw(st.integers(1, 5)))
        before = START
        for place, item in enumerate(world.items):
            if place in world.cuts:
                match_somehow(run, data.draw(st.sampled_from(["once", "died before", "again", "later"])))
                if data.draw(st.booleans()):
                    engine.execute(f"create feed Late{place} from F10 | Two; subscribe to Late{place} output log;")
            clock.advance(item.accepted - before)
            before = item.accepted
            values = {name: value[0] for name, value in item.attributes.items()}
            engine.publish(SOURCES[item.feed], [{"id": item.id, **values}])
        run.match()
        verify(engine)
        run.close()


def match_somehow(run: InProcess, how: str) -> None:
    """Match what waits; a runner that died left a part that nobody names, and a batch may be run twice."""
    if how == "later":
        return
    start, number = run.offset, run.batches
    if how == "died before":
        end = run.reader.latestOffset(start, None)
        step = match_slices(run.job.storage, run.job.lineage)
        for partition in run.reader.partitions(start, end):
            assert list(step(run.reader.read(partition)))
    run.match()
    if how == "again" and run.batches == number + 1:
        run.commit(start, run.offset, number)


def stop(engine: Engine, run: InProcess) -> None:
    """The end of a run: another may begin."""
    run.close()
    with engine.root.catalog.write() as connection:
        leases.release(connection, run.lease)


def items(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"id": f"{title}/{price}", "title": title, "price": price} for title, price in rows]


def test_what_is_committed_is_remembered_by_the_next_runner(engine: Engine, clock: FakeClock) -> None:
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


def test_a_changed_feed_begins_a_new_history_and_an_unchanged_one_does_not(engine: Engine) -> None:
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
    (told,) = engine.execute("why item 'Muse/3' in News;")
    assert (told.to_json()["holds"], told.to_json()["recorded"], told.to_json()["duplicate_of"]) == (True, True, {})
    assert publish(4) == ["Muse/1", "Muse/3"]
    engine.execute("create or replace feed News from Wire | Agency where title contains 'muse';")
    assert publish(5) == ["Muse/1", "Muse/3", "Muse/5"]
    assert matched_ids(engine, "Cheap") == ["Muse/1", "Muse/3", "Muse/5"]
    run.close()


def test_keys_are_forgotten_when_they_make_no_duplicates_any_more(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1), ("Muse on tour", 2)))
    run.match()

    def remembered() -> dict[str, int]:
        with engine.root.catalog.read() as connection:
            ids = {name: feed for feed, name in feeds.feed_names(connection).items()}
            return {name: seen_keys.count_keys(connection, ids[name]) for name in ("News", "Once")}

    assert remembered() == {"News": 2, "Once": 2}
    # An item that waits was accepted when the keys still counted.
    engine.publish("Agency", items(("muse", 3)))
    clock.advance(timedelta(days=3))
    assert run_maintenance(engine.root, run.epoch, chores=True).forgotten == 0
    run.match()
    assert matched_ids(engine, "News") == ["Muse/1", "Muse on tour/2"]
    assert run_maintenance(engine.root, run.epoch, chores=True).forgotten == 0, "the log's time has not gone on"
    engine.publish("Wire", items(("later", 4)))
    run.match()
    assert run_maintenance(engine.root, run.epoch, chores=True).forgotten == 2
    assert remembered() == {"News": 0, "Once": 2}
    engine.execute("drop feed Once cascade;")
    assert run_maintenance(engine.root, run.epoch, chores=True).forgotten == 2
    run.close()


def test_questions_about_a_distinct_feed(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1)))
    clock.advance(timedelta(hours=1))
    engine.publish("Agency", items(("MUSE", 2), ("Muse live", 3)))
    run.match()
    (told,) = engine.execute("why item 'MUSE/2' in Cheap;")
    assert not told.to_json()["holds"]
    assert told.to_json()["recorded"] is False
    assert told.to_json()["duplicate_of"] == {"News": {"source": "Wire", "item": "Muse/1", "sequence": 1}}
    assert any("same title within 2 days: Wire item Muse/1, accepted" in line for line in told.lines)
    (told,) = engine.execute("why item 'Muse live/3' in Cheap;")
    assert told.to_json()["holds"]
    assert told.to_json()["recorded"] is True
    assert told.to_json()["duplicate_of"] == {}
    explained = unwrapped(engine.execute("explain feed Cheap;")[0].lines)
    assert "without duplicates, at the gate of News (distinct by title within 2 days)" in explained
    assert "4 queries" in explained
    explained = unwrapped(engine.execute("explain feed Once;")[0].lines)
    assert "at the gate of News (distinct by title within 2 days), then Once (distinct)" in explained
    (told,) = engine.execute("preview create feed T from Wire | Agency distinct by title over last 7 days;")
    assert told.to_json()["matched"] == 2
    assert "duplicates were looked for among these items" in told.message
    (told,) = engine.execute("show feed News;")
    assert told.to_json()["statement"].startswith(
        "create feed News from Wire | Agency distinct by title within 2 days"
    )
    run.close()


def unwrapped(lines: Iterable[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_the_past_is_without_duplicates_too(engine: Engine, clock: FakeClock) -> None:
    """What was accepted before a feed was matched is evaluated, a message at a time, and looks back as far."""
    engine.execute("register feed Wire; create feed News from Wire distinct by title within 2 days;")
    for title in ("a", "b", "A", "c", "B", "d"):
        engine.publish("Wire", items((title, len(title) + engine.root.items.last_sequence())))
        clock.advance(timedelta(hours=6))
    engine.execute("subscribe to News output jsonl 'news.jsonl' from last 7 days;")
    run = InProcess(engine)
    run.run()
    lines = (engine.root.out / "news.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["attributes"]["title"] for line in lines] == [["a"], ["b"], ["c"], ["d"]]
    run.close()


def test_a_backup_remembers_what_distinct_feeds_have_had(engine: Engine, tmp_path: Path, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1)))
    run.match()
    run.close()
    back_up(engine.root, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again", clock=clock)
    with runnel.connect(tmp_path / "again", clock=clock) as again:
        other = InProcess(again)
        again.publish("Agency", items(("MUSE", 2), ("Muse live", 3)))
        other.match()
        assert matched_ids(again, "News") == ["Muse/1", "Muse live/3"]
        verify(again)
        other.close()


def test_rows_of_a_dataframe_have_no_order() -> None:
    from runnel.spark import match

    plan = runnel.compile("create feed News from Wire distinct by title")
    assert plan.is_distinct
    with pytest.raises(InputError, match="no order"):
        match(None, plan)
    first, second = {"title": "a"}, {"title": "A"}
    assert plan.match([first, second]) == [["News"], []]
    assert plan.match([second]) == [["News"]]
    batches = [plan.batch([first]), plan.batch([second])]
    assert [plan.matcher.match(batch).total for batch in batches] == [1, 0]


def test_distinct_cannot_be_misread(engine: Engine) -> None:
    engine.execute("register feed Wire;")
    with pytest.raises(StatementError, match="366 days") as caught:
        engine.execute("create feed N from Wire distinct within 2 years;")
    assert caught.value.span is not None
    assert caught.value.span.column == 41


@pytest.mark.parametrize(("at", "when"), [(1, "after"), (2, "before"), (2, "after")])
def test_a_death_while_committing_loses_and_repeats_nothing(tmp_path: Path, at: int, when: str) -> None:
    """Writes below matches/ are: the part of a task, then, in the commit, the part that takes its place."""
    root = tmp_path / "root"
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", items(("Muse", 1)))
        run = InProcess(engine)
        run.match()
        stop(engine, run)
        engine.publish("Agency", items(("muse", 200), ("Muse live", 2), ("MUSE live", 3)))
    storage = f"crash+{root.as_uri()}?at={at}&below=matches/&when={when}&counter={tmp_path / 'counter'}&group=GROUP"
    program = (
        "import os, sys\nfrom runnel.engine import connect\nfrom tests.integration.in_process import InProcess\n"
        "engine = connect(sys.argv[1], storage=sys.argv[2].replace('GROUP', str(os.getpgrp())))\n"
        "InProcess(engine).match()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(root), storage],
        start_new_session=True,
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == -9, ended.stderr.decode()
    with connect(root, orphan_seconds=0.0) as engine:
        assert engine.root.matches.matched_upto() == 1
        with engine.root.catalog.read() as connection:
            news = next(one for one, name in feeds.feed_names(connection).items() if name == "News")
            assert seen_keys.count_keys(connection, news) == 1
        run = InProcess(engine)
        run.match()
        verify(engine)
        assert matched_ids(engine, "News") == ["Muse/1", "Muse live/2"]
        assert collect_garbage(engine.root.catalog, engine.root.storage, older_than=0) > 0
        verify(engine)
        run.close()


@pytest.mark.spark
def test_in_spark_from_statement_to_file(engine: Engine, clock: FakeClock, spark: Any) -> None:
    engine.execute(SCRIPT + "subscribe to Cheap output jsonl 'cheap.jsonl';")
    engine.publish("Wire", items(*((f"Muse {number % 40}", number) for number in range(1200))))
    engine.run(once=True)
    engine.publish("Agency", items(*((f"muse  {number % 60}", number) for number in range(300))))
    engine.run(once=True)
    verify(engine)
    assert len(matched_ids(engine, "News")) == 60
    assert len((engine.root.out / "cheap.jsonl").read_text("utf-8").splitlines()) == 10
    preview = engine.preview("preview feed News", since=timedelta(days=1))
    assert preview.matched == 60


def test_a_part_that_was_collected_before_the_lock_is_never_committed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    engine.publish("Wire", items(("Muse", 1)))
    real = run.writer._settled

    def collected(catalog: Catalog, storage: Storage, parts: Any, written: Any) -> Any:
        settled = real(catalog, storage, parts, written)
        storage.delete(settled.parts[0].path if settled else parts[0].path)
        return settled

    monkeypatch.setattr(run.writer, "_settled", collected)
    with pytest.raises(ReportedError, match="removed before it could be committed"):
        run.match()
    assert engine.root.matches.matched_upto() == 0
    monkeypatch.undo()
    run.match()
    assert matched_ids(engine, "News") == ["Muse/1"]
    run.close()


def test_claims_count_when_a_worker_holds_much(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.execute("register feed Wire; create feed News from Wire distinct by title; subscribe to News output log;")
    monkeypatch.setattr(match_job, "MOST_BYTES", 1)
    run = InProcess(engine, slice_items=2)
    engine.publish("Wire", items(*((f"title {number % 5}", number) for number in range(10))))
    run.match()
    with engine.root.catalog.read() as connection:
        assert len(match_segments.match_parts(connection, 0, 10, limit=100)) == 5, (
            "every slice has claims and nothing else"
        )
    assert len(matched_ids(engine, "News")) == 5
    run.close()
