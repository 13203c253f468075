"""File permissions of a workspace: private to its user, except for `out` if `shared_output` is set.

In: an open workspace. Out: its files and folders with wrong permissions, and their repair. Files that Runnel creates
are private from the start, see runnel.private_files; this module handles files that a user created or copied.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runnel.catalog.store.connection import sqlite_file
from runnel.engine.workspace import Workspace
from runnel.private_files import OPEN_TO_OTHERS

_SHARED_FOLDER, _SHARED_FILE = 0o755, 0o644
_PASSABLE = 0o011
"""The permissions that others need on the workspace's folder to open `out` without listing the folder."""
_CATALOG_SUFFIXES = ("", "-wal", "-shm", ".declaring")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class WrongMode:
    """A file or folder with wrong permissions."""

    path: Path
    mode: int
    wanted: int

    @property
    def is_open(self) -> bool:
        """Whether others have more access than they should."""
        return bool(self.mode & ~self.wanted)

    def repair(self) -> None:
        """Set the right permissions, without following a link. Raise OSError if this user is not allowed to."""
        handle = os.open(self.path, _OPEN)
        try:
            mode = os.fstat(handle).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                os.fchmod(handle, self.wanted)
        finally:
            os.close(handle)


def wrong_modes(workspace: Workspace) -> Iterator[WrongMode]:
    """Yield files and folders of a workspace with wrong permissions, a folder before its content.

    A folder without access for others also protects its content, so it is not searched.
    """
    shared = workspace.out if workspace.settings.shared_output else None
    folders = {workspace.folder.resolve(), workspace.storage.local("").resolve()}
    for folder in sorted(folders):
        if not any(folder != other and folder.is_relative_to(other) for other in folders):
            yield from _search(folder, None if shared is None else shared.resolve(), is_shared=False)
    catalog = sqlite_file(workspace.catalog.url)
    if catalog is not None and not any(catalog.resolve().is_relative_to(folder) for folder in folders):
        for suffix in _CATALOG_SUFFIXES:
            yield from _search(catalog.with_name(f"{catalog.name}{suffix}"), None, is_shared=False)


def _search(path: Path, shared: Path | None, *, is_shared: bool) -> Iterator[WrongMode]:
    """Check the modes of a file or folder and its content. Links are skipped."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if not is_folder and not stat.S_ISREG(status.st_mode):
            return
        is_shared = is_shared or path == shared
        mode = stat.S_IMODE(status.st_mode)
        wanted = mode & ~OPEN_TO_OTHERS
        if is_shared:
            wanted |= _SHARED_FOLDER if is_folder else _SHARED_FILE
        elif shared is not None and path == shared.parent:
            wanted |= _PASSABLE
        if mode != wanted:
            yield WrongMode(path, mode, wanted)
        if is_folder and (mode | wanted) & OPEN_TO_OTHERS:
            for inner in sorted(path.iterdir()):
                yield from _search(inner, shared, is_shared=is_shared)
