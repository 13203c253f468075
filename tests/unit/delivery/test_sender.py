"""Who may be sent to now, and when a failure is tried again: the rules of sending, without sending."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.delivery.host_queues import HostQueues
from runnel.delivery.settle_attempts import is_host_trouble, retry_wait
from runnel.errors import DeliveryError, RefusedAddressError, StylesheetError, UnreachableError

SCHEDULE = (5.0, 300.0, 7200.0)


# --- hosts ---------------------------------------------------------------------------------------------------------


def _all_ready(hosts: HostQueues[int], now: float = 0.0) -> None:
    while chosen := hosts.next_to_compose(100, now):
        for subscription, host in chosen:
            assert hosts.composed(host, subscription, now)


def _silence(hosts: HostQueues[int], host: str, times: int, now: float = 0.0) -> tuple[list[int], list[int]]:
    turned: tuple[list[int], list[int]] = ([], [])
    for number in range(times):
        assert hosts.add(-number - 1, host, now)
        _all_ready(hosts, now)
        assert hosts.next_to_send(now) == (host, -number - 1)
        turned = hosts.finished(host, silent=True, now=now)
        hosts.forget(-number - 1)
    return turned


def test_hosts_take_turns_and_are_bounded() -> None:
    hosts: HostQueues[int] = HostQueues(limit=5, host_limit=2)
    for number in range(100):
        hosts.add(number, "busy", 0.0)
    hosts.add(1000, "quiet", 0.0)
    hosts.add(1001, "calm", 0.0)
    chosen = hosts.next_to_compose(100, 0.0)
    assert [host for _, host in chosen[:3]] == ["busy", "quiet", "calm"]
    assert Counter(host for _, host in chosen)["busy"] < 100, "not all of a long line is read at once"
    for subscription, host in chosen:
        hosts.composed(host, subscription, 0.0)
    sent = []
    while (found := hosts.next_to_send(0.0)) is not None:
        sent.append(found)
    assert Counter(host for host, _ in sent) == {"busy": 2, "quiet": 1, "calm": 1}
    assert [one for host, one in sent if host == "busy"] == [0, 1], "first come, first served"
    hosts.finished("busy", silent=False, now=0.0)
    assert hosts.next_to_send(0.0) == ("busy", 2)


def test_however_many_hosts_there_are_only_so_much_is_made_ready_in_advance() -> None:
    hosts: HostQueues[int] = HostQueues(limit=5, host_limit=2)
    for number in range(1000):
        hosts.add(number, f"host {number}", 0.0)
    chosen = hosts.next_to_compose(512, 0.0)
    assert len(chosen) == 20
    for subscription, host in chosen[:7]:
        hosts.composed(host, subscription, 0.0)
    assert hosts.next_to_compose(512, 0.0) == [], "what is ready counts like what is being made ready"
    for _, host in chosen[7:9]:
        hosts.composed(host, None, 0.0)  # there was nothing to send
    assert len(hosts.next_to_compose(512, 0.0)) == 2
    assert hosts.next_to_send(0.0) == ("host 0", 0)
    assert hosts.next_to_compose(512, 0.0) == [(22, "host 22")], "what is under way has its own bound"


def test_large_messages_wait_for_others_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.delivery.host_queues._MOST_BYTES", 100)
    monkeypatch.setattr("runnel.delivery.host_queues._HOST_BYTES", 30)
    hosts: HostQueues[int] = HostQueues(limit=50, host_limit=2)
    for number in range(20):
        hosts.add(number, "large" if number % 2 else f"small{number}", 0.0)
    chosen = hosts.next_to_compose(3, 0.0)
    assert chosen == [(0, "small0"), (1, "large"), (2, "small2")]
    for subscription, host in chosen:
        hosts.composed(host, subscription, 0.0, size=40 if host == "large" else 1)
    chosen = hosts.next_to_compose(20, 0.0)
    assert {host for _, host in chosen} == {f"small{number}" for number in range(4, 20, 2)}, "its share is used up"
    for subscription, host in chosen:
        hosts.composed(host, subscription, 0.0, size=10)
    hosts.add(20, "late", 0.0)
    assert hosts.next_to_compose(20, 0.0) == [], "nothing more while others hold so much"
    sent = [hosts.next_to_send(0.0) for _ in range(11)]
    assert None not in sent
    assert hosts.next_to_compose(20, 0.0) == [], "what is under way holds it still"
    hosts.finished("large", silent=False, now=0.0, size=40)
    assert {host for _, host in hosts.next_to_compose(20, 0.0)} == {"late", "large"}


def test_a_subscription_is_in_a_line_once_until_it_is_forgotten() -> None:
    hosts: HostQueues[int] = HostQueues(limit=5, host_limit=2)
    assert hosts.add(1, "a", 0.0)
    assert hosts.add(1, "a", 0.0)
    assert hosts.next_to_compose(10, 0.0) == [(1, "a")]
    assert hosts.composed("a", None, 0.0)
    assert (len(hosts), hosts.next_to_compose(10, 0.0)) == (1, [])
    hosts.forget(1)
    assert len(hosts) == 0


def test_a_silent_host_gets_a_pause_and_then_one_message_that_finds_out() -> None:
    hosts: HostQueues[int] = HostQueues(limit=50, host_limit=8)
    assert _silence(hosts, "down", 4) == ([], [])
    assert not hosts.is_silent("down", 0.0)
    for number in range(100, 110):
        hosts.add(number, "down", 0.0)
    _all_ready(hosts)
    assert hosts.next_to_send(0.0) == ("down", 100)
    waiting, ready = hosts.finished("down", silent=True, now=0.0)
    assert sorted(waiting + ready) == list(range(101, 110)), "its line is let go"
    assert hosts.is_silent("down", 0.5)
    assert not hosts.add(200, "down", 0.5), "and who comes during the pause is not kept"
    assert hosts.add(201, "other", 0.5), "which is nobody else's matter"
    for number in (300, 301, 302):
        assert hosts.add(number, "down", 2.0)
    _all_ready(hosts, 2.0)
    sent = [hosts.next_to_send(2.0), hosts.next_to_send(2.0), hosts.next_to_send(2.0)]
    assert sorted(filter(None, sent)) == [("down", 300), ("other", 201)], "one at a time"
    assert hosts.finished("down", silent=False, now=2.0) == ([], [])
    assert hosts.next_to_send(2.0) == ("down", 301)
    assert hosts.next_to_send(2.0) == ("down", 302), "one answer is enough"


def test_pauses_grow_up_to_a_minute() -> None:
    hosts: HostQueues[int] = HostQueues(limit=50, host_limit=8)
    _silence(hosts, "down", 5)
    now, pauses = 0.0, []
    for _ in range(10):
        pause = next(seconds for seconds in range(1, 100) if not hosts.is_silent("down", now + seconds))
        pauses.append(pause)
        now += pause
        _silence(hosts, "down", 1, now)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, 60)


class _Model:
    """What must hold whatever happens: bounds, one place per subscription, nobody forgotten."""

    def __init__(self) -> None:
        self.hosts: HostQueues[tuple[int, str]] = HostQueues(limit=6, host_limit=2)
        self.waiting: set[int] = set()
        self.ready = 0
        self.composing: list[tuple[int, str]] = []
        self.under_way: list[tuple[int, str]] = []
        self.now = 0.0

    def add(self, subscription: int) -> None:
        known = subscription in self.waiting
        if self.hosts.add(subscription, f"h{subscription % 4}", self.now):
            self.waiting.add(subscription)
        elif not known:
            self.hosts.forget(subscription)

    def compose(self, most: int) -> None:
        self.composing += self.hosts.next_to_compose(most, self.now)
        assert len(self.composing) + self.ready <= 24

    def end_composing(self) -> None:
        for subscription, host in self.composing:
            if self.hosts.composed(host, (subscription, host), self.now):
                self.ready += 1
            else:
                self.waiting.discard(subscription)
                self.hosts.forget(subscription)
        self.composing = []

    def send(self) -> None:
        while (found := self.hosts.next_to_send(self.now)) is not None:
            host, (subscription, of) = found
            assert host == of == f"h{subscription % 4}"
            assert subscription not in {one for one, _ in self.under_way}
            self.under_way.append((subscription, host))
            self.ready -= 1
        counts = Counter(host for _, host in self.under_way)
        assert len(self.under_way) <= 6
        assert max(counts.values(), default=0) <= 2

    def finish(self, place: int, silent: bool) -> None:
        if self.under_way:
            subscription, host = self.under_way.pop(place % len(self.under_way))
            waiting, ready = self.hosts.finished(host, silent=silent, now=self.now)
            self.ready -= len(ready)
            for one in (subscription, *waiting, *(other for other, _ in ready)):
                self.waiting.discard(one)
                self.hosts.forget(one)


_STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 40)),
    st.tuples(st.just("compose"), st.integers(1, 10)),
    st.tuples(st.just("composed"), st.just(0)),
    st.tuples(st.just("send"), st.just(0)),
    st.tuples(st.just("finish"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(0, 90)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_STEPS, max_size=80))
def test_whatever_happens_bounds_hold_and_everybody_gets_a_turn(steps: list[tuple[str, int]]) -> None:
    model = _Model()
    for what, value in steps:
        match what:
            case "add":
                model.add(value)
            case "compose":
                model.compose(value)
            case "composed":
                model.end_composing()
            case "send":
                model.send()
            case "finish":
                model.finish(value, silent=False)
            case "fail":
                model.finish(value, silent=True)
            case "wait":
                model.now += value
    assert len(model.hosts) == len(model.waiting)
    for _ in range(200):  # from here on everybody answers: the lines must come to an end
        model.now += 100.0
        model.compose(10)
        model.end_composing()
        model.send()
        while model.under_way:
            model.finish(0, silent=False)
    assert (len(model.hosts), model.waiting) == (0, set())


# --- the schedule --------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.none() | st.floats(0, 1e9))
def test_a_retry_is_never_earlier_than_the_schedule_or_what_was_asked_and_never_later_than_a_day(
    attempts: int, asked: float | None
) -> None:
    wait = retry_wait(attempts, DeliveryError("busy", retry_after=asked), SCHEDULE)
    if attempts > len(SCHEDULE):
        assert wait is None
    else:
        assert wait == min(86_400.0, max(SCHEDULE[attempts - 1], asked or 0.0))


@pytest.mark.parametrize(
    "error",
    [
        DeliveryError("too large", permanent=True),
        DeliveryError("410", gone=True),
        StylesheetError("it took too long"),
    ],
)
def test_what_cannot_help_is_not_tried_again(error: Exception) -> None:
    assert retry_wait(1, error, SCHEDULE) is None


def _caused(cause: BaseException) -> DeliveryError:
    error = DeliveryError("it failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, False),
        (DeliveryError("the endpoint answered 500"), False),
        (_caused(ConnectionRefusedError()), True),
        (_caused(TimeoutError()), True),
        (_caused(UnreachableError("no answer")), True),
        (_caused(RefusedAddressError("private")), False),
        (_caused(_caused(ConnectionResetError())), True),
        (ValueError("a mistake of ours"), False),
    ],
)
def test_only_silence_counts_against_a_host(error: Exception | None, expected: bool) -> None:
    assert is_host_trouble(error) is expected
