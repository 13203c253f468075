"""The mail sink: digests for people, sent through the workspace's mail server.

In: a delivery. Out: one mail to one address, accepted by the server, or DeliveryError. If the server refuses the
recipient or the mail permanently (5xx), the message becomes a dead letter. If the server is unreachable or refuses
temporarily (4xx), the message is retried. The admin chooses the server, so unlike all other addresses it may be
private.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from email.headerregistry import Address
from pathlib import Path
from typing import TYPE_CHECKING

from aiosmtplib.errors import (
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)

from runnel.errors import DeliveryError, InputError
from runnel.model.subscription import Subscription
from runnel.settings import Settings
from runnel.sinks.contract import ConfirmationRequest, ConfirmingSink, Delivery, Route
from runnel.sinks.mail.compose_mail import compose_confirmation, compose_mail
from runnel.sinks.mail.mail_address import certain_mailbox_of, check_address, mailbox_of, sender_of
from runnel.sinks.mail.mail_html import one_line
from runnel.sinks.mail.mail_server import DATA_TIMES, LostInDataError, MailServer, Sent
from runnel.sinks.mail.render_mail import render_mail

if TYPE_CHECKING:
    from runnel.net.http_client import HttpClient

logger = logging.getLogger("runnel")

_TOO_LARGE = 552
_SHOWN = 300


class MailSink(ConfirmingSink):
    """A digest by mail, as text and HTML."""

    kind = "mail"
    takes_content = True
    answers_later = True
    patience = DATA_TIMES + 4.0
    """The time limit of a whole mail, as a multiple of `send_seconds`; see DATA_TIMES."""

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Return the address in canonical form."""
        return check_address(target)

    def host(self, target: str) -> str:
        """Return one queue for all mail. While the mail server hangs, mail must not block other messages."""
        return "mail"

    def recipient(self, target: str) -> str:
        """Return the mailbox: variants in case, dots and plus reach the same person."""
        return mailbox_of(target)

    def refuser(self, target: str) -> str:
        """Return the mailbox of the spellings that certainly lead to it."""
        return certain_mailbox_of(target)

    def domain(self, target: str) -> str:
        """Return the domain of the address."""
        return target.rpartition("@")[2]

    def messages_per_hour(self, settings: Settings) -> int:
        """Return the limit for mail."""
        return settings.owner_mails_per_hour

    def connect(self, settings: Settings, client: HttpClient) -> MailRoute:
        """Open a route to the mail server of the settings."""
        return MailRoute(settings)


class MailRoute(Route):
    """Sends mails over a few connections that it keeps open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server = MailServer(settings)

    async def deliver(self, delivery: Delivery) -> str:
        """Send a mail."""
        if delivery.content is None and not delivery.items:
            return "nothing to send: the output of the stylesheet has no entries"
        if delivery.content is not None and not delivery.content.data.strip():
            return "nothing to send: the output of the stylesheet is empty"
        sender = self._sender()
        recipient = _recipient(delivery.subscription)
        # Render in a thread: a large digest would block the event loop.
        mail = await asyncio.to_thread(lambda: compose_mail(delivery, render_mail(delivery), sender, recipient))
        return _outcome(await self._send(sender, recipient, mail), len(mail))

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Send a mail that asks for confirmation. The answer comes later."""
        sender = self._sender()
        recipient = _recipient(request.subscription)
        await self._send(sender, recipient, compose_confirmation(request, sender, recipient), is_quoted=False)
        return False

    async def _send(self, sender: Address, recipient: str, mail: bytes, *, is_quoted: bool = True) -> Sent:
        try:
            return await self._server.send(sender.addr_spec, recipient, mail)
        except (SMTPException, OSError, ValueError) as error:
            raise _failure(error, recipient, len(mail), is_quoted=is_quoted) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    def _sender(self) -> Address:
        """Return the sender. If no sender or server is configured, raise an error, so that mail waits."""
        if not self._settings.smtp_host:
            raise DeliveryError(
                "no mail server is configured", hint="ask the admin to set smtp_host and the other smtp settings"
            )
        if not self._settings.mail_from:
            raise DeliveryError(
                "no sender of mail is configured", hint="ask the admin to set mail_from, such as 'Runnel <name@host>'"
            )
        try:
            return sender_of(self._settings.mail_from)
        except InputError as error:
            raise DeliveryError(f"the setting mail_from is not valid: {error.message}", hint=error.hint) from error


def _failure(error: Exception, recipient: str, size: int, *, is_quoted: bool) -> DeliveryError:
    """Return the error for a failure of the mail server.

    If the response is not quoted, only its code is shown: a server may repeat the mail, and thus the challenge.
    """
    reply = _server_reply(error, is_quoted=is_quoted)
    match error:
        case SMTPRecipientRefused(code=code) if code >= 500:
            return DeliveryError(f"the mail server refused {recipient}: {reply}", permanent=True)
        case SMTPDataError(code=code) | SMTPSenderRefused(code=code) if code == _TOO_LARGE:
            return _too_large(size, reply)
        case SMTPDataError(code=code) if code >= 500:
            return DeliveryError(f"the mail server refused the mail: {reply}", permanent=True)
        case SMTPSenderRefused(code=code) if code >= 500:
            return _misconfigured("the mail server refused the sender", _server_reply(error), "mail_from")
        case SMTPAuthenticationError():
            return _misconfigured(
                "the mail server refused the login", _server_reply(error), "smtp_user and smtp_password"
            )
        case SMTPResponseException():
            return DeliveryError(f"the mail server rejected the mail temporarily: {reply}")
        case LostInDataError():
            return DeliveryError("the connection to the mail server was lost while the mail was sent")
        case _:
            settings = "smtp_host, smtp_port and smtp_security"
            return _misconfigured("the mail server cannot be used", one_line(str(error), _SHOWN), settings)


def _misconfigured(message: str, answer: str, settings: str) -> DeliveryError:
    """Return the error for a failure that only the admin can fix.

    The response may contain names of servers and accounts, so it goes to the application log and not to the ledger,
    where owners read why their mails failed.
    """
    logger.warning("%s: %s; check %s", message, answer, settings)
    return DeliveryError(
        message, hint=f"ask the admin to check {settings}; the server's response is in the application log"
    )


def _recipient(subscription: Subscription) -> str:
    """Return the target after checking it with the current rules."""
    try:
        return check_address(subscription.target)
    except InputError as error:
        raise DeliveryError(f"the target is not valid: {error}", permanent=True) from error


def _too_large(size: int, reply: str) -> DeliveryError:
    hint = "shorten the subscription's period, or apply a stylesheet with a shorter output"
    return DeliveryError(
        f"the mail of {size:,} bytes is too large for the mail server: {reply}", hint=hint, permanent=True
    )


def _server_reply(error: Exception, *, is_quoted: bool = True) -> str:
    """Return the server's response in one line, or only its code. It is empty if the server did not respond."""
    if not isinstance(error, SMTPResponseException):
        return ""
    return one_line(f"{error.code} {error.message}", _SHOWN) if is_quoted else str(error.code)


def _outcome(sent: Sent, size: int) -> str:
    return f"the mail server accepted {size:,} bytes: {one_line(sent.said, _SHOWN)}"
