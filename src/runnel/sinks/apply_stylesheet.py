"""Stylesheets on messages: a subscription may shape what it gets.

In: a delivery and the subscription's stylesheet. Out: the delivery with what the stylesheet made of it. The
stylesheet gets the message as an RSS 2.0 document. Where its result is a feed again, the entries there take the place
of the items; anything else becomes the delivery's content, for outputs that can carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lxml import etree

from runnel.errors import DeliveryError, InputError, StylesheetError
from runnel.model.item import Item
from runnel.sinks.contract import Content, DeliveredItem, Delivery
from runnel.sinks.files.feed_entries import entry_id, head_of, show
from runnel.sinks.files.render_rss import Rss
from runnel.sinks.registry import open_sink

if TYPE_CHECKING:
    from runnel.sandbox.stylesheet_process import StylesheetTransformer

Decode = Callable[[bytes, str], Sequence[Item]]
"""The entries of a feed document as items, oldest first; the text is the document's name, for errors."""

_ATOM = "{http://www.w3.org/2005/Atom}feed"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}RDF"
_FEEDS = frozenset({"rss", _ATOM, _RDF})
_DERIVED = "urn:runnel:"
_BEGINNING = 64 << 10


def apply_stylesheet(
    delivery: Delivery, transformer: StylesheetTransformer, sheet: bytes, decode: Decode | None = None
) -> Delivery:
    """What a stylesheet makes of a delivery; SheetFailed where it cannot. Blocking.

    Without `decode` a feed is content like anything else.
    """
    place = delivery.subscription.sheet or "stylesheet"
    result = transformer.apply(sheet, rss_document(delivery), place)
    if decode is not None and is_feed(result.data):
        return replace(delivery, items=_identified(_entries(result.data, place, decode), delivery), content=None)
    kind = delivery.subscription.kind
    if not getattr(open_sink(kind), "takes_content", False):
        raise DeliveryError(
            f"the stylesheet made {result.media_type} of the message, and {kind} carries only feeds",
            hint="let it write RSS or Atom, or subscribe with output mail or webhook",
            permanent=True,
        )
    return replace(delivery, content=Content(result.media_type, result.data))


def rss_document(delivery: Delivery) -> bytes:
    """A message as the RSS 2.0 document that stylesheets get, newest item first."""
    form = Rss()
    entries = [form.entry(show(one, delivery.sent)) for one in reversed(delivery.items)]
    return form.render(head_of(delivery), entries)


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
        # Whatever is wrong further on the decoder tells; what begins well may have been read already.
        found = next(iter(parser.read_events()), None)
    return found is not None and isinstance(found[1], etree._Element) and found[1].tag in _FEEDS


def _entries(data: bytes, place: str, decode: Decode) -> Sequence[Item]:
    try:
        return decode(data, f"result of {place}")
    except InputError as error:
        raise StylesheetError(f"the stylesheet made a feed that cannot be read: {error}", place=place) from error


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
