"""Files and drop folders as a source: their new and changed documents, every `scan_seconds`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from runnel.catalog.polling.source_files import DocumentState
from runnel.errors import InputError
from runnel.model.feed import Feed
from runnel.settings import Settings
from runnel.sources.acquire import Acquirer
from runnel.sources.contract import Source
from runnel.sources.drop_folder import read_file, scan
from runnel.sources.feed_address import local_path
from runnel.sources.feed_reader import FeedReader, SourceDocument, content_digest


class DropFolders(Source):
    """Paths and `file://` URLs of files and folders on this machine, which only the admin may name."""

    schemes = frozenset({"", "file"})

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        """Refuse a URL without a usable path."""
        local_path(address, folder)

    def open(self, acquirer: Acquirer) -> DropFolderReader:
        """A reader of all files and folders."""
        return DropFolderReader(self, acquirer, "acquire")


class DropFolderReader(FeedReader):
    """Reads files whose size, time and content are not the known ones."""

    def documents(self, feed: Feed) -> Iterator[tuple[str, bytes]]:
        """All documents at the address of a feed."""
        return ((one.state.path, one.data) for one in self.changed(feed, {}) if one.data is not None)

    def changed(self, feed: Feed, known: Mapping[str, DocumentState]) -> Iterator[SourceDocument]:
        """The files that are new or changed; the content of a file whose size and time are known is not read."""
        limit = self.acquirer.settings.max_document_bytes
        for file in scan(local_path(feed.address or "", self.acquirer.folder), known, limit=limit):
            if not file.changed or file.problem is not None:
                yield SourceDocument(file.state, problem=file.problem)
                continue
            try:
                data = read_file(file.path, limit=limit)
            except InputError:
                continue
            if content_digest(data) == file.state.digest:  # otherwise it is changing, and the next round reads it
                yield SourceDocument(file.state, data)

    def is_there(self, name: str) -> bool:
        """Whether a file is there; one whose name is not UTF-8 is known by the spelling that `scan` gave it."""
        path = Path(name)
        if "\\x" not in path.name or path.exists():
            return path.exists()
        try:
            names = [os.fsencode(one.name) for one in path.parent.iterdir()]
        except OSError:
            return False
        return path.name in {one.decode("utf-8", "backslashreplace") for one in names}
