"""Addresses of feeds: what `register feed '…'` names.

In: the text of an address and the folder that relative paths are relative to. Out: an Address; whether something is
there is known only when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from runnel.errors import InputError

_HTTP = ("http", "https")


@dataclass(frozen=True, slots=True)
class FeedAddress:
    """Where a feed's documents are: a file or folder (`path`), or something on the web (`url`)."""

    text: str
    path: Path | None = None
    url: str | None = None

    def local_path(self) -> Path:
        """The path of a file or folder; a web address has none."""
        if self.path is None:
            raise InputError(
                "this address is on the web: polling over HTTP reads it, and not as a file",
                place=self.text,
                hint="a runner polls it by itself (`runnel run`)",
            )
        return self.path


def is_web(text: str) -> bool:
    """Whether an address is one on the web, which is polled.

    >>> is_web("HTTPS://muse.example/rss"), is_web("drop/news"), is_web("file:///srv/news")
    (True, False, False)
    """
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in _HTTP


def parse_address(text: str, folder: Path) -> FeedAddress:
    """The address in a text: a path, a `file://` URL, or a web address.

    >>> parse_address("drop/news", Path("/srv/runnel")).path.as_posix()
    '/srv/runnel/drop/news'
    >>> parse_address("https://muse.example/rss", Path("/srv")).url
    'https://muse.example/rss'
    """
    if not text.strip():
        raise InputError("the address is empty", hint="give the path of a file or folder")
    if any(ord(character) < 0x20 for character in text):
        raise InputError("the address has control characters in it", place=repr(text[:80]))
    scheme, separator, _ = text.partition("://")
    if not separator:
        return FeedAddress(text, path=_absolute(text, folder))
    try:
        split = urlsplit(text)
    except ValueError as error:
        raise InputError(f"the address is not a URL: {error}", place=text[:80]) from error
    match scheme.lower():
        case "file":
            return FeedAddress(text, path=_file_path(split.netloc, unquote(split.path), text, folder))
        case "http" | "https" if split.hostname:
            return FeedAddress(text, url=text)
        case other:
            raise InputError(
                f"addresses with {other[:20]!r} cannot be read",
                place=text[:80],
                hint="give a path, or a file:// or https:// URL with a host",
            )


def _file_path(host: str, path: str, text: str, folder: Path) -> Path:
    if host not in ("", "localhost"):
        raise InputError("a file:// URL must not name another machine", place=text[:80], hint="write file:///path")
    if not path or "\0" in path:
        raise InputError("the file:// URL has no usable path", place=text[:80], hint="write file:///path")
    return _absolute(path, folder)


def _absolute(text: str, folder: Path) -> Path:
    path = Path(text)
    return path if path.is_absolute() else folder / path
