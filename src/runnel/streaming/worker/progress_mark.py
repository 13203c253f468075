"""A file that workers touch whenever they make progress within a batch.

A batch may take hours if operators are slow. From the file's modification time the runner knows that such a batch is
not stuck.
"""

from __future__ import annotations

import os
from contextlib import suppress

from runnel.storage.file_storage import Storage

_FILE = "private/progress"


def place_mark(storage: Storage) -> None:
    """Create the file, before workers start."""
    storage.replace(_FILE, b"")


def touch_mark(storage: Storage) -> None:
    """Update the file's modification time. Ignore errors, because matching can continue without the file."""
    with suppress(OSError):
        os.utime(storage.local(_FILE))


def read_mark(storage: Storage) -> int:
    """Return a number that changes with each touch, or 0 if the file does not exist."""
    try:
        return storage.local(_FILE).stat().st_mtime_ns
    except OSError:
        return 0
