"""Scheduling of sends: per-host queues, the retry schedule, and which errors count as failures of a host."""

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


def _compose_all(hosts: HostQueues[int], now: float = 0.0) -> None:
    while chosen := hosts.next_to_compose(100, now):
        for subscription, host in chosen:
            assert hosts.finish_composing(host, subscription, now)


def _fail(hosts: HostQueues[int], host: str, times: int, now: float = 0.0) -> tuple[list[int], list[int]]:
    """Let `times` sends to a host fail. Return what the last `finish_sending` returned."""
    dropped: tuple[list[int], list[int]] = ([], [])
    for number in range(times):
        assert hosts.add(-number - 1, host, now)
        _compose_all(hosts, now)
        assert hosts.next_to_send(now) == (host, -number - 1)
        dropped = hosts.finish_sending(host, failed=True, now=now)
        hosts.forget(-number - 1)
    return dropped


def test_hosts_are_served_round_robin_within_concurrency_limits() -> None:
    hosts: HostQueues[int] = HostQueues(limit=5, host_limit=2)
    for number in range(100):
        hosts.add(number, "busy", 0.0)
    hosts.add(1000, "quiet", 0.0)
    hosts.add(1001, "calm", 0.0)
    chosen = hosts.next_to_compose(100, 0.0)
    assert [host for _, host in chosen[:3]] == ["busy", "quiet", "calm"]
    assert Counter(host for _, host in chosen)["busy"] < 100, "a long queue is not composed all at once"
    for subscription, host in chosen:
        hosts.finish_composing(host, subscription, 0.0)
    sent = []
    while (entry := hosts.next_to_send(0.0)) is not None:
        sent.append(entry)
    assert Counter(host for host, _ in sent) == {"busy": 2, "quiet": 1, "calm": 1}
    assert [subscription for host, subscription in sent if host == "busy"] == [0, 1], "first come, first served"
    hosts.finish_sending("busy", failed=False, now=0.0)
    assert hosts.next_to_send(0.0) == ("busy", 2)


def test_number_of_prepared_subscriptions_is_limited_with_many_hosts() -> None:
    hosts: HostQueues[int] = HostQueues(limit=5, host_limit=2)
    for number in range(1000):
        hosts.add(number, f"host {number}", 0.0)
    chosen = hosts.next_to_compose(512, 0.0)
    assert len(chosen) == 20
    for subscription, host in chosen[:7]:
        hosts.finish_composing(host, subscription, 0.0)
    assert hosts.next_to_compose(512, 0.0) == [], "ready subscriptions count like those being composed"
    for _, host in chosen[7:9]:
        hosts.finish_composing(host, None, 0.0)  # there was nothing to send
    assert len(hosts.next_to_compose(512, 0.0)) == 2
    assert hosts.next_to_send(0.0) == ("host 0", 0)
    assert hosts.next_to_compose(512, 0.0) == [(22, "host 22")], "subscriptions being sent have a separate limit"


def test_composing_stops_while_prepared_messages_exceed_the_byte_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.delivery.host_queues._MAX_PREPARED_BYTES", 100)
    monkeypatch.setattr("runnel.delivery.host_queues._MAX_HOST_BYTES", 30)
    hosts: HostQueues[int] = HostQueues(limit=50, host_limit=2)
    for number in range(20):
        hosts.add(number, "large" if number % 2 else f"small{number}", 0.0)
    chosen = hosts.next_to_compose(3, 0.0)
    assert chosen == [(0, "small0"), (1, "large"), (2, "small2")]
    for subscription, host in chosen:
        hosts.finish_composing(host, subscription, 0.0, size=40 if host == "large" else 1)
    chosen = hosts.next_to_compose(20, 0.0)
    assert {host for _, host in chosen} == {f"small{number}" for number in range(4, 20, 2)}, (
        "the limit of the host is used up"
    )
    for subscription, host in chosen:
        hosts.finish_composing(host, subscription, 0.0, size=10)
    hosts.add(20, "late", 0.0)
    assert hosts.next_to_compose(20, 0.0) == [], "the total limit is used up"
    sent = [hosts.next_to_send(0.0) for _ in range(11)]
    assert None not in sent
    assert hosts.next_to_compose(20, 0.0) == [], "messages being sent still count"
    hosts.finish_sending("large", failed=False, now=0.0, size=40)
    assert {host for _, host in hosts.next_to_compose(20, 0.0)} == {"late", "large"}


def test_subscription_is_queued_only_once_until_it_is_forgotten() -> None:
    hosts: HostQueues[int] = HostQueues(limit=5, host_limit=2)
    assert hosts.add(1, "a", 0.0)
    assert hosts.add(1, "a", 0.0)
    assert hosts.next_to_compose(10, 0.0) == [(1, "a")]
    assert hosts.finish_composing("a", None, 0.0)
    assert (len(hosts), hosts.next_to_compose(10, 0.0)) == (1, [])
    hosts.forget(1)
    assert len(hosts) == 0


def test_failing_host_is_paused_and_then_probed_with_one_message() -> None:
    hosts: HostQueues[int] = HostQueues(limit=50, host_limit=8)
    assert _fail(hosts, "down", 4) == ([], [])
    for number in range(100, 110):
        assert hosts.add(number, "down", 0.0), "four failures do not pause a host"
    _compose_all(hosts)
    assert hosts.next_to_send(0.0) == ("down", 100)
    waiting, ready = hosts.finish_sending("down", failed=True, now=0.0)
    assert sorted(waiting + ready) == list(range(101, 110)), "its queue is emptied"
    assert not hosts.add(200, "down", 0.5), "nothing is queued during the pause"
    assert hosts.add(201, "other", 0.5), "other hosts are not affected"
    for number in (300, 301, 302):
        assert hosts.add(number, "down", 2.0)
    _compose_all(hosts, 2.0)
    sent = [hosts.next_to_send(2.0), hosts.next_to_send(2.0), hosts.next_to_send(2.0)]
    assert sorted(filter(None, sent)) == [("down", 300), ("other", 201)], "only one probe at a time"
    assert hosts.finish_sending("down", failed=False, now=2.0) == ([], [])
    assert hosts.next_to_send(2.0) == ("down", 301)
    assert hosts.next_to_send(2.0) == ("down", 302), "one successful probe ends the pause"


def test_pauses_grow_to_one_minute_at_most() -> None:
    hosts: HostQueues[int] = HostQueues(limit=50, host_limit=8)
    _fail(hosts, "down", 5)
    now, pauses = 0.0, []
    for _ in range(10):
        pause = 1
        while not hosts.add(-1, "down", now + pause):  # -1 is the subscription that `_fail` then lets fail
            hosts.forget(-1)
            pause += 1
        pauses.append(pause)
        now += pause
        _fail(hosts, "down", 1, now)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, 60)


class _Model:
    """A model that checks invariants: the limits hold, a subscription is queued once, and none is lost."""

    def __init__(self) -> None:
        self.hosts: HostQueues[tuple[int, str]] = HostQueues(limit=6, host_limit=2)
        self.waiting: set[int] = set()
        self.ready = 0
        self.composing: list[tuple[int, str]] = []
        self.sending: list[tuple[int, str]] = []
        self.now = 0.0

    def add(self, subscription: int) -> None:
        is_known = subscription in self.waiting
        if self.hosts.add(subscription, f"h{subscription % 4}", self.now):
            self.waiting.add(subscription)
        elif not is_known:
            self.hosts.forget(subscription)

    def compose(self, limit: int) -> None:
        self.composing += self.hosts.next_to_compose(limit, self.now)
        assert len(self.composing) + self.ready <= 24

    def end_composing(self) -> None:
        for subscription, host in self.composing:
            if self.hosts.finish_composing(host, (subscription, host), self.now):
                self.ready += 1
            else:
                self.waiting.discard(subscription)
                self.hosts.forget(subscription)
        self.composing = []

    def send(self) -> None:
        while (entry := self.hosts.next_to_send(self.now)) is not None:
            host, (subscription, composed_host) = entry
            assert host == composed_host == f"h{subscription % 4}"
            assert subscription not in {sent for sent, _ in self.sending}
            self.sending.append((subscription, host))
            self.ready -= 1
        counts = Counter(host for _, host in self.sending)
        assert len(self.sending) <= 6
        assert max(counts.values(), default=0) <= 2

    def finish(self, index: int, failed: bool) -> None:
        if self.sending:
            subscription, host = self.sending.pop(index % len(self.sending))
            waiting, ready = self.hosts.finish_sending(host, failed=failed, now=self.now)
            self.ready -= len(ready)
            for finished in (subscription, *waiting, *(dropped for dropped, _ in ready)):
                self.waiting.discard(finished)
                self.hosts.forget(finished)


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
def test_limits_hold_and_all_subscriptions_finish_in_any_order_of_steps(steps: list[tuple[str, int]]) -> None:
    model = _Model()
    for step, value in steps:
        match step:
            case "add":
                model.add(value)
            case "compose":
                model.compose(value)
            case "composed":
                model.end_composing()
            case "send":
                model.send()
            case "finish":
                model.finish(value, failed=False)
            case "fail":
                model.finish(value, failed=True)
            case "wait":
                model.now += value
    assert len(model.hosts) == len(model.waiting)
    for _ in range(200):  # from here on no host fails, so all queues become empty
        model.now += 100.0
        model.compose(10)
        model.end_composing()
        model.send()
        while model.sending:
            model.finish(0, failed=False)
    assert (len(model.hosts), model.waiting) == (0, set())


# --- retry schedule ------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.none() | st.floats(0, 1e9))
def test_retry_waits_for_schedule_and_retry_after_but_at_most_a_day(attempts: int, retry_after: float | None) -> None:
    wait = retry_wait(attempts, DeliveryError("busy", retry_after=retry_after), SCHEDULE)
    if attempts > len(SCHEDULE):
        assert wait is None
    else:
        assert wait == min(86_400.0, max(SCHEDULE[attempts - 1], retry_after or 0.0))


@pytest.mark.parametrize(
    "error",
    [
        DeliveryError("too large", permanent=True),
        DeliveryError("410", gone=True),
        StylesheetError("it took too long"),
    ],
)
def test_permanent_failures_are_not_retried(error: Exception) -> None:
    assert retry_wait(1, error, SCHEDULE) is None


def _caused_by(cause: BaseException) -> DeliveryError:
    error = DeliveryError("it failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, False),
        (DeliveryError("the endpoint answered 500"), False),
        (_caused_by(ConnectionRefusedError()), True),
        (_caused_by(TimeoutError()), True),
        (_caused_by(UnreachableError("no answer")), True),
        (_caused_by(RefusedAddressError("private")), False),
        (_caused_by(_caused_by(ConnectionResetError())), True),
        (ValueError("a bug in Runnel"), False),
    ],
)
def test_only_a_missing_response_counts_as_failure_of_the_host(error: Exception | None, expected: bool) -> None:
    assert is_host_trouble(error) is expected
