"""Acquisition: reads documents and accepts their items into the item log.

In: documents from sources, or published with a command. Out: accepted items. Broken documents and rejected items are
quarantined with the reason, and do not affect other documents or items.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.catalog.logs import match_segments, quarantine
from runnel.catalog.logs.quarantine import Quarantined
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sequencer import last_sequence
from runnel.errors import InputError
from runnel.logs.items.item_log import Accepted, ItemLog
from runnel.model.feed import Feed
from runnel.model.item import Item
from runnel.model.table import RowChange, TableSchema, change_of
from runnel.settings import Settings
from runnel.sources.document_child import DocumentSource
from runnel.sources.document_pool import document_pool
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.wire import DocumentKind
from runnel.sources.rdf.decode_rdf import form_of
from runnel.storage.checksums import write_with_checksum
from runnel.storage.file_storage import Storage


@dataclass(frozen=True, slots=True)
class Acquisition:
    """The number of accepted items, of items that were already known, and of quarantined documents and items."""

    accepted: int = 0
    unchanged: int = 0
    quarantined: int = 0

    def __add__(self, other: Acquisition) -> Acquisition:
        return Acquisition(
            self.accepted + other.accepted,
            self.unchanged + other.unchanged,
            self.quarantined + other.quarantined,
        )


class Acquirer:
    """Reads documents in a sandbox and accepts their items, for all sources and for published documents."""

    def __init__(
        self, catalog: Catalog, storage: Storage, item_log: ItemLog, folder: Path, settings: Settings
    ) -> None:
        self.catalog = catalog
        self._storage = storage
        self._item_log = item_log
        self.folder = folder
        self.settings = settings

    def lag(self) -> int:
        """Return the number of accepted items that have not been matched yet."""
        with self.catalog.read() as connection:
            return last_sequence(connection) - match_segments.matched_upto(connection)

    def take_document(
        self, feed: Feed, data: bytes, place: str, *, is_first: bool = False
    ) -> tuple[Accepted, list[InputError]]:
        """Accept the items of a document, and return the result and the rejected items.

        `is_first` says that this is the first document of the feed, of which only the newest items are accepted (see
        `first_fetch`). Raise BrokenDocumentError if the document cannot be decoded.
        """
        adapted = self.read_document(feed, data, place)
        return self.accept_adapted(feed, adapted, is_first=is_first), list(adapted.problems)

    def read_changes(
        self, table: Feed, schema: TableSchema, data: bytes, place: str, *, is_whole: bool = False
    ) -> tuple[list[RowChange], list[InputError]]:
        """Read the changes of a table in a document in a sandbox, and the problems of the others.

        `is_whole` says that the document has all rows of the table, so that no two may have the same key.
        """
        source = DocumentSource(
            place,
            table.name,
            limit=self.settings.max_document_bytes,
            max_items=self.settings.max_document_items,
            table=schema.to_json(),
            is_whole=is_whole,
        )
        adapted = document_pool().read(data, source)
        changes = [change_of(table.name, schema, item.attributes, place) for item in adapted.items]
        return changes, list(adapted.problems)

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
        """Read a document in a sandbox. Return its items without accepting them.

        `base` is the URL for resolving relative links. `charset` and `media_type` come from the server's response.
        """
        source = DocumentSource(
            place,
            feed.name,
            limit=self.settings.max_document_bytes,
            max_items=self.settings.max_document_items,
            charset=charset,
            base=base,
            form=form_of(media_type, base or place),
        )
        return document_pool().read(data, source)

    def accept_adapted(self, feed: Feed, adapted: AdaptedFeed, *, is_first: bool = False) -> Accepted:
        """Accept the items that `read_document` returned. `is_first` is as in `take_document`."""
        accept, remember = list(adapted.items), list[Item]()
        if is_first:
            accept, remember = first_fetch(adapted.items, self.settings.first_fetch_items, kind=adapted.kind)
        return self._item_log.accept(feed.id, accept, remember=remember)

    def quarantine(self, feed: Feed, problems: Sequence[InputError], kind: str, data: bytes | None) -> None:
        """Store rejected documents or items in the quarantine, with the bytes of their document if given."""
        path = None
        if data is not None:
            path = write_with_checksum(self._storage, f"quarantine/{uuid.uuid4().hex}", data).path
        with self.catalog.write() as connection:
            for problem in problems:
                reason = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
                quarantine.add_quarantined(
                    connection,
                    Quarantined(kind, problem.place or feed.name, reason, feed=feed.id, path=path),
                )


def first_fetch(
    items: Sequence[Item], newest: int, *, kind: DocumentKind | None = None
) -> tuple[list[Item], list[Item]]:
    """Split the items of a feed's first document (oldest first) into those to accept and those only to remember.

    The `newest` newest items are accepted. The ids of the others are remembered as seen, so that they are not new
    later. All items are accepted if later documents of this kind do not repeat earlier items (JSON lines).

    >>> accepted, remembered = first_fetch([Item("F", str(n), {}) for n in range(5)], 2)
    >>> [item.id for item in accepted], [item.id for item in remembered]
    (['3', '4'], ['0', '1', '2'])
    """
    if kind is not None and not kind.repeats:
        return list(items), []
    first_accepted = max(0, len(items) - max(newest, 0))
    return list(items[first_accepted:]), list(items[:first_accepted])
