"""Wire documents to items: the attributes that conditions speak of.

In: a WireDocument and the name of the feed. Out: an AdaptedFeed with items, oldest first, and the problems of the
entries that could not be taken. The vocabulary of attributes:

    attribute         kind     from RSS / Atom / JSON Feed
    title             text     title; dc:title
    description       text     description / summary / summary
    content           text     content:encoded / content / content_html, content_text
    description:html  text     the same as HTML that is safe to show, where it says more than the text;
    content:html      text       likewise
    link              text     link (several are possible); a guid that is a permanent link
    link:<relation>   text     links of other relations (self, related, via…)
    author            text     author, dc:creator, itunes:author / author / authors (several)
    author:email, author:link  of Atom's persons
    category          text     category, dc:subject / category / tags (several)
    published         moment   pubDate, dc:date / published / date_published
    updated           moment   dcterms:modified / updated / date_modified
    published:text    text     a date that could not be read; updated:text likewise
    language          text     of the entry, or else of the feed
    comments          text     link to the discussion
    enclosure         text     link to an attached file (several); enclosure:type its media type
    source            text     title of the feed that the entry came from; source:link its address
    image, rights     text     as they are
    graph             graph    what an RDF document says; of RSS 1.0 what it says of the item
    prefix:name       text     extensions, under the prefixes of `vocabulary.PREFIXES`

An object of JSON lines has the attributes that it names, in the types of JSON; `published` and `updated` are read as
dates.
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
"""Attributes of feeds with one value: the first in the document counts."""

_WITH_HTML = frozenset({"description", "content"})


@dataclass(frozen=True, slots=True)
class AdaptedFeed:
    """What a document gives: the feed's own description, its items oldest first, and what was wrong.

    `problems` are the first ones, and a count of the others. `note` says that (and why) the document could only be
    read tolerantly.
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
    """The items of a document, as items of a feed.

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
    found: dict[str, Item] = {}
    totals = _Totals(document.name)
    for number, entry in enumerate(document.entries, start=1):
        place = f"{document.name}:{entry.line}" + (f" (entry {number})" if entry.line == 1 else "")
        identifier = clean_text(entry.id or "").strip()
        # A repeated id is not worth reading the entry. Feeds are newest first, so the first is the one to keep.
        if identifier not in found:
            try:
                item = _adapt_entry(entry, identifier, feed, base, document.language, place)
            except InputError as problem:
                problems.add(problem)
                continue
            identifier = item.id
        if identifier in found:
            problems.add_duplicate(identifier, place, "the first one was taken")
            continue
        totals.add(item)
        found[identifier] = item
    return _oldest_first(list(found.values()))


class _Totals:
    """Counts the values and the different attributes of a document's items."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values = 0
        self._attributes: set[str] = set()

    def add(self, item: Item) -> None:
        """Count an item, and refuse the document where the items have more than is taken."""
        self._values += sum(map(len, item.attributes.values()))
        self._attributes.update(item.attributes)
        for count, limit, what in (
            (self._values, MAX_DOCUMENT_VALUES, "values"),
            (len(self._attributes), MAX_ATTRIBUTES, "different attributes"),
        ):
            if count > limit:
                raise BrokenDocumentError(
                    f"the items of the document have more than {limit} {what}",
                    place=f"{self._name}:1",
                    hint="split it into smaller ones",
                )


def _adapt_entry(
    entry: WireEntry, identifier: str, feed: str, base: str | None, language: str | None, place: str
) -> Item:
    inner = join_base(base, entry.base)
    raw: dict[str, list[str | datetime]] = {}
    permanent: str | None = None
    for field in entry.fields:
        if field.name == "guid":
            permanent = safe_link(field.text)
        elif field.name not in SINGLE or field.name not in raw:
            _adapt_field(field, join_base(inner, field.base), raw, place)
    if permanent and "link" not in raw:
        raw["link"] = [permanent]
    if language and "language" not in raw:
        raw["language"] = [language]
    attributes = _attributes(raw, place)
    if entry.graph:
        attributes = {**attributes, GRAPH: (entry.graph,)}
    return Item(feed, _identifier(identifier, attributes, place), attributes)


def _attributes(raw: Mapping[str, list[str | datetime]], place: str) -> Attributes:
    """What `attributes_of` gives, for what is flat and typed already: each value once, however many there are."""
    if sum(map(len, raw.values())) > MAX_VALUES:
        raise InvalidItemError(f"more than {MAX_VALUES} values", place=place, hint="split the item")
    found: dict[str, tuple[Value, ...]] = {}
    for name, values in raw.items():
        cleaned = clean_text(name).strip()
        if not cleaned or len(cleaned) > MAX_NAME:
            raise InvalidItemError(f"an element's name must have 1 to {MAX_NAME} characters", place=place)
        kept: list[Value] = [clean_text(value) if isinstance(value, str) else value for value in values]
        if len(kept) > 1 or cleaned in found or not kept[0]:
            kept = list(dict.fromkeys([*found.get(cleaned, ()), *(value for value in kept if value)]))
        if kept:
            found[cleaned] = tuple(kept)
    return found


def _adapt_field(field: WireField, base: str | None, raw: dict[str, list[str | datetime]], place: str) -> None:
    """Add what a field says to the raw attributes; a field that says nothing adds nothing."""
    # Only RDF makes a graph: an element that happens to be called so is a text.
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
        read = read_markup(text, base)
        value = read.text
        if len(read.html) > 4 * MAX_TEXT:
            raise InvalidItemError(f"{name} is longer than {MAX_TEXT} characters", place=place, hint="shorten it")
        if read.html and "<" in read.html:
            raw.setdefault(f"{name}:html", []).append(read.html)
    elif field.form is TextForm.MARKUP:
        value = plain_text(text)
    else:
        value = " ".join(text.split()) if name in ("title", "category", "author") else tidy_spaces(text)
    if value:
        raw.setdefault(name, []).append(value)


def _identifier(identifier: str, attributes: Attributes, place: str) -> str:
    """The entry's own id, else its link, else a digest of its content."""
    links = attributes.get("link", ())
    if not identifier and links:
        identifier = str(links[0])
    if not identifier:
        told = [str(value) for name in ("title", "description", "published") for value in attributes.get(name, ())]
        if not told:
            told = [f"{name}={value}" for name in sorted(attributes) for value in attributes[name]]
        if not told:
            raise InvalidItemError("the entry is empty", place=place, hint="give it an id, a link or a title")
        identifier = f"urn:runnel:{hashlib.blake2b(chr(0).join(told).encode(), digest_size=16).hexdigest()}"
    if len(identifier) > MAX_ID:
        raise InvalidItemError(f"the id is longer than {MAX_ID} characters", place=place)
    return identifier


def _oldest_first(items: list[Item]) -> list[Item]:
    """Feeds are written newest first; dates decide where every entry has one."""
    items.reverse()
    dates = [item.first("published") for item in items]
    if all(isinstance(date, datetime) for date in dates):
        order = sorted(range(len(items)), key=lambda row: dates[row])  # type: ignore[arg-type,return-value]
        return [items[row] for row in order]
    return items


def _adapt_records(document: WireDocument, feed: str, problems: ProblemList) -> list[Item]:
    found: dict[str, Item] = {}
    totals = _Totals(document.name)
    for record in document.records:
        place = f"{document.name}:{record.line}"
        try:
            item = item_of_object(record.value, feed, place)
        except InputError as problem:
            problems.add(problem)
            continue
        totals.add(item)
        if item.id in found:
            # Lines are oldest first, so the last is the one to keep, at its own position in the order.
            problems.add_duplicate(item.id, place, "this last one was taken")
            del found[item.id]
        found[item.id] = item
    return list(found.values())


def item_of_object(value: Mapping[str, Any], feed: str, place: str = "item") -> Item:
    """An item from a JSON-like object: `id` names it, everything else is its attributes.

    >>> item_of_object({"id": "a", "price": 3, "published": "15 Nov 2026"}, "Shop").attributes["published"][0].year
    2026
    """
    raw = {str(name): _reread(str(name), one) for name, one in value.items() if name != "id"}
    for name in MOMENTS & raw.keys():
        _split_dates(name, raw)
    attributes = attributes_of(raw, place=place)
    match value.get("id"):
        case str() as given:
            identifier = given
        case bool():
            raise InvalidItemError("the id is neither text nor a number", place=place)
        case int() | float() as number if abs(number) < 1 << 1023:
            identifier = str(number)
        case None:
            identifier = ""
        case _:
            raise InvalidItemError("the id is neither text nor a number", place=place)
    return Item(feed, _identifier(clean_text(identifier).strip(), attributes, place), attributes)


def _reread(name: str, value: Any) -> Any:
    """HTML from outside is made safe wherever it arrives under a name that promises HTML."""
    if name.endswith(":html"):
        return [read_markup(one).html if isinstance(one, str) else one for one in _several(value)]
    return value


def _split_dates(name: str, raw: dict[str, Any]) -> None:
    dates: list[Any] = []
    texts: list[str] = []
    for one in _several(raw.pop(name)):
        date = parse_date(one) if isinstance(one, str) else one
        if date is None and isinstance(one, str):
            texts.append(one)
        else:
            dates.append(date)
    raw[name] = dates
    if texts:
        raw[f"{name}:text"] = [*_several(raw.get(f"{name}:text", ())), *texts]


def _several(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
