"""Reads feeds one after the other: a source provides documents, and each version is read once.

In: the documents of a feed, by name. Out: the items of those that are new or changed. The catalog remembers the state
of every document, so a document that did not change is not read again, and a problem is reported once.
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

_FIRST_LOOK_DONE = ""
"""The name, which no document has, of the row that says that a feed's address was read once, to the end."""


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document whose state is not the known one; without `data` only its state is new, or it has a problem."""

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
        """The documents at the address of a feed, each with its name; InputError if the address cannot be read.

        Documents that did not change since the last round are skipped.
        """

    def changed(self, feed: Feed, known: Mapping[str, DocumentState]) -> Iterable[SourceDocument]:
        """Documents that are new or changed since their known state."""
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
                hint="check what the address leads to, or correct the plug-in",
            ) from error

    def is_there(self, name: str) -> bool:
        """Whether a document with a problem can still have it."""
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
                logger.exception("the feed %s could not be read", feed.name)  # the others are still read
        return total

    def read_feed(self, feed: Feed, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """Take the new and changed documents of one feed."""
        with self.acquirer.catalog.read() as connection:
            known = {one.state.path: one for one in source_files.known_files(connection, feed.id)}
        states = {path: one.state for path, one in known.items()}
        is_first = _FIRST_LOOK_DONE not in known
        total, taken = Acquisition(), set[str]()
        try:
            for document in self.changed(feed, states):
                total += self._take(feed, document, is_first)
                taken.add(document.state.path)
                progressed()
        except InputError as error:
            return total + self._unreachable(feed, error, known)
        self._forget_repaired(feed, {path: one for path, one in known.items() if path not in taken})
        if is_first:
            self._remember(feed, DocumentState(_FIRST_LOOK_DONE, 0, 0, ""), None)
        return total

    def _take(self, feed: Feed, document: SourceDocument, is_first: bool) -> Acquisition:
        problem, data = document.problem, document.data
        result, put_aside = Accepted(), 0
        if data is not None:
            try:
                result, refused = self.acquirer.take_document(feed, data, document.state.path, is_first=is_first)
                put_aside = len(refused)
                if refused:
                    self.acquirer.keep_aside(feed, refused, ITEM, data)
            except InputError as error:
                problem = error
        if problem is not None:
            put_aside = 1
            content = data if isinstance(problem, BrokenDocumentError) else None
            self.acquirer.keep_aside(feed, [problem], DOCUMENT, content)
        # Written after the items: a crash between the two only reads the document again, and the seen-set knows it.
        self._remember(feed, document.state, problem)
        return Acquisition(result.accepted, result.unchanged, put_aside)

    def _remember(self, feed: Feed, state: DocumentState, problem: InputError | None) -> None:
        row = SourceFile(feed.id, state, None if problem is None else str(problem))
        with self.acquirer.catalog.write() as connection:
            source_files.record_file(connection, row)

    def _forget_repaired(self, feed: Feed, known: dict[str, SourceFile]) -> None:
        """Forget the problems of documents that are gone, and of an address that can be read again."""
        repaired = [
            path
            for path, document in known.items()
            if document.problem and (not self.is_there(path) or (path == feed.address and not document.state.digest))
        ]
        if repaired:
            with self.acquirer.catalog.write() as connection:
                source_files.forget_files(connection, feed.id, repaired)

    def _unreachable(self, feed: Feed, error: InputError, known: dict[str, SourceFile]) -> Acquisition:
        """An address that cannot be read is reported once, and again when the reason changes."""
        path = feed.address or ""
        if path in known and known[path].problem == str(error):
            return Acquisition()
        if not isinstance(error.__cause__, OSError | None):
            logger.error("the feed %s could not be read", feed.name, exc_info=error)
        self.acquirer.keep_aside(feed, [error], DOCUMENT, None)
        self._remember(feed, DocumentState(path, -1, -1, ""), error)
        return Acquisition(put_aside=1)


def content_digest(data: bytes) -> str:
    """The digest of a document.

    >>> content_digest(b"")
    'cae66941d9efbd404e4d88758ea67670'
    """
    return blake2b(data, digest_size=16).hexdigest()
