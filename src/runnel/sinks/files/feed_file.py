"""Feed files: a file that is at all times a valid feed of the newest entries.

In: a delivery. Out: the file at its target with the items added, replaced atomically. The file itself is the state:
each entry contains the item and version that it shows, so a repeated delivery has no effect. A file that Runnel did
not write is renamed, never overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runnel.sinks.contract import Delivery, LocalSink
from runnel.sinks.files.feed_entries import FeedEntry, FeedFormat, FeedHead, ForeignFileError, head_of, merge, show
from runnel.sinks.files.render_atom import Atom
from runnel.sinks.files.render_json_feed import JsonFeed
from runnel.sinks.files.render_rss import Rss
from runnel.sinks.files.targets import TargetFile, check_target, open_target
from runnel.sinks.files.whole_file import exists, read_whole, rename_aside, replace_whole

MAX_FILE = 64 << 20
"""Maximum size of a file in bytes. Runnel drops the oldest entries to stay below it, so it did not write a larger
file.
"""


class _FeedFile(LocalSink):
    """The common part of the three formats."""

    owns_target = True
    keeps_newest = True
    _format: FeedFormat

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Return the path of the file below the workspace's out folder."""
        return check_target(target, folder / "out", allowed)

    def deliver(self, delivery: Delivery) -> str:
        """Add the items to the file."""
        with open_target(delivery.subscription.target, delivery.out, delivery.allowed) as file:
            present, aside = self._present(file)
            arriving = [self._format.entry(show(item, delivery.sent)) for item in delivery.items]
            entries = merge(present or (), arriving, delivery.max_entries)
            if present is not None and _shows(entries) == _shows(present):
                return "nothing new"
            replace_whole(file, self._bounded(head_of(delivery), entries))
        known = _shows(present or ())
        added = sum(shown not in known for shown in _shows(entries))
        note = f"; the file that was there is now {aside}" if aside else ""
        return f"{added} new of {len(entries)} entries in {file.path.name}{note}"

    def _bounded(self, head: FeedHead, entries: Sequence[FeedEntry]) -> bytes:
        data = self._format.render(head, entries)
        while len(data) > MAX_FILE and entries:
            entries = entries[: len(entries) // 2]
            data = self._format.render(head, entries)
        return data

    def _present(self, file: TargetFile) -> tuple[list[FeedEntry] | None, str | None]:
        """Return the entries of the file, or None if there is no file of ours, and the new name of a foreign file."""
        data = read_whole(file, MAX_FILE)
        try:
            if data is not None:
                return self._format.read(data), None
        except ForeignFileError:
            return None, rename_aside(file)
        return None, rename_aside(file) if exists(file) else None


def _shows(entries: Sequence[FeedEntry]) -> list[tuple[str, int]]:
    return [(entry.id, entry.version) for entry in entries]


class RssFile(_FeedFile):
    """A file in RSS 2.0."""

    kind = "rss"
    _format = Rss()


class AtomFile(_FeedFile):
    """A file in Atom 1.0."""

    kind = "atom"
    _format = Atom()


class JsonFeedFile(_FeedFile):
    """A file in JSON Feed 1.1."""

    kind = "json"
    _format = JsonFeed()
