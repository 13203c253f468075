"""Checksums of files: part of a file's name, so that every reader can check that the file is whole.

In: the bytes of a file that is to be written. Out: a name with their size and CRC-32 in it, `…~1f40-89abcdef.arrow`.
So the catalog row that names the file has both, and a worker that only knows the name needs nothing else. A file is
read and compared once per process, unless its size or its time of modification changes.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runnel.errors import CorruptDataError
from runnel.storage.file_storage import Storage

_MARK = re.compile(r"~([0-9a-f]+)-([0-9a-f]{8})(?=(?:\.[a-z]+)*$)")
_SEALED_JSON = re.compile(rb'\{"crc32": "([0-9a-f]{8})", ')
_CHUNK = 1 << 20
_MOST_VERIFIED = 100_000

_verified: dict[str, tuple[int, int]] = {}
"""Files that were compared with their checksums, by path, with their size and time of modification."""

_damaged: dict[tuple[str, str], None] = {}
"""Files that were found damaged, by storage and path, in order."""

_MOST_DAMAGED = 10_000

HINT = "the runner replaces or quarantines the file and goes on; to recover its content, restore a backup"


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A file whose name has its size and checksum."""

    path: str
    size: int


def sealed_name(path: str, data: bytes | memoryview) -> str:
    """A name for a file with this content.

    >>> sealed_name("items/log/a.arrow", b"abc"), sealed_name("quarantine/a", b"abc")
    ('items/log/a~3-352441c2.arrow', 'quarantine/a~3-352441c2')
    """
    folder, _, name = path.rpartition("/")
    stem, dot, extension = name.partition(".")
    mark = f"~{memoryview(data).nbytes:x}-{zlib.crc32(data):08x}"
    return f"{folder}/{stem}{mark}{dot}{extension}" if folder else f"{stem}{mark}{dot}{extension}"


def write_sealed(storage: Storage, path: str, data: bytes | memoryview) -> SealedFile:
    """Write a new file under a name with its size and checksum."""
    name = sealed_name(path, data)
    storage.write(name, data)
    return SealedFile(name, memoryview(data).nbytes)


def check_size(storage: Storage, path: str) -> None:
    """Raise CorruptData if a file is missing or has another size than its name says; its content is not read."""
    size = _status(storage, path)[0]
    mark = _MARK.search(path)
    if mark is not None and size != int(mark[1], 16):
        raise damaged(storage, path, f"it has {size:,} bytes instead of {int(mark[1], 16):,}")


def check_file(storage: Storage, path: str, *, again: bool = False) -> None:
    """Raise CorruptData if a file is missing or does not have the size and the checksum that its name has.

    A file that was compared before is compared `again` only if that is asked for. Files whose names have no checksum
    (plans, stylesheets) are checked by the packages that write them.
    """
    mark = _MARK.search(path)
    if mark is None:
        return
    local = storage.local(path)
    status = _status(storage, path)
    if not again and _verified.get(str(local)) == status:
        return
    check_size(storage, path)
    found = _crc32_of(storage, path)
    if found != mark[2]:
        raise damaged(storage, path, f"its checksum is {found} instead of {mark[2]}")
    note_verified(local, status)


def is_verified(local: Path, status: tuple[int, int]) -> bool:
    """Whether a file was compared with its checksum in this process, and did not change since."""
    return _verified.get(str(local)) == status


def note_verified(local: Path, status: tuple[int, int]) -> None:
    """Remember that a file is whole."""
    if len(_verified) >= _MOST_VERIFIED:
        _verified.clear()
    _verified[str(local)] = status


def damaged(storage: Storage, path: str, reason: str) -> CorruptDataError:
    """The error for a file that is not as it was written; it is noted, so that the runner contains the damage."""
    note_damaged(storage, path)
    return CorruptDataError(f"{path} is damaged: {reason}", hint=HINT)


def note_damaged(storage: Storage, path: str) -> None:
    """Note that a file was found damaged, even if the error is handled elsewhere."""
    if len(_damaged) < _MOST_DAMAGED:
        _damaged[storage.url, path] = None


def take_damaged(storage: Storage) -> list[str]:
    """The files of a storage that were found damaged in this process since this was last asked."""
    found = [path for url, path in list(_damaged) if url == storage.url]
    for path in found:
        _damaged.pop((storage.url, path), None)
    return found


def _crc32_of(storage: Storage, path: str) -> str:
    """The CRC-32 of a file. It is read, not mapped: an I/O error in a mapped file kills the process (SIGBUS)."""
    value = 0
    try:
        with storage.local(path).open("rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                value = zlib.crc32(data, value)
    except OSError as error:
        raise damaged(storage, path, f"it cannot be read: {error.strerror}") from error
    return f"{value:08x}"


def status_of(local: Path) -> tuple[int, int]:
    """The size and the time of modification of a file, which show whether it changed."""
    status = local.stat()
    return status.st_size, status.st_mtime_ns


def _status(storage: Storage, path: str) -> tuple[int, int]:
    try:
        return status_of(storage.local(path))
    except OSError as error:
        raise damaged(storage, path, f"it cannot be read: {error.strerror}") from error


def sealed_json(value: Any) -> bytes:
    """An object as JSON that begins with the checksum of the rest.

    >>> sealed_json({"a": 1})
    b'{"crc32": "f2d50346", "a": 1}'
    """
    rest = json.dumps(value, sort_keys=True).encode()[1:]
    return b'{"crc32": "%08x", %s' % (zlib.crc32(rest), rest)


def unsealed_json(data: bytes) -> Any:
    """The object of a text made by `sealed_json`; ValueError if its checksum is missing or wrong.

    >>> unsealed_json(sealed_json({"a": 1}))
    {'a': 1}
    """
    mark = _SEALED_JSON.match(data)
    if mark is None:
        raise ValueError("it has no checksum")
    rest = data[mark.end() :]
    if zlib.crc32(rest) != int(mark[1], 16):
        raise ValueError("its checksum differs")
    return json.loads(b"{" + rest)
