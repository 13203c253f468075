"""A plug-in sink can do everything that built-in sinks can: it declares traits, and no other code knows its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select
from tests.integration.in_process import InProcess, matched_ids

import runnel
from runnel.catalog.logs import match_segments
from runnel.catalog.store import schema
from runnel.engine import Engine
from runnel.errors import InputError, StatementError
from runnel.settings import Settings
from runnel.sinks import registry
from runnel.sinks.contract import ConfirmationRequest, ConfirmingSink, Delivery, LocalSink, Route, Sink
from runnel.testing import FakeClock, MemorySink

PUBLIC = "https://runnel.example"
DECLARED = "register feed Wire; create feed Rock from Wire where title contains 'rock';"


class Chat(ConfirmingSink, Route):
    """A sink for chat rooms, which confirm requests immediately."""

    kind = "chat"
    is_signed = True
    takes_content = True

    def __init__(self) -> None:
        self.agrees = True
        self.requests: list[ConfirmationRequest] = []
        self.taken: list[Delivery] = []

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        if not target or "#" not in target:
            raise InputError("this output needs a room", hint="output chat 'server#room'")
        return target

    def host(self, target: str) -> str:
        return target.partition("#")[0]

    def recipient(self, target: str) -> str:
        return target

    def refuser(self, target: str) -> str:
        return target

    def domain(self, target: str) -> str:
        return self.host(target)

    def messages_per_hour(self, settings: Settings) -> int:
        return 1

    def connect(self, settings: Settings, client: object) -> Chat:
        return self

    async def deliver(self, delivery: Delivery) -> str:
        self.taken.append(delivery)
        return "posted"

    async def confirm(self, request: ConfirmationRequest) -> bool:
        self.requests.append(request)
        return self.agrees


class Warehouse(LocalSink):
    """A sink without messages, like `output log`, whose subscribers read the match log."""

    kind = "warehouse"
    is_for_owners = True
    sends_messages = False

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        return target

    def deliver(self, delivery: Delivery) -> str:
        raise NotImplementedError


class Single(MemorySink):
    """A sink whose targets belong to one subscription."""

    kind = "single"
    owns_target = True


class Clumsy(MemorySink):
    """A plug-in whose `validate_target` has other parameters than the contract."""

    kind = "clumsy"

    def validate_target(self, target: str | None) -> str | None:  # type: ignore[override]
        return target


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    """Installs the plug-ins above."""
    made = Chat()
    plugins: list[Sink] = [made, Warehouse(), Single(), Clumsy()]
    opened = {sink.kind: sink for sink in [*registry.installed_sinks(), *plugins]}
    monkeypatch.setattr(registry, "OPENED", opened)
    monkeypatch.setattr(registry, "plugin_names", lambda group: sorted(opened))
    registry.silent_kinds.cache_clear()
    MemorySink.clear()
    yield made
    registry.silent_kinds.cache_clear()


@pytest.fixture
def runner(tmp_path: Path, clock: FakeClock, chat: Chat) -> Iterator[InProcess]:
    with runnel.connect(tmp_path / "root", clock=clock, public_url=PUBLIC) as engine:
        engine.execute(DECLARED)
        made = InProcess(engine)
        yield made
        made.close()


def publish(engine: Engine, *ids: str) -> None:
    engine.publish("Wire", [{"id": value, "title": f"rock {value}"} for value in ids])


def messages(engine: Engine) -> int:
    with engine.workspace.catalog.read() as connection:
        return int(connection.execute(select(func.count()).select_from(schema.messages)).scalar_one())


def owner(engine: Engine) -> Engine:
    engine.owners.add("ann")
    return engine.acting_as("ann")


def test_a_plug_in_that_fails_on_a_target_refuses_the_statement(runner: InProcess) -> None:
    with pytest.raises(StatementError, match="'clumsy' failed to check the target: TypeError") as refused:
        runner.engine.execute("subscribe to Rock output clumsy 'box';")
    assert refused.value.hint == "Clumsy.validate_target must return the target or raise InputError"
    assert refused.value.span is not None


def test_a_signed_plug_in_gets_keys_and_a_link_that_ends_the_subscription(runner: InProcess, chat: Chat) -> None:
    (answer,) = runner.engine.execute("subscribe to Rock output chat 'a.example#rock';")
    assert answer.to_json()["key"].startswith("whsec_")
    assert answer.message.endswith("chat to a.example#rock")
    publish(runner.engine, "1")
    runner.match()
    runner.deliver()
    [delivery] = chat.taken
    assert len(delivery.signing_keys) == 1
    assert delivery.unsubscribe is not None
    assert delivery.unsubscribe.startswith(f"{PUBLIC}/unsubscribe/")
    (answer,) = runner.engine.execute("rotate key of subscription 1;")
    publish(runner.engine, "2")
    runner.match()
    runner.deliver()
    assert len(chat.taken[-1].signing_keys) == 2


def test_a_subscription_that_is_not_signed_names_the_outputs_that_are(runner: InProcess) -> None:
    runner.engine.execute("subscribe to Rock output single 'box';")
    with pytest.raises(StatementError, match="outputs with signing keys: chat, webhook"):
        runner.engine.execute("rotate key of subscription 1;")


def test_owners_use_a_plug_in_whose_recipients_agree_and_are_limited(
    runner: InProcess, chat: Chat, clock: FakeClock
) -> None:
    engine = owner(runner.engine)
    chat.agrees = False
    (answer,) = engine.execute("subscribe to Rock output chat 'a.example#rock';")
    assert answer.to_json()["waiting"] == "for confirmation"
    publish(runner.engine, "1")
    runner.match()
    runner.deliver()
    assert len(chat.requests) == 1
    assert chat.taken == []
    chat.agrees = True
    engine.execute("send subscription 1 now;")
    clock.advance(timedelta(minutes=10))
    runner.deliver()
    runner.deliver()
    publish(runner.engine, "2")
    runner.match()
    runner.deliver()
    assert [item.item.id for delivery in chat.taken for item in delivery.items] == ["1"], "one message per hour"
    clock.advance(timedelta(hours=1, minutes=1))
    runner.deliver()
    assert [item.item.id for delivery in chat.taken for item in delivery.items] == ["1", "2"]


def test_error_lists_the_outputs_that_owners_may_use(runner: InProcess) -> None:
    with pytest.raises(StatementError, match="you may use: chat, log, mail, warehouse, webhook"):
        owner(runner.engine).execute("subscribe to Rock output single 'box';")


def test_plug_in_without_messages_is_matched_but_not_delivered(runner: InProcess) -> None:
    engine = owner(runner.engine)
    engine.execute("subscribe to Rock output warehouse;")
    runner.engine.execute("subscribe to Rock output warehouse every 1 hour; subscribe to Rock output single 'box';")
    publish(runner.engine, "1")
    runner.match()
    runner.deliver()
    assert matched_ids(runner.engine, "Rock") == ["1"]
    assert MemorySink.item_ids("box") == ["1"]
    assert messages(runner.engine) == 1
    with runner.engine.workspace.catalog.read() as connection:
        assert match_segments.read_queries(connection, registry.silent_kinds()), "they read the log by query"
    sheets = runner.engine.workspace.folder / "sheets"
    sheets.mkdir(exist_ok=True)
    (sheets / "same.xsl").write_text(
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"/>', "utf-8"
    )
    with pytest.raises(StatementError, match="warehouse sends no messages"):
        runner.engine.execute("subscribe to Rock apply 'same.xsl' output warehouse;")


def test_plug_in_that_owns_its_targets_allows_one_subscription_per_target(runner: InProcess) -> None:
    runner.engine.execute("subscribe to Rock output single 'box';")
    with pytest.raises(StatementError, match="already writes into box"):
        runner.engine.execute("subscribe to Rock output single 'box';")


def test_a_plug_in_that_is_uninstalled_delays_only_its_own_messages(runner: InProcess, chat: Chat) -> None:
    runner.engine.execute("subscribe to Rock output chat 'a.example#rock'; subscribe to Rock output memory 'box';")
    del registry.OPENED["chat"]
    publish(runner.engine, "1")
    runner.match()
    runner.deliver()
    assert MemorySink.item_ids("box") == ["1"]
    assert chat.taken == []
    with runner.engine.workspace.catalog.read() as connection:
        row = connection.execute(select(schema.messages.c.outcome).where(schema.messages.c.subscription == 1)).one()
    assert "no output named 'chat'" in row.outcome
