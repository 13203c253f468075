"""Owners cannot send messages to strangers: nothing is sent to an address or endpoint that has not confirmed.

Every test runs the attack against real servers (SMTP and HTTP on loopback) and counts the received messages.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook
from tests.integration.in_process import InProcess
from tests.unit.sinks.mail.smtp_server import Post, serving

import runnel
from runnel.catalog.access import consents
from runnel.catalog.access.consents import challenge_of
from runnel.catalog.access.workspace_secrets import find_secret
from runnel.catalog.delivery import ledger, receipts
from runnel.delivery.confirmer import UNANSWERED
from runnel.delivery.message_pacer import HOUR, MessagePacer, Recipient
from runnel.engine import Engine
from runnel.engine.run.health import Health
from runnel.errors import StatementError
from runnel.model.consent import Consent, ConsentState
from runnel.model.message import MessageState
from runnel.settings import Settings
from runnel.sinks.mail.confirmation_text import plain_name
from runnel.sinks.mail.mail_address import certain_mailbox_of, mailbox_of
from runnel.testing import FakeClock
from runnel.web.collect_report import collect_report
from runnel.web.metrics import render_metrics
from runnel.web.server import make_app

VICTIM = "victim@mail.example"
PUBLIC = "https://runnel.example"
LINK = re.compile(rf"^{re.escape(PUBLIC)}(/confirm/\S+)$", re.MULTILINE)
CODE = re.compile(r"^ {4}([A-Z2-7-]{20,})$", re.MULTILINE)
SUBJECT = "Confirm messages to your address"


@dataclass
class Endpoint:
    """An HTTP server that records requests and responds to challenges in a configurable way."""

    port: int = 0
    answers: str = "challenge"
    status: int = 200
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def documents(self, kind: str) -> list[dict[str, Any]]:
        documents = [json.loads(body) for _, _, body in self.posts]
        return [document for document in documents if document["type"] == kind]

    def answer(self, body: bytes) -> bytes:
        document = json.loads(body)
        challenge = document["data"].get("challenge", "")
        return {
            "challenge": json.dumps({"challenge": challenge}).encode(),
            "echo": body,
            "nothing": b"",
            "wrong": b'{"challenge": "AAAA-AAAA-AAAA-AAAA-AAAA-AAAA"}',
            "long": json.dumps({"challenge": challenge, "more": "x" * 10_000}).encode(),
        }[self.answers]


@contextmanager
def listening(endpoint: Endpoint) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.posts.append((self.path, dict(self.headers), body))
            answer = endpoint.answer(body)
            self.send_response(endpoint.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.port = server.server_port
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with listening(Endpoint()) as made:
        yield made


@contextmanager
def _workspace(folder: Path, clock: FakeClock, post: Post, **chosen: Any) -> Iterator[InProcess]:
    given_settings: dict[str, Any] = {
        "smtp_host": "127.0.0.1",
        "smtp_security": "none",
        "mail_from": "Runnel <runnel@muse.example>",
        "allowed_addresses": ("127.0.0.0/8",),
        "public_url": PUBLIC,
    }
    is_new = not folder.exists()
    kept = folder.with_name("catalog-url")  # of a database that is perhaps no file of the workspace
    if not is_new:
        given_settings["catalog"] = kept.read_text()
    with (
        serving(post) as port,
        runnel.connect(folder, clock=clock, smtp_port=port, **(given_settings | chosen)) as engine,
    ):
        kept.write_text(engine.workspace.catalog.url)
        if is_new:
            engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        clock.advance(timedelta(hours=2))  # the lease of a runner before has ended
        runner = InProcess(engine)
        try:
            yield runner
        finally:
            runner.close()


@pytest.fixture
def runner(tmp_path: Path, clock: FakeClock, post: Post) -> Iterator[InProcess]:
    with _workspace(tmp_path / "root", clock, post) as made:
        yield made


def _owner(runner: InProcess, name: str = "ann") -> Engine:
    runner.engine.owners.add(name)
    return runner.engine.acting_as(name)


def _publish(runner: InProcess, *numbers: int) -> None:
    for number in numbers:
        runner.engine.publish("Wire", [{"id": str(number), "title": f"rock {number}"}])
        runner.match()
        runner.deliver()


class _Run:
    def health(self) -> Health:
        return Health(live=True, ready=True)


def _client(engine: Engine) -> TestClient:
    return TestClient(make_app(engine.workspace, None, _Run()))  # type: ignore[arg-type]  # no hub is asked here


def _text(mail: EmailMessage) -> str:
    return str(mail.get_content()).replace("\r\n", "\n")


def _links(post: Post) -> list[str]:
    """Return the paths of the confirmation links in all mails, in order."""
    texts = [_text(mail) for mail in post.mails() if mail["Subject"] == SUBJECT]
    return [link for text in texts for link in LINK.findall(text) if not link.endswith("/refuse")]


def _contents(post: Post) -> list[bytes]:
    """Return the mails that are not confirmation requests."""
    return [content for _, _, content in post.taken if SUBJECT.encode() not in content]


def _recipients(post: Post) -> list[str]:
    return [recipient for _, recipients, _ in post.taken for recipient in recipients]


def _consent(engine: Engine, target: str, kind: str = "mail", owner: int = 2) -> Consent:
    with engine.workspace.catalog.read() as connection:
        consent = consents.consent_of(connection, owner, kind, target)
    assert consent is not None
    return consent


def _states(engine: Engine, subscription: int = 1) -> list[MessageState]:
    with engine.workspace.catalog.read() as connection:
        return [message.state for message in ledger.messages_of(connection, subscription)]


# --- mail ----------------------------------------------------------------------------------------------------------


def test_many_subscriptions_to_an_unconfirmed_address_send_one_request_without_items(
    runner: InProcess, post: Post
) -> None:
    ann = _owner(runner)
    ann.execute("".join(f"subscribe to Rock output mail '{VICTIM}';" for _ in range(50)))
    _publish(runner, 1, 2, 3)
    assert len(post.taken) == 1
    assert _contents(post) == []
    (mail,) = post.mails()
    text = _text(mail)
    assert mail.get_content_type() == "text/plain"
    assert "ann" in text
    assert '"Rock"' in text
    assert "rock 1" not in text
    assert "ignore this mail" in text
    assert mail["To"] == VICTIM


def test_confirmed_address_receives_all_matches_since_the_subscription_once(runner: InProcess, post: Post) -> None:
    engine, ann = runner.engine, _owner(runner)
    made = ann.execute(f"subscribe to Rock output mail '{VICTIM}';")[0]
    assert made.to_json()["waiting"] == "for confirmation"
    _publish(runner, 1, 2, 3)
    (link,) = _links(post)
    client = _client(engine)
    asked = client.get(link)
    assert asked.status_code == 200
    assert 'method="post"' in asked.text
    assert not _consent(engine, VICTIM).is_confirmed, "a scanner that follows the link confirms nothing"
    assert client.head(link).status_code in (200, 405)
    assert not _consent(engine, VICTIM).is_confirmed
    assert client.post(link).status_code == 200
    assert _consent(engine, VICTIM).is_confirmed
    runner.deliver()
    (content,) = _contents(post)
    assert all(f"rock {number}".encode() in content for number in (1, 2, 3))
    runner.deliver()
    _publish(runner, 4)
    assert len(_contents(post)) == 2
    assert _states(engine) == [MessageState.DONE] * 2
    assert client.post(link).status_code == 200, "confirming twice changes nothing"


def test_request_contains_no_owner_text_except_the_feed_name_without_links(runner: InProcess, post: Post) -> None:
    ann = _owner(runner)
    name = "Win now at https://spy.example/?a=<b>"
    ann.execute(f'create feed "{name}" from Rock; subscribe to "{name}" output mail \'{VICTIM}\';')
    _publish(runner, 1)
    (mail,) = post.mails()
    text = _text(mail)
    assert "spy.example" not in text
    assert "<b>" not in text
    assert re.findall(r"https?://\S+", text) == [PUBLIC + value for value in LINK.findall(text)]


def test_dropping_and_subscribing_again_sends_no_further_request(
    runner: InProcess, post: Post, clock: FakeClock
) -> None:
    ann = _owner(runner)
    for number in range(10):
        ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
        _publish(runner, number)
        ann.execute(f"unsubscribe {number + 1};")
    assert len(post.taken) == 1
    for number in range(10, 20):  # and over weeks this sends only a few messages
        clock.advance(timedelta(days=8))
        ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
        _publish(runner, number)
        ann.execute(f"unsubscribe {number + 1};")
    assert len(post.taken) == UNANSWERED
    assert _contents(post) == []


def test_repeated_requests_are_limited(runner: InProcess, post: Post) -> None:
    ann = _owner(runner)
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    _publish(runner, 1)
    for _ in range(1, UNANSWERED):
        assert "another confirmation request is sent" in ann.execute("send subscription 1 now;")[0].message
        runner.deliver()
    with pytest.raises(StatementError, match=f"did not answer {UNANSWERED} confirmation requests"):
        ann.execute("send subscription 1 now;")
    runner.deliver()
    assert len(post.taken) == UNANSWERED
    assert len(set(_links(post))) == 1, "the link of the first mail is still good"


TRICKS = ["victim@mail.example", "VICTIM@MAIL.example", "v.i.c.tim@mail.example", "victim+1@mail.example"]


def test_case_dots_and_plus_variants_count_as_one_mailbox(runner: InProcess, post: Post, clock: FakeClock) -> None:
    ann = _owner(runner)
    for trick in [*TRICKS, *(f"victim+{number}@mail.example" for number in range(2, 10))]:
        ann.execute(f"subscribe to Rock output mail '{trick}';")
    _publish(runner, 1)
    clock.advance(timedelta(days=1, seconds=1))
    _publish(runner, 2)
    assert len(post.taken) == UNANSWERED
    assert _contents(post) == []
    assert len({mailbox_of(recipient) for recipient in _recipients(post)}) == 1


def test_many_owners_together_stay_below_the_limit_per_day(tmp_path: Path, clock: FakeClock, post: Post) -> None:
    with _workspace(tmp_path / "root", clock, post, confirmation_requests_per_day=4) as runner:
        owners = [_owner(runner, f"owner{number}") for number in range(9)]
        for number, owner in enumerate(owners):
            owner.execute(f"subscribe to Rock output mail 'victim+{number}@mail.example';")
        _publish(runner, 1)
        assert len(post.taken) == 4, "exactly the limit"
        _publish(runner, 2)
        assert len(post.taken) == 4
        assert sum("tomorrow" in owner.show("subscriptions").lines[0] for owner in owners) == 5
        clock.advance(timedelta(days=1))
        _publish(runner, 3)
        assert len(post.taken) == 8
        assert _contents(post) == []


def test_pending_targets_of_an_owner_are_limited(tmp_path: Path, clock: FakeClock, post: Post) -> None:
    with _workspace(tmp_path / "root", clock, post, owner_pending_confirmations=3) as runner:
        ann = _owner(runner)
        for number in range(3):
            ann.execute(f"subscribe to Rock output mail 'v{number}@mail.example';")
        with pytest.raises(StatementError, match="at most 3 targets"):
            ann.execute("subscribe to Rock output mail 'v3@mail.example';")
        with pytest.raises(StatementError, match="at most 3 targets"):  # also not by ending the subscriptions first
            ann.execute(
                "unsubscribe 1; unsubscribe 2; unsubscribe 3; subscribe to Rock output mail 'v3@mail.example';"
            )
        ann.execute("subscribe to Rock output mail 'v0@mail.example';")
        runner.engine.execute("confirm subscription 2;")
        ann.execute("subscribe to Rock output mail 'v3@mail.example';")
        with pytest.raises(StatementError, match="at most 3 targets"):
            ann.execute(
                "subscribe to Rock output mail 'v4@mail.example'; subscribe to Rock output mail 'v5@a.example';"
            )
        clock.advance(timedelta(days=8))
        ann.execute("subscribe to Rock output mail 'v4@mail.example';")


def test_script_cannot_exceed_the_limit_of_pending_targets(tmp_path: Path, clock: FakeClock, post: Post) -> None:
    with _workspace(tmp_path / "root", clock, post, owner_pending_confirmations=2) as runner:
        ann = _owner(runner)
        script = "".join(f"subscribe to Rock output mail 'v{number}@mail.example';" for number in range(3))
        with pytest.raises(StatementError, match="at most 2 targets"):
            ann.execute(script)
        assert ann.show("subscriptions").to_json()["subscriptions"] == []
        ann.execute(script.partition(";")[0] + ";" + script.partition(";")[0] + ";")


def test_a_token_cannot_be_guessed_or_used_for_another_address(runner: InProcess, post: Post) -> None:
    engine, ann, bob = runner.engine, _owner(runner), _owner(runner, "bob")
    ann.execute(f"subscribe to Rock output mail '{VICTIM}'; subscribe to Rock output mail 'ann@mail.example';")
    bob.execute(f"subscribe to Rock output mail '{VICTIM}';")
    _publish(runner, 1)
    links = dict(zip(_recipients(post), _links(post), strict=True))
    mark = links["ann@mail.example"].partition(".")[2]
    victims = _consent(engine, VICTIM)
    client = _client(engine)
    guesses = [
        f"/confirm/{victims.id}.{mark}",
        f"/confirm/{victims.id}.",
        f"/confirm/{victims.id}",
        f"/confirm/{victims.id}.{'A' * 24}",
        f"/confirm/{victims.id}.{'A' * 5000}",
        f"/confirm/0{victims.id}.x",
        "/confirm/99999999999999999999999.x",
        "/confirm/²." + mark,
        f"/confirm/-{victims.id}.{mark}",
    ]
    for guess in guesses:
        assert client.get(guess).status_code == 404
        assert client.post(guess).status_code == 404
        assert client.post(f"{guess}/refuse").status_code == 404
    client.post(links["ann@mail.example"])
    assert not _consent(engine, VICTIM).is_confirmed
    assert _consent(engine, "ann@mail.example").is_confirmed
    assert not _consent(engine, VICTIM, owner=3).is_confirmed
    runner.deliver()
    assert [text for content in _contents(post) for text in re.findall(rb"^To: (.*)\r$", content, re.M)] == [
        b"ann@mail.example"
    ]


def test_consent_applies_to_one_owner_only(runner: InProcess, post: Post) -> None:
    ann, bob = _owner(runner), _owner(runner, "bob")
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    runner.deliver()
    _client(runner.engine).post(_links(post)[0])
    bob.execute(f"subscribe to Rock output mail '{VICTIM}';")
    _publish(runner, 1)
    assert len(_contents(post)) == 1
    assert _states(runner.engine, 2) == []


def test_confirmation_link_expires(runner: InProcess, post: Post, clock: FakeClock) -> None:
    ann = _owner(runner)
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    runner.deliver()
    (link,) = _links(post)
    client = _client(runner.engine)
    clock.advance(timedelta(days=7))
    assert client.get(link).status_code == 410
    assert client.post(link).status_code == 410
    assert not _consent(runner.engine, VICTIM).is_confirmed
    assert "confirmation request expired" in ann.show("subscriptions").lines[0]
    ann.execute("send subscription 1 now;")
    runner.deliver()
    assert client.post(link).status_code == 404, "another request has another link"
    assert client.post(_links(post)[-1]).status_code == 200
    assert _consent(runner.engine, VICTIM).is_confirmed


def test_refusing_recipient_gets_no_requests_from_any_owner(runner: InProcess, post: Post) -> None:
    engine, ann, bob = runner.engine, _owner(runner), _owner(runner, "bob")
    engine.execute(f"subscribe to Rock output mail '{VICTIM}';")
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    runner.deliver()
    (link,) = _links(post)
    client = _client(engine)
    assert client.get(f"{link}/refuse").status_code == 200
    assert _consent(engine, VICTIM).state is ConsentState.PENDING, "a scanner that follows the link refuses nothing"
    assert client.post(f"{link}/refuse").status_code == 200
    assert _consent(engine, VICTIM).state is ConsentState.REFUSED
    assert client.post(link).status_code == 200
    assert _consent(engine, VICTIM).state is ConsentState.REFUSED, "the refusal stays"
    for owner in (ann, bob):
        for trick in ("victim@mail.example", "VICTIM@MAIL.example", "victim+1@mail.example"):
            with pytest.raises(StatementError, match="refused messages"):
                owner.execute(f"subscribe to Rock output mail '{trick}';")
    with pytest.raises(StatementError, match="refused messages"):
        ann.execute("send subscription 2 now;")
    _publish(runner, 1)
    assert len(post.taken) == 1
    assert "refused" in engine.show("subscriptions").lines[0], "the admin's own subscription is disabled"
    engine.execute("confirm subscription 2;")  # the admin knows better
    _publish(runner, 2)
    assert len(_contents(post)) == 1


def test_refusal_does_not_apply_to_other_dots_by_default(runner: InProcess, post: Post) -> None:
    engine, ann, mallory, client = runner.engine, _owner(runner), _owner(runner, "mallory"), _client(runner.engine)
    ann.execute("subscribe to Rock output mail 'jsmith@corp.example';")
    engine.execute("subscribe to Rock output mail 'jsmith@corp.example';")
    engine.execute("confirm subscription 1;")
    mallory.execute("subscribe to Rock output mail 'Js.Mith+x@corp.example';")
    runner.deliver()
    (link,) = _links(post)
    assert client.post(f"{link}/refuse").status_code == 200
    assert _consent(engine, "jsmith@corp.example").is_confirmed
    _publish(runner, 1)
    assert len(_contents(post)) == 2, "one of ann's and one of the admin's"
    with pytest.raises(StatementError, match="refused messages"):
        ann.execute("subscribe to Rock output mail 'js.mith@corp.example';")
    ann.execute("subscribe to Rock output mail 'j.smith@corp.example';")


def test_refusal_applies_to_all_dots_if_the_provider_ignores_them(runner: InProcess, post: Post) -> None:
    engine, ann, bob = runner.engine, _owner(runner), _owner(runner, "bob")
    engine.execute("subscribe to Rock output mail 'j.s.mith@gmail.com';")
    bob.execute("subscribe to Rock output mail 'j.smith@gmail.com';")
    ann.execute("subscribe to Rock output mail 'jsmith@gmail.com';")
    runner.deliver()
    assert _client(engine).post(f"{_links(post)[0]}/refuse").status_code == 200
    assert _consent(engine, "jsmith@gmail.com").state is ConsentState.REFUSED
    assert _consent(engine, "j.smith@gmail.com", owner=3).state is ConsentState.REFUSED
    assert "refused" in engine.show("subscriptions").lines[0]
    with pytest.raises(StatementError, match="refused messages"):
        ann.execute("subscribe to Rock output mail 'js.mith+x@gmail.com';")


_SPELLINGS = st.from_regex(
    r"[abAB]{1,2}(\.[abAB]{1,2}){0,2}(\+[ab.]{1,3})?@(mail\.example|gmail\.com)", fullmatch=True
)


@given(_SPELLINGS, _SPELLINGS)
def test_targets_with_the_same_refuser_have_the_same_recipient(one: str, other: str) -> None:
    if certain_mailbox_of(one) == certain_mailbox_of(other):
        assert mailbox_of(one) == mailbox_of(other)
    if one.endswith("@gmail.com"):
        assert certain_mailbox_of(one) == mailbox_of(one)
    assert certain_mailbox_of(certain_mailbox_of(one)) == certain_mailbox_of(one)


def test_matches_after_a_withdrawn_refusal_wait_for_each_owners_confirmation(runner: InProcess, post: Post) -> None:
    engine, ann, bob, client = runner.engine, _owner(runner), _owner(runner, "bob"), _client(runner.engine)
    for owner in (ann, bob):
        owner.execute(f"subscribe to Rock output mail '{VICTIM}';")
    runner.deliver()
    for link in _links(post):
        client.post(link)
    _publish(runner, 1)
    client.post(f"{_links(post)[0]}/refuse")
    _publish(runner, 2)
    engine.execute("confirm subscription 1;")
    _publish(runner, 3)
    bob.execute("send subscription 2 now;")
    runner.deliver()
    client.post(_links(post)[-1])
    _publish(runner, 4)
    counts = [sum(f"rock {number}".encode() in content for content in _contents(post)) for number in range(1, 5)]
    assert counts == [2, 0, 2, 2], "only what matched while the recipient refused is never sent"


def test_unsubscribing_withdraws_consent_of_other_subscriptions_without_losing_matches(
    runner: InProcess, post: Post
) -> None:
    ann, client = _owner(runner), _client(runner.engine)
    ann.execute(f"subscribe to Rock output mail '{VICTIM}'; subscribe to Rock output mail '{VICTIM}';")
    runner.engine.execute("confirm subscription 1;")
    _publish(runner, 1)
    assert len(_contents(post)) == 2
    link = re.search(rb"List-Unsubscribe: <https://runnel.example(/unsubscribe/[^>]+)>", _contents(post)[0])
    assert link is not None
    assert client.post(link[1].decode()).status_code == 200
    assert "the recipient unsubscribed" in ann.show("subscriptions").lines[0]
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    _publish(runner, 2)
    assert len(_contents(post)) == 2
    client.post(_links(post)[-1])
    _publish(runner, 3)
    assert all(
        sum(f"rock {number}".encode() in content for content in _contents(post)) == 2 for number in (1, 2, 3)
    ), "nothing is lost and nothing sent twice"


def test_unsubscribe_link_requires_a_new_confirmation(runner: InProcess, post: Post) -> None:
    ann = _owner(runner)
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    runner.engine.execute("confirm subscription 1;")
    _publish(runner, 1)
    (content,) = _contents(post)
    link = re.search(rb"List-Unsubscribe: <https://runnel.example(/unsubscribe/[^>]+)>", content)
    assert link is not None
    assert _client(runner.engine).post(link[1].decode()).status_code == 200
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    _publish(runner, 2)
    assert len(_contents(post)) == 1
    assert len(_links(post)) == 1, "and is asked"


def test_answered_requests_do_not_count_as_unanswered(runner: InProcess, post: Post) -> None:
    ann = _owner(runner)
    for turn in range(UNANSWERED + 1):
        ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
        runner.deliver()
        assert len(_links(post)) == turn + 1
        assert _client(runner.engine).post(_links(post)[-1]).status_code == 200
        _publish(runner, turn)
        link = re.search(rb"List-Unsubscribe: <https://runnel.example(/unsubscribe/[^>]+)>", _contents(post)[-1])
        assert link is not None
        assert _client(runner.engine).post(link[1].decode()).status_code == 200


def test_without_a_public_url_the_owner_enters_the_code_from_the_mail(
    tmp_path: Path, clock: FakeClock, post: Post
) -> None:
    with _workspace(tmp_path / "root", clock, post, public_url="") as runner:
        ann, bob = _owner(runner), _owner(runner, "bob")
        ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
        bob.execute("subscribe to Rock output mail 'bob@mail.example';")
        runner.deliver()
        document = {to: CODE.search(_text(mail)) for to, mail in zip(_recipients(post), post.mails(), strict=True)}
        code, bobs = document[VICTIM], document["bob@mail.example"]
        assert code is not None
        assert bobs is not None
        for wrong in (bobs[1], code[1][:-1], "AAAA-AAAA-AAAA-AAAA-AAAA-AAAA", "x" * 1000):
            with pytest.raises(StatementError, match="the code does not belong"):
                ann.execute(f"confirm subscription 1 '{wrong}';")
        with pytest.raises(StatementError, match="no subscription 1"):
            bob.execute(f"confirm subscription 1 '{code[1]}';")
        with pytest.raises(StatementError, match="only the admin"):
            ann.execute("confirm subscription 1;")
        ann.execute(f"confirm subscription 1 '{code[1].lower().replace('-', ' ')}';")
        _publish(runner, 1)
        assert len(_contents(post)) == 1


def test_link_and_code_are_neither_stored_nor_shown_to_the_owner(
    runner: InProcess, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    ann = _owner(runner)
    made = ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    runner.deliver()
    (link,) = _links(post)
    mark = link.partition(".")[2]
    shown = f"{made} {ann.show('subscriptions')} {runner.engine.status()} {caplog.text}"
    assert mark not in shown
    assert mark.replace("-", "") not in shown
    consent = _consent(runner.engine, VICTIM)
    assert mark not in repr(consent)
    with runner.engine.workspace.catalog.read() as connection:
        secret = find_secret(connection, consents.CONFIRMATION)
    assert secret is not None
    assert challenge_of(secret, consent) == mark
    assert challenge_of(b"another secret", consent) != mark


def test_only_exempt_domains_need_no_confirmation(tmp_path: Path, clock: FakeClock, post: Post) -> None:
    exempt = ("Muse.Example", "*.band.example")
    with _workspace(tmp_path / "root", clock, post) as runner:
        _owner(runner).execute("subscribe to Rock output mail 'early@muse.example';")
    with _workspace(tmp_path / "root", clock, post, confirmed_domains=exempt) as runner:
        ann = runner.engine.acting_as("ann")
        for target in ("a@muse.example", "b@MUSE.example", "c@a.band.example", "d@band.example", "e@xmuse.example"):
            ann.execute(f"subscribe to Rock output mail '{target}';")
        ann.execute("subscribe to Rock output mail 'f@muse.example.evil.example';")
        _publish(runner, 1)
        got = {text.decode() for content in _contents(post) for text in re.findall(rb"^To: (.*)\r$", content, re.M)}
        assert got == {"early@muse.example", "a@muse.example", "b@muse.example", "c@a.band.example"}


_KILLED = """
import os, signal, sys
import runnel
from tests.integration.in_process import InProcess

folder, catalog, time, port, step = sys.argv[1:]
engine = runnel.connect(
    folder, catalog=catalog, clock=lambda: float(time), smtp_host="127.0.0.1", smtp_port=int(port),
    smtp_security="none", mail_from="Runnel <runnel@muse.example>",
)
runner = InProcess(engine)
if step == "recorded":
    runner.dispatcher.recorder.record(runner.epoch)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("step", ["confirmed", "recorded"])
def test_a_kill_between_confirmation_and_the_first_message_loses_and_repeats_nothing(
    tmp_path: Path, clock: FakeClock, post: Post, step: str
) -> None:
    with _workspace(tmp_path / "root", clock, post) as runner:
        catalog = runner.engine.workspace.catalog.url
        _owner(runner).execute(f"subscribe to Rock output mail '{VICTIM}';")
        _publish(runner, 1, 2)
        _client(runner.engine).post(_links(post)[0])
    clock.advance(timedelta(hours=2))
    with serving(post) as port:
        arguments = [str(tmp_path / "root"), catalog, str(clock()), str(port), step]
        root = str(Path(__file__).parents[2])
        killed = subprocess.run([sys.executable, "-c", _KILLED, *arguments], cwd=root, check=False)
    assert killed.returncode == -signal.SIGKILL
    with _workspace(tmp_path / "root", clock, post) as runner:
        assert _states(runner.engine) == ([MessageState.OPEN] if step == "recorded" else [])
        runner.run()
        runner.run()
        assert _states(runner.engine) == [MessageState.DONE]
    (content,) = _contents(post)
    assert b"rock 1" in content
    assert b"rock 2" in content
    assert len(_links(post)) == 1


def test_a_crash_after_a_request_was_counted_sends_it_again_within_the_limits(
    tmp_path: Path, clock: FakeClock, post: Post
) -> None:
    with _workspace(tmp_path / "root", clock, post) as runner:
        _owner(runner).execute(f"subscribe to Rock output mail '{VICTIM}';")
        for _ in range(10):
            with runner.engine.workspace.catalog.read() as connection:
                due = consents.due_consents(connection, 10)
            for consent, subscription in due:
                runner.dispatcher._confirmer._begin(runner.epoch, consent, subscription)  # counted, then killed
            clock.advance(timedelta(hours=1))
        assert _consent(runner.engine, VICTIM).requests == UNANSWERED
        runner.deliver()
        assert post.taken == []
        assert "the admin can confirm" in runner.engine.show("subscriptions").lines[0]


def test_unreachable_mail_server_does_not_count_as_a_request(tmp_path: Path, clock: FakeClock, post: Post) -> None:
    with _workspace(tmp_path / "root", clock, post) as runner:
        _owner(runner).execute(f"subscribe to Rock output mail '{VICTIM}';")
    with _workspace(tmp_path / "root", clock, post, smtp_host="127.0.0.9") as runner:
        for _ in range(5):
            runner.deliver()
            clock.advance(timedelta(hours=1))
        assert _consent(runner.engine, VICTIM).requests == 0
        assert "the mail server cannot be used" in runner.engine.show("subscriptions").lines[0]
    with _workspace(tmp_path / "root", clock, post) as runner:
        runner.engine.execute("send subscription 1 now;")
        runner.deliver()
        assert len(_links(post)) == 1


class _Quoting(Post):
    """A mail server that refuses a mail and quotes it in the response."""

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.original_content, bytes)
        self.taken.append(("", [], envelope.original_content))
        mark = re.search(rb"[A-Z2-7]{4}(-[A-Z2-7]{4}){5}", envelope.original_content)
        assert mark is not None
        return f"{self.data_answer} {mark[0].decode()}"


@pytest.mark.parametrize("code", [451, 552, 554])
def test_challenge_quoted_by_a_mail_server_is_not_shown(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    post = _Quoting(data_answer=str(code))
    with _workspace(tmp_path / "root", clock, post) as runner:
        ann = _owner(runner)
        ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
        runner.deliver()
        (link,) = _links(post)
        line = ann.show("subscriptions").lines[0]
        assert str(code) in line
        assert link.partition(".")[2] not in f"{line} {runner.engine.status()} {caplog.text}"


class _Dropping(Post):
    """A mail server that accepts a mail and closes the connection before it responds."""

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        await super().handle_DATA(server, session, envelope)
        assert server.transport is not None
        server.transport.close()
        await asyncio.sleep(3600)  # until the server notices, and cancels this
        return "250 OK"


def test_possibly_accepted_mail_counts_as_a_request(tmp_path: Path, clock: FakeClock) -> None:
    post = _Dropping()
    with _workspace(tmp_path / "root", clock, post) as runner:
        ann = _owner(runner)
        ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
        for _ in range(UNANSWERED + 2):
            runner.deliver()
            clock.advance(timedelta(hours=1))
        assert _consent(runner.engine, VICTIM).requests == len(post.taken) == UNANSWERED
        assert "the connection to the mail server was lost" in ann.show("subscriptions").lines[0]
        with pytest.raises(StatementError, match="did not answer"):
            ann.execute("send subscription 1 now;")


# --- after the confirmation ----------------------------------------------------------------------------------------


def test_mails_per_hour_to_a_confirmed_address_are_limited(tmp_path: Path, clock: FakeClock, post: Post) -> None:
    with _workspace(tmp_path / "root", clock, post, owner_mails_per_hour=5) as runner:
        ann = _owner(runner)
        targets = [VICTIM, "victim+a@mail.example", "Victim@mail.example"]
        for target in targets:
            ann.execute(f"subscribe to Rock output mail '{target}'; subscribe to Rock output mail '{target}';")
        ann.execute("subscribe to Rock output mail 'other@mail.example';")
        runner.engine.execute("".join(f"confirm subscription {number};" for number in (1, 3, 5, 7)))
        _publish(runner, 1)
        assert sum(mailbox_of(recipient) == VICTIM for recipient in _recipients(post)) == 5, (
            "6 subscriptions of one mailbox"
        )
        assert sum(recipient == "other@mail.example" for recipient in _recipients(post)) == 1, (
            "another mailbox does not wait"
        )
        runner.restart_delivery()
        runner.deliver()
        assert len(post.taken) == 6, "a new runner counts what the one before sent"
        _publish(runner, 2)
        clock.advance(timedelta(hours=1, seconds=1))
        runner.deliver()
        clock.advance(timedelta(hours=1, seconds=1))
        runner.deliver()
        clock.advance(timedelta(hours=1, seconds=1))
        runner.deliver()
        states = [state for number in range(1, 8) for state in _states(runner.engine, number)]
        assert states == [MessageState.DONE] * 14, "nothing is lost"
        assert len(post.taken) == 14, "and nothing sent twice"


@given(
    st.lists(st.tuples(st.integers(0, HOUR), st.integers(1, 4)), max_size=60),
    st.integers(1, 5),
)
def test_no_hour_has_more_messages_than_the_limit(steps: list[tuple[int, int]], limit: int) -> None:
    pacer, recipient, moment = MessagePacer(lambda *_: []), (2, "mail", VICTIM), 0
    sent: list[int] = []
    for pause, wanted in steps:
        moment += pause
        granted, following = pacer.take(recipient, wanted, limit, moment)
        sent += [moment] * granted
        if granted < wanted:
            assert following > moment
            again, _ = MessagePacer(lambda *_, sent=tuple(sent): list(sent)).take(recipient, 1, limit, following)
            assert again == 1, "what is put off may be sent then"
    for start in sent:
        assert sum(start <= value < start + HOUR for value in sent) <= limit


def test_pacer_reads_the_ledger_once_per_recipient() -> None:
    asked: list[Recipient] = []

    def sent_before(recipient: Recipient, since: int, limit: int) -> list[int]:
        asked.append(recipient)
        return [10 * HOUR - 5, 10 * HOUR - 1]

    pacer = MessagePacer(sent_before)
    assert pacer.take((2, "mail", "a"), 5, 3, 10 * HOUR) == (1, 11 * HOUR - 5)
    assert pacer.take((2, "mail", "a"), 5, 3, 10 * HOUR) == (0, 11 * HOUR - 5)
    assert len(asked) == 1


# --- webhooks ------------------------------------------------------------------------------------------------------


def test_endpoint_that_returns_the_challenge_receives_messages(runner: InProcess, endpoint: Endpoint) -> None:
    ann = _owner(runner)
    made = ann.execute(f"subscribe to Rock output webhook '{endpoint.url()}';")[0]
    _publish(runner, 1)
    (challenge,) = endpoint.documents("runnel.confirmation")
    assert set(challenge["data"]) == {"challenge", "feed", "owner", "subscription", "expires"}
    _, headers, body = endpoint.posts[0]
    assert Webhook(made.to_json()["key"]).verify(body, headers) == challenge, "it is signed"
    runner.deliver()
    (message,) = endpoint.documents("feed.items")
    assert message["data"]["items"][0]["id"] == "1"


@pytest.mark.parametrize("answers", ["echo", "nothing", "wrong", "long"])
def test_response_without_the_challenge_is_no_confirmation(
    runner: InProcess, endpoint: Endpoint, clock: FakeClock, answers: str
) -> None:
    endpoint.answers = answers
    ann = _owner(runner)
    ann.execute("".join(f"subscribe to Rock output webhook '{endpoint.url()}';" for _ in range(20)))
    for number in range(5):
        _publish(runner, number)
        clock.advance(timedelta(hours=1))
    assert endpoint.documents("feed.items") == []
    assert len(endpoint.documents("runnel.confirmation")) == 3, "the schedule ends"
    status = runner.engine.status()
    assert len(status.unconfirmed_subscriptions) == 20
    assert any("`send subscription 1 now;` requests confirmation again" in line for line in status.lines())
    endpoint.answers = "challenge"
    ann.execute("send subscription 1 now;")
    runner.deliver()
    runner.deliver()
    assert len(endpoint.documents("feed.items")) == 20
    assert runner.engine.status().unconfirmed_subscriptions == []


def test_redirects_and_errors_are_no_confirmation(runner: InProcess, endpoint: Endpoint) -> None:
    ann = _owner(runner)
    for status in (302, 404, 500):
        endpoint.status = status
        ann.execute(f"subscribe to Rock output webhook '{endpoint.url(f'/{status}')}';")
        _publish(runner, status)
    assert endpoint.documents("feed.items") == []
    assert len(runner.engine.status().unconfirmed_subscriptions) == 3


@pytest.mark.parametrize("status", [302, 400, 410, 413, 503])
def test_challenge_quoted_in_an_error_is_not_shown(
    runner: InProcess, endpoint: Endpoint, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    endpoint.answers, endpoint.status = "echo", status
    ann = _owner(runner)
    ann.execute(f"subscribe to Rock output webhook '{endpoint.url()}';")
    runner.deliver()
    challenge = endpoint.documents("runnel.confirmation")[0]["data"]["challenge"]
    line = ann.show("subscriptions").lines[0]
    assert f"the endpoint responded {status}" in line
    assert challenge not in f"{line} {runner.engine.status()} {caplog.text}"


def test_challenge_of_an_endpoint_is_not_a_valid_link(runner: InProcess, endpoint: Endpoint) -> None:
    endpoint.answers = "nothing"
    _owner(runner).execute(f"subscribe to Rock output webhook '{endpoint.url()}';")
    runner.deliver()
    challenge = endpoint.documents("runnel.confirmation")[0]["data"]["challenge"]
    consent = _consent(runner.engine, endpoint.url(), "webhook")
    link, client = f"/confirm/{consent.id}.{challenge}", _client(runner.engine)
    for path in (link, f"{link}/refuse"):
        assert client.get(path).status_code == client.post(path).status_code == 404
    assert _consent(runner.engine, endpoint.url(), "webhook").state is ConsentState.PENDING


@pytest.mark.parametrize(("limit", "share"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_one_owner_can_use_at_most_half_of_the_requests_to_a_host(
    tmp_path: Path, clock: FakeClock, post: Post, endpoint: Endpoint, limit: int, share: int
) -> None:
    endpoint.answers = "nothing"
    with _workspace(tmp_path / "root", clock, post, confirmation_requests_per_day=limit) as runner:
        mallory, ann = _owner(runner, "mallory"), _owner(runner)
        for number in range(6):
            mallory.execute(f"subscribe to Rock output webhook '{endpoint.url(f'/mallory/{number}')}';")
        runner.deliver()
        assert len(endpoint.posts) == share, "exactly its share"
        endpoint.answers = "challenge"
        ann.execute(f"subscribe to Rock output webhook '{endpoint.url('/ann')}';")
        runner.deliver()
        assert [path for path, _, _ in endpoint.posts[share:]] == (["/ann"] if limit > share else [])


def test_a_changed_endpoint_has_to_confirm_itself(runner: InProcess, endpoint: Endpoint) -> None:
    ann = _owner(runner)
    ann.execute(f"subscribe to Rock output webhook '{endpoint.url('/mine')}';")
    runner.deliver()
    endpoint.answers = "nothing"
    with listening(Endpoint(answers="nothing")) as stranger:
        for target in (stranger.url("/mine"), endpoint.url("/other"), endpoint.url("/mine?x=1")):
            ann.execute(f"subscribe to Rock output webhook '{target}';")
        _publish(runner, 1)
        assert stranger.documents("feed.items") == []
    assert [path for path, _, body in endpoint.posts if b"feed.items" in body] == ["/mine"]


def test_paths_of_one_host_share_its_limit(tmp_path: Path, clock: FakeClock, post: Post, endpoint: Endpoint) -> None:
    endpoint.answers = "nothing"
    with _workspace(tmp_path / "root", clock, post, confirmation_requests_per_day=4) as runner:
        for name in ("ann", "bob"):
            owner = _owner(runner, name)
            for number in range(5):
                owner.execute(f"subscribe to Rock output webhook '{endpoint.url(f'/{name}/{number}')}';")
        for number in range(5):
            _publish(runner, number)
            clock.advance(timedelta(minutes=10))
        assert len(endpoint.posts) == 4
        clock.advance(timedelta(days=1))
        _publish(runner, 9)
        assert len(endpoint.posts) == 8


def test_owner_can_enter_the_challenge_from_the_endpoints_log(runner: InProcess, endpoint: Endpoint) -> None:
    endpoint.answers = "nothing"
    ann = _owner(runner)
    ann.execute(f"subscribe to Rock output webhook '{endpoint.url()}';")
    _publish(runner, 1)
    (challenge,) = endpoint.documents("runnel.confirmation")
    ann.execute(f"confirm subscription 1 '{challenge['data']['challenge']}';")
    runner.deliver()
    assert len(endpoint.documents("feed.items")) == 1


# --- who needs none, and what is shown -----------------------------------------------------------------------------


def test_the_admin_needs_no_confirmation(runner: InProcess, post: Post, endpoint: Endpoint) -> None:
    runner.engine.execute(
        f"subscribe to Rock output mail '{VICTIM}'; subscribe to Rock output webhook '{endpoint.url()}';"
    )
    _publish(runner, 1)
    assert len(_contents(post)) == len(post.taken) == 1
    assert len(endpoint.documents("feed.items")) == 1
    assert "needs no confirmation" in runner.engine.execute("confirm subscription 1;")[0].message


def test_the_waiting_state_is_shown_everywhere(runner: InProcess, post: Post) -> None:
    engine, ann = runner.engine, _owner(runner)
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    assert "confirmation request not sent yet" in ann.show("subscriptions").lines[0]
    _publish(runner, 1)
    assert "waiting for confirmation" in ann.show("subscriptions").lines[0]
    assert any(line.startswith("unconfirmed    subscription 1: waiting") for line in engine.status().lines())
    assert any(
        "subscription 1: waiting for confirmation" in failure for failure in collect_report(engine, "r").failures
    )
    assert b"runnel_subscriptions_unconfirmed 1.0" in render_metrics(engine.workspace, _Run())[0]
    engine.execute("confirm subscription 1;")
    assert b"runnel_subscriptions_unconfirmed 0.0" in render_metrics(engine.workspace, _Run())[0]
    assert ann.show("subscriptions").to_json()["subscriptions"][0]["confirmation"] is None


def test_unconfirmed_subscriptions_do_not_keep_items_forever(runner: InProcess, post: Post) -> None:
    catalog, ann = runner.engine.workspace.catalog, _owner(runner)
    ann.execute(f"subscribe to Rock output mail '{VICTIM}';")
    _publish(runner, 1, 2, 3)
    with catalog.trial() as connection:
        consents.confirm_consent(connection, _consent(runner.engine, VICTIM), "on trial")
        assert receipts.needed_after(connection) == 0, "one that is served does"
    with catalog.write() as connection:
        assert receipts.needed_after(connection) == 2, "only the last batch, which may be run again"
        receipts.lift_cursors(connection, 2)  # as retention does
    runner.engine.execute("confirm subscription 1;")
    runner.deliver()
    (content,) = _contents(post)
    assert b"rock 1" not in content
    assert b"rock 3" in content


def test_plug_in_sink_declares_whether_recipients_confirm() -> None:
    from runnel.sinks.contract import ConfirmingSink
    from runnel.sinks.registry import installed_sinks

    assert [sink.kind for sink in installed_sinks() if isinstance(sink, ConfirmingSink)] == ["mail", "webhook"]


@pytest.mark.parametrize(
    "name", ["", "@", "https://x.example/", "a b", "*", "*.*.example", "a..b", "muse.example:80"]
)
def test_invalid_confirmed_domain_is_refused(name: str) -> None:
    with pytest.raises(runnel.errors.WorkspaceError, match="is not a domain"):
        Settings.load(Path("/nowhere"), confirmed_domains=(name,))


@given(st.text(max_size=300))
def test_feed_name_in_a_request_contains_no_link(name: str) -> None:
    shown = plain_name(name)
    assert 0 < len(shown) <= 40
    assert not set(shown) & set("@:/.<>?&=#%\r\n\"'")
