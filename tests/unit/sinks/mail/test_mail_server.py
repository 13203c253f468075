"""Connections to a real SMTP server: used again, replaced, encrypted, logged in."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from tests.unit.sinks.mail.smtp_server import SINK, Post, deliver, only_failure, serving, settings_for

from runnel.settings import Settings
from runnel.sinks.mail import mail_server

Make = Callable[..., Any]


# --- connections -------------------------------------------------------------------------------------------------


def test_connections_are_limited_and_reused(to: Make) -> None:
    post = Post(delay=0.01)
    many = [to(key=f"k-{number}") for number in range(40)]
    with serving(post) as port:
        outcomes = deliver(settings_for(port, send_host_concurrency=3), *many, one_by_one=False)
    assert all(isinstance(outcome, str) for outcome in outcomes)
    assert post.most_at_once <= 3
    assert len(post.sessions) <= 3
    assert sorted(mail["Message-ID"] for mail in post.mails()) == sorted(
        f"<k-{number}@muse.example>" for number in range(40)
    )


def test_a_connection_that_the_server_closed_is_replaced(to: Make) -> None:
    post = Post(ends_after=1)

    async def run(settings: Settings) -> list[str]:
        route = SINK.connect(settings, None)  # type: ignore[arg-type]
        outcomes = []
        for number in range(3):
            outcomes.append(await route.deliver(to(key=f"k-{number}")))
            await asyncio.sleep(0.1)
        await route.close()
        return outcomes

    with serving(post) as port:
        outcomes = asyncio.run(run(settings_for(port)))
    assert len(outcomes) == len(post.taken) == len(post.sessions) == 3


def test_connection_closed_at_the_start_of_a_mail_is_replaced(to: Make) -> None:
    class Hasty(Post):
        async def handle_MAIL(  # noqa: N802
            self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
        ) -> str:
            if id(session) in self.sessions:
                assert server.transport is not None
                server.transport.close()
            envelope.mail_from = address
            return "250 OK"

    post = Hasty()
    with serving(post) as port:
        outcomes = deliver(settings_for(port), *(to(key=f"k-{number}") for number in range(3)))
    assert all(isinstance(outcome, str) for outcome in outcomes)
    assert [mail["Message-ID"] for mail in post.mails()] == [f"<k-{number}@muse.example>" for number in range(3)]
    assert len(post.sessions) == 3


def test_idle_connection_is_checked_and_much_used_connection_is_replaced(
    to: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_server, "_IDLE_SECONDS", -1.0)
    monkeypatch.setattr(mail_server, "MAILS", 2)
    post = Post()
    with serving(post) as port:
        outcomes = deliver(settings_for(port), *(to(key=f"k-{number}") for number in range(5)))
    assert all(isinstance(outcome, str) for outcome in outcomes)
    assert len(post.sessions) == 3


def test_a_stale_connection_is_not_used(to: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_server, "_STALE_SECONDS", -1.0)
    post = Post()
    with serving(post) as port:
        deliver(settings_for(port), to(), to())
    assert len(post.sessions) == 2


def test_canceled_sender_releases_its_connection_slot(to: Make) -> None:
    post = Post(delay=30.0)

    async def run(settings: Settings) -> str:
        route = SINK.connect(settings, None)  # type: ignore[arg-type]
        task = asyncio.create_task(route.deliver(to()))
        while not post.at_once:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        post.delay = 0.0
        outcome = await route.deliver(to(key="k-2"))
        await route.close()
        return outcome

    with serving(post) as port:
        assert asyncio.run(run(settings_for(port, send_host_concurrency=1))).startswith("the mail server accepted")
    assert [mail["Message-ID"] for mail in post.mails()] == ["<k-2@muse.example>"]


# --- privacy and logins ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key and a certificate for `localhost` that nobody signed but itself."""
    folder = tmp_path_factory.mktemp("tls")
    key, own = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(own), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    return key, own


def server_side(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])
    return context


class Doorkeeper:
    """Knows one person."""

    def __call__(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        known = isinstance(data, LoginPassword) and (data.login, data.password) == (b"runnel", b"secret")
        return AuthResult(success=known, handled=False)


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_is_encrypted_if_the_certificate_is_trusted(
    to: Make,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    security: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    post = Post()
    context = server_side(certificate)
    options: dict[str, Any] = (
        {"tls_context": context, "require_starttls": True} if security == "starttls" else {"ssl_context": context}
    )
    with serving(post, **options) as port:
        settings = settings_for(port, smtp_host="localhost", smtp_security=security)
        error = only_failure(deliver(settings, to()))
        assert not error.permanent
        assert "certificate" in caplog.text.lower()
        assert post.taken == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
        assert isinstance(deliver(settings, to())[0], str)
    assert len(post.taken) == 1


def test_connection_without_required_encryption_fails(to: Make, caplog: pytest.LogCaptureFixture) -> None:
    post = Post()
    with serving(post, authenticator=Doorkeeper(), auth_require_tls=False) as port:
        settings = settings_for(port, smtp_security="starttls", smtp_user="runnel", smtp_password="secret")
        error = only_failure(deliver(settings, to()))
    assert not error.permanent
    assert "STARTTLS" in caplog.text
    assert "smtp_security" in str(error.hint)
    assert post.taken == []
    assert not post.sessions


def test_login_is_used_and_wrong_login_is_reported(
    to: Make, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    post = Post()
    known = {"smtp_host": "localhost", "smtp_security": "starttls", "smtp_user": "runnel"}
    with serving(post, tls_context=server_side(certificate), authenticator=Doorkeeper(), auth_required=True) as port:
        assert isinstance(deliver(settings_for(port, **known, smtp_password="secret"), to())[0], str)
        error = only_failure(deliver(settings_for(port, **known, smtp_password="guess-me-not"), to()))
    assert not error.permanent
    assert "smtp_password" in str(error.hint)
    assert "guess-me-not" not in str(error)
    assert len(post.taken) == 1
