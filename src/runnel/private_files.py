"""Files and folders that only their user can read, whatever the umask is.

In: the path of a file or folder that Runnel makes. Out: an open handle, or the folder. Root often runs a command in a
workspace of another user: what root makes then belongs to the owner of the folder it is made in, as with the files
that SQLite makes next to a database. Otherwise that user could not read it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
OPEN_TO_OTHERS = 0o077
"""The bits of a mode that let other users in."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(path: str | Path, flags: int) -> int:
    """Open a file, which is made private if it does not exist; fits the parameter `opener` of `open`.

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
    """Make a folder and those above it, durably, if they do not exist."""
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
    """Make the missing folders above a path. Only this user can write to them; others may read them."""
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
    """Let a file or folder that root has just made belong to the owner of the folder around it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        if owner.st_uid not in (0, os.fstat(handle).st_uid):
            with suppress(OSError):  # a file server or a container may not let root do so
                os.fchown(handle, owner.st_uid, owner.st_gid)
