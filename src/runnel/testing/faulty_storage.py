"""Storages with faults: one that kills, one that is full. For proving that nothing is lost or repeated."""

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
    """Files in a folder, as `file:`, but the whole process group is killed at one operation.

    The URL is `crash+file:///folder?at=7&counter=/path&group=123`: at the 7th write, replacement or deletion (in any
    process that uses this storage; the count is in the file `counter`), the process group 123 gets SIGKILL. With
    `when=before` it dies before the operation is done, with `when=after` (the default) just after. With
    `below=matches/` only operations on files below that folder count.
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
        """As `FileStorage.write`, or the end."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.write(path, data, last=last)
        self._die(fatal)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """As `FileStorage.replace`, or the end."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.replace(path, data)
        self._die(fatal)

    def read(self, path: str) -> bytes:
        """As `FileStorage.read`."""
        return self._files.read(path)

    def local(self, path: str) -> Path:
        """As `FileStorage.local`."""
        return self._files.local(path)

    def delete(self, path: str) -> None:
        """As `FileStorage.delete`, or the end."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.delete(path)
        self._die(fatal)

    def move(self, path: str, target: str) -> None:
        """As `FileStorage.move`, or the end."""
        fatal = self._count(path)
        if not (fatal and self._before):
            self._files.move(path, target)
        self._die(fatal)

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """As `FileStorage.files`."""
        return self._files.files(prefix)

    def _count(self, path: str) -> bool:
        """Count one operation over all processes; True if it is the fatal one. The file tells what was done."""
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
    """Files in a folder, as `file:`, but without room while a flag file exists.

    The URL is `full+file:///folder?flag=/path`.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._flag = Path(parse_qs(urlsplit(url).query)["flag"][-1])

    def write(self, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        """As `FileStorage.write`, if there is room."""
        self._refuse()
        super().write(path, data, last=last)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        """As `FileStorage.replace`, if there is room."""
        self._refuse()
        super().replace(path, data)

    def _refuse(self) -> None:
        if self._flag.exists():
            raise StorageFullError("no disk space left in the workspace", hint="remove the flag file")
