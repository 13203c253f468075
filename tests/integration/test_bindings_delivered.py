"""Delivery of bindings: immediately, in digests, from past items, in replays, and as attributes of derived items.

The tests insert the answers of operators into the matching step: the item with sequence n has n people for the query
Mobs, whether it matches or must pass a gate first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.in_process import InProcess

import runnel
from runnel.catalog.declared import feeds
from runnel.catalog.delivery import ledger
from runnel.delivery.match_reader import LoadedItems
from runnel.engine import Engine
from runnel.engine.open_delivery import match_reader_of
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.errors import DeliveryError
from runnel.logs.matches import match_log
from runnel.logs.matches.match_files import DETAILED_SCHEMA, match_records
from runnel.model.bindings import Bindings
from runnel.model.message import MessageState
from runnel.storage.file_storage import FileStorage
from runnel.streaming.worker import match_buffer as found_module
from runnel.testing import FakeClock, MemorySink

IDENTITY = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>
</xsl:stylesheet>"""
DECLARED = """
register feed Cameras;
create feed Mobs from Cameras where title contains 'mob';
create feed Watched from Mobs where title contains 'bronx';
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "root", clock=clock) as opened:
        (opened.workspace.folder / "sheets").mkdir(exist_ok=True)
        (opened.workspace.folder / "sheets" / "same.xsl").write_text(IDENTITY)
        opened.execute(DECLARED)

        def with_people(sequences: Any, matches: Any, *rest: Any) -> Any:
            with opened.workspace.catalog.read() as connection:
                ids = {name: number for number, name in feeds.feed_names(connection).items()}
            bound = {n: {ids["Mobs"]: [{"people": float(n)}]} for n in sequences.tolist()}
            return match_records(sequences, matches, bound)

        monkeypatch.setattr(found_module, "match_records", with_people)
        yield opened
    MemorySink.clear()


@pytest.fixture
def runner(engine: Engine) -> Iterator[InProcess]:
    made = InProcess(engine)
    yield made
    made.close()


def publish(engine: Engine, *titles: str) -> None:
    engine.publish("Cameras", [{"id": title, "title": title} for title in titles])


def people(number: float) -> Bindings:
    return Bindings(({"people": number},), 1)


def delivered(key: str) -> list[tuple[str, Bindings]]:
    return [(item.item.id, item.bindings) for message in MemorySink.delivered(key) for item in message.items]


def test_an_entry_has_the_bindings_of_the_feed_that_was_subscribed_to(engine: Engine, runner: InProcess) -> None:
    engine.execute(
        "subscribe to Mobs output memory 'mobs'; subscribe to Watched output memory 'watched';"
        "subscribe to Cameras output memory 'all'; subscribe to Mobs output jsonl 'mobs.jsonl';"
    )
    publish(engine, "quiet", "mob in the bronx", "mob")
    runner.run()
    assert delivered("mobs") == [("mob in the bronx", people(2.0)), ("mob", people(3.0))]
    assert delivered("watched") == [("mob in the bronx", Bindings())], "a view's variables are not seen over it"
    assert {value for _, value in delivered("all")} == {Bindings()}
    lines = (engine.workspace.folder / "out" / "mobs.jsonl").read_text().splitlines()
    assert [json.loads(line)["bindings"] for line in lines] == [[{"people": 2}], [{"people": 3}]]
    assert [(match.sequence, match.bindings) for match in engine.matches("Mobs")] == [
        (2, people(2.0)),
        (3, people(3.0)),
    ]
    assert [match.bindings for match in engine.matches("Watched")] == [Bindings()]


def test_a_match_that_passes_a_gate_keeps_its_bindings(engine: Engine, runner: InProcess) -> None:
    engine.execute(
        "drop feed Mobs cascade;"
        "create feed Mobs from Cameras distinct by title within 2 days where title contains 'mob';"
        "subscribe to Mobs output memory 'mobs';"
    )
    for number in range(2):
        engine.publish("Cameras", [{"id": f"{number}{text}", "title": text} for text in ("mob", "quiet", "mob two")])
    runner.run()
    assert delivered("mobs") == [("0mob", people(1.0)), ("0mob two", people(3.0))]
    assert [match.sequence for match in engine.matches("Mobs")] == [1, 3]
    assert [rows.sequences.tolist() for rows in engine.workspace.matches.read(0, 6)] == [[1, 3]]


def test_digests_have_bindings_after_files_were_merged(engine: Engine, runner: InProcess, clock: FakeClock) -> None:
    engine.execute("subscribe to Mobs output memory 'mobs' every 3 days;")
    for title in ("mob one", "quiet", "mob two"):
        publish(engine, title)
        runner.match()
        clock.advance(timedelta(hours=2))
    clock.advance(timedelta(days=2))
    run_maintenance(engine.workspace, runner.epoch)
    clock.advance(timedelta(days=2))
    runner.run()
    assert delivered("mobs") == [("mob one", people(1.0)), ("mob two", people(3.0))]


def test_matches_from_before_the_query_was_live_have_no_bindings(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    publish(engine, "mob early")
    runner.match()
    engine.execute("subscribe to Mobs output log;")
    publish(engine, "mob late")
    runner.match()
    engine.execute("subscribe to Mobs output memory 'mobs' from last 2 days;")
    runner.run()
    assert delivered("mobs") == [("mob early", Bindings()), ("mob late", people(2.0))]


def test_replayed_dead_letter_has_its_bindings(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.execute("subscribe to Mobs output memory 'mobs';")
    seen: list[Any] = []

    def refuse(sink: MemorySink, delivery: Any) -> str:
        seen.append(delivery)
        raise DeliveryError("no", permanent=True)

    monkeypatch.setattr(MemorySink, "deliver", refuse)
    publish(engine, "mob")
    runner.run()
    monkeypatch.undo()
    [first] = seen
    engine.execute(f"replay message '{first.key}';")
    runner.restart_delivery()
    runner.deliver()
    [again] = MemorySink.delivered("mobs")
    assert again.key == first.key
    assert [item.bindings for item in again.items] == [item.bindings for item in first.items] == [people(1.0)]


def test_items_of_a_materialized_feed_can_be_matched_by_bindings(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.execute(
        "register feed Mobs apply 'same.xsl' as Crowds;"
        'create feed Large from Crowds where "binding:people" >= 3;'
        "subscribe to Large output memory 'large';"
    )
    publish(engine, "quiet", "mob one", "mob two")
    runner.run()
    runner.run()
    [(item, bound)] = [
        (value.item, value.bindings) for message in MemorySink.delivered("large") for value in message.items
    ]
    assert item.attributes["title"] == ("mob two",)
    assert item.attributes["binding:people"] == (3.0,)
    assert "runnel:binding" not in item.attributes
    assert bound == Bindings()


def test_damaged_bindings_delay_only_subscriptions_that_need_them(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.execute(
        "create feed Quiet from Cameras where title contains 'quiet';"
        "subscribe to Mobs output memory 'mobs'; subscribe to Quiet output memory 'quiet';"
    )

    def damaged(sequences: Any, matches: Any, *rest: Any) -> Any:
        records = match_records(sequences, matches, {1: {2: [{"x": 1.0}]}})
        texts = pa.array(['[{"queries":', None], pa.large_string())
        return pa.RecordBatch.from_arrays([*records.columns[:3], texts], schema=DETAILED_SCHEMA)

    monkeypatch.setattr(found_module, "match_records", damaged)
    publish(engine, "mob", "quiet")
    runner.run()
    assert delivered("quiet") == [("quiet", Bindings())]
    assert delivered("mobs") == []
    with engine.workspace.catalog.read() as connection:
        [message] = [value for number in (1, 2) for value in ledger.messages_of(connection, number) if value.outcome][
            :1
        ]
        states = {value.state for number in (1, 2) for value in ledger.messages_of(connection, number)}
    assert states == {MessageState.OPEN, MessageState.DONE}
    assert "the stored bindings of an item are invalid" in (message.outcome or "")


def test_part_without_bindings_is_checked_once(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_module, "match_records", match_records)
    engine.execute("subscribe to Mobs output memory 'mobs';")
    asked: list[str] = []

    def asking(storage: FileStorage, path: str) -> bool:
        asked.append(path)
        return False

    monkeypatch.setattr(match_log, "has_details", asking)
    publish(engine, "mob")
    runner.run()
    assert delivered("mobs") == [("mob", Bindings())]
    assert asked == [], "the matches were read, so it was known"
    reader = match_reader_of(engine.workspace)
    assert reader.with_details(LoadedItems({}, {}), {1: [1]}).bindings == {}
