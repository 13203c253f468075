"""Materialised feeds: what a stylesheet makes becomes items of another feed, once, and hurts nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess, matched_ids
from tests.unit.sinks.conftest import Deliver

import runnel
from runnel.catalog.delivery import ledger
from runnel.engine import Engine
from runnel.errors import BacklogError, BrokenDocumentError, DeliveryError, InputError
from runnel.model.message import Message, MessageState
from runnel.sinks.contract import Content
from runnel.sinks.materialized_feed import MaterializedFeed
from runnel.testing import FakeClock, MemorySink

IDENTITY = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>
{more}</xsl:stylesheet>"""
SHOUT = IDENTITY.format(
    more="<xsl:template match='item/title'><title>LOUD <xsl:value-of select='.'/></title></xsl:template>"
)
NO_FEED = (
    '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
    '<xsl:template match="/"><p>hello</p></xsl:template></xsl:stylesheet>'
)
DECLARED = """
register feed Wire;
create feed Rock from Wire where title contains 'rock';
register feed Rock apply 'shout.xsl' as Loud;
create feed LoudTour from Loud where title contains 'tour';
subscribe to LoudTour output memory 'tour';
subscribe to Rock output memory 'rock';
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "root", clock=clock, lag_limit=10) as opened:
        sheets = opened.workspace.folder / "sheets"
        sheets.mkdir(exist_ok=True)
        (sheets / "shout.xsl").write_text(SHOUT)
        (sheets / "wrong.xsl").write_text(NO_FEED)
        yield opened
    MemorySink.clear()


@pytest.fixture
def runner(engine: Engine) -> Iterator[InProcess]:
    engine.execute(DECLARED)
    made = InProcess(engine)
    yield made
    made.close()


def _publish(engine: Engine, *titles: str) -> None:
    engine.publish(
        "Wire", [{"id": title, "title": title, "link": f"https://a.example/{n}"} for n, title in enumerate(titles)]
    )


def _internal(engine: Engine) -> list[Message]:
    with engine.workspace.catalog.read() as connection:
        number = connection.exec_driver_sql("select id from subscriptions where kind = 'feed'").scalar_one()
        return ledger.messages_of(connection, number)


def test_items_of_a_materialized_feed_are_matched_and_delivered(engine: Engine, runner: InProcess) -> None:
    _publish(engine, "rock tour", "rock band", "jazz tour")
    runner.run()
    assert [entry.state for entry in _internal(engine)] == [MessageState.DONE]
    runner.run()
    titles = [value.item.first("title") for value in MemorySink.delivered("tour")[0].items]
    assert titles == ["LOUD rock tour"]
    assert MemorySink.item_ids("rock") == ["rock tour", "rock band"]
    [item] = [match.item for match in engine.matches("LoudTour")]
    assert item.feed == "Loud"
    assert item.first("link") == "https://a.example/0"


def test_repeated_message_creates_no_second_item(engine: Engine, runner: InProcess) -> None:
    _publish(engine, "rock tour")
    runner.run()
    with engine.workspace.catalog.write() as connection:
        connection.exec_driver_sql("update messages set state = 'open', finished = null, not_before = 0")
    MemorySink.clear()
    runner.run()
    assert [(message.state, message.attempts) for message in _internal(engine)] == [(MessageState.DONE, 2)]
    assert len(matched_ids(engine, "LoudTour")) == 1


def test_edited_item_creates_a_new_version_of_the_derived_item(engine: Engine, runner: InProcess) -> None:
    _publish(engine, "rock tour")
    runner.run()
    engine.publish("Wire", [{"id": "rock tour", "title": "rock tour, again"}])
    runner.run()
    runner.run()
    made = [match.item for match in engine.matches("LoudTour")]
    assert [(item.version, item.first("title")) for item in made] == [
        (1, "LOUD rock tour"),
        (2, "LOUD rock tour, again"),
    ]
    assert len({entry.id for entry in made}) == 1


def test_stylesheet_output_that_is_not_a_feed_becomes_a_dead_letter(engine: Engine, runner: InProcess) -> None:
    engine.execute("drop feed Loud cascade; register feed Rock apply 'wrong.xsl' as Loud;")
    _publish(engine, "rock tour")
    runner.run()
    with engine.workspace.catalog.read() as connection:
        last = connection.exec_driver_sql("select max(id) from subscriptions where kind = 'feed'").scalar_one()
        [message] = ledger.messages_of(connection, last)
    assert (message.state, message.attempts) == (MessageState.DEAD, 1)
    assert "not a feed" in (message.outcome or "")
    assert MemorySink.item_ids("rock") == ["rock tour"]


def test_messages_wait_while_too_many_items_wait_for_matching(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    _publish(engine, "rock tour")
    runner.match()
    engine.publish("Wire", [{"id": str(number)} for number in range(10)])  # which nobody has matched yet
    for _ in range(30):
        runner.deliver()
        clock.advance(timedelta(seconds=6))
    [message] = _internal(engine)
    assert (message.state, message.attempts) == (MessageState.OPEN, 0), "waiting is not failing"
    assert "wait for matching" in (message.outcome or "")
    runner.match()
    clock.advance(timedelta(seconds=6))
    runner.run()
    assert [entry.state for entry in _internal(engine)] == [MessageState.DONE]


# --- the sink alone ------------------------------------------------------------------------------------------------


def test_internal_output_cannot_be_used_in_subscriptions(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be used by subscriptions"):
        MaterializedFeed().validate_target("3", tmp_path)


def test_sink_passes_the_document_to_the_acquirer(make_delivery: Deliver) -> None:
    taken: list[tuple[int, bytes]] = []

    def accept(feed: int, data: bytes, place: str, bound: object) -> str:
        taken.append((feed, data))
        return place

    delivery = replace(make_delivery("7"), accept=accept)
    sink = MaterializedFeed()
    assert "m1" in sink.deliver(delivery)
    object.__setattr__(delivery, "content", Content("application/xml", b"<rss/>"))
    sink.deliver(delivery)
    assert taken[0][0] == taken[1][0] == 7
    assert taken[0][1].startswith(b"<?xml")
    assert taken[1][1] == b"<rss/>"


@pytest.mark.parametrize("target", [None, "", "Loud", "-1", "٣", "7; drop"])
def test_target_that_is_not_a_feed_id_is_refused_permanently(make_delivery: Deliver, target: str | None) -> None:
    with pytest.raises(DeliveryError) as caught:
        MaterializedFeed().deliver(replace(make_delivery(target), accept=lambda feed, data, place, bound: ""))
    assert caught.value.permanent


def test_unreadable_output_fails_permanently_and_backlog_is_retried(make_delivery: Deliver) -> None:
    def broken(feed: int, data: bytes, place: str, bound: object) -> str:
        raise BrokenDocumentError("no root element")

    def backlogged(feed: int, data: bytes, place: str, bound: object) -> str:
        raise BacklogError("10 items wait for matching")

    with pytest.raises(DeliveryError) as caught:
        MaterializedFeed().deliver(replace(make_delivery("7"), accept=broken))
    assert caught.value.permanent
    with pytest.raises(BacklogError):
        MaterializedFeed().deliver(replace(make_delivery("7"), accept=backlogged))
    with pytest.raises(DeliveryError, match="runner"):
        MaterializedFeed().deliver(make_delivery("7"))
