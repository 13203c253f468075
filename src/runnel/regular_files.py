"""Open files that other people put into a folder: regular files only, without following links or blocking."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(folder: Path, parts: Sequence[str]) -> int:
    """The handle of a regular file below a folder, or OSError.

    The path is walked folder by folder, by handle, so that no symbolic link below the folder is followed, not even
    one that appears meanwhile. A pipe or a device is refused; opening a pipe in the usual way waits for a writer.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, part in enumerate(parts, 1):
        outer = handle
        try:
            handle = os.open(part, _FLAGS | (0 if number == len(parts) else os.O_DIRECTORY), dir_fd=outer)
        finally:
            os.close(outer)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file")
    return handle
