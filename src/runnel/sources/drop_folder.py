"""Scanning of files and drop folders for new or changed documents.

In: a path, and the last known states of its files. Out: `scan` returns the files that are new or changed, ordered by
path; `read_file` returns the content of a file. Only regular files are opened, and `scan` never opens a file outside
the drop folder.
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
"""Suffixes of documents in a drop folder. Files that are still being written should have others (.tmp, .part)."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file whose state differs from the known state.

    `changed` is False if only its time differs and the content is the same. A file with a `problem` cannot be
    read; recording its state ensures that the problem is reported once.
    """

    state: DocumentState
    changed: bool = True
    problem: InputError | None = None

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self.state.path)


def scan(path: Path, known: Mapping[str, DocumentState], *, limit: int = MAX_DOCUMENT) -> list[ChangedFile]:
    """Return the file at a path, or the files in the folder at a path, if they are new or changed.

    `known` contains the known states by path. A file that disappears during the scan is left out. Raise InputError if
    there is neither a file nor a folder.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot open the file or folder: {_reason(error)}",
            place=str(path),
            hint="check the path and its permissions",
        ) from error
    if stat.S_ISDIR(mode):
        files = [_examine(candidate, path, known, limit) for candidate in _candidates(path)]
    else:
        files = [_examine(path, None, known, limit)]
    return [file for file in files if file is not None]


def _candidates(folder: Path) -> list[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"cannot read the folder: {_reason(error)}", place=str(folder), hint="check its permissions"
        ) from error
    return [
        path
        for path in paths
        if not path.name.startswith(".") and path.suffix.lower() in SUFFIXES and not path.is_dir()
    ]


def _examine(path: Path, folder: Path | None, known: Mapping[str, DocumentState], limit: int) -> ChangedFile | None:
    name = os.fsencode(path).decode("utf-8", "backslashreplace")
    before = known.get(name)
    if name != str(path):
        problem = InputError("the name of the file is not UTF-8", place=name, hint="rename the file")
        return _report_problem(name, before, problem, None)
    try:
        status = path.stat()
        if before is not None and (before.size, before.modified) == (status.st_size, status.st_mtime_ns):
            return None
        if folder is not None and not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise InputError(
                "a symbolic link that leads out of the folder is not followed",
                place=name,
                hint="copy the file into the folder",
            )
        data, status = _read(path, limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _report_problem(name, before, InputError(f"cannot read the file: {_reason(error)}", place=name), None)
    except InputError as problem:
        return _report_problem(name, before, problem, status)
    digest = content_digest(data)
    changed = before is None or before.digest != digest
    return ChangedFile(DocumentState(name, status.st_size, status.st_mtime_ns, digest), changed)


def _report_problem(
    name: str, before: DocumentState | None, problem: InputError, status: os.stat_result | None
) -> ChangedFile | None:
    size, time = (-1, -1) if status is None else (status.st_size, status.st_mtime_ns)
    state = DocumentState(name, size, time, "")
    return None if state == before else ChangedFile(state, problem=problem)


def read_file(path: Path, *, limit: int = MAX_DOCUMENT) -> bytes:
    """Read a regular file of at most `limit` bytes, without blocking. Raise InputError for anything else.

    >>> len(read_file(Path(__file__))) > 0
    True
    """
    try:
        return _read(path, limit)[0]
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read the file: {_reason(error)}", place=str(path), hint="check the path and its permissions"
        ) from error


def _read(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise _not_regular(path)
    # The path may have become a pipe since the check. Opening it must not wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise InputError(
            f"the file has more than {limit} bytes",
            place=str(path),
            hint="split it into smaller files",
        )
    return data, status


def _not_regular(path: Path) -> InputError:
    return InputError("not a regular file", place=str(path), hint="give the path of a regular file")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
