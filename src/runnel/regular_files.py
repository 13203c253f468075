"""Open files that other users placed in a folder: only regular files, without following links or blocking."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(folder: Path, parts: Sequence[str]) -> int:
    """Open a regular file below a folder and return its handle. Raise OSError if that is not possible.

    Each folder of the path is opened relative to the handle of its parent, so no symbolic link below the folder is
    followed, not even one that is created in the meantime. Pipes and devices are refused without blocking.
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
