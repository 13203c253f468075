"""A file that workers touch whenever they make progress within a batch.

A batch may take hours, if operators are slow. The file tells the runner that such a batch is not stuck.
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
    """Note progress; a worker that cannot touch the file goes on without."""
    with suppress(OSError):
        os.utime(storage.local(_FILE))


def read_mark(storage: Storage) -> int:
    """A number that differs after each progress; 0 if there is no file."""
    try:
        return storage.local(_FILE).stat().st_mtime_ns
    except OSError:
        return 0
