"""A real SMTP server on loopback with a mind of its own, for the tests of mail."""

from __future__ import annotations

import asyncio
import email
import email.policy
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from runnel.errors import DeliveryError
from runnel.settings import Settings
from runnel.sinks.contract import Delivery
from runnel.sinks.mail.mail_sink import MailSink

SINK = MailSink()


@dataclass
class Post:
    """A server's mind: what it took, from whom, and whom it refuses."""

    refuse: dict[str, str] = field(default_factory=dict)
    data_answer: str = "250 OK taken"
    taken: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    sessions: dict[int, Session] = field(default_factory=dict)  # kept, so that no two have the same id
    ends_after: int = 10**9
    most_at_once: int = 0
    at_once: int = 0
    delay: float = 0.0

    async def handle_RCPT(  # noqa: N802 - the server's name for it
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.sessions[id(session)] = session
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.delay)
        self.at_once -= 1
        if self.data_answer.startswith("250"):
            content = envelope.original_content
            assert isinstance(content, bytes)
            self.taken.append((envelope.mail_from or "", list(envelope.rcpt_tos), content))
            if len(self.taken) % self.ends_after == 0:
                assert server.transport is not None
                asyncio.get_running_loop().call_later(0.02, server.transport.close)
        return self.data_answer

    def mails(self) -> list[EmailMessage]:
        mails = [email.message_from_bytes(content, policy=email.policy.default) for _, _, content in self.taken]
        return [mail for mail in mails if isinstance(mail, EmailMessage)]


class FreePortController(Controller):
    """A controller that listens on a free port of loopback and then knows which."""

    def __init__(self, handler: Any, **options: Any) -> None:
        super().__init__(handler, hostname="127.0.0.1", ready_timeout=60.0, **options)

    def _create_server(self) -> Coroutine[Any, Any, asyncio.AbstractServer]:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(listening.getsockname()[1])
        return self.loop.create_server(self._factory_invoker, sock=listening, ssl=self.ssl_context)


@contextmanager
def serving(post: Any, **options: Any) -> Iterator[int]:
    """A server with that handler; gives its port."""
    controller = FreePortController(post, **options)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


def settings_for(port: int, **changed: Any) -> Settings:
    given = {
        "smtp_host": "127.0.0.1",
        "smtp_port": port,
        "smtp_security": "none",
        "mail_from": "Runnel <runnel@muse.example>",
        "send_seconds": 60,
    }
    return Settings.load(Path("/nowhere"), **(given | changed))


def deliver(settings: Settings, *deliveries: Delivery, one_by_one: bool = True) -> list[Any]:
    """Send deliveries over one route; gives the outcome or the error of each."""

    async def run() -> list[Any]:
        route = SINK.connect(settings, None)  # type: ignore[arg-type]  # mail does not go through the door
        outcomes: list[Any] = []
        if one_by_one:
            for delivery in deliveries:
                outcomes += await asyncio.gather(route.deliver(delivery), return_exceptions=True)
        else:
            outcomes += await asyncio.gather(*map(route.deliver, deliveries), return_exceptions=True)
        await route.close()
        return outcomes

    return asyncio.run(run())


def only_failure(outcomes: list[Any]) -> DeliveryError:
    (outcome,) = outcomes
    assert isinstance(outcome, DeliveryError)
    return outcome
