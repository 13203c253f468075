"""Dead letters are listed, explained, and sent again under the same key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess

import runnel
from runnel.catalog.delivery import ledger
from runnel.delivery.dead_letters import dead_letters, explain_dead_letter, replay
from runnel.engine import Engine
from runnel.engine.open_delivery import match_reader_of
from runnel.errors import NotFoundError
from runnel.model.message import MessageState
from runnel.testing import FakeClock, MemorySink

DAY = timedelta(days=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def runner(tmp_path: Path, clock: FakeClock) -> Iterator[InProcess]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "workspace", clock=clock, retry_seconds=(5, 300)) as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output memory 'a'; subscribe to Rock output memory 'b';")
        runner = InProcess(engine)
        yield runner
        runner.close()
    MemorySink.clear()


def _give_up(runner: InProcess, clock: FakeClock, target: str, *numbers: int) -> None:
    """Publish items while an endpoint fails, until its message is given up."""
    MemorySink.fail(target, "connection refused")
    runner.engine.publish("Wire", [{"id": str(number), "title": f"rock {number}"} for number in numbers])
    runner.match()
    for _ in range(3):
        runner.deliver()
        clock.advance(timedelta(hours=1))
    MemorySink.fail(target, None)


def _dead_letter_keys(engine: Engine, subscription: int | None = None) -> list[str]:
    with engine.workspace.catalog.read() as connection:
        return [letter.key for letter in dead_letters(connection, 100, subscription)]


def test_dead_letters_are_listed_newest_first_and_by_subscription(runner: InProcess, clock: FakeClock) -> None:
    _give_up(runner, clock, "a", 1, 2)
    _give_up(runner, clock, "b", 3)
    keys = _dead_letter_keys(runner.engine)
    assert [key.split("-")[1] for key in keys] == ["2", "1"]
    assert _dead_letter_keys(runner.engine, 1) == keys[1:]
    with runner.engine.workspace.catalog.read() as connection:
        assert [letter.key for letter in dead_letters(connection, 1)] == keys[:1]
        [letter] = dead_letters(connection, 10, 1)
    assert (letter.feed, letter.kind, letter.target, letter.count) == ("Rock", "memory", "a", 2)
    assert (letter.attempts, letter.reason) == (3, "connection refused")
    (line,) = letter.lines()
    assert letter.key in line
    assert "connection refused" in line
    assert json.loads(json.dumps(letter.to_json()))["count"] == 2


def test_explanation_shows_titles_attempts_and_advice(runner: InProcess, clock: FakeClock) -> None:
    _give_up(runner, clock, "a", 1, 2)
    [key] = _dead_letter_keys(runner.engine)
    with runner.engine.workspace.catalog.read() as connection:
        history = explain_dead_letter(connection, key, match_reader_of(runner.engine.workspace))
    assert (history.state, history.feed, history.count) == ("dead", "Rock", 2)
    assert history.titles == ("rock 1", "rock 2")
    assert [failure.number for failure in history.failures] == [1, 2, 3]
    assert {failure.outcome for failure in history.failures} == {"connection refused"}
    times = [failure.at for failure in history.failures]
    assert [later - earlier for earlier, later in pairwise(times)] == [timedelta(hours=1)] * 2
    assert any(f"replay message '{key}'" in advice for advice in history.advice)
    shown = "\n".join(history.lines())
    assert all(part in shown for part in (key, "rock 1", "connection refused", "attempt 3"))
    assert json.loads(json.dumps(history.to_json()))["failures"][2]["attempt"] == 3


def test_replayed_message_keeps_its_key_and_its_history(runner: InProcess, clock: FakeClock) -> None:
    _give_up(runner, clock, "a", 1, 2)
    [key] = _dead_letter_keys(runner.engine)
    with runner.engine.workspace.catalog.write() as connection:
        assert replay(connection, key) == 1
        assert replay(connection, key) == 0, "it is already open"
    MemorySink.fail("a", "still down")
    runner.deliver()
    MemorySink.fail("a", None)
    clock.advance(DAY)
    assert runner.deliver() == 1
    assert [delivery.key for delivery in MemorySink.delivered("a")] == [key]
    assert MemorySink.item_ids("a") == ["1", "2"]
    with runner.engine.workspace.catalog.read() as connection:
        history = explain_dead_letter(connection, key)
        [message] = ledger.messages_of(connection, 1)
    assert (message.state, message.attempts) == (MessageState.DONE, 2), "attempts are counted from 0 again"
    assert [failure.outcome for failure in history.failures] == ["connection refused"] * 3 + ["still down"]
    assert _dead_letter_keys(runner.engine) == []


def test_replaying_a_subscription_sends_its_dead_letters_in_order(runner: InProcess, clock: FakeClock) -> None:
    _give_up(runner, clock, "a", 1)
    runner.engine.publish("Wire", [{"id": "5", "title": "rock 5"}])
    runner.run()
    _give_up(runner, clock, "a", 6)
    with runner.engine.workspace.catalog.write() as connection:
        assert replay(connection, 1) == 2
    runner.deliver()
    assert MemorySink.item_ids("a") == ["5", "1", "6"]
    assert MemorySink.item_ids("b") == ["1", "5", "6"]


def test_dead_letters_of_an_ended_subscription_cannot_be_replayed(runner: InProcess, clock: FakeClock) -> None:
    _give_up(runner, clock, "a", 1)
    [key] = _dead_letter_keys(runner.engine)
    runner.engine.execute("unsubscribe 1;")
    with runner.engine.workspace.catalog.write() as connection:
        assert (replay(connection, key), replay(connection, 1)) == (0, 0)
        assert "has ended" in " ".join(explain_dead_letter(connection, key).advice)


def test_explaining_an_unknown_key_raises_not_found(runner: InProcess) -> None:
    with runner.engine.workspace.catalog.read() as connection, pytest.raises(NotFoundError, match="no message"):
        explain_dead_letter(connection, "nothing'; drop table messages;")


def test_statements_list_explain_and_replay_dead_letters(runner: InProcess, clock: FakeClock) -> None:
    _give_up(runner, clock, "a", 1)
    [key] = _dead_letter_keys(runner.engine)
    shown, history = runner.engine.execute(f"show dead letters; explain message '{key}';")
    assert key in "\n".join(shown.lines)
    assert "connection refused" in "\n".join(history.lines)
    runner.engine.execute(f"replay message '{key}';")
    assert runner.deliver() == 1
