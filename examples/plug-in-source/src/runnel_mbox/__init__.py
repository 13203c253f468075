"""`register feed 'mbox:///var/mail/list' as Mails`: the mails of an mbox file are the items of a feed."""

from __future__ import annotations

import json
import mailbox
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

from runnel.errors import InputError
from runnel.model.feed import Feed
from runnel.settings import Settings
from runnel.sources.acquire import Acquirer
from runnel.sources.contract import Source
from runnel.sources.feed_reader import FeedReader


class Mailboxes(Source):
    """Mbox files on this machine, which only the admin may name."""

    schemes = frozenset({"mbox"})

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        """Refuse an address without a path."""
        _path(address)

    def open(self, acquirer: Acquirer) -> MailboxReader:
        """A reader of all mailboxes."""
        return MailboxReader(self, acquirer, "mbox")


class MailboxReader(FeedReader):
    """Reads mailboxes every `scan_seconds`; one that did not change is passed over."""

    def documents(self, feed: Feed) -> Iterator[tuple[str, bytes]]:
        """A mailbox as one document of JSON lines. Runnel reads it, and knows each mail by its id."""
        path = _path(feed.address or "")
        if not path.is_file():
            raise InputError("there is no such mailbox", place=str(path), hint="check the path and its permissions")
        with closing(mailbox.mbox(path, create=False)) as mails:
            lines = [
                json.dumps({"id": mail["Message-ID"], "title": mail["Subject"], "author": mail["From"]})
                for mail in mails
                if mail["Message-ID"]
            ]
        yield f"{path}.jsonl", "\n".join(lines).encode()


def _path(address: str) -> Path:
    path = Path(unquote(address.partition("://")[2]))
    if not path.is_absolute() or "\0" in str(path):
        raise InputError("an mbox:// URL must have an absolute path", place=address[:80], hint="write mbox:///path")
    return path
