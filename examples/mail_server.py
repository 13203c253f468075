"""A mail server, a workspace and a message in one process. The server comes from the package `aiosmtpd`.

Run it with `python examples/mail_server.py`.
"""

from __future__ import annotations

import email
import email.policy
import socket
import tempfile
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller

import runnel

mails: list[EmailMessage] = []


class Mailbox:
    """Keep every mail that arrives."""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        """Accept one mail."""
        mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 OK"


def main() -> None:
    """Subscribe an address, publish an item, run once, and show the mail that arrived."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Controller(Mailbox(), hostname="127.0.0.1", port=port)
    server.start()
    with (
        tempfile.TemporaryDirectory() as folder,
        runnel.connect(
            folder,
            smtp_host="127.0.0.1",
            smtp_port=port,
            smtp_security="none",
            mail_from="Runnel <runnel@muse.example>",
        ) as engine,
    ):
        engine.execute("register feed Wire; subscribe to Wire output mail 'me@mail.example';")
        engine.publish("Wire", [{"id": "1", "title": "Muse on tour", "link": "https://muse.example/tour"}])
        engine.run(once=True)
    server.stop()
    (mail,) = mails
    print(f"to {mail['To']}: {mail['Subject']}")


if __name__ == "__main__":
    main()
