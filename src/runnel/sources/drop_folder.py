"""Files and drop folders: which documents are new or changed, and their bytes.

In: a path and what is known of its files. Out: `scan` gives the files that are new or changed, in order of name;
`read_file` gives the bytes of one. Only regular files are ever opened, and never one that lies outside a drop folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runnel.catalog.polling.source_files import DocumentState
from runnel.errors import InputError
from runnel.sources.documents.decode import MAX_DOCUMENT
from runnel.sources.feed_reader import content_digest
from runnel.sources.rdf.decode_rdf import SUFFIXES as RDF_SUFFIXES

SUFFIXES = frozenset({".xml", ".rss", ".atom", ".json", ".jsonl", ".ndjson", ".rdf", ".owl", *RDF_SUFFIXES})
"""What a document in a drop folder is named; files that are being written (.tmp, .part) have other names."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file whose state is not the known one.

    `changed` is false where only its times are new. With a `problem` there is nothing to read; the state makes sure
    that the same problem is told once.
    """

    state: DocumentState
    changed: bool = True
    problem: InputError | None = None

    @property
    def path(self) -> Path:
        """Where the file is."""
        return Path(self.state.path)


def scan(place: Path, known: Mapping[str, DocumentState], *, limit: int = MAX_DOCUMENT) -> list[ChangedFile]:
    """The file at a path, or those in the folder there, that are new or changed since they were last known, by path.

    A file that vanishes meanwhile is left out. A path with nothing there is an InputError.
    """
    try:
        kind = place.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(
            f"there is no file or folder: {_reason(error)}",
            place=str(place),
            hint="check the path and its permissions",
        ) from error
    if not stat.S_ISDIR(kind):
        found = [_look(place, None, known, limit)]
    else:
        found = [_look(path, place, known, limit) for path in _candidates(place)]
    return [file for file in found if file is not None]


def _candidates(folder: Path) -> list[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"the folder cannot be read: {_reason(error)}", place=str(folder), hint="check its permissions"
        ) from error
    return [
        path
        for path in paths
        if not path.name.startswith(".") and path.suffix.lower() in SUFFIXES and not path.is_dir()
    ]


def _look(path: Path, folder: Path | None, known: Mapping[str, DocumentState], limit: int) -> ChangedFile | None:
    name = os.fsencode(path).decode("utf-8", "backslashreplace")
    before = known.get(name)
    if name != str(path):
        odd = InputError("the name of the file is not UTF-8", place=name, hint="give it another name")
        return _refused(name, before, odd, None)
    try:
        status = path.stat()
        if before is not None and (before.size, before.modified) == (status.st_size, status.st_mtime_ns):
            return None
        if folder is not None and not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise InputError("a link out of the folder is not followed", place=name, hint="copy the file instead")
        data, status = _read(path, limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _refused(name, before, InputError(f"cannot be read: {_reason(error)}", place=name), None)
    except InputError as problem:
        return _refused(name, before, problem, status)
    digest = content_digest(data)
    changed = before is None or before.digest != digest
    return ChangedFile(DocumentState(name, status.st_size, status.st_mtime_ns, digest), changed)


def _refused(
    name: str, before: DocumentState | None, problem: InputError, status: os.stat_result | None
) -> ChangedFile | None:
    size, time = (-1, -1) if status is None else (status.st_size, status.st_mtime_ns)
    state = DocumentState(name, size, time, "")
    return None if state == before else ChangedFile(state, problem=problem)


def read_file(path: Path, *, limit: int = MAX_DOCUMENT) -> bytes:
    """The bytes of a regular file of bounded size; anything else is an InputError, and nothing ever blocks.

    >>> len(read_file(Path(__file__))) > 0
    True
    """
    try:
        return _read(path, limit)[0]
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be read: {_reason(error)}", place=str(path), hint="check the path and its permissions"
        ) from error


def _read(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise _not_regular(path)
    # The path may have become a pipe meanwhile: opening must not wait for its other end.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise InputError(f"the file has more than the {limit} bytes that are taken", place=str(path), hint="split it")
    return data, status


def _not_regular(path: Path) -> InputError:
    return InputError("not a regular file", place=str(path), hint="only files with content are read")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
