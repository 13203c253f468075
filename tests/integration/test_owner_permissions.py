"""Permissions of owners, and their tickets, subscriptions, stylesheets, materialized feeds and quotas."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.integration.in_process import InProcess, live_names, matched_ids
from tests.log_upkeep import archive_matched
from typer.testing import CliRunner

import runnel
from runnel.catalog.access import owners, signing_keys
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.delivery import outbox
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.engine.answers import Dropped
from runnel.engine.declare.end_expired import end_expired
from runnel.engine.declare.keep_stylesheets import keep_stylesheets
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.workspace import Workspace
from runnel.errors import (
    CyclicFeedsError,
    DuplicateNameError,
    InputError,
    NotAllowedError,
    NotAWorkspaceError,
    NotFoundError,
    QuotaExceededError,
    StatementError,
    StillNeededError,
    UnknownNameError,
)
from runnel.language.syntax.statements import Renew, Statement, Unsubscribe
from runnel.testing import FakeClock

WIRE = "register feed Wire; create feed Rock from Wire where title contains 'rock';"
COPY = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>
<xsl:template match="item/title"><title>%s <xsl:value-of select="."/></title></xsl:template>
</xsl:stylesheet>"""


@pytest.fixture
def ann(engine: Engine) -> Engine:
    engine.owners.add("ann")
    return engine.acting_as("ann")


@pytest.fixture
def bob(engine: Engine) -> Engine:
    engine.owners.add("bob")
    return engine.acting_as("bob")


def _sheet(engine: Engine, name: str, text: str) -> None:
    folder = engine.workspace.folder / "sheets"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


# --- who acts ------------------------------------------------------------------------------------------------------


def test_token_opens_the_workspace_for_its_owner(engine: Engine) -> None:
    engine.owners.add("ann")
    token = engine.owners.new_token("ann", "laptop").to_json()["token"]
    with runnel.connect(engine.workspace.folder, token=token) as opened:
        assert (opened.actor.name, opened.actor.is_admin) == ("ann", False)
        opened.execute("register feed Mine;")
    assert engine.authenticated(token).execute("show feeds;")[0].lines == ("register feed Mine;",)
    listed = engine.owners.tokens("ann")
    assert "used never" not in listed.lines[0]
    assert token not in str(listed)
    engine.owners.revoke(listed.to_json()["tokens"][0]["id"])
    with pytest.raises(NotAllowedError, match="not valid"):
        runnel.connect(engine.workspace.folder, token=token)


def test_connect_with_a_token_creates_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(NotAWorkspaceError):
        runnel.connect(tmp_path / "none", token="runnel_1_x")
    assert not (tmp_path / "none").exists()


def test_owners_cannot_use_methods_of_the_admin(ann: Engine) -> None:
    for attempt in (
        ann.status,
        ann.run,
        lambda: ann.owners,
        lambda: ann.acting_as("admin"),
        lambda: ann.authenticated("runnel_1_x"),
    ):
        with pytest.raises(NotAllowedError, match="only the admin"):
            attempt()


def _attempts(ann: Engine) -> list[Callable[[], object]]:
    return [
        lambda: ann.execute("create feed Other from Mine;"),
        lambda: ann.execute("show feeds;"),
        lambda: ann.execute("preview feed Mine;"),
        lambda: ann.show("feeds"),
        lambda: ann.explain("Mine"),
        lambda: ann.why("1", "Mine"),
        lambda: ann.preview("Mine"),
        lambda: list(ann.matches("Mine")),
        lambda: ann.publish("Mine", [{"id": "2"}]),
        lambda: ann.publish_document("Mine", b'{"id": "2"}\n'),
    ]


@pytest.mark.parametrize("end", ["revoke the token", "disable the owner"])
def test_open_engine_is_refused_after_its_token_is_revoked(engine: Engine, end: str) -> None:
    engine.owners.add("ann")
    made = engine.owners.new_token("ann", "laptop").to_json()
    other = engine.authenticated(engine.owners.new_token("ann", "phone").to_json()["token"])
    with runnel.connect(engine.workspace.folder, token=made["token"]) as ann:
        ann.execute("register feed Mine; subscribe to Mine output log;")
        ann.publish("Mine", [{"id": "1"}])
        for attempt in _attempts(ann)[1:8]:
            attempt()
        if end == "revoke the token":
            engine.owners.revoke(made["id"])
            assert other.show("feeds").to_json()["feeds"], "her other token still holds"
        else:
            engine.owners.disable("ann")
        for attempt in _attempts(ann):
            with pytest.raises(NotAllowedError, match="this token is not valid"):
                attempt()
    assert engine.status().accepted == 1
    assert [row["name"] for row in engine.show("feeds").to_json()["feeds"]] == ["Mine"]


def test_acting_for_others_ends_when_the_admins_token_is_revoked(engine: Engine) -> None:
    engine.owners.add("ann")
    made = engine.owners.new_token("admin", "console").to_json()
    operator = engine.authenticated(made["token"])
    ann = operator.acting_as("ann")
    ann.execute("register feed Mine;")
    engine.owners.revoke(made["id"])
    for attempt in (operator.status, lambda: operator.acting_as("ann"), lambda: ann.execute("drop feed Mine;")):
        with pytest.raises(NotAllowedError, match="not valid"):
            attempt()


# --- what owners may do --------------------------------------------------------------------------------------------

REFUSALS: list[tuple[str, type[StatementError], str, tuple[int, int]]] = [
    ("register feed 'drop' as X;", StatementError, "only the admin can register this kind", (1, 15)),
    ("register feed '/etc' as X;", StatementError, "only the admin can register this kind", (1, 15)),
    (
        "register feed 'file:///etc/passwd' as X;",
        StatementError,
        "only the admin can register this kind",
        (1, 15),
    ),
    ("subscribe to Rock output rss 'x.xml';", StatementError, "output rss is for the admin only", (1, 26)),
    ("subscribe to Rock output jsonl 'x';", StatementError, "output jsonl is for the admin only", (1, 26)),
    ("subscribe to Rock output memory 'x';", StatementError, "output memory is for the admin only", (1, 26)),
    ("subscribe to Rock output mail 'no address';", StatementError, "address", (1, 31)),
    ("subscribe to Rock output webhook 'gopher://x';", StatementError, "http", (1, 34)),
    ("subscribe to Rock output webhook 'http://10.1.2.3/x';", StatementError, "10.1.2.3 is private", (1, 34)),
    ("subscribe to Rock output webhook 'https://0x7f.1/';", StatementError, "the local machine", (1, 34)),
    ("subscribe to Rock output webhook 'http://[fc00::1]/';", StatementError, "is private", (1, 34)),
    ("drop feed Wire;", StatementError, "Wire belongs to the admin", (1, 11)),
    ("drop feed Wire cascade;", StatementError, "Wire belongs to the admin", (1, 11)),
    ("pause feed Rock;", StatementError, "Rock belongs to the admin", (1, 12)),
    ("resume feed Rock;", StatementError, "Rock belongs to the admin", (1, 13)),
    ("unsubscribe 1;", UnknownNameError, "there is no subscription 1", (1, 13)),
    ("unsubscribe from Rock;", UnknownNameError, "you have no such subscription to Rock", (1, 18)),
    ("pause subscription 1;", UnknownNameError, "there is no subscription 1", (1, 20)),
    ("renew subscription 1;", UnknownNameError, "there is no subscription 1", (1, 20)),
    ("rotate key of subscription 1;", UnknownNameError, "there is no subscription 1", (1, 28)),
    ("replay subscription 1;", UnknownNameError, "there is no subscription 1", (1, 21)),
    ("show feed Secret;", StatementError, "there is no feed Secret", (1, 1)),
    ("explain feed Secret;", StatementError, "there is no feed Secret", (1, 1)),
    ("preview feed Secret;", StatementError, "there is no feed Secret", (1, 1)),
    ("why item 's' in Secret;", StatementError, "there is no feed Secret", (1, 1)),
    ("create feed X from Secret;", UnknownNameError, "there is no feed Secret", (1, 20)),
    ("preview create feed X from Secret;", UnknownNameError, "there is no feed Secret", (1, 28)),
    ("subscribe to Secret output log;", UnknownNameError, "there is no feed Secret", (1, 14)),
    ("drop feed Secret;", UnknownNameError, "there is no feed Secret", (1, 11)),
]


@pytest.mark.parametrize(("text", "kind", "message", "place"), REFUSALS)
def test_refusal_of_an_owner_has_a_position(
    engine: Engine,
    ann: Engine,
    bob: Engine,
    text: str,
    kind: type[StatementError],
    message: str,
    place: tuple[int, int],
) -> None:
    engine.execute(f"{WIRE} subscribe to Rock output log;")
    bob.execute("register feed Secret;")
    bob.publish("Secret", [{"id": "s"}])
    before = (engine.execute("show feeds; show subscriptions;"), bob.execute("show feeds; show subscriptions;"))
    with pytest.raises(kind, match=message) as refused:
        ann.execute(text)
    assert refused.value.span is not None
    assert (refused.value.span.line, refused.value.span.column) == place
    assert "Secret" not in (refused.value.hint or "")
    assert (
        engine.execute("show feeds; show subscriptions;"),
        bob.execute("show feeds; show subscriptions;"),
    ) == before


def test_private_endpoint_is_accepted_if_the_admin_allows_it(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", allowed_addresses=("10.1.0.0/16",)) as engine:
        engine.execute(WIRE)
        made = engine.execute("subscribe to Rock output webhook 'http://10.1.2.3/x';")[0]
        assert made.to_json()["target"] == "http://10.1.2.3/x"
        with pytest.raises(StatementError, match=r"10\.2\.2\.3 is private") as refused:
            engine.execute("subscribe to Rock output webhook 'http://10.2.2.3/x';")
        assert "allowed_addresses" in (refused.value.hint or "")
        engine.execute(
            "subscribe to Rock output webhook 'http://intranet.example/';"
        )  # the door looks where it leads


def test_owners_read_feeds_of_the_admin_and_may_reuse_their_names(engine: Engine, ann: Engine, bob: Engine) -> None:
    engine.execute(WIRE)
    ann.execute("create feed Rock from Rock where n > 1; subscribe to Rock output log;")
    ann.execute("register feed Wire; create feed Both from Wire | Rock; subscribe to Both output log;")
    bob.execute("create feed Rock from Wire where n > 7; subscribe to Rock output log;")
    engine.publish("Wire", [{"id": "1", "title": "rock", "n": 2}, {"id": "2", "title": "pop", "n": 9}])
    ann.publish("Wire", [{"id": "3", "title": "rock", "n": 9}])
    InProcess(engine).match()
    assert matched_ids(ann, "Rock") == ["1"], "her Rock reads the operator's Rock"
    assert matched_ids(ann, "Both") == ["1", "3"], "her Both reads her own Wire and Rock"
    assert matched_ids(bob, "Rock") == ["2"]
    shown = ann.execute("show feed Rock;")[0].to_json()
    assert (shown["owner"], shown["reads"], shown["read_by"]) == ("ann", ["Rock"], ["Both"])
    with pytest.raises(DuplicateNameError):
        ann.execute("create feed Both from Wire;")
    operators = engine.execute("show feed Rock;")[0].to_json()
    assert (operators["reads"], operators["read_by"]) == (["Wire"], ["Rock of ann"])
    assert bob.execute("show feed Wire;")[0].to_json()["read_by"] == ["Rock", "Rock"], "her Rock is not among them"


def test_admin_sees_owners_and_may_end_any_subscription(engine: Engine, ann: Engine) -> None:
    engine.execute(WIRE)
    ann.execute("create feed Mine from Rock; subscribe to Mine output webhook 'https://ann.example/';")
    assert engine.execute("show feeds;")[0].lines[-1] == "create feed Mine from Rock;  -- of ann"
    assert "of ann" in engine.execute("show subscriptions;")[0].lines[0]
    with pytest.raises(StillNeededError, match="feed Mine of ann and subscription 1"):
        engine.execute("drop feed Rock;")
    engine.execute("pause subscription 1;")
    assert "paused" in ann.execute("show subscriptions;")[0].lines[0]
    engine.execute("drop feed Rock cascade;")
    assert [row["name"] for row in ann.execute("show feeds;")[0].to_json()["feeds"]] == ["Wire"]
    assert ann.execute("show subscriptions;")[0].to_json()["subscriptions"] == []


def test_admin_ends_own_subscriptions_by_feed_and_others_by_number(engine: Engine, ann: Engine) -> None:
    engine.execute(f"{WIRE} subscribe to Rock output log;")
    ann.execute("subscribe to Rock output log;")
    assert engine.execute("unsubscribe from Rock;")[0].to_json()["subscriptions"] == [1]
    assert engine.execute("unsubscribe 2;")[0].to_json()["subscriptions"] == [2]


def test_owners_publish_only_into_their_own_source_feeds(engine: Engine, ann: Engine, bob: Engine) -> None:
    engine.execute(WIRE)
    ann.execute("register feed Mine;")
    with pytest.raises(NotAllowedError, match="Wire belongs to the admin"):
        ann.publish("Wire", [{"id": "1"}])
    with pytest.raises(NotAllowedError, match="Wire belongs to the admin"):
        ann.publish_document("Wire", b'{"id": "1"}\n')
    with pytest.raises(NotFoundError, match="there is no feed Mine"):
        bob.publish("Mine", [{"id": "1"}])
    with pytest.raises(NotFoundError, match="there is no feed Mine"):
        engine.publish("Mine", [{"id": "1"}])
    assert ann.publish("Mine", [{"id": "1"}]).accepted == 1


def test_why_does_not_reveal_items_of_other_owners(engine: Engine, ann: Engine, bob: Engine) -> None:
    engine.execute(WIRE)
    bob.execute("register feed Secret;")
    bob.publish("Secret", [{"id": "x", "title": "hidden"}])
    with pytest.raises(NotFoundError, match="no item x was accepted"):
        ann.why("x", "Rock")
    assert "hidden" in str(engine.why("x", "Rock")), "the operator may know"


def test_preview_counts_only_readable_items(engine: Engine, ann: Engine, bob: Engine, clock: FakeClock) -> None:
    engine.execute(f"{WIRE} subscribe to Wire output log;")
    ann.execute("register feed Mine;")
    bob.execute("register feed Secret;")
    for number in range(3):
        engine.publish("Wire", [{"id": f"w{number}", "title": "rock"}])
        ann.publish("Mine", [{"id": f"m{number}"}])
        bob.publish("Secret", [{"id": f"s{number}-{value}", "title": "rock"} for value in range(10)])
        clock.advance(timedelta(hours=1))
    runner = InProcess(engine)
    runner.match()
    for archived in (False, True):
        if archived:
            assert archive_matched(engine.workspace.catalog, engine.workspace.storage, epoch=runner.epoch)
        for actor, looked_at in ((ann, 6), (bob, 33), (engine, 36)):
            seen = actor.preview("Rock")
            assert (seen.looked_at, seen.matched) == (looked_at, 3)
        assert ann.preview("create feed X from Wire | Mine;", since=timedelta(minutes=90)).looked_at == 2
        assert ann.execute("preview feed Mine;")[0].message.startswith("Mine would have matched 3 of the 6 items")


def test_quarantine_is_shown_to_its_owner(engine: Engine, ann: Engine, bob: Engine) -> None:
    ann.execute("register feed Mine;")
    with pytest.raises(InputError):
        ann.publish_document("Mine", b"<rss", name="mine.xml")
    assert ann.show("quarantine").to_json()["quarantine"][0]["place"].startswith("mine.xml")
    assert bob.show("quarantine").to_json()["quarantine"] == []
    assert len(engine.show("quarantine").to_json()["quarantine"]) == 1


# --- disabled owners -----------------------------------------------------------------------------------------------


def test_disabled_owner_is_not_served_and_loses_nothing(engine: Engine, ann: Engine) -> None:
    engine.execute(WIRE)
    ann.execute(
        "register feed Mine; create feed All from Wire | Mine; subscribe to All output webhook 'https://a.example/';"
    )
    engine.execute("confirm subscription 1;")
    token = engine.owners.new_token("ann", "x").to_json()["token"]
    engine.owners.disable("ann")
    with pytest.raises(NotAllowedError, match="not valid"):
        engine.authenticated(token)
    with pytest.raises(NotFoundError, match="Mine is paused"):
        ann.publish("Mine", [{"id": "1"}])
    engine.publish("Wire", [{"id": "2", "title": "rock"}])
    runner = InProcess(engine)
    runner.match()
    runner.dispatcher.recorder.record(runner.epoch)
    with engine.workspace.catalog.read() as connection:
        assert "disabled: the owner is disabled" in engine.execute("show subscriptions;")[0].lines[0]
        assert outbox.behind(connection, after=0, limit=10) == []
    assert engine.execute("show subscriptions;")[0].to_json()["subscriptions"][0]["messages"] == 0
    engine.owners.disable("ann", False)
    assert engine.authenticated(token).actor.name == "ann"
    runner.dispatcher.recorder.record(runner.epoch)
    assert engine.execute("show subscriptions;")[0].to_json()["subscriptions"][0]["messages"] == 1


def test_disabled_owner_cannot_start_subscriptions(engine: Engine, ann: Engine) -> None:
    engine.execute(WIRE)
    _sheet(engine, "a.xsl", COPY % "A")
    engine.owners.disable("ann")
    for value, place in (
        ("subscribe to Rock output webhook 'https://a.example/';", (1, 14)),
        ("register feed Rock apply 'a.xsl' as Mine;", (1, 37)),
    ):
        with pytest.raises(StatementError, match="the owner ann is disabled") as refused:
            ann.execute(value)
        assert refused.value.span is not None
        assert (refused.value.span.line, refused.value.span.column) == place
        assert refused.value.hint == "the admin can enable the owner with `runnel owner disable ann --undo`"
    assert live_names(engine) == set()
    ann.execute("create feed Mine from Rock;")  # the operator may tend what is there
    engine.owners.disable("ann", False)
    assert ann.execute("subscribe to Mine output log;")[0].to_json()["subscription"] == 1


def test_data_needed_only_by_ended_subscriptions_is_deleted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.execute(WIRE)
    for name in ("a", "b", "c"):
        _sheet(engine, f"{name}.xsl", COPY % name)
    _sheet(engine, "0" * 64 + ".txt", "a file of mine")
    engine.execute(
        "subscribe to Rock apply 'a.xsl' output webhook 'https://a.example/';"
        "register feed Rock apply 'b.xsl' as Made;"
        "subscribe to Rock apply 'c.xsl' output webhook 'https://c.example/';"
        "subscribe to Rock apply 'c.xsl' output webhook 'https://d.example/';"
    )
    sheets, runner = engine.workspace.folder / "sheets", InProcess(engine)
    impatient = replace(
        engine.workspace, settings=engine.workspace.settings.model_copy(update={"orphan_seconds": -1.0})
    )
    assert len(list(sheets.glob("*.xsl"))) == 6, "three of ours, and three kept copies"
    assert run_maintenance(impatient, runner.epoch, chores=True).sheets == 0, "all are in use"
    engine.execute("unsubscribe from Rock output webhook 'https://a.example/';")
    engine.execute("unsubscribe from Rock output webhook 'https://c.example/'; drop feed Made;")
    patient = run_maintenance(engine.workspace, runner.epoch, chores=True)
    assert (patient.sheets, patient.keys) == (0, 2), "a young copy may be about to be used; a key of the past may not"
    assert run_maintenance(impatient, runner.epoch, chores=True).sheets == 2
    assert sorted(path.name for path in sheets.iterdir() if len(path.stem) < 64) == ["a.xsl", "b.xsl", "c.xsl"]
    assert len(list(sheets.iterdir())) == 5, "and the copy that is in use, and the file that only looks like one"
    with engine.workspace.catalog.read() as connection:
        assert signing_keys.keys_of(connection, range(10)).keys() == {4}

    # Tidied away between being kept and being declared: kept once more.
    def kept(root: Workspace, statements: list[Statement]) -> dict[str, str]:
        made = keep_stylesheets(root, statements)
        if not gone:
            gone.append(run_maintenance(impatient, runner.epoch, chores=True).sheets)
        return made

    gone: list[int] = []
    monkeypatch.setattr("runnel.engine.declare.script.keep_stylesheets", kept)
    made = engine.execute("subscribe to Rock apply 'a.xsl' output webhook 'https://a.example/';")
    assert (gone, made[0].to_json()["subscription"]) == ([1], 5)
    assert len(list(sheets.iterdir())) == 6


# --- tickets, validity, keys ---------------------------------------------------------------------------------------


def test_ticket_renews_and_ends_a_subscription(engine: Engine, ann: Engine, bob: Engine, clock: FakeClock) -> None:
    engine.execute(WIRE)
    made = ann.execute("subscribe to Rock output mail 'ann@mail.example' for 2 days;")[0]
    ticket = made.to_json()["ticket"]
    assert made.lines[0].startswith(f"ticket: {ticket}  (shown only now")
    assert ticket not in str(ann.execute("show subscriptions;"))
    clock.advance(timedelta(days=1))
    renewed = bob.execute(f"renew ticket '{ticket}' for 10 days;")[0]
    assert renewed.to_json()["expires"] == "2026-01-12T00:00:00+00:00"
    assert bob.apply(Unsubscribe(ticket=ticket)).to_json()["subscriptions"] == [1]
    assert ann.execute("show subscriptions;")[0].to_json()["subscriptions"] == []
    for again in (
        Unsubscribe(ticket=ticket),
        Renew(ticket=ticket),
        Unsubscribe(ticket="1"),
        Renew(ticket=ticket[1:]),
    ):
        with pytest.raises(UnknownNameError, match="no live subscription has this ticket"):
            ann.apply(again)


def test_every_subscription_has_a_ticket_that_is_not_printed_for_files(engine: Engine) -> None:
    made = engine.execute(f"{WIRE} subscribe to Rock output rss 'r.xml';")[2]
    assert (made.message, made.lines) == ("subscription 1 to Rock: rss into r.xml", ())
    engine.apply(Unsubscribe(ticket=made.to_json()["ticket"]))
    assert live_names(engine) == set()


@pytest.mark.parametrize(
    ("owner", "output", "days"),
    [
        ("operator", "log", None),
        ("operator", "rss 'r.xml'", None),
        ("operator", "mail 'me@mail.example'", 365),
        ("operator", "webhook 'https://me.example/'", 365),
        ("ann", "log", 365),
        ("ann", "mail 'ann@mail.example'", 365),
    ],
)
def test_default_duration_of_subscriptions(
    engine: Engine, ann: Engine, clock: FakeClock, owner: str, output: str, days: int | None
) -> None:
    engine.execute(WIRE)
    actor = ann if owner == "ann" else engine
    actor.execute(f"subscribe to Rock output {output};")

    def expires() -> object:
        return actor.execute("show subscriptions;")[0].to_json()["subscriptions"][0]["expires"]

    assert expires() == (None if days is None else (clock.now + timedelta(days=days)).isoformat())
    clock.advance(timedelta(days=100))
    actor.execute("renew subscription 1;")
    assert expires() == (None if days is None else (clock.now + timedelta(days=days)).isoformat())
    actor.execute("renew subscription 1 for 3 days;")
    assert expires() == (clock.now + timedelta(days=3)).isoformat()


def test_zero_days_mean_no_expiry(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", subscription_days=0) as engine:
        engine.execute(f"{WIRE} subscribe to Rock output mail 'me@mail.example';")
        assert engine.execute("show subscriptions;")[0].to_json()["subscriptions"][0]["expires"] is None
        assert engine.execute("renew subscription 1;")[0].message == "subscription 1 lasts until it is ended"


def test_ended_subscription_cannot_be_renewed(engine: Engine, clock: FakeClock) -> None:
    made = engine.execute(f"{WIRE} subscribe to Rock output log for 1 day;")[2]
    clock.advance(timedelta(days=1))
    with pytest.raises(StatementError, match="subscription 1 expired on 2026-01-02"):
        engine.execute("renew subscription 1;")
    assert end_expired(engine.workspace) == 1
    with pytest.raises(UnknownNameError, match="there is no subscription 1"):
        engine.execute("renew subscription 1;")
    with pytest.raises(UnknownNameError, match="no live subscription has this ticket"):
        engine.apply(Renew(ticket=made.to_json()["ticket"]))
    assert live_names(engine) == set()


def test_disabled_subscription_expires(engine: Engine, clock: FakeClock) -> None:
    engine.execute(f"{WIRE} subscribe to Rock output webhook 'https://a.example/' for 1 day;")
    engine.publish("Wire", [{"id": "1", "title": "rock"}])
    InProcess(engine).match()
    with engine.workspace.catalog.write() as connection:
        (subscription,) = subscriptions.live_subscriptions(connection)
        subscriptions.disable_subscription(connection, subscription, "gone")
    clock.advance(timedelta(days=2))
    assert end_expired(engine.workspace) == 1


def test_resume_enables_a_disabled_subscription(engine: Engine) -> None:
    engine.execute(f"{WIRE} subscribe to Rock output webhook 'https://a.example/';")
    with engine.workspace.catalog.write() as connection:
        (subscription,) = subscriptions.live_subscriptions(connection)
        subscriptions.disable_subscription(connection, subscription, "gone")
    assert "disabled: gone" in engine.execute("show subscriptions;")[0].lines[0]
    engine.execute("resume subscription 1;")
    assert "disabled" not in engine.execute("show subscriptions;")[0].lines[0]


def test_a_webhook_s_key_is_shown_once_and_rotated(engine: Engine, ann: Engine) -> None:
    engine.execute(WIRE)
    made = ann.execute("subscribe to Rock output webhook 'https://ann.example/hook';")[0]
    key = made.to_json()["key"]
    assert key.startswith("whsec_")
    assert any(key in line for line in made.lines)
    rotated = ann.execute("rotate key of subscription 1;")[0]
    assert rotated.to_json()["key"] not in (key, None)
    with engine.workspace.catalog.read() as connection:
        kept = [signing_keys.key_text(value) for value in signing_keys.keys_of(connection, [1])[1]]
    assert kept == [rotated.to_json()["key"], key]
    everything = str(ann.execute("show subscriptions; show feeds; show feed Rock;"))
    assert key not in everything
    assert rotated.to_json()["key"] not in everything


# --- stylesheets ---------------------------------------------------------------------------------------------------


def test_stylesheet_is_stored_as_it_was_when_declared(engine: Engine) -> None:
    _sheet(engine, "t.xsl", COPY % "One:")
    engine.execute(f"{WIRE} subscribe to Rock apply 't.xsl' output rss 'one.xml';")
    _sheet(engine, "t.xsl", COPY % "Two:")
    engine.execute("subscribe to Rock apply 't.xsl' output rss 'two.xml';")
    _sheet(engine, "t.xsl", "this is no stylesheet any more")
    with engine.workspace.catalog.read() as connection:
        first, second = (subscription.sheet for subscription in subscriptions.live_subscriptions(connection))
    assert first is not None
    assert second is not None
    assert b"One:" in engine.workspace.storage.read(first)
    assert b"Two:" in engine.workspace.storage.read(second)
    with pytest.raises(StatementError) as refused:
        engine.execute("subscribe to Rock\n apply 't.xsl' output rss 'three.xml';")
    assert refused.value.span is not None
    assert (refused.value.span.line, refused.value.span.column) == (2, 8)
    assert engine.status().subscriptions == 2


def test_changed_copy_of_a_stylesheet_is_repaired(engine: Engine) -> None:
    _sheet(engine, "t.xsl", COPY % "One:")
    engine.execute(f"{WIRE} subscribe to Rock apply 't.xsl' output rss 'one.xml';")
    with engine.workspace.catalog.read() as connection:
        (subscription,) = subscriptions.live_subscriptions(connection)
    (engine.workspace.folder / (subscription.sheet or "")).write_text("changed")
    engine.execute("subscribe to Rock apply 't.xsl' output rss 'two.xml';")
    assert b"One:" in engine.workspace.storage.read(subscription.sheet or "")


def test_output_log_refuses_a_stylesheet(engine: Engine) -> None:
    _sheet(engine, "t.xsl", COPY % "x")
    with pytest.raises(StatementError, match="sends no messages"):
        engine.execute(f"{WIRE} subscribe to Rock apply 't.xsl' output log;")


# --- materialised feeds --------------------------------------------------------------------------------------------


@pytest.fixture
def shaped(engine: Engine) -> Engine:
    """An engine with a materialized feed: Shaped, created from Rock."""
    _sheet(engine, "t.xsl", COPY % "Shaped:")
    engine.execute(f"{WIRE} register feed Rock apply 't.xsl' as Shaped;")
    return engine


def test_items_pass_through_a_materialized_feed(shaped: Engine) -> None:
    shaped.execute("create feed Both from Shaped | Wire where title contains 'shaped'; subscribe to Both output log;")
    shaped.publish("Wire", [{"id": "1", "title": "rock one"}, {"id": "2", "title": "pop"}])
    runner = InProcess(shaped)
    runner.run()
    runner.run()
    assert [match.item.first("title") for match in shaped.matches("Both")] == ["Shaped: rock one"]
    runner.run()
    assert shaped.status().accepted == 3, "an item is made once"


def test_show_describes_a_materialized_feed(shaped: Engine) -> None:
    row = shaped.execute("show feed Shaped;")[0]
    assert row.lines[0] == "register feed Rock apply 't.xsl' as Shaped;"
    assert row.lines[-1] == "materialized feed"
    assert (row.to_json()["kind"], row.to_json()["reads"]) == ("source", ["Rock"])
    assert shaped.execute("show feed Rock;")[0].to_json()["read_by"] == ["Shaped"]
    assert shaped.execute("show subscriptions;")[0].to_json()["subscriptions"] == []
    assert live_names(shaped) == {"Rock"}, "Rock is wanted, for the sake of Shaped"
    with pytest.raises(NotFoundError, match="Shaped is a materialized feed"):
        shaped.publish("Shaped", [{"id": "1"}])


def test_materialized_feed_cannot_read_itself(shaped: Engine) -> None:
    with pytest.raises(CyclicFeedsError, match="Rock would read itself: it reads Shaped, which reads Rock"):
        shaped.execute("create or replace feed Rock from Wire | Shaped;")
    shaped.execute(
        "create feed View from Shaped; register feed View apply 't.xsl' as Again; create feed Final from Again;"
    )
    with pytest.raises(
        CyclicFeedsError, match="it reads Final, which reads Again, which reads View, which reads Shaped"
    ):
        shaped.execute("create or replace feed Rock from Final;")
    shaped.execute("create or replace feed View from Wire;")
    shaped.execute("create or replace feed Rock from Final;")


def test_dropping_a_materialized_feed_and_its_origin(shaped: Engine) -> None:
    with pytest.raises(StillNeededError, match="Rock is still needed by feed Shaped "):
        shaped.execute("drop feed Rock;")
    with pytest.raises(StatementError, match="subscription 1 belongs to the materialized feed Shaped"):
        shaped.execute("unsubscribe 1;")
    with pytest.raises(UnknownNameError, match="no such subscription to Rock"):
        shaped.execute("unsubscribe from Rock;")
    assert shaped.execute("drop feed Shaped;")[0].message == "dropped feed Shaped"
    assert live_names(shaped) == set()
    shaped.execute(
        "register feed Rock apply 't.xsl' as Shaped; create feed View from Shaped; subscribe to View output log;"
    )
    row = shaped.execute("drop feed Wire cascade;")[0]
    assert row == Dropped(row.message, [3], ["Rock", "Shaped", "View", "Wire"])
    with shaped.workspace.catalog.read() as connection:
        assert subscriptions.live_subscriptions(connection) == []
        assert feeds.origins(connection) == {}


def test_paused_materialized_feed_delays_its_items(shaped: Engine) -> None:
    shaped.execute("pause feed Shaped;")
    shaped.publish("Wire", [{"id": "1", "title": "rock"}])
    runner = InProcess(shaped)
    runner.run()
    assert shaped.status().accepted == 1
    shaped.execute("resume feed Shaped;")
    runner.run()
    assert shaped.status().accepted == 2


def test_owner_materializes_a_feed_of_the_admin(shaped: Engine) -> None:
    shaped.owners.add("ann")
    ann = shaped.acting_as("ann")
    ann.execute("register feed Rock apply 't.xsl' as Mine; create feed View from Mine; subscribe to View output log;")
    shaped.publish("Wire", [{"id": "1", "title": "rock"}])
    runner = InProcess(shaped)
    runner.run()
    runner.run()
    assert [match.item.first("title") for match in ann.matches("View")] == ["Shaped: rock"]
    with shaped.workspace.catalog.read() as connection:
        usage = owners.usage_of(connection, ann.actor.owner)
    assert (usage.queries, usage.subscriptions) == (2, 1), "the subscription that serves Mine is not counted"
    with pytest.raises(StillNeededError, match="feeds Mine of ann, Shaped, View of ann"):
        shaped.execute("drop feed Rock;")


# --- quotas --------------------------------------------------------------------------------------------------------


def test_exceeded_quota_is_reported_and_the_script_changes_nothing(engine: Engine, ann: Engine) -> None:
    engine.execute(WIRE)
    engine.owners.quota("ann", owners.Quotas(queries=2, subscriptions=1))
    with pytest.raises(QuotaExceededError, match="the quota of 2 feeds is used up") as refused:
        ann.execute("register feed A;\nregister feed B;\n register feed C;")
    assert "line 3" in (refused.value.hint or "")
    assert [row["owner"] for row in ann.execute("show feeds;")[0].to_json()["feeds"]] == ["admin", "admin"]
    ann.execute("register feed A; register feed B; drop feed A; register feed C; subscribe to B output log;")
    with pytest.raises(QuotaExceededError, match="the quota of 1 subscriptions is used up"):
        ann.execute("subscribe to C output log;")
    ann.execute("unsubscribe from B; subscribe to C output log;")
    with pytest.raises(QuotaExceededError):
        ann.execute("create feed D from C;")


def test_published_bytes_are_counted_and_limited(engine: Engine, ann: Engine) -> None:
    ann.execute("register feed Mine;")
    engine.owners.quota("ann", owners.Quotas(bytes=100))
    ann.publish("Mine", [{"id": "1", "title": "x" * 50}])
    with pytest.raises(QuotaExceededError, match="of 100 bytes are used up"):
        ann.publish("Mine", [{"id": "2", "title": "x" * 50}])
    with pytest.raises(QuotaExceededError):
        ann.publish_document("Mine", b'{"id": "2", "title": "' + b"x" * 50 + b'"}\n')
    with pytest.raises(InputError):
        ann.publish_document("Mine", b"<rss" + b" " * 30)
    have = engine.owners.list().to_json()["owners"][1]["bytes"]
    assert have == {"have": 56 + 34, "most": 100}, "what was put aside was brought in all the same"
    assert engine.status().accepted == 1


def test_concurrent_clients_cannot_exceed_the_quota_of_bytes(engine: Engine, ann: Engine) -> None:
    ann.execute("register feed Mine;")
    engine.owners.quota("ann", owners.Quotas(bytes=500))
    done: list[bool] = []

    def publish(number: int) -> None:
        try:
            ann.publish("Mine", [{"id": f"{number:03}", "t": "x" * 96}])
            done.append(True)
        except QuotaExceededError:
            done.append(False)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (done.count(True), engine.status().accepted) == (5, 5)


class Quotas(RuleBasedStateMachine):
    """For any declarations and drops of an owner, usage equals that of a simple model, and no quota is exceeded."""

    QUERIES, SUBSCRIPTIONS = 4, 3

    @initialize(target=None)
    def begin(self) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.engine = runnel.connect(Path(self.folder.name) / "root")
        self.engine.execute("register feed Wire;")
        self.engine.owners.add("ann")
        self.engine.owners.quota("ann", owners.Quotas(self.QUERIES, self.SUBSCRIPTIONS))
        self.ann = self.engine.acting_as("ann")
        self.views: set[str] = set()
        self.held: dict[int, str] = {}

    def _try(self, text: str, allowed: bool) -> list[object]:
        if allowed:
            return [entry.to_json() for entry in self.ann.execute(text)]
        with pytest.raises(QuotaExceededError):
            self.ann.execute(text)
        return []

    @rule(name=st.sampled_from("ABCDEFG"), source=st.booleans())
    def declare(self, name: str, source: bool) -> None:
        if name in self.views:
            return
        text = f"register feed {name};" if source else f"create feed {name} from Wire;"
        if self._try(text, len(self.views) < self.QUERIES):
            self.views.add(name)

    @rule(name=st.sampled_from("ABCDEFG"))
    def replace(self, name: str) -> None:
        if name in self.views:
            return
        self._try(f"create or replace feed {name} from Wire; drop feed {name};", len(self.views) < self.QUERIES)

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.views)))
        self.ann.execute(f"drop feed {name} cascade;")
        self.views.discard(name)
        self.held = {number: feed for number, feed in self.held.items() if feed != name}

    @rule(count=st.integers(1, 3), data=st.data())
    def subscribe(self, count: int, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([*sorted(self.views), "Wire"]))
        made = self._try(f"subscribe to {name} output log;" * count, len(self.held) + count <= self.SUBSCRIPTIONS)
        self.held |= {entry["subscription"]: name for entry in made}  # type: ignore[index]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        self.ann.execute(f"unsubscribe {number};")
        del self.held[number]

    @invariant()
    def counts_are_right(self) -> None:
        with self.engine.workspace.catalog.read() as connection:
            usage = owners.usage_of(connection, self.ann.actor.owner)
        assert (usage.queries, usage.subscriptions) == (len(self.views), len(self.held))
        assert usage.queries <= self.QUERIES
        assert usage.subscriptions <= self.SUBSCRIPTIONS

    def teardown(self) -> None:
        self.engine.close()
        self.folder.cleanup()


TestQuotas = Quotas.TestCase
TestQuotas.settings = settings(max_examples=8, stateful_step_count=15, deadline=None)


# --- the commands --------------------------------------------------------------------------------------------------


def _command(root: Path, *words: str, code: int = 0, **environment: str) -> str:
    result = CliRunner().invoke(app, [*words, "-w", str(root)], env=environment)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_commands_for_owners_and_tokens(engine: Engine) -> None:
    root = engine.workspace.folder
    engine.execute(WIRE)
    assert "created the owner ann" in _command(root, "owner", "add", "ann")
    assert "already" in _command(root, "owner", "add", "ann", code=3)
    made = json.loads(_command(root, "token", "new", "ann", "--label", "laptop", "--json"))
    token = made["token"]
    assert "registered feed Mine" in _command(root, "exec", "register feed Mine;", RUNNEL_TOKEN=token)
    assert "register feed Wire;  -- of admin" in _command(root, "show", "feeds", "--token", token)
    assert "created feed Hers" in _command(root, "exec", "create feed Hers from Wire;", "--as", "ann")
    assert "give one of the two" in _command(root, "show", "--as", "ann", "--token", token, code=3)
    assert "no owner bob" in _command(root, "show", "--as", "bob", code=6)
    assert "2 of 5 feeds" in _command(root, "owner", "quota", "ann", "--feeds", "5")
    assert "of 10,000 feeds" in _command(root, "owner", "quota", "ann", "--reset")
    listed = json.loads(_command(root, "owner", "list", "--json"))["owners"]
    assert [(entry["owner"], entry["queries"]["have"]) for entry in listed] == [("admin", 2), ("ann", 2)]
    assert "laptop" in _command(root, "token", "list", "ann")
    assert "0 dead letters" in _command(root, "dead-letters", "list", "--token", token)
    assert "no message x" in _command(root, "dead-letters", "explain", "x", code=3)
    assert "no message x" in _command(root, "dead-letters", "replay", "x", "--as", "ann", code=3)
    assert "disabled the owner ann" in _command(root, "owner", "disable", "ann")
    refused = CliRunner().invoke(app, ["show", "-w", str(root)], env={"RUNNEL_TOKEN": token})
    assert refused.exit_code != 0
    assert "this token is not valid" in refused.stderr
    assert "enabled the owner ann" in _command(root, "owner", "disable", "ann", "--undo")
    assert "revoked token 1" in _command(root, "token", "revoke", "1")
    assert "no token 7" in _command(root, "token", "revoke", "7", code=6)


def _registered(engine: Engine) -> list[dict[str, Any]]:
    with engine.workspace.catalog.read() as connection:
        addresses = {feed.id: feed.address for feed in feeds.live_feeds(connection)}
    return [{**row, "address": addresses[row["id"]]} for row in engine.show("feeds").to_json()["feeds"]]


def test_opml_import_and_export(engine: Engine, tmp_path: Path) -> None:
    root = engine.workspace.folder
    listed = tmp_path / "feeds.opml"
    outlines = "".join(
        f'<outline text="{title}" xmlUrl="{address}" htmlUrl="https://muse.example/"/>'
        for title, address in [
            ("Muse", "https://muse.example/rss"),
            ("Muse", "https://muse.example/tour"),
            ("Router", "http://192.168.0.1/rss"),
            ("Old", "gopher://old.example/"),
        ]
    )
    listed.write_text(f'<opml version="2.0"><body><outline text="Music">{outlines}</outline></body></opml>')
    document = json.loads(_command(root, "opml", "import", str(listed), "--json"))
    assert (len(document["registered"]), document["known"], len(document["problems"])) == (2, 0, 2)
    assert "192.168.0.1" in " ".join(document["problems"])
    again = json.loads(_command(root, "opml", "import", str(listed), "--json"))
    assert (again["registered"], again["known"]) == ([], 2)
    engine.owners.add("ann")
    assert len(json.loads(_command(root, "opml", "import", str(listed), "--json", "--as", "ann"))["registered"]) == 2
    written = tmp_path / "mine.opml"
    _command(root, "opml", "export", "-o", str(written))
    assert written.read_text().count("xmlUrl") == 2
    assert '<outline text="music">' in written.read_text(), "the folder has become a tag, which is a folder again"
    shown = {row["address"]: row for row in _registered(engine)}
    muse = shown["https://muse.example/rss"]
    assert (muse["title"], muse["home"], muse["tags"]) == ("Muse", "https://muse.example/", ["music"])
    listed.write_text('<opml><body><outline text="The "Bad" one" xmlUrl="https://bad.example/"/></body></opml>')
    repaired = json.loads(_command(root, "opml", "import", str(listed), "--json"))
    assert len(repaired["registered"]) == len(repaired["repairs"]) == 1
    assert "cannot be written" in _command(root, "opml", "export", "-o", "/nowhere/x", code=3)
