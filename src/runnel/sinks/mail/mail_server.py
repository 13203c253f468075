"""The mail server: a few connections, kept and used again.

In: a mail with its sender and recipient. Out: what the server said when it took it; SMTPException otherwise. A
connection is encrypted where the settings say so, or not made at all. One that the server closed meanwhile is
replaced; that is noticed before the mail itself is sent, so nothing is sent twice for it.
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
"""Mails over one connection, after which it is replaced, before the server does that in the middle of one."""

_IDLE_SECONDS = 5.0
DATA_TIMES = 40
"""How many times `send_seconds` the data may take: with 15 the ten minutes that RFC 5321 §4.5.3.2.6 asks for. Who
gives up sooner sends a mail again that the server was about to take."""
_STALE_SECONDS = 60.0
_TOO_LARGE = 552


class LostInDataError(SMTPException, OSError):
    """The connection was lost while the mail was sent, so the server may have taken it.

    It is no ConnectionError: that says that the server has not got the mail.
    """


@dataclass(frozen=True, slots=True)
class Sent:
    """That the server took a mail, and its words."""

    said: str


@dataclass(slots=True)
class _Line:
    """A connection, how many mails went over it, and since when it rests."""

    client: SMTP
    mails: int = 0
    resting: float = 0.0


class MailServer:
    """Connections to the mail server of the settings; for one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free = asyncio.Semaphore(settings.send_host_concurrency)
        self._resting: list[_Line] = []
        self._closed = False

    async def send(self, sender: str, recipient: str, mail: bytes) -> Sent:
        """Hand a mail over. Waiting for a connection takes as long as it takes; each step has `send_seconds`,

        but for the last, in which a server looks at the mail before it says that it has it.
        """
        async with self._free:
            line = await self._line()
            try:
                try:
                    await self._begin(line, sender, mail)
                except SMTPServerDisconnected:
                    # The server may have closed a kept connection at any time; a fresh one tells the truth.
                    if not line.mails:
                        raise
                    line = await self._connect()
                    await self._begin(line, sender, mail)
                await line.client.rcpt(recipient)
                try:
                    answer = await line.client.data(mail, timeout=self._settings.send_seconds * DATA_TIMES)
                except ConnectionError as error:
                    raise LostInDataError(str(error)) from None
                line.mails += 1
                self._rest(line)
                return Sent(f"{answer.code} {answer.message}")
            except SMTPException:
                await self._reset(line)
                raise
            except BaseException:
                line.client.close()
                raise

    async def close(self) -> None:
        """End all connections politely, without waiting long for it."""
        self._closed = True
        lines, self._resting = self._resting, []
        for line in lines:
            await self._quit(line)

    async def _line(self) -> _Line:
        """A connection that works: one that rested, or a new one."""
        while self._resting:
            line = self._resting.pop()
            rested = time.monotonic() - line.resting
            if not line.client.is_connected or rested > _STALE_SECONDS:
                await self._quit(line)
                continue
            try:
                if rested > _IDLE_SECONDS:
                    await line.client.noop()
                return line
            except (SMTPException, OSError):
                line.client.close()
        return await self._connect()

    async def _connect(self) -> _Line:
        settings = self._settings
        client = SMTP(
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            username=settings.smtp_user or None,
            password=settings.smtp_password if settings.smtp_user else None,
            local_hostname=settings.mail_from.rpartition("@")[2].strip("> ") or "localhost",
            timeout=settings.send_seconds,
            use_tls=settings.smtp_security == "tls",
            # True, not None: without STARTTLS on the other side there is no connection, and no password sent.
            start_tls=settings.smtp_security == "starttls",
        )
        await client.connect()
        with suppress(SMTPHeloError):  # a very old server: it is greeted in the old way when the mail begins
            if client.is_ehlo_or_helo_needed:
                await client.ehlo()
        return _Line(client)

    async def _begin(self, line: _Line, sender: str, mail: bytes) -> None:
        """MAIL FROM, with the size where the server wants to know it."""
        limit = line.client.esmtp_extensions.get("size", "")
        if limit.isascii() and limit.isdigit() and 0 < int(limit) < len(mail):
            raise SMTPSenderRefused(_TOO_LARGE, f"the limit is {int(limit):,} bytes", sender)
        options = [f"SIZE={len(mail)}"] if line.client.supports_extension("size") else []
        await line.client.mail(sender, options=options)

    async def _reset(self, line: _Line) -> None:
        """Make a connection usable after a refusal: one refused recipient costs the others nothing."""
        try:
            if line.client.is_connected:
                await line.client.rset()
                line.mails += 1
                self._rest(line)
        except (SMTPException, OSError):
            line.client.close()

    def _rest(self, line: _Line) -> None:
        if self._closed or line.mails >= MAILS or not line.client.is_connected:
            line.client.close()
            return
        line.resting = time.monotonic()
        self._resting.append(line)

    async def _quit(self, line: _Line) -> None:
        with suppress(SMTPException, OSError):
            if line.client.is_connected:
                await line.client.quit(timeout=2)
        line.client.close()
