"""The source for files and drop folders: reads new and changed documents every `scan_seconds`."""

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
    """Paths and `file://` URLs of files and folders on this machine. Only the admin may register them."""

    schemes = frozenset({"", "file"})

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        """Raise InputError for a URL without a usable path."""
        local_path(address, folder)

    def open(self, acquirer: Acquirer) -> DropFolderReader:
        """Return a reader for all files and folders."""
        return DropFolderReader(self, acquirer, "acquire")


class DropFolderReader(FeedReader):
    """Reads files whose size or time, and content, differ from the known state."""

    def documents(self, feed: Feed) -> Iterator[tuple[str, bytes]]:
        """Yield all documents at the address of a feed."""
        return (
            (document.state.path, document.data) for document in self.changed(feed, {}) if document.data is not None
        )

    def changed(self, feed: Feed, known: Mapping[str, DocumentState]) -> Iterator[SourceDocument]:
        """Yield the files that are new or changed. A file with known size and time is not opened."""
        limit = self.acquirer.settings.max_document_bytes
        for file in scan(local_path(feed.address or "", self.acquirer.folder), known, limit=limit):
            if not file.changed or file.problem is not None:
                yield SourceDocument(file.state, problem=file.problem)
                continue
            try:
                data = read_file(file.path, limit=limit)
            except InputError:
                continue
            if content_digest(data) == file.state.digest:  # else it is being written; the next round reads it
                yield SourceDocument(file.state, data)

    def is_there(self, name: str) -> bool:
        """Return whether a file exists. A name that is not UTF-8 is given as `scan` spells it, with `\\x` escapes."""
        path = Path(name)
        if "\\x" not in path.name or path.exists():
            return path.exists()
        try:
            names = [os.fsencode(entry.name) for entry in path.parent.iterdir()]
        except OSError:
            return False
        return path.name in {entry.decode("utf-8", "backslashreplace") for entry in names}
