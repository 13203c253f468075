"""Mail to a real SMTP server: what is sent, and what each refusal means."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session
from tests.unit.sinks.mail.smtp_server import SINK, Post, deliver, only_failure, serving, settings_for

from runnel.errors import DeliveryError, InputError
from runnel.sinks.contract import Content

Make = Callable[..., Any]


# --- what is sent ------------------------------------------------------------------------------------------------


def test_a_mail_arrives_with_both_parts_and_all_headers(to: Make) -> None:
    post = Post()
    with serving(post) as port:
        link = f"https://runnel.example/unsubscribe/{'x' * 90}"
        (outcome,) = deliver(settings_for(port), to(unsubscribe=link))
    assert outcome.startswith("the mail server accepted ")
    assert outcome.endswith("bytes: 250 OK taken")
    ((sender, recipients, content),) = post.taken
    assert (sender, recipients) == ("runnel@muse.example", ["me@mail.example"])
    assert content.isascii()
    assert f"\r\nList-Unsubscribe: <{link}>\r\n".encode() in content
    (mail,) = post.mails()
    assert {name: str(mail[name]) for name in mail if name != "Content-Type"} == {
        "From": "Runnel <runnel@muse.example>",
        "To": "me@mail.example",
        "Subject": "Muse on tour",
        "Date": "Sun, 15 Nov 2026 09:30:00 +0000",
        "Message-ID": "<1f-1-1@muse.example>",
        "List-Id": "<RockConcerts.feeds.muse.example>",
        "List-Unsubscribe": f"<{link}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        "Auto-Submitted": "auto-generated",
        "Precedence": "bulk",
        "MIME-Version": "1.0",
    }
    assert mail.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]
    text, html = (part.get_content() for part in mail.iter_parts())
    for part in (text, html):
        assert "Muse on tour" in part
        assert "Three nights." in part
        assert link in part


def test_repeated_message_has_the_same_message_id(to: Make) -> None:
    post = Post()
    with serving(post) as port:
        deliver(settings_for(port), to(), to(), to(key="1f-1-2"))
    assert [mail["Message-ID"] for mail in post.mails()] == [
        "<1f-1-1@muse.example>",
        "<1f-1-1@muse.example>",
        "<1f-1-2@muse.example>",
    ]


def test_one_click_headers_require_https(to: Make) -> None:
    post = Post()
    with serving(post) as port:
        deliver(settings_for(port), to(unsubscribe="http://runnel.example/u"), to(unsubscribe="https://a/> b"))
    first, second = post.mails()
    assert first["List-Unsubscribe"] == "<http://runnel.example/u>"
    assert first["List-Unsubscribe-Post"] is None
    assert second["List-Unsubscribe"] is None


def test_xml_of_a_stylesheet_is_attached_and_text_is_text(to: Make) -> None:
    post = Post()
    with serving(post) as port:
        xml = Content("application/xml; charset=utf-8", b"<report n='1'/>")
        text = Content("text/plain; charset=utf-8", "Müse\n".encode())
        deliver(settings_for(port), to(content=xml), to(content=text))
    first, second = post.mails()
    (attached,) = first.iter_attachments()
    assert (attached.get_content_type(), attached.get_filename()) == ("application/xml", "RockConcerts.xml")
    assert attached.get_content() == b"<report n='1'/>"
    assert second.get_content_type() == "text/plain"
    assert second.get_content().startswith("Müse\r\n")


def test_empty_output_of_a_stylesheet_is_not_mailed(to: Make) -> None:
    post = Post()
    with serving(post) as port:
        outcomes = deliver(settings_for(port), to(items=()), to(content=Content("text/plain", b" \n")))
    assert all(outcome.startswith("nothing to send") for outcome in outcomes)
    assert post.taken == []


# --- what refusals mean ------------------------------------------------------------------------------------------


def test_refused_recipient_does_not_affect_other_mails(to: Make) -> None:
    post = Post(refuse={"no@mail.example": "550 5.1.1 no such\tperson"})
    people = ["a@mail.example", "no@mail.example", "b@mail.example"]
    with serving(post) as port:
        outcomes = deliver(settings_for(port), *(to(person, key=f"k-{person[0]}") for person in people))
    assert [isinstance(outcome, DeliveryError) for outcome in outcomes] == [False, True, False]
    assert outcomes[1].permanent
    assert outcomes[1].message == "the mail server refused no@mail.example: 550 5.1.1 no such person"
    assert not isinstance(outcomes[1].__cause__, OSError)  # the server is there, so nobody else need wait
    assert [recipients for _, recipients, _ in post.taken] == [["a@mail.example"], ["b@mail.example"]]
    assert len(post.sessions) == 1


def test_greylisted_mail_is_retried(to: Make) -> None:
    post = Post(refuse={"me@mail.example": "450 4.2.0 greylisted, come back later"})
    with serving(post) as port:
        error = only_failure(deliver(settings_for(port), to()))
    assert not error.permanent
    assert "450 4.2.0 greylisted" in error.message


@pytest.mark.parametrize(
    ("answer", "permanent"),
    [("554 5.7.1 spam", True), ("552 5.3.4 too big", True), ("451 4.3.0 try later", False), ("421 busy", False)],
)
def test_response_to_the_mail_data_decides(to: Make, answer: str, permanent: bool) -> None:
    post = Post(data_answer=answer)
    with serving(post) as port:
        error = only_failure(deliver(settings_for(port), to()))
        post.data_answer = "250 OK"
        assert isinstance(deliver(settings_for(port), to())[0], str)
    assert error.permanent is permanent
    assert answer in error.message
    assert bool(error.hint) is answer.startswith("552")


def test_mail_above_the_servers_size_limit_is_not_sent(to: Make, make_item: Make, make_delivery: Make) -> None:
    post = Post()
    large = make_delivery("me@mail.example", make_item("a", 1, content="many words " * 3000), key="k-1")
    with serving(post, data_size_limit=20_000) as port:
        outcomes = deliver(settings_for(port), large, to())
    assert outcomes[0].permanent
    assert "20,000 bytes" in outcomes[0].message
    assert "period" in outcomes[0].hint
    assert isinstance(outcomes[1], str)
    assert len(post.taken) == 1


def test_refused_sender_is_reported_to_the_admin(to: Make) -> None:
    class Picky(Post):
        async def handle_MAIL(  # noqa: N802
            self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
        ) -> str:
            return "553 5.7.1 not your address"

    with serving(Picky()) as port:
        error = only_failure(deliver(settings_for(port), to()))
    assert not error.permanent
    assert "mail_from" in (error.hint or "")


def test_error_for_owners_omits_server_and_account_names(to: Make, caplog: pytest.LogCaptureFixture) -> None:
    class Strict(Post):
        async def handle_MAIL(  # noqa: N802
            self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
        ) -> str:
            return "553 5.7.1 canary-account may not send as this address"

    with serving(Strict()) as port:
        refused = only_failure(deliver(settings_for(port), to()))
    unknown = only_failure(deliver(settings_for(1, smtp_host="canary-host.invalid", send_seconds=1), to()))
    for error in (refused, unknown):
        assert "canary" not in f"{error} {vars(error)}"
        assert "application log" in (error.hint or "")
    assert "canary-account" in caplog.text
    assert "canary-host" in caplog.text


def test_unreachable_hanging_or_invalid_server_is_retried(to: Make) -> None:
    with socket.socket() as away:
        away.bind(("127.0.0.1", 0))
        error = only_failure(deliver(settings_for(away.getsockname()[1], send_seconds=1), to()))
    assert not error.permanent
    assert isinstance(error.__cause__, OSError)
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        error = only_failure(deliver(settings_for(hanging.getsockname()[1], send_seconds=0.3), to()))
    assert not error.permanent
    assert isinstance(error.__cause__, OSError | TimeoutError)

    async def babble() -> DeliveryError:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 \x1b[31mBad\r\n\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            route = SINK.connect(settings_for(server.sockets[0].getsockname()[1]), None)  # type: ignore[arg-type]
            with pytest.raises(DeliveryError) as caught:
                await route.deliver(to())
            return caught.value

    error = asyncio.run(babble())
    assert not error.permanent
    assert error.message.isprintable()


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"smtp_host": ""}, "smtp_host"),
        ({"mail_from": ""}, "mail_from"),
        ({"mail_from": "nobody"}, "mail_from"),
        ({"mail_from": "a@b\r\nBcc: c@d"}, "mail_from"),
    ],
)
def test_missing_mail_settings_are_reported_and_mail_waits(to: Make, changed: dict[str, str], missing: str) -> None:
    error = only_failure(deliver(settings_for(1, **changed), to()))
    assert not error.permanent
    assert missing in str(error)


def test_invalid_stored_target_becomes_a_dead_letter(to: Make) -> None:
    error = only_failure(deliver(settings_for(1), to("a@b.example, c@d.example")))
    assert error.permanent


# --- targets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "canonical"),
    [
        ("me@mail.example", "me@mail.example"),
        ("  Me.Too+x@MAIL.Example ", "Me.Too+x@mail.example"),
        ("o'brien@mail.example", "o'brien@mail.example"),
        ("a-b|c-@mail.example", "a-b|c-@mail.example"),
        ("me@bücher.example", "me@xn--bcher-kva.example"),
        ("a" * 64 + "@mail.example", "a" * 64 + "@mail.example"),
    ],
)
def test_mail_targets_become_canonical(target: str, canonical: str) -> None:
    assert SINK.validate_target(target, Path()) == canonical
    assert SINK.validate_target(canonical, Path()) == canonical


@pytest.mark.parametrize(
    "target",
    [None, "", " ", "me", "@mail.example", "me@", "me@@mail.example", "a@b.example,c@d.example",
     "a@b.example; c@d.example", "a@b.example c@d.example", "Me <me@mail.example>", '"me"@mail.example',
     "me@[127.0.0.1]", "me@10.0.0.1", "me@localhost", "me(x)@mail.example", "me@mail.example\0",
     "me@mail.example\r\nBcc: all@mail.example", "me\u200b@mail.example", "mé@mail.example", "me@straße.example",
     "me@-mail.example", "me@mail..example", ".me@mail.example", "me.@mail.example", "me..too@mail.example",
     "a" * 65 + "@mail.example", "me@" + "a" * 64 + ".example", "me@" + "a." * 150 + "example",
     "other%mail.example@relay.example", "relay!me@mail.example", "me@mail.example>", "me\u202e@mail.example",
     "me@mail.\uff0eexample", "-oQ/tmp/x@mail.example", "-@mail.example", "|touch/tmp/x@mail.example",
     "|@mail.example"],
)  # fmt: skip
def test_invalid_mail_targets_are_refused(target: str | None) -> None:
    with pytest.raises(InputError) as caught:
        SINK.validate_target(target, Path())
    assert caught.value.hint
    assert str(caught.value).isprintable()
