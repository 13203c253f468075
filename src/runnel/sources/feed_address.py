"""Addresses of feeds: what `register feed '…'` names. Whether something is there is known only when it is read."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from runnel.errors import InputError


def scheme_of(address: str) -> str:
    """The scheme of an address in lower case; empty for a path.

    >>> scheme_of("HTTPS://muse.example/rss"), scheme_of("drop/news")
    ('https', '')
    """
    scheme, separator, _ = address.partition("://")
    return scheme.lower() if separator else ""


def is_web(address: str) -> bool:
    """Whether an address is one on the web, which is polled.

    >>> is_web("HTTPS://muse.example/rss"), is_web("drop/news"), is_web("file:///srv/news")
    (True, False, False)
    """
    return scheme_of(address) in ("http", "https")


def local_path(address: str, folder: Path) -> Path:
    """The path that an address names: a path, relative to a folder, or a `file://` URL.

    >>> local_path("drop/news", Path("/srv/runnel")).as_posix(), local_path("file:///a%20b", Path("/srv")).as_posix()
    ('/srv/runnel/drop/news', '/a b')
    """
    if not scheme_of(address):
        return folder / address
    try:
        split = urlsplit(address)
    except ValueError as error:
        raise InputError(f"the address is not a URL: {error}", place=address[:80]) from error
    path = unquote(split.path)
    if split.netloc not in ("", "localhost"):
        raise InputError("a file:// URL must not name another machine", place=address[:80], hint="write file:///path")
    if not path or "\0" in path:
        raise InputError("the file:// URL has no usable path", place=address[:80], hint="write file:///path")
    return folder / path
