"""JSON Feed 1.1 files: render entries, and read the entries of our own files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runnel.sinks.files.feed_entries import GENERATOR, FeedEntry, FeedHead, ForeignFileError, ShownItem
from runnel.sinks.files.valid_texts import html_of, language, media_type, plain_text, web_address
from runnel.sinks.show_bindings import bindings_json

_VERSION = "https://jsonfeed.org/version/1.1"
_MARK = "_runnel"


class JsonFeed:
    """JSON Feed 1.1."""

    def read(self, data: bytes) -> list[FeedEntry]:
        """Read the entries of a file of ours."""
        try:
            document = json.loads(data.decode("utf-8"))
            if document["version"] != _VERSION or document[_MARK]["generator"] != GENERATOR:
                raise ForeignFileError
            return [_own_entry(item) for item in document["items"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ForeignFileError from error

    def entry(self, shown: ShownItem) -> FeedEntry:
        """Create an entry."""
        node: dict[str, Any] = {
            "id": shown.id,
            "url": shown.link,
            "title": shown.title,
            "summary": plain_text(shown.summary) if shown.summary and shown.content else None,
            "content_html": shown.content or shown.summary or html_of(shown.title),
            "date_published": shown.published.isoformat() if shown.published else None,
            "date_modified": shown.updated.isoformat(),
            "authors": [{"name": author} for author in shown.authors],
            "tags": list(shown.categories),
            "language": shown.language,
            "attachments": _attachments(shown),
            _MARK: {
                "feed": shown.feed,
                "item": shown.item,
                "version": shown.version,
                "sequence": shown.sequence,
                **bindings_json(shown.bindings),
                **_annotations(shown),
            },
        }
        members = {key: value for key, value in node.items() if value not in (None, [], "")}
        return FeedEntry(shown.id, shown.version, shown.sequence, members)

    def render(self, head: FeedHead, entries: Sequence[FeedEntry]) -> bytes:
        """Render the whole document."""
        document = {
            "version": _VERSION,
            "title": head.title,
            **({"feed_url": head.address} if head.address else {}),
            "description": head.description,
            _MARK: {"generator": GENERATOR, "id": head.id, "updated": head.updated.isoformat()},
            "items": [entry.node for entry in entries],
        }
        return json.dumps(document, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


def _annotations(shown: ShownItem) -> dict[str, Any]:
    """Return the joined items of an item as a member of its extension, or nothing if there are none."""
    if not shown.annotations:
        return {}
    annotations: dict[str, Any] = {}
    for annotation in shown.annotations:
        items = [
            {"feed": item.feed, "item": item.item, "version": item.version, "title": plain_text(item.title)}
            | ({"url": item.link} if item.link else {})
            | ({"date_published": item.published.isoformat()} if item.published else {})
            | ({"attachments": _attachments(item)} if item.enclosure else {})
            | ({"omitted": item.omitted} if item.omitted else {})
            for item in annotation.items
        ]
        annotations[annotation.name] = {"items": items, "count": annotation.count}
    return {"annotations": annotations}


def _attachments(shown: ShownItem) -> list[dict[str, str]]:
    return [{"url": shown.enclosure, "mime_type": shown.enclosure_type}] if shown.enclosure else []


def _own_entry(item: dict[str, Any]) -> FeedEntry:
    mark = item[_MARK]
    version, sequence = mark["version"], mark["sequence"]
    if not (isinstance(item["id"], str) and isinstance(version, int) and isinstance(sequence, int)):
        raise ForeignFileError
    return FeedEntry(item["id"], version, sequence, _upgraded(item))


def _upgraded(item: dict[str, Any]) -> dict[str, Any]:
    """Convert an entry to the current form: older entries had unchecked URLs and could lack content."""
    item = item | {"content_html": item.get("content_html") or html_of(str(item.get("title") or item["id"]))}
    for name, repair in (("url", web_address), ("summary", plain_text), ("language", language)):
        if name in item:
            item[name] = repair(str(item[name]))
    if "attachments" in item:
        urls = [(attachment, web_address(str(attachment["url"]))) for attachment in item["attachments"]]
        item["attachments"] = [
            attachment
            | {"url": url, "mime_type": media_type(str(attachment["mime_type"])) or "application/octet-stream"}
            for attachment, url in urls
            if url
        ]
    return {key: value for key, value in item.items() if value not in (None, [], "")}
