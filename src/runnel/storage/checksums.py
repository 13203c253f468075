"""Checksums in file names, so that every reader can verify a file.

In: the content of a new file. Out: a name that contains its size and CRC-32, `…~1f40-89abcdef.arrow`. The catalog row
that references the file thus contains both, and a worker that knows only the name needs nothing else. A file is
verified once per process, and again if its size or modification time changes.
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
_MAX_VERIFIED = 100_000

_verified: dict[str, tuple[int, int]] = {}
"""Files that were verified, by path, with their size and modification time."""

_damaged: dict[tuple[str, str], None] = {}
"""Files that were found damaged, by storage and path, in order of detection."""

_MAX_DAMAGED = 10_000

HINT = "the runner replaces or quarantines the file and continues; to recover its content, restore a backup"


@dataclass(frozen=True, slots=True)
class ChecksummedFile:
    """A file whose name contains its size and checksum."""

    path: str
    size: int


def name_with_checksum(path: str, data: bytes | memoryview) -> str:
    """Return the name for a file with this content.

    >>> name_with_checksum("items/log/a.arrow", b"abc"), name_with_checksum("quarantine/a", b"abc")
    ('items/log/a~3-352441c2.arrow', 'quarantine/a~3-352441c2')
    """
    folder, _, name = path.rpartition("/")
    stem, dot, extension = name.partition(".")
    mark = f"~{memoryview(data).nbytes:x}-{zlib.crc32(data):08x}"
    return f"{folder}/{stem}{mark}{dot}{extension}" if folder else f"{stem}{mark}{dot}{extension}"


def write_with_checksum(storage: Storage, path: str, data: bytes | memoryview) -> ChecksummedFile:
    """Write a new file with its size and checksum in its name."""
    name = name_with_checksum(path, data)
    storage.write(name, data)
    return ChecksummedFile(name, memoryview(data).nbytes)


def has_checksum(path: str) -> bool:
    """Return whether the name of a file contains its size and checksum."""
    return _MARK.search(path) is not None


def check_size(storage: Storage, path: str) -> None:
    """Raise CorruptDataError if a file is missing or its size differs from its name. Its content is not read."""
    size = _status(storage, path)[0]
    mark = _MARK.search(path)
    if mark is not None and size != int(mark[1], 16):
        raise damaged(storage, path, f"it has {size:,} bytes instead of {int(mark[1], 16):,}")


def check_file(storage: Storage, path: str, *, again: bool = False) -> None:
    """Raise CorruptDataError if a file is missing or its size or checksum differs from its name.

    A file that was verified before is verified again only with `again`. Files whose names have no checksum (plans,
    stylesheets) are checked by the packages that write them.
    """
    mark = _MARK.search(path)
    if mark is None:
        return
    local = storage.local(path)
    status = _status(storage, path)
    if not again and _verified.get(str(local)) == status:
        return
    check_size(storage, path)
    actual = _crc32_of(storage, path)
    if actual != mark[2]:
        raise damaged(storage, path, f"its checksum is {actual} instead of {mark[2]}")
    note_verified(local, status)


def is_verified(local: Path, status: tuple[int, int]) -> bool:
    """Return whether this process has verified the file and the file has not changed since."""
    return _verified.get(str(local)) == status


def note_verified(local: Path, status: tuple[int, int]) -> None:
    """Record that a file was verified."""
    if len(_verified) >= _MAX_VERIFIED:
        _verified.clear()
    _verified[str(local)] = status


def damaged(storage: Storage, path: str, reason: str) -> CorruptDataError:
    """Record that a file is damaged, so that the runner contains the damage, and return the error."""
    note_damaged(storage, path)
    return CorruptDataError(f"{path} is damaged: {reason}", hint=HINT)


def note_damaged(storage: Storage, path: str) -> None:
    """Record that a file is damaged, without an error."""
    if len(_damaged) < _MAX_DAMAGED:
        _damaged[storage.url, path] = None


def take_damaged(storage: Storage) -> list[str]:
    """Return the files of a storage that were found damaged since the last call."""
    actual = [path for url, path in list(_damaged) if url == storage.url]
    for path in actual:
        _damaged.pop((storage.url, path), None)
    return actual


def _crc32_of(storage: Storage, path: str) -> str:
    """Compute the CRC-32 of a file. The file is read, not mapped: an I/O error in a mapped file kills the process
    (SIGBUS).
    """
    value = 0
    try:
        with storage.local(path).open("rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                value = zlib.crc32(data, value)
    except OSError as error:
        raise damaged(storage, path, f"it cannot be read: {error.strerror}") from error
    return f"{value:08x}"


def status_of(local: Path) -> tuple[int, int]:
    """Return the size and modification time of a file, to detect changes."""
    status = local.stat()
    return status.st_size, status.st_mtime_ns


def _status(storage: Storage, path: str) -> tuple[int, int]:
    try:
        return status_of(storage.local(path))
    except OSError as error:
        raise damaged(storage, path, f"it cannot be read: {error.strerror}") from error


def encode_checked_json(value: Any) -> bytes:
    """Serialize an object as JSON that begins with the checksum of the rest.

    >>> encode_checked_json({"a": 1})
    b'{"crc32": "f2d50346", "a": 1}'
    """
    rest = json.dumps(value, sort_keys=True).encode()[1:]
    return b'{"crc32": "%08x", %s' % (zlib.crc32(rest), rest)


def decode_checked_json(data: bytes) -> Any:
    """Parse the output of `encode_checked_json`. Raise ValueError if its checksum is missing or wrong.

    >>> decode_checked_json(encode_checked_json({"a": 1}))
    {'a': 1}
    """
    mark = _SEALED_JSON.match(data)
    if mark is None:
        raise ValueError("it has no checksum")
    rest = data[mark.end() :]
    if zlib.crc32(rest) != int(mark[1], 16):
        raise ValueError("its checksum differs")
    return json.loads(b"{" + rest)
