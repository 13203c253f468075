"""Storages that fail on purpose: one kills its processes, one is full.

Tests use them to prove that no match is lost or repeated.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from runnel.errors import StorageFullError
from runnel.storage.file_storage import FileStorage, StoredFile


class CrashingStorage:
    """A file storage that kills a process group at a chosen operation.

    The URL is `crash+file:///folder?at=7&counter=/path&group=123`: at the 7th write, replace, move or delete, process
    group 123 receives SIGKILL. All processes that use the storage count together, in the file `counter`. With
    `when=before`, the group is killed before the operation, with `when=after` (the default) after it. With
    `below=matches/`, only operations on paths that start with `matches/` count.
    """

    def __init__(self, url: str) -> None:
        split = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(split.query).items()}
        self.url = url
        self._files = FileStorage(f"file://{split.path}")
        self._at = int(options["at"])
        self._counter = Path(options["counter"])
        self._group = int(options["group"])
        self._before = options.get("when") == "before"
        self._below = options.get("below", "")

    def write(self, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        """Write as `FileStorage` does. Kill the process group if this is the chosen operation."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.write(path, data, last=last)
        self._die(fatal)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Replace as `FileStorage` does. Kill the process group if this is the chosen operation."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.replace(path, data)
        self._die(fatal)

    def read(self, path: str) -> bytes:
        """Read as `FileStorage` does."""
        return self._files.read(path)

    def local(self, path: str) -> Path:
        """Return the local path, as `FileStorage` does."""
        return self._files.local(path)

    def delete(self, path: str) -> None:
        """Delete as `FileStorage` does. Kill the process group if this is the chosen operation."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.delete(path)
        self._die(fatal)

    def move(self, path: str, target: str) -> None:
        """Move as `FileStorage` does. Kill the process group if this is the chosen operation."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.move(path, target)
        self._die(fatal)

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """List files as `FileStorage` does."""
        return self._files.files(prefix)

    def _count(self, path: str) -> bool:
        """Append the path to the counter file, and return whether this is the operation at which to kill."""
        if not path.startswith(self._below):
            return False
        with self._counter.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = len(file.readlines()) + 1
            file.write(f"{path}\n")
            return number == self._at

    def _die(self, fatal: bool) -> None:
        if fatal:
            os.killpg(self._group, signal.SIGKILL)
            signal.pause()


class FullStorage(FileStorage):
    """A file storage that behaves like a full disk while a flag file exists.

    The URL is `full+file:///folder?flag=/path`.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._flag = Path(parse_qs(urlsplit(url).query)["flag"][-1])

    def write(self, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        """Write as `FileStorage` does. Raise StorageFullError if the flag file exists."""
        self._refuse()
        super().write(path, data, last=last)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Replace as `FileStorage` does. Raise StorageFullError if the flag file exists."""
        self._refuse()
        super().replace(path, data)

    def _refuse(self) -> None:
        if self._flag.exists():
            raise StorageFullError("no disk space left in the workspace", hint="remove the flag file")
