"""Endpoints that refuse permanently: their subscriptions are disabled, and resuming sends what has matched."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.integration.in_process import InProcess
from tests.unit.sinks.mail.smtp_server import Post, serving
from typer.testing import CliRunner

import runnel
from runnel.catalog.declared import subscriptions
from runnel.catalog.delivery import ledger
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.errors import StatementError
from runnel.model.message import MessageState
from runnel.model.subscription import Subscription
from runnel.testing import FakeClock, MemorySink
from runnel.web.collect_report import collect_report

OPEN, DONE, DEAD = MessageState.OPEN, MessageState.DONE, MessageState.DEAD
READER = "reader@muse.example"
NO_FEED = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="text"/><xsl:template match="/">plain</xsl:template></xsl:stylesheet>"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime.now(UTC))  # the command line has the clock of the machine


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def runner(tmp_path: Path, clock: FakeClock, post: Post) -> Iterator[InProcess]:
    MemorySink.clear()
    with (
        serving(post) as port,
        runnel.connect(
            tmp_path / "root",
            clock=clock,
            smtp_host="127.0.0.1",
            smtp_port=port,
            smtp_security="none",
            mail_from="Runnel <runnel@muse.example>",
            allowed_addresses=("127.0.0.0/8",),
            retry_seconds=(5, 86_400),
        ) as engine,
    ):
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        made = InProcess(engine)
        yield made
        made.close()


def _publish(runner: InProcess, clock: FakeClock, *numbers: int) -> None:
    """Publish items one after the other, each in its own message."""
    for number in numbers:
        runner.engine.publish("Wire", [{"id": str(number), "title": f"rock {number}"}])
        runner.match()
        runner.deliver()
        clock.advance(timedelta(seconds=1))


def _states(engine: Engine, subscription: int = 1) -> list[MessageState]:
    with engine.workspace.catalog.read() as connection:
        return [message.state for message in ledger.messages_of(connection, subscription)]


def _held(engine: Engine, number: int = 1) -> Subscription:
    with engine.workspace.catalog.read() as connection:
        subscription = subscriptions.subscription_by_number(connection, number)
    assert subscription is not None
    return subscription


def _subjects(post: Post) -> list[str]:
    return [str(mail["Subject"]) for mail in post.mails()]


def test_permanent_refusals_disable_the_subscription_and_later_matches_wait(
    runner: InProcess, clock: FakeClock, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    engine = runner.engine
    engine.execute(f"subscribe to Rock output mail '{READER}';")
    post.refuse[READER] = "550 5.1.1 no such user"
    with caplog.at_level(logging.WARNING, "runnel"):
        _publish(runner, clock, *range(1, 11))
    assert _states(engine) == [DEAD] * 3, "nothing more is recorded once it is disabled"
    reason = _held(engine).disabled
    assert reason is not None
    assert reason.startswith("3 messages in a row were given up, the last was permanently refused: ")
    assert "550 5.1.1 no such user" in reason
    status = engine.status()
    assert status.disabled_subscriptions == [{"subscription": "1", "reason": reason}]
    assert any("`resume subscription 1;`" in line for line in status.lines())
    assert reason in engine.show("subscriptions").lines[0]
    assert f"subscription 1 is disabled: {reason}" in collect_report(engine, "r").failures
    assert any("subscription 1 is disabled" in record.getMessage() for record in caplog.records)

    post.refuse.clear()
    engine.execute("resume subscription 1;")
    runner.deliver()
    assert _states(engine) == [DEAD] * 3 + [DONE], "what matched meanwhile, together"
    engine.execute("replay subscription 1;")
    runner.deliver()
    assert _states(engine) == [DONE] * 4
    assert len(post.taken) == 4
    contents = b"".join(content for _, _, content in post.taken)
    assert all(f"rock {number}".encode() in contents for number in range(1, 11))


def test_only_consecutive_refusals_since_resume_count(runner: InProcess, clock: FakeClock, post: Post) -> None:
    engine = runner.engine
    engine.execute(f"subscribe to Rock output mail '{READER}';")
    for first in (1, 11, 21):
        post.refuse[READER] = "550 no"
        _publish(runner, clock, first, first + 1)
        post.refuse.clear()
        _publish(runner, clock, first + 2)
    assert _states(engine) == [DEAD, DEAD, DONE] * 3
    assert _held(engine).disabled is None
    post.refuse[READER] = "550 no"
    _publish(runner, clock, 31, 32, 33)
    assert _held(engine).disabled is not None
    engine.execute("resume subscription 1;")
    clock.advance(timedelta(seconds=1))
    _publish(runner, clock, 34, 35)
    assert _held(engine).disabled is None, "the count begins again"
    _publish(runner, clock, 36)
    assert _held(engine).disabled is not None


def test_unsuitable_stylesheet_output_disables_the_subscription(
    runner: InProcess, clock: FakeClock, tmp_path: Path
) -> None:
    engine = runner.engine
    sheets = tmp_path / "root" / "sheets"
    sheets.mkdir(exist_ok=True)
    (sheets / "text.xsl").write_text(NO_FEED)
    engine.execute("subscribe to Rock apply 'text.xsl' output rss 'rock.xml';")
    _publish(runner, clock, 1, 2, 3, 4, 5)
    assert _states(engine) == [DEAD] * 3
    reason = _held(engine).disabled
    assert reason is not None
    assert "accepts only feeds" in reason


class _Endpoint(ThreadingHTTPServer):
    """An HTTP server that responds to every request with `status`, and stores the bodies that it accepted."""

    def __init__(self) -> None:
        self.status = 200
        self.taken: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 200:
            self.server.taken.append(body)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture
def endpoint() -> Iterator[_Endpoint]:
    server = _Endpoint()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_send_now_sends_waiting_messages(
    runner: InProcess, clock: FakeClock, endpoint: _Endpoint, tmp_path: Path
) -> None:
    engine = runner.engine
    for path in ("a", "b"):
        engine.execute(f"subscribe to Rock output webhook 'http://127.0.0.1:{endpoint.server_port}/{path}';")
    endpoint.status = 500
    _publish(runner, clock, 1)
    clock.advance(timedelta(seconds=10))
    runner.deliver()
    _publish(runner, clock, 2)
    assert endpoint.taken == []
    endpoint.status = 200
    clock.advance(timedelta(hours=1))
    runner.deliver()
    assert endpoint.taken == [], "the next attempt is a day away"
    [outcome] = engine.execute("send subscription 1 now;")
    assert outcome.message == "2 messages are sent now"
    runner.deliver()
    assert _states(engine, 1) == [DONE, DONE]
    assert _states(engine, 2) == [OPEN, OPEN]
    result = CliRunner().invoke(app, ["dead-letters", "send-now", "--workspace", str(tmp_path / "root"), "--json"])
    assert result.exit_code == 0, result.output
    assert '"messages": 2' in result.output
    runner.deliver()
    assert _states(engine, 2) == [DONE, DONE]
    assert len(endpoint.taken) == 4
    [outcome] = engine.execute("send all now;")
    assert outcome.message == "no message is waiting for a retry"


def test_send_now_restarts_the_retry_schedule(runner: InProcess, clock: FakeClock, endpoint: _Endpoint) -> None:
    engine = runner.engine
    engine.execute(f"subscribe to Rock output webhook 'http://127.0.0.1:{endpoint.server_port}/a';")
    endpoint.status = 500
    _publish(runner, clock, 1)
    for _ in range(5):
        engine.execute("send subscription 1 now;")
        runner.deliver()
        clock.advance(timedelta(seconds=1))
    assert _states(engine) == [OPEN]


def test_resume_after_410_sends_all_waiting_messages(
    runner: InProcess, clock: FakeClock, endpoint: _Endpoint
) -> None:
    engine = runner.engine
    engine.execute(f"subscribe to Rock output webhook 'http://127.0.0.1:{endpoint.server_port}/a';")
    endpoint.status = 410
    _publish(runner, clock, 1, 2, 3)
    assert _states(engine) == [DEAD]
    [outcome] = engine.execute("send all now;")
    assert outcome.to_json()["disabled"] == [1]
    assert _held(engine).disabled is not None, "all at once resumes nothing"
    endpoint.status = 200
    engine.execute("send subscription 1 now; replay subscription 1;")
    runner.deliver()
    assert _states(engine) == [DONE, DONE]
    assert all(f'"rock {number}"'.encode() in b"".join(endpoint.taken) for number in (1, 2, 3))


def test_send_now_skips_paused_subscriptions(runner: InProcess, clock: FakeClock) -> None:
    engine = runner.engine
    engine.execute(f"subscribe to Rock output mail '{READER}'; pause subscription 1;")
    with pytest.raises(StatementError, match="subscription 1 is paused") as raised:
        engine.execute("send subscription 1 now;")
    assert raised.value.hint == "resume it first: `resume subscription 1;`"
