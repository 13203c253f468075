"""Render a feed's items of one edition as a document in RSS 2.0, RSS 1.0, Atom, JSON Feed or JSON lines.

In: a feed and items. Out: the text of a document, newest item first, or oldest first in JSON lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from email.utils import format_datetime
from html import escape
from typing import Any

from runnel.testing.news import WorldItem
from runnel.testing.newsroom import Format, WorldFeed

EXTENSIONS: dict[Format, str] = {"rss": "rss", "rdf": "rdf", "atom": "atom", "json": "json", "jsonl": "jsonl"}


def render_document(feed: WorldFeed, items: Sequence[WorldItem]) -> str:
    """Render a document with these items in the feed's format."""
    return _RENDERERS[feed.format](feed, items)


def _rss(feed: WorldFeed, items: Sequence[WorldItem]) -> str:
    entries = "".join(
        f"<item><title>{escape(item.title)}</title><link>{escape(item.link)}</link>"
        f'<guid isPermaLink="false">{escape(item.id)}</guid>'
        f"<description>{escape(_body(item))}</description><dc:creator>{escape(item.author)}</dc:creator>"
        + "".join(f"<category>{escape(category)}</category>" for category in item.categories)
        + f"<pubDate>{format_datetime(item.published)}</pubDate>"
        + (f"<atom:updated>{_iso(item.updated)}</atom:updated>" if item.updated else "")
        + "</item>\n"
        for item in reversed(items)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:atom="http://www.w3.org/2005/Atom">\n'
        f"<channel><title>{escape(feed.title)}</title><link>{feed.link}</link>"
        f"<description>{escape(feed.description)}</description>\n{entries}</channel></rss>\n"
    )


def _rdf(feed: WorldFeed, items: Sequence[WorldItem]) -> str:
    newest = list(reversed(items))
    listed = "".join(f'<rdf:li rdf:resource="{escape(item.id)}"/>' for item in newest)
    entries = "".join(
        f'<item rdf:about="{escape(item.id)}"><title>{escape(item.title)}</title><link>{escape(item.link)}</link>'
        f"<description>{escape(_body(item))}</description><dc:creator>{escape(item.author)}</dc:creator>"
        + "".join(f"<dc:subject>{escape(category)}</dc:subject>" for category in item.categories)
        + f"<dc:date>{_iso(item.published)}</dc:date>"
        + (f"<dcterms:modified>{_iso(item.updated)}</dcterms:modified>" if item.updated else "")
        + "</item>\n"
        for item in newest
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<rdf:RDF xmlns="http://purl.org/rss/1.0/" '
        'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns:dcterms="http://purl.org/dc/terms/">\n'
        f'<channel rdf:about="{feed.link}"><title>{escape(feed.title)}</title><link>{feed.link}</link>'
        f"<description>{escape(feed.description)}</description><items><rdf:Seq>{listed}</rdf:Seq></items></channel>\n"
        f"{entries}</rdf:RDF>\n"
    )


def _atom(feed: WorldFeed, items: Sequence[WorldItem]) -> str:
    entries = "".join(
        f"<entry><id>{escape(item.id)}</id><title>{escape(item.title)}</title>"
        f'<link href="{escape(item.link)}"/><author><name>{escape(item.author)}</name></author>'
        + "".join(f'<category term="{escape(category)}"/>' for category in item.categories)
        + f"<published>{_iso(item.published)}</published><updated>{_iso(item.updated or item.published)}</updated>"
        f'<summary type="{"html" if item.markup else "text"}">{escape(_body(item))}</summary></entry>\n'
        for item in reversed(items)
    )
    latest = max((item.updated or item.published for item in items), default=None)
    updated = f"<updated>{_iso(latest)}</updated>" if latest else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
        f'<id>{feed.link}</id><title>{escape(feed.title)}</title><link href="{feed.link}"/>'
        f"<subtitle>{escape(feed.description)}</subtitle>{updated}\n{entries}</feed>\n"
    )


def _json_feed(feed: WorldFeed, items: Sequence[WorldItem]) -> str:
    entries: list[dict[str, Any]] = []
    for item in reversed(items):
        entry = {
            "id": item.id,
            "url": item.link,
            "title": item.title,
            "summary": item.description,
            "content_html" if item.markup else "content_text": _body(item),
            "authors": [{"name": item.author}],
            "tags": list(item.categories),
            "date_published": _iso(item.published),
        }
        if item.updated:
            entry["date_modified"] = _iso(item.updated)
        entries.append(entry)
    head = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": feed.title,
        "description": feed.description,
        "home_page_url": feed.link,
    }
    return json.dumps({**head, "items": entries}, ensure_ascii=False, indent=1) + "\n"


def _json_lines(feed: WorldFeed, items: Sequence[WorldItem]) -> str:
    lines = []
    for item in items:
        line = {
            "id": item.id,
            "title": item.title,
            "description": item.description,
            "link": item.link,
            "author": item.author,
            "category": list(item.categories),
            "published": _iso(item.published),
        }
        if item.updated:
            line["updated"] = _iso(item.updated)
        lines.append(json.dumps({**line, **dict(item.numbers)}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines)


def _body(item: WorldItem) -> str:
    return item.description if item.markup is None else item.markup


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


_RENDERERS: dict[Format, Callable[[WorldFeed, Sequence[WorldItem]], str]] = {
    "rss": _rss,
    "rdf": _rdf,
    "atom": _atom,
    "json": _json_feed,
    "jsonl": _json_lines,
}
