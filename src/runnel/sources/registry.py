"""The registry of sources, built-in and plug-in: the entry points of the group `runnel.sources`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, cast

from runnel.entry_points import find_entry, load_plugin, plugin_names
from runnel.errors import InputError
from runnel.sources.contract import Source, SourceReader
from runnel.sources.feed_address import scheme_of

if TYPE_CHECKING:
    from runnel.sources.acquire import Acquirer

logger = logging.getLogger("runnel")

GROUP = "runnel.sources"


@cache
def installed_sources() -> dict[str, Source]:
    """Return all sources that can be loaded, by name, built-in sources first."""
    entries = [entry for name in plugin_names(GROUP) if (entry := find_entry(GROUP, name)) is not None]
    loaded: dict[str, Source] = {}
    for entry in sorted(entries, key=lambda entry: not entry.value.startswith("runnel.")):
        try:
            loaded[entry.name] = _load(entry, loaded)
        except InputError as error:
            logger.warning("%s", error)
    return loaded


def source_of(address: str) -> Source:
    """Return the source that handles an address, or raise InputError if there is none.

    >>> type(source_of("drop/news")).__name__, type(source_of("https://muse.example/rss")).__name__
    ('DropFolders', 'WebFeeds')
    """
    if not address.strip():
        raise InputError("the address is empty", hint="give the path of a file or folder, or an https:// URL")
    if any(ord(character) < 0x20 for character in address):
        raise InputError("the address contains control characters", place=repr(address[:80]))
    scheme = scheme_of(address)
    for source in installed_sources().values():
        if scheme in source.schemes:
            return source
    schemes = sorted({scheme for source in installed_sources().values() for scheme in source.schemes if scheme})
    raise InputError(
        f"no source handles the scheme {scheme[:20]!r}",
        place=address[:80],
        hint=f"give a path, or a URL that begins with {', '.join(f'{known}://' for known in schemes)}",
    )


def open_readers(acquirer: Acquirer) -> list[SourceReader]:
    """Open a reader for each installed source. If a source fails to open, log it and skip its feeds."""
    readers = []
    for name, source in installed_sources().items():
        try:
            reader = source.open(acquirer)
            if not isinstance(reader, SourceReader):
                raise TypeError(f"open returned {type(reader).__name__}, not a SourceReader")
            readers.append(reader)
        except Exception:  # a plug-in may raise anything
            logger.exception("cannot open the source %r; its feeds are not read", name)
    return readers


def has_period(address: str) -> bool:
    """Return whether a feed at an address has its own poll period.

    >>> has_period("https://muse.example/rss"), has_period("drop/news"), has_period("gopher://muse.example")
    (True, False, False)
    """
    return any(source.has_period and scheme_of(address) in source.schemes for source in installed_sources().values())


def _load(entry: EntryPoint, others: Mapping[str, Source]) -> Source:
    """Load the source of an entry point. Reject it if another source has one of its schemes."""
    source = cast("Source", load_plugin(entry, Source, "source"))
    schemes = getattr(source, "schemes", None)
    if not isinstance(schemes, Set) or not schemes or not all(map(_is_scheme, schemes)):
        raise InputError(
            f"the source {entry.name!r} does not declare its schemes as a set of lower-case words without ://",
            hint=f"write schemes = frozenset({{{entry.name!r}}}) in the class {entry.value}",
        )
    for name, other in others.items():
        if taken := sorted(schemes & other.schemes):
            raise InputError(
                f"the source {entry.name!r} declares the scheme {taken[0]!r}, which belongs to the source {name!r}",
                hint=f"choose another scheme in the class {entry.value}",
            )
    return source


def _is_scheme(word: object) -> bool:
    return isinstance(word, str) and (not word or scheme_of(f"{word}://") == word)
