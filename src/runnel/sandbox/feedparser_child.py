"""The sandbox program for broken feeds: parses a feed in UTF-8 with feedparser and replies with JSON.

A sandbox is needed because a single megabyte can keep feedparser busy for an hour. feedparser gets bytes and never a
URL, so it fetches nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import feedparser

_MAX_DEPTH = 6


def open_program() -> Callable[[bytes], bytes]:
    """Load feedparser completely, and return the function that answers requests."""
    # Parse examples, so that all modules are imported now. Once the limits are set, no file can be opened.
    answer(b"<rss><channel><item><description>&lt;b>1&lt;/b></description></item></channel></rss>")
    answer(b"<rss><channel><item><pubDate>1 Jan 2026</pubDate><title>&#38; <b>1</title></item>")
    return answer


def answer(request: bytes) -> bytes:
    """Parse a feed, and return the reply."""
    parsed = _parse(request)
    reply = {"version": parsed.get("version") or "", "feed": _plain(parsed.feed), "entries": _plain(parsed.entries)}
    return json.dumps(reply).encode()


def _parse(data: bytes) -> Any:
    return feedparser.parse(
        io.BytesIO(data),
        response_headers={"content-type": "application/xml; charset=utf-8"},
        resolve_relative_uris=False,
        sanitize_html=False,
    )


def _plain(value: Any, depth: int = 0) -> Any:
    """Copy texts, lists and dictionaries. Replace all other values, and those nested too deeply, by None."""
    if depth > _MAX_DEPTH:
        return None
    match value:
        case str():
            return value
        case dict():
            # Bypass the methods of feedparser's dictionary, which add aliases of keys.
            return {str(key): _plain(member, depth + 1) for key, member in dict.items(value)}
        case list():
            return [_plain(member, depth + 1) for member in value]
        case _:
            return None
