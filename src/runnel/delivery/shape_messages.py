"""Shaping: the stylesheet of a subscription, applied to a message before it is handed over.

In: a delivery. Out: the delivery as its stylesheet makes it, or StylesheetError. The stylesheet gets the message as
an RSS 2.0 document. If its result is a feed again, the entries there replace the items; anything else becomes the
delivery's content, for sinks that accept it. Blocking, and thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lxml import etree

from runnel.catalog.declared.stylesheets import is_kept, kept_path
from runnel.errors import DeliveryError, InputError, StylesheetError
from runnel.model.item import Item
from runnel.sandbox.stylesheet_process import StylesheetTransformer, transformer_of
from runnel.settings import Settings
from runnel.sinks.contract import Content, DeliveredItem, Delivery
from runnel.sinks.files.feed_entries import entry_id
from runnel.sinks.files.render_rss import rss_document
from runnel.sinks.registry import installed_sinks, open_sink
from runnel.storage.file_storage import Storage

Decode = Callable[[bytes, str], Sequence[Item]]
"""The entries of a feed document as items, oldest first; the text is the document's name, for errors."""

_ATOM = "{http://www.w3.org/2005/Atom}feed"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}RDF"
_FEEDS = frozenset({"rss", _ATOM, _RDF})
_DERIVED = "urn:runnel:"
_BEGINNING = 64 << 10
_KEPT = 1_000


class MessageShaper:
    """Applies stylesheets from the files of the workspace, where they never change once stored."""

    def __init__(self, storage: Storage, settings: Settings, decode: Decode | None) -> None:
        self._storage = storage
        self._settings = settings
        self._decode = decode
        self._lock = threading.Lock()
        self._sheets: dict[str, bytes] = {}
        self._transformer: StylesheetTransformer | None = None

    def shape(self, delivery: Delivery) -> Delivery:
        """What the subscription's stylesheet makes of a delivery; the same where it has none."""
        path = delivery.subscription.sheet
        if path is None:
            return delivery
        return apply_stylesheet(delivery, self._open(), self._sheet(path), self._decode)

    def close(self) -> None:
        """End the processes in which stylesheets run."""
        with self._lock:
            if self._transformer is not None:
                self._transformer.close()
            self._transformer = None

    def _open(self) -> StylesheetTransformer:
        with self._lock:
            if self._transformer is None:
                self._transformer = transformer_of(self._settings)
            return self._transformer

    def _sheet(self, path: str) -> bytes:
        sheet = self._sheets.get(path)
        if sheet is None:
            try:
                sheet = self._storage.read(path)
            except OSError as error:
                # Not a matter of the endpoint's host, and it may pass: the message is tried again.
                raise DeliveryError(
                    f"the stylesheet {path} cannot be read: {error.strerror or error}",
                    hint="if it is gone for good, subscribe again",
                ) from None
            if is_kept(path) and kept_path(sheet) != path:
                raise DeliveryError(
                    f"the stylesheet {path} is damaged: its digest differs",
                    hint="put the original file back, and declare the feed or subscription that uses it again",
                )
            if len(self._sheets) >= _KEPT:
                self._sheets.clear()
            self._sheets[path] = sheet
        return sheet


def apply_stylesheet(
    delivery: Delivery, transformer: StylesheetTransformer, sheet: bytes, decode: Decode | None = None
) -> Delivery:
    """What a stylesheet makes of a delivery; StylesheetError if it cannot. Blocking.

    Without `decode`, and for a sink that takes documents, a feed is content like anything else.
    """
    path = delivery.subscription.sheet or "stylesheet"
    result = transformer.apply(sheet, rss_document(delivery), path)
    sink = open_sink(delivery.subscription.kind)
    if decode is not None and not sink.takes_documents and is_feed(result.data):
        return replace(delivery, items=_identified(_entries(result.data, path, decode), delivery), content=None)
    if not sink.takes_content:
        others = [one.kind for one in installed_sinks() if one.takes_content and one.is_offered]
        raise DeliveryError(
            f"the stylesheet turned the message into {result.media_type}, and {sink.kind} carries only feeds",
            hint=f"let it write RSS or Atom, or subscribe with output {' or '.join(others)}",
            permanent=True,
        )
    return replace(delivery, content=Content(result.media_type, result.data))


def is_feed(data: bytes) -> bool:
    """Whether a document begins as RSS, RDF Site Summary or Atom does.

    >>> is_feed(b"<rss version='2.0'/>"), is_feed(b"<html/>"), is_feed(b"Muse plays in Bern")
    (True, False, False)
    """
    parser = etree.XMLPullParser(events=("start",), resolve_entities=False, no_network=True, load_dtd=False)
    try:
        parser.feed(data[:_BEGINNING])
        found = next(iter(parser.read_events()), None)
    except (etree.XMLSyntaxError, ValueError):
        # The decoder reports errors further on; the first element may have been read before them.
        found = next(iter(parser.read_events()), None)
    return found is not None and isinstance(found[1], etree._Element) and found[1].tag in _FEEDS


def _entries(data: bytes, path: str, decode: Decode) -> Sequence[Item]:
    try:
        return decode(data, f"result of {path}")
    except InputError as error:
        raise StylesheetError(f"the stylesheet made a feed that cannot be read: {error}", place=path) from error


def _identified(made: Sequence[Item], delivery: Delivery) -> list[DeliveredItem]:
    """Entries with the identity of the items they come from, so that they are known again wherever they arrive.

    An entry that kept its guid is known by it; one without a guid by its link, or as the only one. Any other is
    something new, under the guid that the stylesheet gave it.
    """
    by_guid = {entry_id(one.item): one for one in delivery.items}
    by_link = _by_link(delivery.items)
    only = delivery.items[0] if len(delivery.items) == len(made) == 1 else None
    last = max((one.item.sequence or 0 for one in delivery.items), default=0)
    identified: dict[tuple[str, str], DeliveredItem] = {}
    for entry in made:
        origin = by_guid.get(entry.id)
        if origin is None and _without_guid(entry):
            origin = by_link.get(str(entry.first("link"))) or only
        known = None if origin is None else (origin.item.feed, origin.item.id)
        if origin is None or known is None or known in identified:
            item = Item(delivery.feed_name, entry.id, entry.attributes, 1, last, delivery.sent)
            identified.setdefault((item.feed, item.id), DeliveredItem(item, delivery.feed_title))
        else:
            identified[known] = replace(origin, item=replace(origin.item, attributes=entry.attributes))
    return list(identified.values())


def _by_link(items: Sequence[DeliveredItem]) -> Mapping[str, DeliveredItem]:
    """Items by their first link, where no two have the same."""
    found: dict[str, DeliveredItem] = {}
    shared: set[str] = set()
    for one in items:
        link = str(one.item.first("link"))
        if found.setdefault(link, one) is not one:
            shared.add(link)
    return {link: one for link, one in found.items() if link not in shared and link != "None"}


def _without_guid(entry: Item) -> bool:
    """Whether the decoder had to derive an id: from the link, or from what the entry says."""
    return entry.id == entry.first("link") or entry.id.startswith(_DERIVED)
