"""The contract of sources: which addresses can be registered, and how their items come in.

In: the addresses of registered feeds. Out: items in the log. A source says which addresses are its own and who may
register them; its reader takes in the items of all of its feeds, for as long as a runner lives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from runnel.settings import Settings

if TYPE_CHECKING:
    from runnel.sources.acquire import Acquirer, Acquisition


class Source(ABC):
    """A kind of address, such as web addresses or drop folders. It keeps no state between calls."""

    schemes: ClassVar[frozenset[str]]
    """What its addresses begin with, in lower case: `https` stands for `https://…`, and the empty text for a path."""
    is_for_owners: ClassVar[bool] = False
    """Whether owners may register its addresses, or only the admin."""
    has_period: ClassVar[bool] = False
    """Whether feeds are read in periods of their own (`every 1 hour`); others are read every `scan_seconds`."""

    @abstractmethod
    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        """Refuse an address that can never be read, with InputError; called when a feed is registered.

        Relative paths are relative to `folder`, the folder of the workspace. Nothing is opened here.
        """

    @abstractmethod
    def open(self, acquirer: Acquirer) -> SourceReader:
        """A reader of all feeds of this source."""


class SourceReader(ABC):
    """Accepts the new items of all feeds of a source. One thread at a time uses it."""

    name: str
    """The name of its runner loop."""
    pause: float
    """Seconds between two rounds."""
    has_period: bool = False
    """The same as that of its source, which `FeedReader` copies. Bounded runs read such feeds once, at the start."""

    @abstractmethod
    def read(self, *, once: bool = False, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """One round over the feeds; with `once` all that is due is read before it returns.

        A feed that cannot be read is reported, and the others are still read. Nothing is read above the lag limit,
        from feeds that are paused, or from feeds that were dropped. `progressed` is called after every document.
        """

    def close(self) -> None:
        """Close connections."""
        return
