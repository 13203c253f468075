"""The contract of sources: which addresses a source handles, and how its items are read.

In: the addresses of registered feeds. Out: items in the item log. A source declares which addresses it handles and
who may register them. Its reader accepts the items of all its feeds while a runner is active.
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
    """A kind of feed address, such as web URLs or drop folders. A source has no state."""

    schemes: ClassVar[frozenset[str]]
    """The URL schemes that it handles, in lower case, without `://`. The empty string stands for paths."""
    is_for_owners: ClassVar[bool] = False
    """Whether owners may register its addresses. If not, only the admin may."""
    has_period: ClassVar[bool] = False
    """Whether each feed has its own poll period (`every 1 hour`). If not, feeds are read every `scan_seconds`."""

    @abstractmethod
    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        """Raise InputError for an address that can never be read. Called when a feed is registered.

        Paths are relative to `folder`, the folder of the workspace. Implementations must not open the address.
        """

    @abstractmethod
    def open(self, acquirer: Acquirer) -> SourceReader:
        """Return a reader for all feeds of this source."""


class SourceReader(ABC):
    """Accepts the new items of all feeds of a source. Used by one thread at a time."""

    name: str
    """The name of its runner loop."""
    pause: float
    """Seconds between two rounds."""
    has_period: bool = False
    """As in its source; `FeedReader` copies the value. Bounded runs read such feeds once, at the start."""

    @abstractmethod
    def read(self, *, once: bool = False, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """Read the feeds that are due, and return the counts. With `once`, return only when all of them were read.

        If a feed cannot be read, report it and read the others. Read nothing if the lag limit is reached, and nothing
        from paused or dropped feeds. Call `progressed` after every document.
        """

    def close(self) -> None:
        """Close connections."""
        return
