"""Concurrent sending: subscriptions do not delay each other, order is kept, and failures are retried."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests import catalog_rows
from tests.integration.in_process import InProcess
from tests.services import refusing_port

import runnel
from runnel.catalog.access.workspace_secrets import UNSUBSCRIBE, check_unsubscribe_token, find_secret
from runnel.catalog.declared import subscriptions
from runnel.catalog.delivery import ledger
from runnel.catalog.store.leases import acquire, release
from runnel.engine import Engine
from runnel.errors import DeliveryError, FencedError, StorageFullError
from runnel.model.message import Message, MessageState
from runnel.settings import Settings
from runnel.sinks import registry
from runnel.sinks.contract import Delivery, RemoteSink, Route
from runnel.sinks.webhook import WebhookSink
from runnel.testing import FakeClock, MemorySink

HOUR = timedelta(hours=1)
SAME = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>
</xsl:stylesheet>"""
DECLARED = "register feed Wire; create feed All from Wire;"
Answer = str | Exception | float
SILENT = DeliveryError("no connection")
SILENT.__cause__ = ConnectionRefusedError("refused")


class Endpoints(RemoteSink, Route):
    """A sink for `output webhook` whose endpoints respond according to a script: text, an error, or a delay."""

    kind = "webhook"
    is_signed = True
    takes_content = True

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        self.always: dict[str, Answer] = {}
        self.calls: list[Delivery] = []
        self.taken: list[Delivery] = []
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.closed = 0
        self.patience = 1.0

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        return target

    def host(self, target: str) -> str:
        return urlsplit(target).netloc

    def connect(self, settings: Settings, client: object) -> Endpoints:
        return self

    async def deliver(self, delivery: Delivery) -> str:
        target = delivery.subscription.target or ""
        host = self.host(target)
        self.calls.append(delivery)
        for name in (host, target, "all"):
            self.under_way[name] += 1
            self.most[name] = max(self.most[name], self.under_way[name])
        try:
            answer = self.answers[target].pop(0) if self.answers[target] else self.always.get(host, "taken")
            await asyncio.sleep(answer if isinstance(answer, float) else 0)
            if isinstance(answer, Exception):
                raise answer
        finally:
            for name in (host, target, "all"):
                self.under_way[name] -= 1
        self.taken.append(delivery)
        return str(answer)

    async def close(self) -> None:
        self.closed += 1

    def ids(self, target: str) -> list[str]:
        """Return the ids of the items that arrived at a target, in order."""
        return [item.item.id for delivery in self.to(target, self.taken) for item in delivery.items]

    def to(self, target: str, deliveries: Sequence[Delivery]) -> list[Delivery]:
        return [delivery for delivery in deliveries if delivery.subscription.target == target]


@pytest.fixture
def endpoints(monkeypatch: pytest.MonkeyPatch) -> Endpoints:
    """Scripted endpoints that replace `output webhook`."""
    made = Endpoints()
    _put_in_place(monkeypatch, made)
    return made


def _put_in_place(monkeypatch: pytest.MonkeyPatch, sink: Endpoints | WebhookSink) -> None:
    monkeypatch.setitem(registry.OPENED, sink.kind, sink)


@contextmanager
def _running(folder: Path, clock: Callable[[], float] = time.time, **chosen: Any) -> Iterator[InProcess]:
    MemorySink.clear()
    with runnel.connect(folder, clock=clock, **chosen) as engine:
        engine.execute(DECLARED)
        runner = InProcess(engine)
        try:
            yield runner
        finally:
            runner.close()


@pytest.fixture
def runner(engine: Engine) -> Iterator[InProcess]:
    engine.execute(DECLARED)
    made = InProcess(engine)
    yield made
    made.close()


def _subscribe(engine: Engine, *targets: str) -> None:
    engine.execute("".join(f"subscribe to All output webhook '{target}';" for target in targets))


def _publish(engine: Engine, *numbers: int) -> None:
    engine.publish("Wire", [{"id": str(number), "title": f"news {number}"} for number in numbers])


def _messages(engine: Engine, subscription: int = 1) -> list[Message]:
    with engine.workspace.catalog.read() as connection:
        return ledger.messages_of(connection, subscription)


def _pause_seconds(message: Message, clock: FakeClock) -> float:
    return message.not_before / 1e6 - clock()


# --- order, limits, independence -----------------------------------------------------------------------------------


def test_messages_reach_endpoints_with_keys_and_a_link_that_ends_the_subscription(
    tmp_path: Path, endpoints: Endpoints, clock: FakeClock
) -> None:
    with _running(tmp_path / "root", clock, public_url="https://runnel.example/") as runner:
        _subscribe(runner.engine, "https://a.example/1")
        _publish(runner.engine, 1, 2)
        assert runner.run() == 1
        (delivery,) = endpoints.taken
        assert (delivery.feed_name, [item.item.id for item in delivery.items]) == ("All", ["1", "2"])
        assert len(delivery.signing_keys) == 1
        with runner.engine.workspace.catalog.read() as connection:
            secret = find_secret(connection, UNSUBSCRIBE)
        assert secret is not None
        link = delivery.unsubscribe or ""
        assert link.startswith("https://runnel.example/unsubscribe/")
        assert check_unsubscribe_token(secret, link.rsplit("/", 1)[1]) == delivery.subscription.id
        assert [message.state for message in _messages(runner.engine)] == [MessageState.DONE]
    assert endpoints.closed == 1


def test_messages_of_a_subscription_are_in_order_within_the_concurrency_limits(
    tmp_path: Path, endpoints: Endpoints, clock: FakeClock
) -> None:
    targets = [f"https://h{number % 3}.example/{number}" for number in range(30)]
    with _running(tmp_path / "root", clock, send_concurrency=5, send_host_concurrency=2) as runner:
        _subscribe(runner.engine, *targets)
        for number in range(1, 13):
            _publish(runner.engine, number)
            runner.match()
            runner.dispatcher.recorder.record(runner.epoch)
        endpoints.answers = defaultdict(list, {target: [0.001] * 12 for target in targets})
        assert runner.deliver() == 30 * 12
        expected = [str(number) for number in range(1, 13)]
        assert all(endpoints.ids(target) == expected for target in targets)
        assert max(endpoints.most[target] for target in targets) == 1
        assert max(endpoints.most[f"h{number}.example"] for number in range(3)) == 2
        assert endpoints.most["all"] == 5
        assert all(message.attempts == 1 for number in range(1, 31) for message in _messages(runner.engine, number))


def test_slow_host_does_not_delay_others(tmp_path: Path, endpoints: Endpoints, clock: FakeClock) -> None:
    slow = [f"https://slow.example/{number}" for number in range(40)]
    quick = [f"https://quick{number}.example/" for number in range(10)]
    with _running(tmp_path / "root", clock, send_seconds=5.0) as runner:
        _subscribe(runner.engine, *slow, *quick)
        _publish(runner.engine, 1)
        runner.match()
        endpoints.always["slow.example"] = 3600.0
        assert runner.dispatcher.deliver(runner.epoch) == 0, "nobody is waited for"
        _until(lambda: len(endpoints.taken) == 10)
        assert {message.subscription.target for message in endpoints.taken} == set(quick)
        assert endpoints.most["slow.example"] == 8
        _publish(runner.engine, 2)
        runner.match()
        runner.dispatcher.deliver(runner.epoch)
        _until(lambda: len(endpoints.taken) == 20)
        _until(lambda: [message.state for message in _messages(runner.engine, 41)] == [MessageState.DONE] * 2)
        assert _messages(runner.engine, 1)[0].state is MessageState.OPEN


def test_hanging_and_refusing_endpoints_do_not_delay_others(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_in_place(monkeypatch, WebhookSink())
    taken = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with (
        _tcp_server(None) as hanging,
        _tcp_server(taken) as fine,
        refusing_port() as refused,
        _running(tmp_path / "root", clock, send_seconds=5.0, allowed_addresses=("127.0.0.1/32",)) as runner,
    ):
        ports = [hanging] * 30 + [refused] * 30 + [fine] * 10
        _subscribe(runner.engine, *(f"http://127.0.0.1:{port}/{number}" for number, port in enumerate(ports)))
        _publish(runner.engine, 1)
        runner.match()
        assert runner.deliver() == 10
        messages = [_messages(runner.engine, number)[0] for number in range(1, 71)]
        assert Counter(message.state for message in messages[:60]) == {MessageState.OPEN: 60}
        assert Counter(message.state for message in messages[60:]) == {MessageState.DONE: 10}
        for line in (messages[:30], messages[30:60]):
            not_attempted = sum("not attempted" in (message.outcome or "") for message in line)
            assert 10 <= not_attempted <= 25, "the queue of a host that does not respond is emptied"
            assert all(message.attempts == 1 and message.not_before / 1e6 > clock() for message in line)


# --- failures ------------------------------------------------------------------------------------------------------


def test_retry_schedule_survives_restarts(tmp_path: Path, endpoints: Endpoints) -> None:
    clock = FakeClock()
    with _running(tmp_path / "root", clock, retry_seconds=(5, 300, 7200)) as runner:
        _subscribe(runner.engine, "https://a.example/1")
        endpoints.always["a.example"] = DeliveryError("the endpoint answered 500")
        _publish(runner.engine, 1)
        runner.match()
        for attempts, seconds in enumerate((5, 300, 7200), 1):
            runner.deliver()
            (message,) = _messages(runner.engine)
            assert (message.state, message.attempts) == (MessageState.OPEN, attempts)
            assert seconds <= _pause_seconds(message, clock) <= seconds * 1.1 + 0.001
            clock.advance(timedelta(seconds=seconds - 1))
            runner.restart_delivery()
            assert runner.deliver() == 0
            assert len(endpoints.calls) == attempts, "not before its time"
            clock.advance(timedelta(seconds=seconds * 0.1 + 1.1))
        runner.deliver()
        (message,) = _messages(runner.engine)
        assert (message.state, message.attempts) == (MessageState.DEAD, 4)
        assert len({call.key for call in endpoints.calls}) == 1


@pytest.mark.parametrize(
    ("error", "least", "most"),
    [
        (DeliveryError("429", retry_after=120.0), 120, 132),
        (DeliveryError("503", retry_after=1.0), 5, 5.6),
        (DeliveryError("503", retry_after=10.0**9), 86_400, 86_400),
        (DeliveryError("500"), 5, 5.6),
        (RuntimeError("nobody foresaw this"), 5, 5.6),
    ],
)
def test_retry_after_lengthens_the_pause(
    runner: InProcess, endpoints: Endpoints, clock: FakeClock, error: Exception, least: float, most: float
) -> None:
    _subscribe(runner.engine, "https://a.example/1")
    endpoints.answers["https://a.example/1"] = [error]
    _publish(runner.engine, 1)
    runner.run()
    (message,) = _messages(runner.engine)
    assert message.state is MessageState.OPEN
    assert least <= _pause_seconds(message, clock) <= most


def test_permanent_failure_is_not_retried_and_the_next_message_is_sent(
    runner: InProcess, endpoints: Endpoints
) -> None:
    _subscribe(runner.engine, "https://a.example/1")
    endpoints.answers["https://a.example/1"] = [DeliveryError("too large", permanent=True)]
    _publish(runner.engine, 1)
    runner.run()
    _publish(runner.engine, 2)
    runner.run()
    assert [message.state for message in _messages(runner.engine)] == [MessageState.DEAD, MessageState.DONE]
    assert endpoints.ids("https://a.example/1") == ["2"]


def test_status_410_disables_the_subscription_until_resume(runner: InProcess, endpoints: Endpoints) -> None:
    engine = runner.engine
    _subscribe(engine, "https://a.example/1", "https://b.example/1")
    for number in (1, 2):
        _publish(engine, number)
        runner.match()
        runner.dispatcher.recorder.record(runner.epoch)
    endpoints.answers["https://a.example/1"] = [DeliveryError("410 Gone", permanent=True, gone=True)]
    runner.deliver()
    assert [message.state for message in _messages(engine, 1)] == [MessageState.DEAD, MessageState.OPEN]
    assert [message.attempts for message in _messages(engine, 1)] == [1, 0]
    with engine.workspace.catalog.read() as connection:
        held = subscriptions.subscription_by_number(connection, 1)
    assert held is not None
    assert held.disabled == "410 Gone"
    _publish(engine, 3)
    runner.run()
    assert len(_messages(engine, 1)) == 2, "nothing is recorded while it is disabled"
    assert endpoints.ids("https://b.example/1") == ["1", "2", "3"]
    engine.execute("resume subscription 1;")
    runner.run()
    assert endpoints.ids("https://a.example/1") == ["2", "3"], "it kept its place"
    _publish(engine, 4)
    runner.run()
    assert endpoints.ids("https://a.example/1") == ["2", "3", "4"]


def test_two_messages_without_success_in_a_row_disable_the_subscription(tmp_path: Path, endpoints: Endpoints) -> None:
    clock = FakeClock()
    with _running(tmp_path / "root", clock, retry_seconds=(60,)) as runner:
        _subscribe(runner.engine, "https://a.example/1")
        endpoints.always["a.example"] = DeliveryError("500")
        for number in (1, 2, 3):
            _publish(runner.engine, number)
            runner.match()
            runner.dispatcher.recorder.record(runner.epoch)
        for _ in range(6):
            runner.deliver()
            clock.advance(HOUR)
        assert [(message.state, message.attempts) for message in _messages(runner.engine)] == [
            (MessageState.DEAD, 2),
            (MessageState.DEAD, 2),
            (MessageState.OPEN, 0),
        ]
        with runner.engine.workspace.catalog.read() as connection:
            held = subscriptions.subscription_by_number(connection, 1)
        assert held is not None
        assert held.disabled


def test_failing_subscription_keeps_order_with_many_waiting_messages(
    runner: InProcess, endpoints: Endpoints, clock: FakeClock
) -> None:
    target = "https://a.example/1"
    _subscribe(runner.engine, target)
    endpoints.answers[target] = ["taken", DeliveryError("500"), DeliveryError("500")]
    for number in range(1, 21):
        _publish(runner.engine, number)
        runner.run()
    assert len(endpoints.calls) == 2, "the others wait behind the one that failed"
    clock.advance(timedelta(seconds=6))
    runner.run()
    assert len(endpoints.calls) == 3
    clock.advance(HOUR)
    assert runner.run() == 19
    assert endpoints.ids(target) == [str(number) for number in range(1, 21)]


def test_unresponsive_host_is_probed_by_one_message_at_a_time(
    tmp_path: Path, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runnel.delivery import host_queues

    monkeypatch.setattr(host_queues, "_MAX_PAUSE_SECONDS", 0.0)
    clock = FakeClock()
    targets = [f"https://down.example/{number}" for number in range(60)]
    with _running(tmp_path / "root", clock) as runner:
        _subscribe(runner.engine, *targets)
        endpoints.always["down.example"] = SILENT
        _publish(runner.engine, 1)
        runner.run()
        assert 5 <= len(endpoints.calls) < 30, "most of the line was not kept waiting for nothing"
        endpoints.calls.clear()
        endpoints.most.clear()
        clock.advance(HOUR)
        runner.deliver()
        assert endpoints.most["down.example"] == 1, "one message finds out"
        endpoints.always.clear()
        for _ in range(3):
            clock.advance(HOUR * 24)
            runner.deliver()
        assert {message.subscription.target for message in endpoints.taken} == set(targets)
        assert len(endpoints.taken) == 60


# --- crashes, leases, room -----------------------------------------------------------------------------------------


def test_message_sent_but_not_recorded_is_sent_again_with_the_same_key(
    runner: InProcess, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    _subscribe(runner.engine, "https://a.example/1")
    _publish(runner.engine, 1)
    runner.match()
    settle = runner.dispatcher.attempt_recorder.settle

    def dies(*arguments: object) -> int:
        if arguments[1]:
            raise RuntimeError("the process dies here")
        return 0

    monkeypatch.setattr(runner.dispatcher.attempt_recorder, "settle", dies)
    runner.dispatcher.deliver(runner.epoch)
    _until(lambda: len(endpoints.taken) == 1)
    runner.restart_delivery()
    assert settle is not dies
    assert [message.state for message in _messages(runner.engine)] == [MessageState.OPEN]
    assert runner.deliver() == 1
    assert len({entry.key for entry in endpoints.taken}) == 1
    assert len(endpoints.taken) == 2
    assert [(message.state, message.attempts) for message in _messages(runner.engine)] == [(MessageState.DONE, 1)]


def test_open_messages_are_sent_by_the_next_runner(runner: InProcess, endpoints: Endpoints) -> None:
    engine = runner.engine
    _subscribe(engine, *(f"https://h{number}.example/" for number in range(20)))
    _publish(engine, 1, 2)
    runner.match()
    runner.dispatcher.recorder.record(runner.epoch)
    keys = {_messages(engine, number)[0].key for number in range(1, 21)}
    with engine.workspace.catalog.write() as connection:
        release(connection, runner.lease)
    second = InProcess(engine)
    assert second.deliver() == 20
    second.close()
    assert {entry.key for entry in endpoints.taken} == keys


def test_a_runner_that_lost_its_lease_stops_sending(
    runner: InProcess, endpoints: Endpoints, clock: FakeClock
) -> None:
    engine = runner.engine
    targets = [f"https://a.example/{number}" for number in range(50)]
    _subscribe(engine, *targets)
    endpoints.always["a.example"] = 0.2
    _publish(engine, 1)
    runner.match()
    runner.dispatcher.deliver(runner.epoch)
    _until(lambda: len(endpoints.calls) >= 8)
    with engine.workspace.catalog.write() as connection:
        release(connection, runner.lease)
        acquire(connection, 60.0)
    with pytest.raises(FencedError):
        _keep_delivering(runner)
    sent = len(endpoints.calls)
    time.sleep(0.5)
    assert len(endpoints.calls) == sent < 50
    assert all(_messages(engine, number)[0].state is MessageState.OPEN for number in range(1, 51) if sent < number)


def test_sending_pauses_if_outcomes_cannot_be_stored(tmp_path: Path, endpoints: Endpoints, clock: FakeClock) -> None:
    with _running(tmp_path / "root", clock, send_concurrency=20) as runner:
        engine = runner.engine
        _subscribe(engine, *(f"https://h{number}.example/" for number in range(300)))
        endpoints.always |= {f"h{number}.example": 0.1 for number in range(300)}
        _publish(engine, 1)
        runner.match()
        runner.dispatcher.recorder.record(runner.epoch)
        settle = runner.dispatcher.attempt_recorder.settle
        is_full = threading.Event()
        is_full.set()

        def full(epoch: int, attempts: Sequence[object], ended: Sequence[int] = ()) -> int:
            if is_full.is_set() and attempts:
                raise StorageFullError("no disk space left for the catalog")
            return settle(epoch, attempts, ended)  # type: ignore[arg-type]

        runner.dispatcher.attempt_recorder.settle = full  # type: ignore[method-assign]
        with pytest.raises(StorageFullError):
            _keep_delivering(runner)
        time.sleep(0.2)
        sent = len(endpoints.calls)
        time.sleep(0.2)
        assert len(endpoints.calls) == sent < 300, "nothing more is sent while nothing can be settled"
        is_full.clear()
        _until(lambda: _settled(runner) == 300)
        assert len(endpoints.taken) == 300, "what was settled late was not sent twice"


def _keep_delivering(runner: InProcess) -> None:
    """Deliver like a runner until an exception is raised."""
    for _ in range(500):
        runner.dispatcher.deliver(runner.epoch)
        time.sleep(0.01)


def _settled(runner: InProcess) -> int:
    with suppress(StorageFullError):  # it is said as long as it is not known that there is room again
        runner.dispatcher.deliver(runner.epoch)
    with runner.engine.workspace.catalog.read() as connection:
        return catalog_rows.message_counts(connection).get("done", 0)


def test_unwritable_file_delays_only_its_own_subscription(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to All output jsonl 'bad/all.jsonl'; subscribe to All output jsonl 'good.jsonl';")
    (engine.workspace.out / "bad").write_text("a file where a folder should be")
    _publish(engine, 1)
    assert runner.run() == 1
    assert _messages(engine, 1)[0].state is MessageState.OPEN
    assert _messages(engine, 2)[0].state is MessageState.DONE


# --- stylesheets ---------------------------------------------------------------------------------------------------

_SHEET = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="text"/>
<xsl:template match="/">{body}</xsl:template>
<xsl:template name="again"><xsl:call-template name="again"/></xsl:template></xsl:stylesheet>"""


def test_unwritable_files_do_not_pause_stylesheets(engine: Engine, runner: InProcess) -> None:
    sheets = engine.workspace.folder / "sheets"
    sheets.mkdir(exist_ok=True)
    (sheets / "same.xsl").write_text(SAME)
    engine.execute("subscribe to All apply 'same.xsl' output rss 'yes.xml';")
    engine.execute("".join(f"subscribe to All apply 'same.xsl' output rss 'no/{row}.xml';" for row in range(12)))
    (engine.workspace.out / "no").parent.mkdir(exist_ok=True)
    (engine.workspace.out / "no").write_text("a file, where a folder should be")
    _publish(engine, 1)
    assert runner.run() == 1
    assert "news 1" in (engine.workspace.out / "yes.xml").read_text()
    assert all("cannot be written" in (_messages(engine, number)[0].outcome or "") for number in range(2, 14))


def test_missing_stylesheet_does_not_pause_a_host(tmp_path: Path, endpoints: Endpoints) -> None:
    with _running(tmp_path / "root") as runner:
        engine = runner.engine
        (engine.workspace.folder / "sheets").mkdir(exist_ok=True)
        (engine.workspace.folder / "sheets" / "same.xsl").write_text(SAME)
        target = "https://a.example/"
        _subscribe(engine, f"{target}plain")
        engine.execute(
            "".join(f"subscribe to All apply 'same.xsl' output webhook '{target}{row}';" for row in range(12))
        )
        [kept] = (path for path in (engine.workspace.folder / "sheets").iterdir() if path.name != "same.xsl")
        kept.rename(kept.with_suffix(".away"))
        _publish(engine, 1)
        assert runner.run() == 1
        assert endpoints.ids(f"{target}plain") == ["1"]
        waiting = [_messages(engine, number)[0] for number in range(2, 14)]
        assert {entry.state for entry in waiting} == {MessageState.OPEN}, "it may come back"
        assert all("the stylesheet sheets/" in (message.outcome or "") for message in waiting)


def test_run_waits_for_a_slow_sink(tmp_path: Path, endpoints: Endpoints) -> None:
    endpoints.patience = 40.0
    with _running(tmp_path / "root", send_seconds=0.1) as runner:
        _subscribe(runner.engine, "https://slow.example/")
        endpoints.always["slow.example"] = 3.0
        _publish(runner.engine, 1)
        assert runner.run() == 1
        _publish(runner.engine, 2)
        runner.match()
        assert runner.dispatcher.deliver(runner.epoch, wait=True, seconds=0.5) == 0
        assert (len(endpoints.calls), len(endpoints.taken)) == (2, 1), "but not beyond the time that is given"


def test_stylesheet_transforms_messages_and_its_failure_affects_no_other(
    engine: Engine, runner: InProcess, endpoints: Endpoints
) -> None:
    sheets = engine.workspace.folder / "sheets"
    sheets.mkdir(exist_ok=True)
    (sheets / "titles.xsl").write_text(
        _SHEET.format(body="<xsl:for-each select='//item'>[<xsl:value-of select='title'/>]</xsl:for-each>")
    )
    (sheets / "endless.xsl").write_text(_SHEET.format(body="<xsl:call-template name='again'/>"))
    engine.execute(
        "subscribe to All apply 'titles.xsl' output webhook 'https://a.example/shaped';"
        "subscribe to All apply 'endless.xsl' output webhook 'https://a.example/endless';"
        "subscribe to All apply 'titles.xsl' output jsonl 'no-feed.jsonl';"
        "subscribe to All output webhook 'https://a.example/plain';"
    )
    _publish(engine, 1)
    assert runner.run() == 2
    (shaped,) = endpoints.to("https://a.example/shaped", endpoints.taken)
    assert shaped.content is not None
    assert shaped.content.data == b"[news 1]"
    assert endpoints.ids("https://a.example/plain") == ["1"]
    for number, words in ((2, "without end"), (3, "accepts only feeds")):
        (message,) = _messages(engine, number)
        assert (message.state, message.attempts) == (MessageState.DEAD, 1)
        assert words in (message.outcome or "")


# --- many ----------------------------------------------------------------------------------------------------------


def test_digests_of_one_range_share_log_reads_and_transactions(
    tmp_path: Path, endpoints: Endpoints, clock: FakeClock
) -> None:
    with _running(tmp_path / "root", clock, send_concurrency=200, send_host_concurrency=200) as runner:
        engine = runner.engine
        engine.execute("".join(f"create feed F{n} from Wire where title contains '{n}';" for n in range(10)))
        engine.execute(
            "".join(
                f"subscribe to F{n % 10} output webhook 'https://a.example/{n}' every 1 hour;" for n in range(600)
            )
        )
        _publish(engine, *range(50))
        runner.match()
        clock.advance(HOUR)
        reads = runner.dispatcher._composer._match_reader._matches
        assert runner.deliver() == 600
        assert reads.reads == 1
        assert runner.dispatcher.attempt_recorder.transactions < 30
        assert all(endpoints.ids(f"https://a.example/{n}") == [str(n % 10)] for n in range(0, 600, 77))
        with engine.workspace.catalog.read() as connection:
            wrong = connection.execute(text("select count(*) from messages where state <> 'done' or attempts <> 1"))
            assert wrong.scalar_one() == 0


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    script=st.lists(
        st.lists(st.sampled_from(["taken", "500", "429", "silent", "odd"]), max_size=6), min_size=3, max_size=3
    ),
    restarts=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_each_item_arrives_once_in_order_for_any_responses(
    tmp_path_factory: pytest.TempPathFactory, endpoints: Endpoints, script: list[list[str]], restarts: list[bool]
) -> None:
    errors = {
        "500": DeliveryError("500"),
        "429": DeliveryError("429", retry_after=30.0),
        "silent": SILENT,
        "odd": ValueError("odd"),
    }
    clock = FakeClock()
    endpoints.taken.clear()
    endpoints.calls.clear()
    targets = [f"https://h{number}.example/" for number in range(3)]
    for target, answers in zip(targets, script, strict=True):
        endpoints.answers[target] = [errors.get(answer, answer) for answer in answers]
    with _running(tmp_path_factory.mktemp("root"), clock) as runner:
        _subscribe(runner.engine, *targets)
        for number, restart in enumerate(restarts, 1):
            _publish(runner.engine, number)
            runner.run()
            clock.advance(timedelta(seconds=40))
            if restart:
                runner.restart_delivery()
        for _ in range(8):
            clock.advance(HOUR * 25)
            runner.run()
        expected = [str(number) for number in range(1, len(restarts) + 1)]
        assert all(endpoints.ids(target) == expected for target in targets)
        assert len({entry.key for entry in endpoints.taken}) == len(endpoints.taken)


# --- servers -------------------------------------------------------------------------------------------------------


def _until(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


@contextmanager
def _tcp_server(answer: bytes | None) -> Iterator[int]:
    """A server on loopback that sends the same response to every request, or none."""
    started: threading.Event = threading.Event()
    values: list[object] = []

    async def serve() -> None:
        ended = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while (head := await reader.readuntil(b"\r\n\r\n")) and answer is not None:
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                writer.write(answer)
            await ended.wait()

        async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(quietly, "127.0.0.1", 0)
        values.extend([server.sockets[0].getsockname()[1], ended, asyncio.get_running_loop()])
        started.set()
        await ended.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait()
    port, ended, loop = values
    try:
        yield int(port)  # type: ignore[call-overload]
    finally:
        loop.call_soon_threadsafe(ended.set)  # type: ignore[attr-defined]
        thread.join(5)
