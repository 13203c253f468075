"""The items of windows in files, for answers about items of the log.

In: the catalog. Out: the mapped files, and the keys under which they list the items of each window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.catalog.logs import windows
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """The stored items of all windows, the bytes of each part, and the keys of the filled windows by feed."""

    parts: tuple[WindowItems, ...] = ()
    bytes: tuple[int, ...] = ()
    keys: Mapping[int, int] = field(default_factory=dict)

    def bytes_of(self, key: int) -> int:
        """Return the bytes of a window: its share of each part by the number of items."""
        shares = zip(self.parts, self.bytes, strict=True)
        return round(sum(size * len(part.members_of(key)) / len(part) for part, size in shares if len(part)))


def read_stored_windows(workspace: Workspace) -> StoredWindows:
    """Map the files of windows. Damaged files count as empty, because the windows are filled again."""
    from runnel.streaming.window_store import read_segment

    with workspace.catalog.read() as connection:
        filled = windows.filled_windows(connection)
        segments = windows.live_segments(connection)
    try:
        parts = tuple(read_segment(workspace.storage, segment.path) for segment in segments)
    except CorruptDataError:
        return StoredWindows()
    keys = {feed: window.key for feed, window in filled.items()}
    return StoredWindows(parts, tuple(segment.bytes for segment in segments), keys)
