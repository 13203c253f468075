"""Converts wire documents to items, with the attributes that conditions refer to.

In: a WireDocument and the name of the feed. Out: an AdaptedFeed with items, oldest first, and the problems of
rejected entries. The vocabulary of attributes:

    attribute         kind     from RSS / Atom / JSON Feed
    title             text     title; dc:title
    description       text     description / summary / summary
    content           text     content:encoded / content / content_html, content_text
    description:html  text     the description as safe HTML, if it contains markup
    content:html      text     the content as safe HTML, if it contains markup
    link              text     link (several are possible); or else a guid that is a permanent link
    link:<relation>   text     links with other relations (self, related, via…)
    author            text     author, dc:creator, itunes:author / author / authors (several)
    author:email, author:link  of persons in Atom (author:link also in JSON Feed)
    category          text     category, dc:subject / category / tags (several)
    published         moment   pubDate, dc:date / published / date_published
    updated           moment   dcterms:modified / updated / date_modified
    published:text    text     a date that could not be parsed (also updated:text)
    language          text     the language of the entry, or else of the feed
    comments          text     link to the discussion
    enclosure         text     link to an attached file (several); enclosure:type its media type
    source            text     title of the feed that the entry came from; source:link its address
    image, rights     text     unchanged
    graph             graph    the triples of an RDF document, or of an item in RSS 1.0
    prefix:name       text     extensions, with the prefixes of `extensions.PREFIXES`

An object of JSON lines becomes an item with its keys as attributes and JSON's types. `published` and `updated` are
parsed as dates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runnel.errors import BrokenDocumentError, InputError, InvalidItemError
from runnel.model.graph import GRAPH
from runnel.model.item import (
    MAX_ID,
    MAX_NAME,
    MAX_TEXT,
    MAX_VALUES,
    MOMENTS,
    Attributes,
    Item,
    Value,
    attributes_of,
    clean_text,
)
from runnel.net.safe_links import join_base, safe_link
from runnel.sources.documents.bounds import MAX_ATTRIBUTES, MAX_DOCUMENT_VALUES, ProblemList
from runnel.sources.documents.dates import parse_date
from runnel.sources.documents.document_head import NO_HEAD, DocumentHead
from runnel.sources.documents.html_text import plain_text, read_markup, tidy_spaces
from runnel.sources.documents.wire import DocumentKind, TextForm, WireDocument, WireEntry, WireField

SINGLE = frozenset({"title", "description", "content", "published", "updated", "language", "comments", "source"})
"""Attributes of feeds with only one value, which is the first in the document."""

_WITH_HTML = frozenset({"description", "content"})


@dataclass(frozen=True, slots=True)
class AdaptedFeed:
    """The content of a document: the description of the feed, its items (oldest first), and the problems.

    `problems` contains the first problems and the number of the others. `note` says why a document was decoded
    tolerantly, or why its entries have no graphs.
    """

    kind: DocumentKind
    title: str | None
    description: str | None
    link: str | None
    items: list[Item]
    problems: list[InputError]
    note: str | None = None
    head: DocumentHead = NO_HEAD


def adapt(document: WireDocument, feed: str) -> AdaptedFeed:
    """Convert a document to items of a feed.

    >>> from runnel.sources.documents.decode import decode
    >>> adapt(decode(b'{"id": 7, "title": "Muse"}', "muse.jsonl"), "News").items
    [Item(feed='News', id='7', attributes={'title': ('Muse',)}, version=1, sequence=None, time=None)]
    """
    problems = ProblemList(document.name, document.problems)
    link = safe_link(document.link or "", document.base)
    if document.kind is DocumentKind.JSON_LINES:
        items = _adapt_records(document, feed, problems)
    else:
        items = _adapt_entries(document, feed, join_base(link, document.base), problems)
    return AdaptedFeed(
        kind=document.kind,
        title=_label(document.title),
        description=_label(document.description),
        link=link,
        items=items,
        problems=problems.summary(),
        note=document.note,
        head=DocumentHead(links=document.links),
    )


def _label(text: str | None) -> str | None:
    return clean_text(plain_text(text))[:1000] or None if text else None


def _adapt_entries(document: WireDocument, feed: str, base: str | None, problems: ProblemList) -> list[Item]:
    items: dict[str, Item] = {}
    totals = _Totals(document.name)
    for number, entry in enumerate(document.entries, start=1):
        place = f"{document.name}:{entry.line}" + (f" (entry {number})" if entry.line == 1 else "")
        identifier = clean_text(entry.id or "").strip()
        # Skip an entry with a known id. Feeds are newest first, so the first entry with an id is kept.
        if identifier not in items:
            try:
                item = _adapt_entry(entry, identifier, feed, base, document.language, place)
            except InputError as problem:
                problems.add(problem)
                continue
            identifier = item.id
        if identifier in items:
            problems.add_duplicate(identifier, place, "only the first one is used")
            continue
        totals.add(item)
        items[identifier] = item
    return _oldest_first(list(items.values()))


class _Totals:
    """Counts the values and the different attribute names of a document's items."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values = 0
        self._attributes: set[str] = set()

    def add(self, item: Item) -> None:
        """Count an item. Raise BrokenDocumentError if the document exceeds a limit."""
        self._values += sum(map(len, item.attributes.values()))
        self._attributes.update(item.attributes)
        for count, limit, noun in (
            (self._values, MAX_DOCUMENT_VALUES, "values"),
            (len(self._attributes), MAX_ATTRIBUTES, "different attribute names"),
        ):
            if count > limit:
                raise BrokenDocumentError(
                    f"the items of the document have more than {limit} {noun}",
                    place=f"{self._name}:1",
                    hint="split it into smaller documents",
                )


def _adapt_entry(
    entry: WireEntry, identifier: str, feed: str, base: str | None, language: str | None, place: str
) -> Item:
    entry_base = join_base(base, entry.base)
    raw: dict[str, list[str | datetime]] = {}
    permalink: str | None = None
    for field in entry.fields:
        if field.name == "guid":
            permalink = safe_link(field.text)
        elif field.name not in SINGLE or field.name not in raw:
            _adapt_field(field, join_base(entry_base, field.base), raw, place)
    if permalink and "link" not in raw:
        raw["link"] = [permalink]
    if language and "language" not in raw:
        raw["language"] = [language]
    attributes = _attributes(raw, place)
    if entry.graph:
        attributes = {**attributes, GRAPH: (entry.graph,)}
    return Item(feed, _identifier(identifier, attributes, place), attributes)


def _attributes(raw: Mapping[str, list[str | datetime]], place: str) -> Attributes:
    """Return the same as `attributes_of`, for values that are already flat and typed, without duplicates."""
    if sum(map(len, raw.values())) > MAX_VALUES:
        raise InvalidItemError(f"the entry has more than {MAX_VALUES} values", place=place, hint="split it")
    attributes: dict[str, tuple[Value, ...]] = {}
    for name, values in raw.items():
        cleaned = clean_text(name).strip()
        if not cleaned or len(cleaned) > MAX_NAME:
            raise InvalidItemError(f"the name of an element must have 1 to {MAX_NAME} characters", place=place)
        clean_values: list[Value] = [clean_text(value) if isinstance(value, str) else value for value in values]
        if len(clean_values) > 1 or cleaned in attributes or not clean_values[0]:
            previous = attributes.get(cleaned, ())
            clean_values = list(dict.fromkeys([*previous, *(value for value in clean_values if value)]))
        if clean_values:
            attributes[cleaned] = tuple(clean_values)
    return attributes


def _adapt_field(field: WireField, base: str | None, raw: dict[str, list[str | datetime]], place: str) -> None:
    """Convert a field and add its value to the raw attributes, unless the value is empty."""
    # Only RDF creates a graph. An element with that name is a text.
    name, text = field.name if field.name != GRAPH else f"{GRAPH}:text", field.text
    if len(text) > MAX_TEXT:
        raise InvalidItemError(f"{name} is longer than {MAX_TEXT} characters", place=place, hint="shorten it")
    value: str | datetime | None
    if name in MOMENTS or field.form is TextForm.DATE:
        value = parse_date(text)
        if value is None:
            name, value = f"{name}:text", tidy_spaces(text)
    elif field.form is TextForm.LINK:
        value = safe_link(text, base)
    elif field.form is TextForm.MARKUP and name in _WITH_HTML:
        markup = read_markup(text, base)
        value = markup.text
        if len(markup.html) > 4 * MAX_TEXT:
            raise InvalidItemError(
                f"the HTML of {name} is longer than {4 * MAX_TEXT} characters", place=place, hint="shorten it"
            )
        if markup.html and "<" in markup.html:
            raw.setdefault(f"{name}:html", []).append(markup.html)
    elif field.form is TextForm.MARKUP:
        value = plain_text(text)
    else:
        value = " ".join(text.split()) if name in ("title", "category", "author") else tidy_spaces(text)
    if value:
        raw.setdefault(name, []).append(value)


def _identifier(identifier: str, attributes: Attributes, place: str) -> str:
    """Return the id of an entry, or else its link, or else a digest of its content."""
    links = attributes.get("link", ())
    if not identifier and links:
        identifier = str(links[0])
    if not identifier:
        texts = [str(value) for name in ("title", "description", "published") for value in attributes.get(name, ())]
        if not texts:
            texts = [f"{name}={value}" for name in sorted(attributes) for value in attributes[name]]
        if not texts:
            raise InvalidItemError("the entry is empty", place=place, hint="add an id, a link or a title")
        identifier = f"urn:runnel:{hashlib.blake2b(chr(0).join(texts).encode(), digest_size=16).hexdigest()}"
    if len(identifier) > MAX_ID:
        raise InvalidItemError(f"the id is longer than {MAX_ID} characters", place=place)
    return identifier


def _oldest_first(items: list[Item]) -> list[Item]:
    """Sort items by date if every item has one. Otherwise reverse them, because feeds are newest first."""
    items.reverse()
    dates = [item.first("published") for item in items]
    if all(isinstance(date, datetime) for date in dates):
        order = sorted(range(len(items)), key=lambda row: dates[row])  # type: ignore[arg-type,return-value]
        return [items[row] for row in order]
    return items


def _adapt_records(document: WireDocument, feed: str, problems: ProblemList) -> list[Item]:
    items: dict[str, Item] = {}
    totals = _Totals(document.name)
    for record in document.records:
        place = f"{document.name}:{record.line}"
        try:
            item = item_of_object(record.value, feed, place)
        except InputError as problem:
            problems.add(problem)
            continue
        totals.add(item)
        if item.id in items:
            # Lines are oldest first, so the last one with an id is kept, at its own position.
            problems.add_duplicate(item.id, place, "only this last one is used")
            del items[item.id]
        items[item.id] = item
    return list(items.values())


def item_of_object(value: Mapping[str, Any], feed: str, place: str = "item") -> Item:
    """Create an item from a JSON object. `id` is the id of the item, and all other keys are attributes.

    >>> item_of_object({"id": "a", "price": 3, "published": "15 Nov 2026"}, "Shop").attributes["published"][0].year
    2026
    """
    raw = {str(name): _clean_html(str(name), member) for name, member in value.items() if name != "id"}
    for name in MOMENTS & raw.keys():
        _split_dates(name, raw)
    attributes = attributes_of(raw, place=place)
    match value.get("id"):
        case str() as text:
            identifier = text
        case bool():
            raise InvalidItemError("the id must be a text or a number", place=place)
        case int() | float() as number if abs(number) < 1 << 1023:
            identifier = str(number)
        case None:
            identifier = ""
        case _:
            raise InvalidItemError("the id must be a text or a number", place=place)
    return Item(feed, _identifier(clean_text(identifier).strip(), attributes, place), attributes)


def _clean_html(name: str, value: Any) -> Any:
    """Make the values of an attribute with the suffix `:html` safe to show."""
    if name.endswith(":html"):
        return [read_markup(member).html if isinstance(member, str) else member for member in _as_list(value)]
    return value


def _split_dates(name: str, raw: dict[str, Any]) -> None:
    dates: list[Any] = []
    texts: list[str] = []
    for value in _as_list(raw.pop(name)):
        date = parse_date(value) if isinstance(value, str) else value
        if date is None and isinstance(value, str):
            texts.append(value)
        else:
            dates.append(date)
    raw[name] = dates
    if texts:
        raw[f"{name}:text"] = [*_as_list(raw.get(f"{name}:text", ())), *texts]


def _as_list(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
