"""Storages that inject faults, for testing recovery: one kills the processes, one reports a full disk."""

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
    """Files in a folder, like `file:`, but a process group is killed at a certain operation.

    The URL is `crash+file:///folder?at=7&counter=/path&group=123`. At the 7th write, replacement, move or deletion,
    process group 123 gets SIGKILL. Operations of all processes that use this storage are counted, in the file
    `counter`. With `when=before`, the group is killed before the operation, with `when=after` (the default) after it.
    With `below=matches/`, only operations on files in that folder count.
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
        """Write a file like `FileStorage.write`, or kill the process group."""
        is_fatal = self._count(path)
        if not (is_fatal and self._before):
            self._files.write(path, data, last=last)
        self._die(is_fatal)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Replace a file like `FileStorage.replace`, or kill the process group."""
        is_fatal = self._count(path)
        if not (is_fatal and self._before):
            self._files.replace(path, data)
        self._die(is_fatal)

    def read(self, path: str) -> bytes:
        """Read a file like `FileStorage.read`."""
        return self._files.read(path)

    def local(self, path: str) -> Path:
        """Return a local path like `FileStorage.local`."""
        return self._files.local(path)

    def delete(self, path: str) -> None:
        """Delete a file like `FileStorage.delete`, or kill the process group."""
        is_fatal = self._count(path)
        if not (is_fatal and self._before):
            self._files.delete(path)
        self._die(is_fatal)

    def move(self, path: str, target: str) -> None:
        """Move a file like `FileStorage.move`, or kill the process group."""
        is_fatal = self._count(path)
        if not (is_fatal and self._before):
            self._files.move(path, target)
        self._die(is_fatal)

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """List files like `FileStorage.files`."""
        return self._files.files(prefix)

    def _count(self, path: str) -> bool:
        """Append the path to the counter file, which all processes share. Return whether this operation is fatal."""
        if not path.startswith(self._below):
            return False
        with self._counter.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = len(file.readlines()) + 1
            file.write(f"{path}\n")
            return number == self._at

    def _die(self, is_fatal: bool) -> None:
        if is_fatal:
            os.killpg(self._group, signal.SIGKILL)
            signal.pause()


class FullStorage(FileStorage):
    """Files in a folder, like `file:`, but writing fails with StorageFullError while a flag file exists.

    The URL is `full+file:///folder?flag=/path`.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._flag = Path(parse_qs(urlsplit(url).query)["flag"][-1])

    def write(self, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        """Write a file like `FileStorage.write`. Raise StorageFullError while the flag file exists."""
        self._refuse()
        super().write(path, data, last=last)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """Replace a file like `FileStorage.replace`. Raise StorageFullError while the flag file exists."""
        self._refuse()
        super().replace(path, data)

    def _refuse(self) -> None:
        if self._flag.exists():
            raise StorageFullError("no disk space left in the workspace", hint="remove the flag file")
