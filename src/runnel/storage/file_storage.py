"""The storage interface that all files of a workspace go through, and local files as its built-in implementation.

A storage is opened by its URL. URL schemes are entry points of the group `runnel.storages`, so workers in other
processes can open the same storage. A file is written once, as a whole, and is durable when `write` returns. Other
users cannot read it.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from runnel.entry_points import find_entry, plugin_names
from runnel.errors import ReadOnlyError, StorageFullError, WorkspaceError
from runnel.private_files import make_private_folder, open_private, sync_folder

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a listing of the storage. Listings serve only to find orphans, never to find data."""

    path: str
    size: int
    modified: float


class Storage(Protocol):
    """Operations on files. Paths are relative and use forward slashes."""

    url: str

    def write(self, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        """Write a new file durably. No file of that name may exist.

        For several files in one folder, pass `last` only for the last one: it makes all their names durable with one
        wait for the disk.
        """

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Replace a file atomically: readers see the old or the new content."""

    def read(self, path: str) -> bytes:
        """Read the whole content of a file."""

    def local(self, path: str) -> Path:
        """Return a local path of a file, for memory mapping."""

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""

    def move(self, path: str, target: str) -> None:
        """Rename a file if it exists."""

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """List all files below a folder."""


class FileStorage:
    """Files in a local or shared folder."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._folder = Path(unquote(urlsplit(url).path))

    def write(self, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        target = self._folder / path
        with self._writing():
            self._put(target, data, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            if last:
                sync_folder(target.parent)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        target = self._folder / path
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with self._writing():
            self._put(draft, data, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            draft.replace(target)
            sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def local(self, path: str) -> Path:
        return self._folder / path

    def delete(self, path: str) -> None:
        with self._writing():
            (self._folder / path).unlink(missing_ok=True)

    def move(self, path: str, target: str) -> None:
        moved = self._folder / target
        with self._writing():
            make_private_folder(moved.parent)
            with suppress(FileNotFoundError):
                (self._folder / path).rename(moved)

    def files(self, prefix: str) -> Iterator[StoredFile]:
        top = self._folder / prefix
        for folder, _, names in os.walk(top):
            for name in names:
                path = Path(folder) / name
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                yield StoredFile(path.relative_to(self._folder).as_posix(), status.st_size, status.st_mtime)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            raise ReadOnlyError(
                f"{self._folder} cannot be written: {error.strerror}",
                hint="run the command as the user who owns the workspace, or make the disk and the folder writable",
            ) from error

    def _put(self, target: Path, data: bytes | memoryview, flags: int) -> None:
        try:
            make_private_folder(target.parent)
            handle = open_private(target, flags)
            try:
                view = memoryview(data).cast("B")
                while view:
                    view = view[os.write(handle, view) :]
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno in _FULL:
                target.unlink(missing_ok=True)
                raise StorageFullError(
                    f"no disk space left in {self._folder}", hint="free disk space; processing resumes automatically"
                ) from error
            raise


@cache
def open_storage(url: str) -> Storage:
    """Open the storage of a URL such as `file:///var/lib/runnel`.

    >>> open_storage("file:///tmp/example").local("items/1.arrow").as_posix()
    '/tmp/example/items/1.arrow'
    """
    scheme = urlsplit(url).scheme
    entry = find_entry("runnel.storages", scheme)
    if entry is None:
        schemes = ", ".join(plugin_names("runnel.storages"))
        raise WorkspaceError(f"no storage plug-in supports {scheme}: URLs", hint=f"supported schemes: {schemes}")
    storage: Storage = entry.load()(url)
    return storage
