"""Connections to the mail server, which are kept and reused.

In: a mail with its sender and recipient. Out: the response of the server that accepted it; otherwise SMTPException.
If the settings require encryption, there is no unencrypted connection. A connection that the server closed is
replaced before the mail itself is sent, so nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from aiosmtplib import SMTP
from aiosmtplib.errors import SMTPException, SMTPHeloError, SMTPSenderRefused, SMTPServerDisconnected

from runnel.settings import Settings

MAILS = 100
"""Number of mails after which a connection is replaced, before the server closes it in the middle of a mail."""

_IDLE_SECONDS = 5.0
DATA_TIMES = 40
"""Time limit for the data, as a multiple of `send_seconds`: with 15 seconds, the ten minutes that RFC 5321 §4.5.3.2.6
requires.

With a shorter limit, a mail that the server is about to accept would be sent again.
"""
_STALE_SECONDS = 60.0
_TOO_LARGE = 552


class LostInDataError(SMTPException, OSError):
    """The connection was lost while the mail was sent, so the server may have accepted it.

    It is not a ConnectionError, which means that the server has not received the mail.
    """


@dataclass(frozen=True, slots=True)
class Sent:
    """The server's response to a mail that it accepted."""

    said: str


@dataclass(slots=True)
class _ServerConnection:
    """A connection, the number of mails sent over it, and since when it is idle."""

    client: SMTP
    mails: int = 0
    idle_since: float = 0.0


class MailServer:
    """Connections to the mail server of the settings, for one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free = asyncio.Semaphore(settings.send_host_concurrency)
        self._idle: list[_ServerConnection] = []
        self._closed = False

    async def send(self, sender: str, recipient: str, mail: bytes) -> Sent:
        """Send a mail.

        Waiting for a connection has no time limit. Each step has `send_seconds`, except for the data, which the
        server may check before it responds.
        """
        async with self._free:
            connection = await self._take_connection()
            try:
                try:
                    await self._begin(connection, sender, mail)
                except SMTPServerDisconnected:
                    # The server may have closed an idle connection, so try again with a new one.
                    if not connection.mails:
                        raise
                    connection = await self._connect()
                    await self._begin(connection, sender, mail)
                await connection.client.rcpt(recipient)
                try:
                    answer = await connection.client.data(mail, timeout=self._settings.send_seconds * DATA_TIMES)
                except ConnectionError as error:
                    raise LostInDataError(str(error)) from None
                connection.mails += 1
                self._release(connection)
                return Sent(f"{answer.code} {answer.message}")
            except SMTPException:
                await self._reset(connection)
                raise
            except BaseException:
                connection.client.close()
                raise

    async def close(self) -> None:
        """Close all connections with a short time limit."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._quit(connection)

    async def _take_connection(self) -> _ServerConnection:
        """Return an idle connection that still works, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            idle_seconds = time.monotonic() - connection.idle_since
            if not connection.client.is_connected or idle_seconds > _STALE_SECONDS:
                await self._quit(connection)
                continue
            try:
                if idle_seconds > _IDLE_SECONDS:
                    await connection.client.noop()
                return connection
            except (SMTPException, OSError):
                connection.client.close()
        return await self._connect()

    async def _connect(self) -> _ServerConnection:
        settings = self._settings
        client = SMTP(
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            username=settings.smtp_user or None,
            password=settings.smtp_password if settings.smtp_user else None,
            local_hostname=settings.mail_from.rpartition("@")[2].strip("> ") or "localhost",
            timeout=settings.send_seconds,
            use_tls=settings.smtp_security == "tls",
            # True, not None: if the server does not support STARTTLS, fail without sending the password.
            start_tls=settings.smtp_security == "starttls",
        )
        await client.connect()
        with suppress(SMTPHeloError):  # a very old server is greeted with HELO when the mail begins
            if client.is_ehlo_or_helo_needed:
                await client.ehlo()
        return _ServerConnection(client)

    async def _begin(self, connection: _ServerConnection, sender: str, mail: bytes) -> None:
        """Send MAIL FROM, with the size if the server supports it."""
        limit = connection.client.esmtp_extensions.get("size", "")
        if limit.isascii() and limit.isdigit() and 0 < int(limit) < len(mail):
            raise SMTPSenderRefused(_TOO_LARGE, f"the limit is {int(limit):,} bytes", sender)
        options = [f"SIZE={len(mail)}"] if connection.client.supports_extension("size") else []
        await connection.client.mail(sender, options=options)

    async def _reset(self, connection: _ServerConnection) -> None:
        """Make a connection usable after a refusal, so that one refused recipient does not affect others."""
        try:
            if connection.client.is_connected:
                await connection.client.rset()
                connection.mails += 1
                self._release(connection)
        except (SMTPException, OSError):
            connection.client.close()

    def _release(self, connection: _ServerConnection) -> None:
        if self._closed or connection.mails >= MAILS or not connection.client.is_connected:
            connection.client.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    async def _quit(self, connection: _ServerConnection) -> None:
        with suppress(SMTPException, OSError):
            if connection.client.is_connected:
                await connection.client.quit(timeout=2)
        connection.client.close()
