"""Delivery: every match during a subscription is delivered to its endpoint once, even after failures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from tests import catalog_rows
from tests.integration.in_process import InProcess, live_names
from tests.log_upkeep import archive_matched, collect_garbage

from runnel.catalog.delivery import ledger
from runnel.catalog.logs import match_segments
from runnel.catalog.store.leases import acquire, release
from runnel.delivery.match_reader import MessageRange
from runnel.delivery.recorder import Recorder
from runnel.engine import Engine
from runnel.engine.declare.end_expired import end_expired
from runnel.errors import CatalogUnavailableError, FencedError, StatementError
from runnel.model.message import Message, MessageState
from runnel.testing import FakeClock, MemorySink

HOUR = timedelta(hours=1)
DECLARED = """
register feed Wire;
create feed Rock from Wire where title contains 'rock';
create feed Jazz from Wire where title contains 'jazz';
create feed All from Wire;
"""


def _publish(engine: Engine, *numbers: int) -> None:
    """Publish items whose ids are numbers: titles of even ones contain rock, of odd ones jazz."""
    words = ["rock", "jazz"]
    engine.publish("Wire", [{"id": str(number), "title": f"{words[number % 2]} {number}"} for number in numbers])


def _messages(engine: Engine, subscription: int) -> list[Message]:
    with engine.workspace.catalog.read() as connection:
        return ledger.messages_of(connection, subscription)


def _states(engine: Engine, subscription: int) -> list[MessageState]:
    return [message.state for message in _messages(engine, subscription)]


@pytest.fixture
def runner(engine: Engine) -> InProcess:
    """A runner of the test's engine, with the feeds of this module declared."""
    engine.execute(DECLARED)
    return InProcess(engine)


# --- immediate -----------------------------------------------------------------------------------------------------


def _number(key: str) -> str:
    """Return the key of a message without the workspace's number and the digest of the items."""
    return "-".join(key.split("-")[1:3])


def test_immediate_subscriptions_receive_each_match_once(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Rock output memory 'rock'; subscribe to All output memory 'all';")
    _publish(engine, 1, 2, 3, 4)
    assert runner.run() == 2
    assert runner.run() == 0, "nothing new, no message"
    _publish(engine, 5, 7)
    assert runner.run() == 1, "no message for a subscription without matches"
    _publish(engine, 6)
    runner.run()
    assert MemorySink.item_ids("rock") == ["2", "4", "6"]
    assert MemorySink.item_ids("all") == ["1", "2", "3", "4", "5", "7", "6"]
    assert [(_number(message.key), message.count, message.state) for message in _messages(engine, 1)] == [
        ("1-1", 2, MessageState.DONE),
        ("1-2", 1, MessageState.DONE),
    ]
    delivered = MemorySink.delivered("rock")
    assert [_number(entry.key) for entry in delivered] == ["1-1", "1-2"]
    assert delivered[0].feed_name == "Rock"
    assert {item.feed_title for item in delivered[0].items} == {"Wire"}


def test_subscription_delivers_only_later_matches(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to All output log;")
    _publish(engine, 1)
    runner.match()
    _publish(engine, 2)  # accepted before the subscription, matched after it
    engine.execute("subscribe to All output memory 'all';")
    _publish(engine, 3)
    runner.run()
    assert MemorySink.item_ids("all") == ["3"]


def test_output_log_records_no_messages(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to All output log; subscribe to Rock output log every 1 hour;")
    _publish(engine, 1, 2)
    assert runner.run() == 0
    assert [match.item.id for match in engine.matches("All")] == ["1", "2"]
    assert engine.status().messages == {}


def test_fenced_runner_cannot_record_messages(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to All output memory 'all';")
    _publish(engine, 1)
    runner.match()
    with engine.workspace.catalog.write() as connection:
        release(connection, runner.lease)
        acquire(connection, 60.0)
    with pytest.raises(FencedError):
        runner.deliver()
    assert MemorySink.item_ids("all") == []
    assert engine.status().messages == {}


# --- digests -------------------------------------------------------------------------------------------------------


def test_a_digest_waits_for_its_period_and_then_is_one_message(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to All output memory 'digest' every 1 hour;")
    _publish(engine, 1)
    runner.run()
    clock.advance(HOUR / 2)
    _publish(engine, 2)
    assert runner.run() == 0, "the period is not over"
    clock.advance(HOUR / 2)
    assert runner.run() == 1
    assert [len(delivery.items) for delivery in MemorySink.delivered("digest")] == [2]
    _publish(engine, 3)
    assert runner.run() == 0, "the next period has begun"
    clock.advance(HOUR * 3 + HOUR / 4)
    assert runner.run() == 1, "periods that were missed are one message"
    _publish(engine, 4)
    clock.advance(HOUR / 2)
    assert runner.run() == 0
    clock.advance(HOUR / 4)
    assert runner.run() == 1, "periods keep their beat, counted from the subscription"
    clock.advance(HOUR * 2)
    assert runner.run() == 0, "nothing matched, no message"
    assert MemorySink.item_ids("digest") == ["1", "2", "3", "4"]
    assert [_number(message.key) for message in _messages(engine, 1)] == ["1-1", "1-2", "1-3"]


def test_digest_paused_beyond_its_period_is_sent_after_resume(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to All output memory 'digest' every 1 hour;")
    _publish(engine, 1)
    engine.execute("pause subscription 1;")
    clock.advance(HOUR * 2)
    assert runner.run() == 0
    engine.execute("resume subscription 1;")
    assert runner.run() == 1
    assert MemorySink.item_ids("digest") == ["1"]


# --- expiry --------------------------------------------------------------------------------------------------------


def test_expired_subscription_ends_and_its_query_is_no_longer_matched(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to Rock output memory 'rock' for 2 days; subscribe to Jazz output memory 'jazz';")
    _publish(engine, 2)
    clock.advance(timedelta(days=1))
    runner.run()
    version = engine.status().plan_version
    assert live_names(engine) == {"Rock", "Jazz"}
    clock.advance(timedelta(days=1))
    _publish(engine, 4, 5)
    runner.run()
    assert live_names(engine) == {"Jazz"}
    status = engine.status()
    assert (status.subscriptions, status.plan_queries) == (1, 1)
    assert status.plan_version == (version or 0) + 1
    assert MemorySink.item_ids("rock") == ["2"]
    assert MemorySink.item_ids("jazz") == ["5"]
    assert end_expired(engine.workspace) == 0, "once is enough"
    assert engine.status().plan_version == status.plan_version


def test_the_last_digest_of_a_subscription_that_expires_is_delivered(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to All output memory 'digest' every 1 hour for 1 hour;")
    _publish(engine, 1)
    runner.run()
    clock.advance(HOUR)
    runner.run()
    assert MemorySink.item_ids("digest") == ["1"]
    assert engine.status().subscriptions == 0


@pytest.mark.parametrize("kinds", [("rss", "rss"), ("rss", "atom"), ("json", "jsonl")])
def test_a_file_belongs_to_one_subscription(engine: Engine, runner: InProcess, kinds: tuple[str, str]) -> None:
    engine.execute(f"subscribe to Rock output {kinds[0]} 'same.file';")
    with pytest.raises(StatementError, match=r"same\.file"):
        engine.execute(f"subscribe to Jazz output {kinds[1]} 'same.file';")
    engine.execute("unsubscribe 1;")
    engine.execute(f"subscribe to Jazz output {kinds[1]} 'same.file';")


# --- from the past -------------------------------------------------------------------------------------------------


def test_from_last_evaluates_stored_items_if_the_query_was_not_live(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to Jazz output log;")
    _publish(engine, 2)
    runner.run()
    clock.advance(timedelta(days=8))
    _publish(engine, 4, 5)
    runner.run()
    engine.execute("subscribe to Rock output memory 'rock' from last 7 days;")
    _publish(engine, 6, 7)
    runner.run()
    assert MemorySink.item_ids("rock") == ["4", "6"]
    _publish(engine, 8)
    runner.run()
    assert MemorySink.item_ids("rock") == ["4", "6", "8"]
    assert sum(message.count for message in _messages(engine, 2)) == 3
    assert all(match.item.id != "4" for match in engine.matches("Rock")), "the match log is not written in the past"


def test_from_last_of_a_live_query_reads_the_match_log(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Rock output log;")
    _publish(engine, 2, 3, 4)
    runner.run()
    engine.execute("subscribe to Rock output memory 'rock' from last 1 hour;")
    _publish(engine, 6)
    runner.run()
    assert MemorySink.item_ids("rock") == ["2", "4", "6"]


def test_from_last_leaves_no_gap_while_items_wait_for_matching(engine: Engine) -> None:
    engine.execute(f"{DECLARED} subscribe to All output log;")
    runner = InProcess(engine, max_batch_items=5)
    _publish(engine, *range(1, 11))
    runner.step()
    engine.execute("subscribe to Rock output memory 'rock' from last 7 days;")
    runner.deliver()
    runner.run()
    _publish(engine, 12)
    runner.run()
    assert MemorySink.item_ids("rock") == ["2", "4", "6", "8", "10", "12"]
    assert sum(message.count for message in _messages(engine, 2)) == 6, "the ledger counts what was sent"


@pytest.mark.parametrize("period", ["", " every 1 hour"])
def test_from_last_while_running_has_neither_gap_nor_repetition(
    engine: Engine, clock: FakeClock, period: str
) -> None:
    engine.execute(f"{DECLARED} subscribe to All output log;")
    runner = InProcess(engine, max_batch_items=4)
    _publish(engine, *range(1, 11))
    runner.match()
    engine.execute(f"subscribe to Rock output memory 'rock' from last 7 days{period};")
    _publish(engine, *range(11, 21))
    while runner.step():
        clock.advance(HOUR)
        runner.deliver()
    assert MemorySink.item_ids("rock") == [str(number) for number in range(2, 21, 2)]
    keys = [message.key for message in _messages(engine, 2)]
    assert len(keys) == len(set(keys))


def test_long_backlog_is_split_into_messages(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runnel.delivery import match_reader

    monkeypatch.setattr(match_reader, "_MAX_MESSAGE_ITEMS", 3)
    _publish(engine, *range(1, 17))
    runner.match()
    engine.execute("subscribe to Rock output memory 'rock' from last 1 day;")
    assert runner.run() == 3
    assert [len(delivery.items) for delivery in MemorySink.delivered("rock")] == [3, 3, 2]
    assert MemorySink.item_ids("rock") == [str(number) for number in range(2, 17, 2)]


def test_large_items_are_split_into_more_messages(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.delivery.match_reader._MAX_OWN_BYTES", 250_000)
    engine.execute("subscribe to All output memory 'all'; subscribe to All output memory 'late' every 1 hour;")
    sizes = [100, 100, 100, 400, 10, 10, 300]
    engine.publish("Wire", [{"id": str(row), "title": "é" * 500 * size} for row, size in enumerate(sizes)])
    runner.run()
    expected = [["0", "1"], ["2"], ["3"], ["4", "5"], ["6"]]
    assert [[item.item.id for item in delivery.items] for delivery in MemorySink.delivered("all")] == expected
    assert [(message.count, message.state) for message in _messages(engine, 1)] == [
        (len(ids), MessageState.DONE) for ids in expected
    ]


def test_backlog_is_read_in_bounded_portions_without_loss(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.delivery.match_reader._MAX_OWN_BYTES", 100_000)
    monkeypatch.setattr("runnel.delivery.match_reader._MAX_CACHED_BYTES", 100_000)
    monkeypatch.setattr("runnel.delivery.composer._MAX_BYTES", 350_000)
    for name in "abc":
        engine.execute(f"create feed {name.upper()} from Wire where of = '{name}';")
        engine.execute(f"subscribe to {name.upper()} output memory '{name}';")
    # Of a: nine messages of one item each; of b: a message that is more than all that is read at once; of c: little.
    large = [{"id": f"a{row}", "of": "a", "title": "x" * 90_000} for row in range(9)]
    huge = [{"id": "b0", "of": "b", "title": "x" * 400_000}]
    engine.publish("Wire", [*large, *huge, {"id": "c0", "of": "c", "title": "x"}])
    runner.match()
    runner.dispatcher.recorder.record(runner.epoch)
    composed = runner.dispatcher._composer.compose([1, 2, 3], runner.epoch)
    assert [(queue.subscription, len(queue.messages), queue.has_more) for queue in composed.queues] == [(1, 2, True)]
    assert composed.remaining == (2, 3)
    assert sum(queue.bytes for queue in composed.queues) <= 350_000
    composed = runner.dispatcher._composer.compose([2, 3], runner.epoch)
    assert [(queue.subscription, len(queue.messages), queue.has_more) for queue in composed.queues] == [(2, 1, False)]
    assert composed.remaining == (3,), "what is more than may be read is read alone"
    runner.deliver()
    assert MemorySink.item_ids("a") == [f"a{row}" for row in range(9)]
    assert (MemorySink.item_ids("b"), MemorySink.item_ids("c")) == (["b0"], ["c0"])
    assert _states(engine, 1) == [MessageState.DONE] * 9


@pytest.mark.parametrize("period", ["", " every 1 hour"])
def test_a_view_may_be_redefined_while_a_subscription_catches_up(
    engine: Engine, runner: InProcess, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, period: str
) -> None:
    engine.execute("subscribe to All output log; create feed Best from Rock;")
    _publish(engine, *range(1, 11))
    runner.match()
    engine.execute(f"subscribe to Best output memory 'best' from last 1 day{period};")
    clock.advance(HOUR)
    digest = Recorder._digest

    def redefined(recorder: Recorder, shares: Sequence[MessageRange]) -> None:
        digest(recorder, shares)
        if shares and not done:  # what is to be sent was found, and is not written down yet
            done.append(len(shares))
            engine.execute("create or replace feed Rock from Wire where title contains 'jazz';")

    done: list[int] = []
    monkeypatch.setattr(Recorder, "_digest", redefined)
    runner.run()
    _publish(engine, *range(11, 15))
    clock.advance(HOUR)
    runner.run()
    assert done == [1]
    assert MemorySink.item_ids("best") == ["2", "4", "6", "8", "10", "11", "13"]
    assert _states(engine, 2) == [MessageState.DONE] * 2


def test_unavailable_catalog_does_not_count_as_a_failed_attempt(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.execute("subscribe to All output log;")
    _publish(engine, 1, 2)
    runner.match()
    engine.execute("subscribe to Rock output memory 'rock' from last 1 day;")

    def away(*_: object) -> list[int]:
        raise CatalogUnavailableError("cannot connect to the catalog's server")

    for reader in (runner.dispatcher.recorder._match_reader, runner.dispatcher._composer._match_reader):
        with monkeypatch.context() as patched:
            patched.setattr(reader, "_evaluate_past", away)
            with pytest.raises(CatalogUnavailableError):
                runner.deliver()
    assert [(message.state, message.attempts, message.outcome) for message in _messages(engine, 2)] == [
        (MessageState.OPEN, 0, None)
    ]
    assert runner.deliver() == 1
    assert MemorySink.item_ids("rock") == ["2"]


def test_fewer_items_are_read_at_once_if_each_has_many_matches(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    monkeypatch.setattr("runnel.delivery.recorder._MAX_TURN_MATCHES", 12)
    monkeypatch.setattr("runnel.delivery.recorder._MAX_SUMMARIES", 3)
    engine.execute(
        "subscribe to All output memory 'all'; subscribe to Rock output memory 'rock' every 1 hour;"
        "subscribe to Jazz output memory 'jazz';"
    )
    _publish(engine, *range(1, 13))  # each of them in two feeds, so that six items are a turn
    clock.advance(HOUR)
    runner.match()
    goes_on = [runner.dispatcher.recorder.record(runner.epoch) for _ in range(2)]
    assert goes_on == [True, False]
    assert [(message.first_sequence, message.last_sequence) for message in _messages(engine, 1)] == [(1, 6), (7, 12)]
    runner.deliver()
    assert MemorySink.item_ids("all") == [str(number) for number in range(1, 13)]
    assert MemorySink.item_ids("rock") == [str(number) for number in range(2, 13, 2)]
    assert MemorySink.item_ids("jazz") == [str(number) for number in range(1, 13, 2)]


def test_from_last_is_unchanged_by_archiving(engine: Engine, runner: InProcess, clock: FakeClock) -> None:
    engine.execute("subscribe to All output log;")
    _publish(engine, 1, 2)
    clock.advance(HOUR * 5)
    _publish(engine, 3, 4)
    runner.match()
    before = engine.preview("Rock", since=HOUR)
    assert (before.looked_at, before.matched) == (2, 1)
    archive_matched(engine.workspace.catalog, engine.workspace.storage, epoch=runner.epoch)
    clock.advance(timedelta(seconds=1))
    collect_garbage(engine.workspace.catalog, engine.workspace.storage, older_than=0)
    engine.execute("subscribe to Rock output memory 'rock' from last 1 hour;")
    runner.run()
    assert MemorySink.item_ids("rock") == ["4"]
    after = engine.preview("Rock", since=HOUR)
    assert (after.looked_at, after.matched) == (2, 1)


# --- pause, failure, end -------------------------------------------------------------------------------------------


def test_matches_during_a_pause_are_delivered_once_after_it(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Rock output memory 'rock'; subscribe to Rock output memory 'other';")
    _publish(engine, 2)
    runner.run()
    engine.execute("pause subscription 1;")
    _publish(engine, 4)
    runner.run()
    _publish(engine, 6)
    runner.run()
    assert MemorySink.item_ids("rock") == ["2"]
    assert MemorySink.item_ids("other") == ["2", "4", "6"]
    engine.execute("resume subscription 1;")
    _publish(engine, 8)
    runner.run()
    _publish(engine, 10)
    runner.run()
    assert MemorySink.item_ids("rock") == ["2", "4", "6", "8", "10"]
    assert MemorySink.item_ids("other") == ["2", "4", "6", "8", "10"]


def test_pausing_twice_or_before_the_first_match_loses_nothing(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Rock output memory 'rock'; pause subscription 1;")
    _publish(engine, 2)
    runner.run()
    engine.execute("pause subscription 1; resume subscription 1; pause subscription 1;")
    _publish(engine, 4)
    runner.run()
    assert MemorySink.item_ids("rock") == []
    engine.execute("resume subscription 1; resume subscription 1;")
    runner.run()
    assert MemorySink.item_ids("rock") == ["2", "4"]


def test_failing_endpoint_delays_only_its_own_messages_in_order(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to Rock output memory 'down'; subscribe to Rock output memory 'up';")
    MemorySink.fail("down", "connection refused")
    _publish(engine, 2)
    runner.run()
    _publish(engine, 4)
    runner.run()
    assert MemorySink.item_ids("up") == ["2", "4"]
    first, second = _messages(engine, 1)
    assert (first.state, first.attempts, first.outcome) == (MessageState.OPEN, 1, "connection refused")
    assert (second.state, second.attempts) == (MessageState.OPEN, 0), "order is kept: the second waits for the first"
    MemorySink.fail("down", None)
    assert runner.deliver() == 0, "it is not tried again at once"
    runner.restart_delivery()
    assert runner.deliver() == 0, "nor after a restart"
    clock.advance(timedelta(seconds=6))
    assert runner.deliver() == 2
    delivered = MemorySink.delivered("down")
    assert [entry.key for entry in delivered] == [first.key, second.key]
    assert MemorySink.item_ids("down") == ["2", "4"]
    again = _messages(engine, 1)
    assert [delivery.digest for delivery in again] == [first.digest, second.digest]
    assert [message.attempts for message in again] == [2, 1]


def test_message_becomes_a_dead_letter_after_the_last_attempt(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to Rock output memory 'down';")
    MemorySink.fail("down", "gone")
    _publish(engine, 2)
    runner.match()
    for _ in range(12):
        runner.deliver()
        clock.advance(timedelta(days=1.1))
    (message,) = _messages(engine, 1)
    assert (message.state, message.attempts, message.outcome) == (MessageState.DEAD, 10, "gone")
    MemorySink.fail("down", None)
    _publish(engine, 4)
    runner.run()
    assert MemorySink.item_ids("down") == ["4"], "the next message goes its way"


def test_recorded_message_is_unchanged_if_the_query_changes_before_sending(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    _publish(engine, 2, 4, 6)
    runner.match()
    MemorySink.fail("rock", "down")
    engine.execute("subscribe to Rock output memory 'rock' from last 1 day;")
    runner.deliver()
    clock.advance(HOUR)
    engine.execute("create or replace feed Rock from Wire where title contains '6';")
    MemorySink.fail("rock", None)
    runner.restart_delivery()
    assert runner.deliver() == 1
    (message,) = _messages(engine, 1)
    assert message.count == 3
    assert MemorySink.item_ids("rock") == ["2", "4", "6"]


@pytest.mark.parametrize("end", ["unsubscribe 1;", "drop feed Rock cascade;"])
def test_open_messages_of_an_ended_subscription_become_dead_letters(
    engine: Engine, runner: InProcess, clock: FakeClock, end: str
) -> None:
    engine.execute("subscribe to Rock output memory 'down'; subscribe to Jazz output memory 'jazz';")
    MemorySink.fail("down", "refused")
    _publish(engine, 2, 3)
    runner.run()
    engine.execute(end)
    MemorySink.fail("down", None)
    clock.advance(HOUR)
    runner.run()
    assert _states(engine, 1) == [MessageState.DEAD]
    assert MemorySink.item_ids("down") == []
    assert MemorySink.item_ids("jazz") == ["3"]
    with engine.workspace.catalog.read() as connection:
        assert 1 not in catalog_rows.cursors(connection)


def test_a_crash_between_recording_and_sending_sends_under_the_same_key(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Rock output jsonl 'rock.jsonl';")
    _publish(engine, 2, 4)
    runner.match()
    runner.dispatcher.recorder.record(runner.epoch)
    (before,) = _messages(engine, 1)
    runner.restart_delivery()
    runner.dispatcher.recorder.record(runner.epoch)  # it is recorded already, and no second one comes
    assert runner.dispatcher.send(runner.epoch) == 1
    (after,) = _messages(engine, 1)
    assert (before.key, before.digest, before.count) == (after.key, after.digest, after.count)
    lines = (engine.workspace.out / "rock.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["2", "4"]


def test_keys_are_unique_over_all_kinds_of_subscription(engine: Engine, clock: FakeClock) -> None:
    engine.execute(f"{DECLARED} subscribe to All output log;")
    runner = InProcess(engine, max_batch_items=3)
    _publish(engine, *range(1, 7))
    runner.run()
    engine.execute(
        "subscribe to All output memory 'a'; subscribe to All output memory 'b' every 1 hour;"
        "subscribe to All output memory 'c' from last 1 day; subscribe to All output memory 'd';"
        "pause subscription 5;"
    )
    for first in range(7, 31, 6):
        _publish(engine, *range(first, first + 6))
        while runner.step():
            runner.deliver()
        clock.advance(HOUR)
        if first == 19:
            engine.execute("resume subscription 5;")
    clock.advance(HOUR)
    runner.run()
    new = [str(number) for number in range(7, 31)]
    assert [MemorySink.item_ids(box) for box in "abd"] == [new, new, new]
    assert MemorySink.item_ids("c") == [str(number) for number in range(1, 31)]
    messages = [message for number in range(2, 6) for message in _messages(engine, number)]
    keys = [message.key for message in messages]
    assert len(keys) == len(set(keys))
    assert all(message.state is MessageState.DONE for message in messages)
    for number in range(2, 6):
        ranges = [(message.first_sequence, message.last_sequence) for message in _messages(engine, number)]
        assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_second_lineage_continues_after_the_first(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to All output memory 'all';")
    _publish(engine, 1, 2)
    runner.run()
    with engine.workspace.catalog.write() as connection:
        release(connection, runner.lease)
    second = InProcess(engine)
    _publish(engine, 3)
    second.run()
    assert MemorySink.item_ids("all") == ["1", "2", "3"]
    with engine.workspace.catalog.read() as connection:
        assert [match_segment.lineage for match_segment in match_segments.match_segments(connection)] == [
            runner.job.lineage,
            second.job.lineage,
        ]
