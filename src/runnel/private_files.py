"""Create files and folders that only their user can read, regardless of the umask.

In: the path of a file or folder. Out: an open handle, or the folder. If root creates a file in another user's
workspace, the file is given to the owner of its folder, because that user could not read it otherwise. SQLite treats
the files next to a database in the same way.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
OPEN_TO_OTHERS = 0o077
"""The mode bits that give other users access."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(path: str | Path, flags: int) -> int:
    """Open a file, and make it private if it is created. Can be passed as `opener` to `open`.

    >>> import tempfile
    >>> with open(f"{tempfile.mkdtemp()}/secret", "w", opener=open_private) as file:
    ...     oct(os.fstat(file.fileno()).st_mode)
    '0o100600'
    """
    flags |= os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    try:
        handle = os.open(path, flags | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, FILE_MODE)
    _give_to_owner(handle, Path(path).parent)
    return handle


def make_private_folder(path: Path) -> None:
    """Create a private folder and its missing parents, durably."""
    if path.exists():
        return
    make_private_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir(FOLDER_MODE)
        handle = os.open(path, _FOLDER)
        try:
            _give_to_owner(handle, path.parent)
        finally:
            os.close(handle)
    sync_folder(path.parent)


def make_folders_above(path: Path) -> None:
    """Create the missing parents of a path. Other users can read them but not write to them."""
    folder = path.parent
    if not folder.exists():
        make_folders_above(folder)
        with suppress(FileExistsError):
            folder.mkdir(0o755)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _give_to_owner(handle: int, folder: Path) -> None:
    """If root has just created a file or folder, give it to the owner of the folder that contains it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        if owner.st_uid not in (0, os.fstat(handle).st_uid):
            with suppress(OSError):  # a file server or a container may not allow this
                os.fchown(handle, owner.st_uid, owner.st_gid)
