"""The text of the mail that asks a recipient to confirm.

An owner may choose any address, so this mail must be useless for spam. It is plain text without items. The only text
chosen by the owner is the name of a feed, without characters that form links.
"""

from __future__ import annotations

import textwrap

from runnel.sinks.contract import ConfirmationRequest
from runnel.sinks.mail.render_mail import WIDTH

_LONGEST_NAME = 40


def confirmation_text(request: ConfirmationRequest) -> str:
    """Return the text of the mail."""
    owner, feed = plain_name(request.owner_name), plain_name(request.feed_name)
    until = f"{request.expires.day} {request.expires:%B} {request.expires.year}"
    asks = (
        f'{owner}, a user of this Runnel server, wants to send messages about "{feed}" to this address. '
        "Nothing is sent unless you agree."
    )
    if request.link is None:
        agree = ["To agree, give this code to the person who sent the request:", f"    {request.challenge}"]
    else:
        agree = ["To agree, open this page and press the button:", request.link]
    ignore = f"If you do not know what this is about, ignore this mail. The request ends on {until}."
    refuse = (
        []
        if request.refuse is None
        else ["To stop all mail from this server, including requests like this one, open:", request.refuse]
    )
    parts = [_wrapped(asks), *agree, _wrapped(ignore), *refuse]
    return "\n\n".join(parts) + "\n"


def plain_name(name: str) -> str:
    """Remove everything from a name that a mail program would treat as a link, an address or markup.

    >>> plain_name("Win now: https://spy.example/?x=1 me@spy.example")
    'Win now https spy example x 1 me spy ex…'
    """
    cleaned = "".join(
        character if character.isalnum() or character in "_-" else " " for character in name[: 4 * _LONGEST_NAME]
    )
    line = " ".join(cleaned.split())
    return (line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…") or "unnamed"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))
