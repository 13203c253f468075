"""Compose mails: headers, parts and encodings.

In: a delivery, its Rendered form and the sender. Out: a message according to RFC 5322, in ASCII with CRLF. The
Message-ID is derived from the key of the message, so that recipients recognize a mail that is sent twice. Untrusted
text is reduced to one clean line before it becomes part of a header, so a title or name cannot add a header or a
recipient.
"""

from __future__ import annotations

import re
from email.headerregistry import Address, BaseHeader, HeaderRegistry
from email.message import EmailMessage
from email.policy import SMTP, EmailPolicy, Policy
from email.utils import format_datetime
from hashlib import blake2b
from typing import Any, ClassVar, Literal

from runnel.sinks.contract import ConfirmationRequest, Delivery
from runnel.sinks.mail.confirmation_text import confirmation_text
from runnel.sinks.mail.mail_html import one_line
from runnel.sinks.mail.render_mail import Rendered, unsubscribe_link

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,100}")
_OURS = ("date", "message-id", "list-id", "list-unsubscribe", "list-unsubscribe-post", "auto-submitted", "precedence")


class _Whole(BaseHeader):
    """A header that is written unchanged. A link that is folded or encoded would not work."""

    max_count: ClassVar[Literal[1]] = 1

    @classmethod
    def parse(cls, value: str, kwds: dict[str, Any]) -> None:
        kwds["parse_tree"], kwds["decoded"] = None, value

    def fold(self, *, policy: Policy) -> str:
        return f"{self.name}: {self}{policy.linesep}"


def _policy() -> EmailPolicy[EmailMessage]:
    registry = HeaderRegistry()
    for name in _OURS:
        registry.map_to_type(name, _Whole)
    return SMTP.clone(header_factory=registry)


_POLICY = _policy()


def compose_mail(delivery: Delivery, rendered: Rendered, sender: Address, recipient: str) -> bytes:
    """Compose the whole mail."""
    name, _, domain = recipient.rpartition("@")
    message = EmailMessage(policy=_POLICY)
    message["From"] = sender
    message["To"] = Address(username=name, domain=domain)
    message["Subject"] = _subject(rendered.subject)
    message["Date"] = format_datetime(delivery.sent)
    message["Message-ID"] = f"<{_label(delivery.key)}@{sender.domain}>"
    message["List-Id"] = f"<{_label(delivery.feed_name)}.feeds.{sender.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["Precedence"] = "bulk"
    link = unsubscribe_link(delivery)
    if link is not None:
        message["List-Unsubscribe"] = f"<{link}>"
        if link.startswith("https:"):  # RFC 8058 requires https
            message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    message.set_content(rendered.text, cte="quoted-printable")
    if rendered.html is not None:
        message.add_alternative(rendered.html, subtype="html", cte="quoted-printable")
    if rendered.attachment is not None:
        main, _, sub = rendered.attachment.media_type.partition("/")
        message.add_attachment(
            rendered.attachment.data, maintype=main, subtype=sub, filename=rendered.attachment.name
        )
    return message.as_bytes()


def compose_confirmation(request: ConfirmationRequest, sender: Address, recipient: str) -> bytes:
    """Compose the mail that asks a recipient to confirm, in plain text."""
    name, _, domain = recipient.rpartition("@")
    message = EmailMessage(policy=_POLICY)
    message["From"] = sender
    message["To"] = Address(username=name, domain=domain)
    message["Subject"] = "Confirm messages to your address"
    message["Date"] = format_datetime(request.sent)
    message["Message-ID"] = f"<{_label(request.key)}@{sender.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(confirmation_text(request), cte="quoted-printable")
    return message.as_bytes()


def _subject(text: str) -> str:
    """Return a text as one line in which nothing is decoded as an encoded word."""
    return one_line(text.replace("=?", "= ?"), 200) or "News"


def _label(text: str) -> str:
    """Return a text as part of an identifier, or its digest if it contains other characters.

    >>> _label("1f-2-3"), len(_label("Müsli@all"))
    ('1f-2-3', 32)
    """
    if _SAFE.fullmatch(text):
        return text
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
