"""The program of the tolerant reader's sandbox: a feed in UTF-8 comes in, what feedparser finds goes back as JSON.

A sandbox is needed because a single megabyte can keep feedparser busy for an hour. It is given bytes and never an
address, so that it fetches nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import feedparser

_DEEPEST = 6


def open_program() -> Callable[[bytes], bytes]:
    """The function that answers requests."""
    # Load now what is loaded late: after the limits are set no file can be opened.
    answer(b"<rss><channel><item><description>&lt;b>1&lt;/b></description></item></channel></rss>")
    answer(b"<rss><channel><item><pubDate>1 Jan 2026</pubDate><title>&#38; <b>1</title></item>")
    return answer


def answer(request: bytes) -> bytes:
    """What feedparser finds in a feed."""
    found = _parse(request)
    told = {"version": found.get("version") or "", "feed": _plain(found.feed), "entries": _plain(found.entries)}
    return json.dumps(told).encode()


def _parse(data: bytes) -> Any:
    return feedparser.parse(
        io.BytesIO(data),
        response_headers={"content-type": "application/xml; charset=utf-8"},
        resolve_relative_uris=False,
        sanitize_html=False,
    )


def _plain(value: Any, depth: int = 0) -> Any:
    """Texts, and lists and objects of them; all else is left out."""
    if depth > _DEEPEST:
        return None
    match value:
        case str():
            return value
        case dict():
            # Past feedparser's own dictionary, which answers for other keys as well.
            return {str(key): _plain(one, depth + 1) for key, one in dict.items(value)}
        case list():
            return [_plain(one, depth + 1) for one in value]
        case _:
            return None
