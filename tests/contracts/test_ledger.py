"""The contract of the ledger and the outbox: due messages, their order, and completed messages, on every database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import Connection
from tests import catalog_rows

from runnel.catalog.declared import subscriptions
from runnel.catalog.delivery import ledger, outbox
from runnel.catalog.delivery.ledger import SettledAttempt
from runnel.catalog.store.connection import Catalog, now
from runnel.delivery.dead_letters import dead_letters, explain_dead_letter, replay
from runnel.model.message import Message, MessageState
from runnel.testing import FakeClock

SECOND = 1_000_000
HOUR = timedelta(hours=1)


def _subscribe(
    connection: Connection, count: int, *, every: timedelta | None = None, kind: str = "memory"
) -> list[int]:
    return [
        catalog_rows.add_subscription(connection, 7, kind, f"box {number}", since=0, every=every, lifetime=None)
        for number in range(count)
    ]


def _record(connection: Connection, subscription: int, count: int = 1) -> list[Message]:
    """Record messages as delivery does: with consecutive numbers, and after waiting messages."""
    number, wait = ledger.next_places(connection, [subscription])[subscription]
    made = [
        Message(subscription, value, value, value, 1, f"key-{subscription}-{value}", "digest", not_before=wait)
        for value in range(number, number + count)
    ]
    ledger.record_messages(connection, made)
    return made


def _all_due(connection: Connection, limit: int = 2) -> list[tuple[int, int]]:
    results: list[tuple[int, int]] = []
    after = None
    while page := ledger.due_page(connection, after=after, limit=limit):
        results += [(message.subscription, message.number) for message in page]
        after = page[-1].place
    return results


def _failed(message: Message, not_before: int) -> SettledAttempt:
    return SettledAttempt(message, MessageState.OPEN, "busy", not_before=not_before)


def _numbers(connection: Connection, wanted: Sequence[int], each: int = 8) -> dict[int, list[int]]:
    results = ledger.first_open(connection, wanted, each)
    return {subscription: [entry.number for entry in values] for subscription, values in results.items()}


def test_due_messages_are_listed_in_pages_and_in_order(timed: Catalog) -> None:
    with timed.write() as connection:
        first, second, third = _subscribe(connection, 3)
        for value in (third, first, second):
            _record(connection, value, 3)
    with timed.read() as connection:
        expected = [(value, number) for value in (first, second, third) for number in (1, 2, 3)]
        for limit in (1, 2, 4, 100):
            assert _all_due(connection, limit) == expected


def test_messages_of_paused_and_disabled_subscriptions_wait(timed: Catalog) -> None:
    with timed.write() as connection:
        paused, disabled, ended, served = _subscribe(connection, 4)
        for value in (paused, disabled, ended, served):
            _record(connection, value)
        subscriptions.pause_subscription(connection, paused, paused=True)
        held = subscriptions.subscription_by_number(connection, disabled)
        assert held is not None
        subscriptions.disable_subscription(connection, held, "gone")
        subscriptions.end_subscription(connection, ended)
        page = ledger.due_page(connection)
        assert {message.subscription: message.ended for message in page} == {ended: True, served: False}
        ledger.bury(connection, [ended], "it ended")
        assert [message.subscription for message in ledger.due_page(connection)] == [served]
        assert [(message.state, message.attempts) for message in ledger.messages_of(connection, ended)] == [
            (MessageState.DEAD, 0)
        ]


def test_failed_message_delays_later_messages_of_its_subscription(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        failing, fine = _subscribe(connection, 2)
        messages = _record(connection, failing, 3)
        _record(connection, fine)
        moment = now(connection)
        ledger.settle_all(connection, [_failed(messages[0], moment + 60 * SECOND)])
        _record(connection, failing)
        assert _all_due(connection) == [(fine, 1)]
        assert _numbers(connection, [failing, fine]) == {fine: [1]}
        assert {message.not_before for message in ledger.messages_of(connection, failing)} == {moment + 60 * SECOND}
    clock.advance(timedelta(seconds=61))
    with timed.write() as connection:
        assert _numbers(connection, [failing]) == {failing: [1, 2, 3, 4]}
        assert _numbers(connection, [failing], each=2) == {failing: [1, 2]}
        assert [message.number for message in ledger.due_page(connection, since=moment + 1)] == [1, 2, 3, 4]
        [first, *_] = ledger.first_open(connection, [failing], 1)[failing]
        assert first.attempts == 1
        ledger.settle_all(connection, [SettledAttempt(first, MessageState.DONE, "taken")])
        assert _numbers(connection, [failing]) == {failing: [2, 3, 4]}


def test_message_is_completed_once(timed: Catalog) -> None:
    with timed.write() as connection:
        [subscription] = _subscribe(connection, 1)
        [message] = _record(connection, subscription)
        ledger.settle_all(connection, [SettledAttempt(message, MessageState.DONE, "taken")])
        ledger.settle_all(connection, [SettledAttempt(message, MessageState.DEAD, "too late")])
        [after] = ledger.messages_of(connection, subscription)
        assert (after.state, after.outcome, after.attempts) == (MessageState.DONE, "taken", 1)


def test_postponed_message_does_not_count_as_an_attempt(timed: Catalog) -> None:
    with timed.write() as connection:
        [subscription] = _subscribe(connection, 1)
        [message] = _record(connection, subscription)
        later = SettledAttempt(message, MessageState.OPEN, "wait", not_before=now(connection) + 1, tried=False)
        ledger.settle_all(connection, [later])
        [after] = ledger.messages_of(connection, subscription)
        assert (after.state, after.attempts) == (MessageState.OPEN, 0)


def test_replayed_dead_letter_keeps_its_history(timed: Catalog) -> None:
    with timed.write() as connection:
        connection.exec_driver_sql(
            "insert into feeds (id, name, kind, revision, paused, created) values (7, 'News', 'source', 1, 0, 0)"
        )
        [subscription] = _subscribe(connection, 1)
        messages = _record(connection, subscription, 2)
        for state in (MessageState.OPEN, MessageState.DEAD):
            ledger.settle_all(connection, [SettledAttempt(message, state, "500") for message in messages])
        assert [dead_letter.key for dead_letter in dead_letters(connection, 10)] == [messages[1].key, messages[0].key]
        assert replay(connection, messages[0].key) == 1
        [again] = ledger.first_open(connection, [subscription], 8)[subscription]
        assert (again.key, again.attempts) == (messages[0].key, 0)
        ledger.settle_all(connection, [SettledAttempt(again, MessageState.DEAD, "404")])
        story = explain_dead_letter(connection, again.key)
        assert [(failure.number, failure.outcome) for failure in story.failures] == [
            (1, "500"),
            (2, "500"),
            (3, "404"),
        ]
        assert replay(connection, subscription) == 2


def test_message_numbers_continue_and_consecutive_dead_letters_are_counted(timed: Catalog) -> None:
    with timed.write() as connection:
        value, other = _subscribe(connection, 2)
        first, second = _record(connection, value, 2)
        assert ledger.next_places(connection, [value, other])[other] == (1, 0)
        assert ledger.next_places(connection, [value])[value][0] == ledger.next_number(connection, value) == 3
        ledger.settle_all(connection, [SettledAttempt(first, MessageState.DEAD, "500")])
        assert ledger.gave_up_before(connection, second, 1)
        assert ledger.gave_up_before(connection, first, 0)
        assert not ledger.gave_up_before(connection, second, 1, attempts=2)
        assert not ledger.gave_up_before(connection, second, 2)
        assert not ledger.gave_up_before(connection, first, 1)
        subscriptions.enable_subscription(connection, value)
        assert not ledger.gave_up_before(connection, second, 1), "what was before it was resumed does not count"


# --- the outbox ----------------------------------------------------------------------------------------------------


def test_subscriptions_with_the_shared_cursor_are_found_by_feed(timed: Catalog) -> None:
    with timed.write() as connection:
        plain, lagging, paused = _subscribe(connection, 3)
        [silent] = _subscribe(connection, 1, kind="log")
        _subscribe(connection, 1, every=HOUR)
        ledger.set_cursor(connection, lagging, 3)
        subscriptions.pause_subscription(connection, paused, paused=True)
        for feeds in (None, {7}, set(range(6_000))):
            assert [subscription.id for subscription in outbox.sharing(connection, feeds, silent={"log"})] == [plain]
            assert [subscription.id for subscription in outbox.sharing(connection, feeds)] == [plain, silent]
        for feeds in ({7}, set(range(6_000))):
            assert outbox.sharing_numbers(connection, feeds, silent={"log", "o'other"}) == {plain}
        assert outbox.sharing(connection, {8}) == []
        assert outbox.sharing(connection, limit=0) == []
        [behind] = outbox.behind(connection, after=0, limit=10)
        assert (behind.subscription.id, behind.sequence) == (lagging, 3)
        assert outbox.behind(connection, after=lagging, limit=10) == []
        assert outbox.own_cursors(connection, [plain, lagging, paused]) == {plain: None, lagging: 3}
        outbox.leave_own_cursors(connection, [lagging])
        assert outbox.own_cursors(connection, [lagging]) == {lagging: None}


def test_periods_end_and_begin_in_bulk(timed: Catalog, clock: FakeClock) -> None:
    with timed.write() as connection:
        made = _subscribe(connection, 5, every=HOUR)
        for value in made[:4]:
            ledger.set_cursor(connection, value, value * 10)
        assert outbox.due(connection, after=0, limit=10) == []
    clock.advance(HOUR * 2.5)
    with timed.write() as connection:
        results = outbox.due(connection, after=0, limit=3)
        results += outbox.due(connection, after=results[-1].subscription.id, limit=3)
        assert [result.subscription.id for result in results] == made
        assert [result.sequence for result in results] == [*(value * 10 for value in made[:4]), 0]
        outbox.begin_next_periods(connection, [result.subscription for result in results])
        ledger.move_cursors(connection, dict.fromkeys(made, 99))
        assert outbox.due(connection, after=0, limit=10) == []
        assert catalog_rows.cursors(connection) == dict.fromkeys(made[:4], 99)
    clock.advance(HOUR / 2)
    with timed.read() as connection:
        assert len(outbox.due(connection, after=0, limit=10)) == 5, "they keep their beat"


@pytest.mark.parametrize("count", [0, 1, 1200])
def test_subscriptions_are_looked_up_in_bulk(timed: Catalog, count: int) -> None:
    with timed.write() as connection:
        made = _subscribe(connection, count)
        for value in made[:1]:
            subscriptions.end_subscription(connection, value)
        assert sorted(outbox.subscriptions_of(connection, made)) == made[1:]
        again = [subscriptions.subscription_by_number(connection, value) for value in made[1:3]]
        assert again == [outbox.subscriptions_of(connection, made)[value] for value in made[1:3]]
