"""Parsing of feed addresses, as in `register feed '…'`. Nothing is opened here."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from runnel.errors import InputError


def scheme_of(address: str) -> str:
    """Return the scheme of an address in lower case, or an empty string for a path.

    >>> scheme_of("HTTPS://muse.example/rss"), scheme_of("drop/news")
    ('https', '')
    """
    scheme, separator, _ = address.partition("://")
    return scheme.lower() if separator else ""


def is_web(address: str) -> bool:
    """Return whether an address is an http or https URL, which is polled.

    >>> is_web("HTTPS://muse.example/rss"), is_web("drop/news"), is_web("file:///srv/news")
    (True, False, False)
    """
    return scheme_of(address) in ("http", "https")


def local_path(address: str, folder: Path) -> Path:
    """Return the path of an address, which is a path (relative to `folder` or absolute) or a `file://` URL.

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
        raise InputError(
            "a file:// URL must not contain a host other than localhost",
            place=address[:80],
            hint="write file:///path",
        )
    if not path or "\0" in path:
        raise InputError("the file:// URL has no usable path", place=address[:80], hint="write file:///path")
    return folder / path
