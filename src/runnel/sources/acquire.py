"""Acquisition: from files, folders and documents to accepted items.

In: the registered feeds, and documents that others fetched or were handed. Out: items in the log; broken documents
and refused items are kept aside with the reason, and hurt no other.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, quarantine
from runnel.catalog.logs.quarantine import DOCUMENT, ITEM, Quarantined
from runnel.catalog.polling import source_files
from runnel.catalog.polling.source_files import SourceFile
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sequencer import last_sequence
from runnel.errors import BrokenDocumentError, FencedError, InputError, StorageFullError
from runnel.logs.items.item_log import Accepted, ItemLog
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Item
from runnel.settings import Settings
from runnel.sources.document_child import DocumentSource
from runnel.sources.document_pool import document_pool
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.drop_folder import ChangedFile, FileState, content_digest, read_file, scan
from runnel.sources.feed_address import is_web, parse_address
from runnel.sources.first_fetch import FirstFetch, first_fetch
from runnel.sources.rdf.decode_rdf import form_of
from runnel.storage.checksums import write_sealed
from runnel.storage.file_storage import Storage

logger = logging.getLogger("runnel")

_FIRST_LOOK_DONE = ""
"""The name, which no file has, of the row that says that a feed's address was looked at once, to the end."""


@dataclass(frozen=True, slots=True)
class Acquisition:
    """What came in: items accepted, items known already, and how many things were put aside."""

    accepted: int = 0
    unchanged: int = 0
    put_aside: int = 0

    def __add__(self, other: Acquisition) -> Acquisition:
        return Acquisition(
            self.accepted + other.accepted,
            self.unchanged + other.unchanged,
            self.put_aside + other.put_aside,
        )


class Acquirer:
    """Reads source feeds from files and drop folders, and takes documents that are published by hand."""

    def __init__(self, catalog: Catalog, storage: Storage, items: ItemLog, folder: Path, settings: Settings) -> None:
        self._catalog = catalog
        self._storage = storage
        self._items = items
        self._folder = folder
        self._settings = settings

    def lag(self) -> int:
        """How many accepted items wait for matching."""
        with self._catalog.read() as connection:
            return last_sequence(connection) - match_segments.matched_upto(connection)

    def acquire_all(self, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """Look once at every source feed whose address is a file or folder; nothing is read above the lag limit.

        Feeds on the web are left to the Poller. `progressed` is called after every file.
        """
        with self._catalog.read() as connection:
            sources = [
                feed
                for feed in feeds.live_feeds(connection)
                if feed.kind is FeedKind.SOURCE and feed.address and not feed.paused and not is_web(feed.address)
            ]
        total = Acquisition()
        for feed in sources:
            if self.lag() >= self._settings.lag_limit:
                break
            try:
                total += self.acquire(feed, progressed)
            except (StorageFullError, FencedError):
                raise
            except Exception:
                logger.exception("the feed %s could not be read", feed.name)  # and the others go on
        return total

    def acquire(self, feed: Feed, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """Look at one source feed: every new or changed file is read; what is wrong with one is told once."""
        with self._catalog.read() as connection:
            known = {one.path: one for one in source_files.known_files(connection, feed.id)}
        states = {path: FileState(path, one.size, one.modified, one.digest) for path, one in known.items()}
        try:
            found = scan(
                parse_address(feed.address or "", self._folder), states, limit=self._settings.max_document_bytes
            )
        except InputError as error:
            return self._unreachable(feed, error, known)
        self._forget_mended(feed, known)
        is_first = _FIRST_LOOK_DONE not in known
        total = Acquisition()
        for file in found:
            total += self._take_file(feed, file, is_first)
            progressed()
        if is_first:
            self._remember(feed, FileState(_FIRST_LOOK_DONE, 0, 0, ""), None)
        return total

    def take_document(
        self, feed: Feed, data: bytes, place: str, *, is_first: bool = False
    ) -> tuple[Accepted, list[InputError]]:
        """Accept the items of a document; raises BrokenDocument where it cannot be decoded.

        `is_first` says that nothing was read from the feed's address before: its past must not flood anybody.
        """
        adapted = self.read_document(feed, data, place)
        return self.accept_adapted(feed, adapted, is_first=is_first), list(adapted.problems)

    def read_document(
        self,
        feed: Feed,
        data: bytes,
        place: str,
        *,
        base: str | None = None,
        charset: str | None = None,
        media_type: str | None = None,
    ) -> AdaptedFeed:
        """The items of a document, read in a sandbox and not accepted yet.

        `base` is the URL that its relative links are relative to; `charset` and `media_type` are what its server
        said.
        """
        return document_pool().read(data, self._source_of(feed, place, base, charset, media_type))

    async def read_document_async(
        self, feed: Feed, data: bytes, place: str, *, base: str, charset: str | None, media_type: str | None
    ) -> AdaptedFeed:
        """The same for an event loop, which goes on meanwhile."""
        return await document_pool().read_async(data, self._source_of(feed, place, base, charset, media_type))

    def _source_of(
        self, feed: Feed, place: str, base: str | None, charset: str | None, media_type: str | None
    ) -> DocumentSource:
        """How a document of a feed is read, with the bounds of the settings."""
        return DocumentSource(
            place,
            feed.name,
            limit=self._settings.max_document_bytes,
            max_items=self._settings.max_document_items,
            charset=charset,
            base=base,
            form=form_of(media_type, base or place),
        )

    def accept_adapted(self, feed: Feed, adapted: AdaptedFeed, *, is_first: bool = False) -> Accepted:
        """Accept what `read_document` gave."""
        accept, remember = list(adapted.items), list[Item]()
        if is_first:
            policy = FirstFetch(newest=self._settings.first_fetch_items)
            accept, remember = first_fetch(adapted.items, policy, kind=adapted.kind)
        return self._items.accept(feed.id, accept, remember=remember)

    def keep_aside(self, feed: Feed, problems: Sequence[InputError], kind: str, data: bytes | None) -> None:
        """Keep what was refused, with its bytes, for inspection."""
        path = None
        if data is not None:
            path = write_sealed(self._storage, f"quarantine/{uuid.uuid4().hex}", data).path
        with self._catalog.write() as connection:
            for problem in problems:
                reason = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
                quarantine.add_quarantined(
                    connection,
                    Quarantined(kind, problem.place or feed.name, reason, feed=feed.id, path=path),
                )

    def _take_file(self, feed: Feed, file: ChangedFile, is_first: bool) -> Acquisition:
        problem: InputError | None = file.problem
        result, put_aside = Accepted(), 0
        data: bytes | None = None
        if problem is None and file.changed:
            try:
                data = read_file(file.path, limit=self._settings.max_document_bytes)
            except InputError:
                data = b""
            if content_digest(data) != file.state.digest:
                return Acquisition()  # not what was looked at a moment ago: the next look will tell
            try:
                result, refused = self.take_document(feed, data, file.state.path, is_first=is_first)
                put_aside = len(refused)
                if refused:
                    self.keep_aside(feed, refused, ITEM, data)
            except InputError as error:
                problem = error
        if problem is not None:
            put_aside = 1
            self.keep_aside(feed, [problem], DOCUMENT, data if isinstance(problem, BrokenDocumentError) else None)
        # Written after the items: a crash between the two only reads the file again, and the seen-set knows it.
        self._remember(feed, file.state, problem)
        return Acquisition(result.accepted, result.unchanged, put_aside)

    def _remember(self, feed: Feed, state: FileState, problem: InputError | None) -> None:
        with self._catalog.write() as connection:
            source_files.record_file(
                connection,
                SourceFile(
                    feed.id,
                    state.path,
                    state.size,
                    state.mtime_ns,
                    state.digest,
                    None if problem is None else str(problem),
                ),
            )

    def _forget_mended(self, feed: Feed, known: dict[str, SourceFile]) -> None:
        """Problems of files that are gone, or of an address that can be read again, are problems no more."""
        mended = [
            path for path, file in known.items() if file.problem and (path == feed.address or not _is_there(path))
        ]
        if mended:
            with self._catalog.write() as connection:
                source_files.forget_files(connection, feed.id, mended)

    def _unreachable(self, feed: Feed, error: InputError, known: dict[str, SourceFile]) -> Acquisition:
        """An address that cannot be read is told once, and again when the reason changes."""
        path = feed.address or ""
        if path in known and known[path].problem == str(error):
            return Acquisition()
        self.keep_aside(feed, [error], DOCUMENT, None)
        self._remember(feed, FileState(path, -1, -1, ""), error)
        return Acquisition(put_aside=1)


def _is_there(path: str) -> bool:
    """Whether a file is there; one whose name is no text is known by the spelling that `scan` gave it."""
    place = Path(path)
    if "\\x" not in place.name or place.exists():
        return place.exists()
    try:
        names = [os.fsencode(one.name) for one in place.parent.iterdir()]
    except OSError:
        return False
    return place.name in {name.decode("utf-8", "backslashreplace") for name in names}
