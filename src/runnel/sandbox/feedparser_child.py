"""The tolerant reader's process: a feed's UTF-8 on the standard input, what feedparser finds as JSON on the output.

Started by path, as a process of its own that knows nothing of Runnel, because feedparser can be kept busy for an hour
by a single megabyte. Time, memory, files and output are bounded by the system; it is given bytes, never an address,
so that it fetches nothing, and can open no connection.
"""

from __future__ import annotations

import io
import json
import resource
import sys
from typing import Any

import feedparser

_DEEPEST = 6


def main(seconds: int, megabytes: int, most: int) -> None:
    """Read, and print what was found where it is not more than `most` bytes."""
    # Whatever is loaded late is loaded now: after the limits no file can be opened.
    _parse(b"<rss><channel><item><description>&lt;b>1&lt;/b></description></item></channel></rss>")
    _parse(b"<rss><channel><item><pubDate>1 Jan 2026</pubDate><title>&#38; <b>1</title></item>")
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    found = _parse(sys.stdin.buffer.read())
    told = {"version": found.get("version") or "", "feed": _plain(found.feed), "entries": _plain(found.entries)}
    data = json.dumps(told).encode()
    if len(data) > most:
        sys.exit("more than is taken")
    sys.stdout.buffer.write(data)


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


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
