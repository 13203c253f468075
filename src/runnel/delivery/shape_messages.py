"""Applies the stylesheet of a subscription to a message before it is delivered.

In: a delivery. Out: the transformed delivery, or StylesheetError. The stylesheet gets the message as an RSS 2.0
document. If its result is a feed, the entries of that feed replace the items. Any other result becomes the content of
the delivery, if the sink accepts content. Blocking, and thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lxml import etree

from runnel.catalog.declared.stylesheets import is_kept, kept_path
from runnel.errors import DeliveryError, InputError, StylesheetError
from runnel.model.item import Attributes, Item
from runnel.sandbox.stylesheet_process import StylesheetTransformer, transformer_of
from runnel.settings import Settings
from runnel.sinks.contract import Content, DeliveredItem, Delivery
from runnel.sinks.files.feed_entries import entry_id
from runnel.sinks.files.render_rss import rss_document
from runnel.sinks.registry import installed_sinks, open_sink
from runnel.storage.file_storage import Storage

Decode = Callable[[bytes, str], Sequence[Item]]
"""`(data, name)`: return the entries of a feed document as items, oldest first. The name is used in errors."""

_ATOM = "{http://www.w3.org/2005/Atom}feed"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}RDF"
_FEED_TAGS = frozenset({"rss", _ATOM, _RDF})
_DERIVED_ID_PREFIX = "urn:runnel:"
_OWN_PREFIX = "runnel:"
"""The decoder's prefix for elements that Runnel adds to the documents of stylesheets: bindings and annotations."""

_JOINED = "runnel:title"
"""The decoder's name for an element that every joined item has."""

_MAX_PROLOG_BYTES = 64 << 10
_MAX_CACHED = 1_000


class MessageShaper:
    """Applies stylesheets from the workspace. A stored stylesheet never changes, so it is cached."""

    def __init__(self, storage: Storage, settings: Settings, decode: Decode | None) -> None:
        self._storage = storage
        self._settings = settings
        self._decode = decode
        self._lock = threading.Lock()
        self._stylesheets: dict[str, bytes] = {}
        self._transformer: StylesheetTransformer | None = None

    def shape(self, delivery: Delivery) -> Delivery:
        """Apply the subscription's stylesheet to a delivery. Return it unchanged if there is no stylesheet."""
        path = delivery.subscription.sheet
        if path is None:
            return delivery
        return apply_stylesheet(delivery, self._open_transformer(), self._read_stylesheet(path), self._decode)

    def close(self) -> None:
        """Stop the sandboxes in which stylesheets run."""
        with self._lock:
            if self._transformer is not None:
                self._transformer.close()
            self._transformer = None

    def _open_transformer(self) -> StylesheetTransformer:
        with self._lock:
            if self._transformer is None:
                self._transformer = transformer_of(self._settings)
            return self._transformer

    def _read_stylesheet(self, path: str) -> bytes:
        stylesheet = self._stylesheets.get(path)
        if stylesheet is None:
            try:
                stylesheet = self._storage.read(path)
            except OSError as error:
                # A DeliveryError is retried, and it does not count as a failure of the endpoint's host.
                raise DeliveryError(
                    f"the stylesheet {path} cannot be read: {error.strerror or error}",
                    hint="restore the file from a backup, or subscribe again",
                ) from None
            if is_kept(path) and kept_path(stylesheet) != path:
                raise DeliveryError(
                    f"the stylesheet {path} is damaged: its digest differs from its name",
                    hint="restore the file from a backup, or declare the feed or subscription that uses it again",
                )
            if len(self._stylesheets) >= _MAX_CACHED:
                self._stylesheets.clear()
            self._stylesheets[path] = stylesheet
        return stylesheet


def apply_stylesheet(
    delivery: Delivery, transformer: StylesheetTransformer, stylesheet: bytes, decode: Decode | None = None
) -> Delivery:
    """Apply a stylesheet to a delivery, or raise StylesheetError. Blocking.

    A feed also becomes content, instead of items, if there is no `decode` or the sink takes documents.
    """
    path = delivery.subscription.sheet or "stylesheet"
    result = transformer.apply(stylesheet, rss_document(delivery), path)
    sink = open_sink(delivery.subscription.kind)
    if decode is not None and not sink.takes_documents and is_feed(result.data):
        entries = _decode_entries(result.data, path, decode)
        return replace(delivery, items=_restore_identities(entries, delivery), content=None)
    if not sink.takes_content:
        kinds = [other.kind for other in installed_sinks() if other.takes_content and other.is_offered]
        raise DeliveryError(
            f"the output of the stylesheet is {result.media_type}, but {sink.kind} accepts only feeds",
            hint=f"change the stylesheet to write RSS or Atom, or subscribe with output {' or '.join(kinds)}",
            permanent=True,
        )
    return replace(delivery, content=Content(result.media_type, result.data))


def is_feed(data: bytes) -> bool:
    """Return whether the root element of a document is that of RSS, RDF or Atom.

    >>> is_feed(b"<rss version='2.0'/>"), is_feed(b"<html/>"), is_feed(b"Muse plays in Bern")
    (True, False, False)
    """
    parser = etree.XMLPullParser(events=("start",), resolve_entities=False, no_network=True, load_dtd=False)
    try:
        parser.feed(data[:_MAX_PROLOG_BYTES])
        event = next(iter(parser.read_events()), None)
    except (etree.XMLSyntaxError, ValueError):
        # The root element may have been parsed before the error. The decoder reports errors after it.
        event = next(iter(parser.read_events()), None)
    return event is not None and isinstance(event[1], etree._Element) and event[1].tag in _FEED_TAGS


def _decode_entries(data: bytes, path: str, decode: Decode) -> Sequence[Item]:
    try:
        return decode(data, f"result of {path}")
    except InputError as error:
        raise StylesheetError(f"the output of the stylesheet is not a valid feed: {error}", place=path) from error


def _restore_identities(entries: Sequence[Item], delivery: Delivery) -> list[DeliveredItem]:
    """Give entries the feed, id and version of the items that they come from, so that receivers recognize them.

    An entry is recognized by its guid. An entry without a guid is recognized by its link, or if it is the only entry
    for the only item. All others are new items, with the guid that the stylesheet gave them. An entry keeps the
    annotations of its item only if the stylesheet copied them: it may have shown them in another way.
    """
    by_guid = {entry_id(delivered.item): delivered for delivered in delivery.items}
    by_link = _index_by_link(delivery.items)
    only_item = delivery.items[0] if len(delivery.items) == len(entries) == 1 else None
    last = max((delivered.item.sequence or 0 for delivered in delivery.items), default=0)
    restored: dict[tuple[str, str], DeliveredItem] = {}
    for entry in entries:
        origin = by_guid.get(entry.id)
        if origin is None and _has_derived_id(entry):
            origin = by_link.get(str(entry.first("link"))) or only_item
        key = None if origin is None else (origin.item.feed, origin.item.id)
        if origin is None or key is None or key in restored:
            item = Item(delivery.feed_name, entry.id, own_attributes(entry), 1, last, delivery.sent)
            restored.setdefault((item.feed, item.id), DeliveredItem(item, delivery.feed_title))
        else:
            annotations = origin.annotations if _JOINED in entry.attributes else ()
            item = replace(origin.item, attributes=own_attributes(entry))
            restored[key] = replace(origin, item=item, annotations=annotations)
    return list(restored.values())


def own_attributes(entry: Item) -> Attributes:
    """Return the attributes of a decoded entry without those that come from elements of Runnel.

    >>> own_attributes(Item("News", "1", {"title": ("Muse",), "runnel:title": ("A photo",)}))
    {'title': ('Muse',)}
    """
    return {name: values for name, values in entry.attributes.items() if not name.startswith(_OWN_PREFIX)}


def _index_by_link(items: Sequence[DeliveredItem]) -> Mapping[str, DeliveredItem]:
    """Return the items by their first link, without links that several items have."""
    by_link: dict[str, DeliveredItem] = {}
    ambiguous: set[str] = set()
    for delivered in items:
        link = str(delivered.item.first("link"))
        if by_link.setdefault(link, delivered) is not delivered:
            ambiguous.add(link)
    return {link: delivered for link, delivered in by_link.items() if link not in ambiguous and link != "None"}


def _has_derived_id(entry: Item) -> bool:
    """Return whether the decoder derived the id from the link or the content, because the entry has no guid."""
    return entry.id == entry.first("link") or entry.id.startswith(_DERIVED_ID_PREFIX)
