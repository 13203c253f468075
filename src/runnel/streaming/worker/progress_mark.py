"""A file that workers touch whenever they make progress within a batch, and to which they append reports.

A batch may take hours if operators are slow. From the file's modification time the runner knows that such a batch is
not stuck. The runner writes the reports to the application log, which other processes cannot write to.
"""

from __future__ import annotations

import json
import logging
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


def report_work(storage: Storage, text: str, level: int = logging.INFO) -> None:
    """Report something to the runner, which logs it. Ignore errors: matching continues without the file."""
    line = json.dumps({"level": level, "text": text}) + "\n"
    with suppress(OSError), open(storage.local(_FILE), "a", opener=_open_existing) as file:
        file.write(line)


def _open_existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


def read_reports(storage: Storage, position: int) -> tuple[list[tuple[int, str]], int]:
    """Return the reports after a position of the file, each with its level, and the position after them."""
    try:
        with storage.local(_FILE).open("rb") as file:
            if file.seek(0, os.SEEK_END) < position:
                position = 0  # the file was placed again
            file.seek(position)
            complete, end, _ = file.read().rpartition(b"\n")
    except OSError:
        return [], position
    lines = [json.loads(line) for line in complete.splitlines()]
    return [(line["level"], line["text"]) for line in lines], position + len(complete) + len(end)


def read_mark(storage: Storage) -> int:
    """Return a number that changes with each touch, or 0 if the file does not exist."""
    try:
        return storage.local(_FILE).stat().st_mtime_ns
    except OSError:
        return 0
