"""Reads feeds one after the other. A source provides their documents, and each version of a document is read once.

In: the documents of a feed, by name. Out: the items of new or changed documents. The catalog records the state of
every document, so an unchanged document is not read again, and a problem is reported once.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from runnel.catalog.declared import feeds
from runnel.catalog.logs.quarantine import DOCUMENT, ITEM
from runnel.catalog.polling import source_files
from runnel.catalog.polling.source_files import DocumentState, SourceFile
from runnel.errors import BrokenDocumentError, FencedError, InputError, RunnelError, StorageFullError
from runnel.logs.items.item_log import Accepted
from runnel.model.feed import Feed, FeedKind
from runnel.sources.acquire import Acquirer, Acquisition
from runnel.sources.contract import Source, SourceReader
from runnel.sources.feed_address import scheme_of

logger = logging.getLogger("runnel")

_FIRST_READ_DONE = ""
"""The name of the row which records that a feed's address was read completely once. No document has this name."""


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document whose state differs from the known state. Without `data`, only state and problem are recorded."""

    state: DocumentState
    data: bytes | None = None
    problem: InputError | None = None


class FeedReader(SourceReader):
    """Reads the feeds of a source every `scan_seconds`. A subclass provides the `documents` of a feed."""

    def __init__(self, source: Source, acquirer: Acquirer, name: str) -> None:
        self.name = name
        self.acquirer = acquirer
        self.pause = acquirer.settings.scan_seconds
        self.has_period = source.has_period
        self._schemes = source.schemes

    @abstractmethod
    def documents(self, feed: Feed) -> Iterable[tuple[str, bytes]]:
        """Yield (name, content) of the documents at the address of a feed, or raise InputError if it cannot be read.

        The caller skips documents that did not change since the last round.
        """

    def changed(self, feed: Feed, known: Mapping[str, DocumentState]) -> Iterable[SourceDocument]:
        """Yield the documents that are new or differ from their known state."""
        try:
            for name, data in self.documents(feed):
                state = DocumentState(name, len(data), 0, content_digest(data))
                if known.get(name) != state:
                    yield SourceDocument(state, data)
        except RunnelError:
            raise
        except Exception as error:  # a plug-in may raise anything
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise InputError(
                f"the source failed: {type(error).__name__}: {reason}",
                place=feed.address,
                hint="check the address, or fix the plug-in",
            ) from error

    def is_there(self, name: str) -> bool:
        """Return whether a document with a recorded problem still exists."""
        return True

    def read(self, *, once: bool = False, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        with self.acquirer.catalog.read() as connection:
            sources = [
                feed
                for feed in feeds.live_feeds(connection)
                if feed.kind is FeedKind.SOURCE
                and feed.address
                and not feed.paused
                and scheme_of(feed.address) in self._schemes
            ]
        total = Acquisition()
        for feed in sources:
            if self.acquirer.lag() >= self.acquirer.settings.lag_limit:
                break
            try:
                total += self.read_feed(feed, progressed)
            except (StorageFullError, FencedError):
                raise
            except Exception:
                logger.exception("cannot read feed %s", feed.name)  # continue with the other feeds
        return total

    def read_feed(self, feed: Feed, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """Accept the items of the new and changed documents of one feed."""
        with self.acquirer.catalog.read() as connection:
            known = {file.state.path: file for file in source_files.known_files(connection, feed.id)}
        states = {path: file.state for path, file in known.items()}
        is_first = _FIRST_READ_DONE not in known
        total, read = Acquisition(), set[str]()
        try:
            for document in self.changed(feed, states):
                total += self._accept(feed, document, is_first)
                read.add(document.state.path)
                progressed()
        except InputError as error:
            return total + self._report_unreadable(feed, error, known)
        self._forget_repaired(feed, {path: file for path, file in known.items() if path not in read})
        if is_first:
            self._record_state(feed, DocumentState(_FIRST_READ_DONE, 0, 0, ""), None)
        return total

    def _accept(self, feed: Feed, document: SourceDocument, is_first: bool) -> Acquisition:
        problem, data = document.problem, document.data
        result, quarantined = Accepted(), 0
        if data is not None:
            try:
                result, rejected = self.acquirer.take_document(feed, data, document.state.path, is_first=is_first)
                quarantined = len(rejected)
                if rejected:
                    self.acquirer.quarantine(feed, rejected, ITEM, data)
            except InputError as error:
                problem = error
        if problem is not None:
            quarantined = 1
            content = data if isinstance(problem, BrokenDocumentError) else None
            self.acquirer.quarantine(feed, [problem], DOCUMENT, content)
        # Record the state after the items. After a crash in between, the document is read again, and its items are
        # known already.
        self._record_state(feed, document.state, problem)
        return Acquisition(result.accepted, result.unchanged, quarantined)

    def _record_state(self, feed: Feed, state: DocumentState, problem: InputError | None) -> None:
        row = SourceFile(feed.id, state, None if problem is None else str(problem))
        with self.acquirer.catalog.write() as connection:
            source_files.record_file(connection, row)

    def _forget_repaired(self, feed: Feed, known: dict[str, SourceFile]) -> None:
        """Delete the recorded problems of documents that no longer exist and of an address that is readable again."""
        repaired = [
            path
            for path, document in known.items()
            if document.problem and (not self.is_there(path) or (path == feed.address and not document.state.digest))
        ]
        if repaired:
            with self.acquirer.catalog.write() as connection:
                source_files.forget_files(connection, feed.id, repaired)

    def _report_unreadable(self, feed: Feed, error: InputError, known: dict[str, SourceFile]) -> Acquisition:
        """Quarantine an address that cannot be read, once, and again if the reason changes."""
        path = feed.address or ""
        if path in known and known[path].problem == str(error):
            return Acquisition()
        if not isinstance(error.__cause__, OSError | None):
            logger.error("cannot read feed %s", feed.name, exc_info=error)
        self.acquirer.quarantine(feed, [error], DOCUMENT, None)
        self._record_state(feed, DocumentState(path, -1, -1, ""), error)
        return Acquisition(quarantined=1)


def content_digest(data: bytes) -> str:
    """Return the digest of a document.

    >>> content_digest(b"")
    'cae66941d9efbd404e4d88758ea67670'
    """
    return blake2b(data, digest_size=16).hexdigest()
