"""Targets of file sinks, and the folders to which they may write.

In: the target of a subscription. Out: its canonical form when subscribing, and an open folder when delivering.
Relative targets are below the workspace's `out` folder, absolute targets below an allowed folder. Symbolic links
below these folders are never followed. A link may appear after the check, so delivery opens one folder after the
other by handle.

Other users can read the files if they can read the `out` folder or the allowed folder that contains them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runnel.errors import DeliveryError, InputError, StorageFullError
from runnel.private_files import FILE_MODE, FOLDER_MODE, make_private_folder

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_OPEN_FOLDER, _MOST_OPEN_FILE = 0o755, 0o644
_LONGEST_NAME = 200
_DRAFT = re.compile(r"\..*\.draft", re.IGNORECASE | re.DOTALL)
_PATIENCE = 10.0
_HINT = "give a path in the workspace's out folder, such as 'news/rock.xml'"


@dataclass(frozen=True, slots=True)
class TargetFile:
    """A file to write: the handle of its folder, its name, its path for messages, and the mode of a new file."""

    folder: int
    name: str
    path: Path
    mode: int


def draft_name(name: str) -> str:
    """Return the name under which a file is written before it replaces the old one. No target can have this name.

    >>> draft_name("rock.xml")
    '.rock.xml.draft'
    """
    return f".{name}.draft"


def check_target(target: str | None, out: Path, allowed: Sequence[Path] = ()) -> str:
    """Return the canonical form of a target, or raise InputError.

    >>> check_target("news//rock.xml", Path("/srv/runnel/out"))
    'news/rock.xml'
    """
    if target is None or not target.strip():
        raise InputError("this output requires a target", hint=_HINT)
    place = repr(target[:80])
    if any(ord(character) < 0x20 or 0xD800 <= ord(character) < 0xE000 for character in target):
        raise InputError("the target contains characters that are not allowed in file names", place=place, hint=_HINT)
    path = PurePosixPath(target)
    if ".." in path.parts or target.endswith(("/", "/.")) or path.name in ("", "."):
        raise InputError("the target must be the path of a file, without '..'", place=place, hint=_HINT)
    if "://" in target or target.startswith("~"):
        raise InputError("the target must be a plain path", place=place, hint=_HINT)
    if any(len(part.encode()) > _LONGEST_NAME for part in path.parts):
        raise InputError(
            f"a name in the target is longer than {_LONGEST_NAME} bytes",
            place=place,
            hint="choose a shorter name",
        )
    if any(_DRAFT.fullmatch(part) for part in path.parts):
        raise InputError(
            "the target's name is reserved for drafts, the temporary files of outputs",
            place=place,
            hint="choose a name that does not begin with '.' and end with '.draft'",
        )
    base, inner = _split(path, out, allowed, place)
    _refuse_links(base, inner, place)
    return path.as_posix()


def _split(path: PurePosixPath, out: Path, allowed: Sequence[Path], place: str) -> tuple[Path, PurePosixPath]:
    """Return the folder that a target must stay in, and the path of the target inside it."""
    if not path.is_absolute():
        return out, path
    for folder in (form for folder_setting in allowed for form in (folder_setting, folder_setting.resolve())):
        if path.is_relative_to(folder) and path != PurePosixPath(folder):
            return folder, path.relative_to(folder)
    raise InputError("outputs may not write to this absolute path", place=place, hint=_HINT)


def _refuse_links(base: Path, inner: PurePosixPath, place: str) -> None:
    path = base
    for part in inner.parts:
        path = path / part
        try:
            if path.is_symlink():
                raise InputError(f"{path} is a symbolic link, which is not followed", place=place, hint=_HINT)
        except OSError as error:
            raise InputError(f"the target is not valid: {error.strerror}", place=place, hint=_HINT) from error
    if path.exists() and not path.is_file():
        raise InputError("the target exists and is not a file", place=place, hint="choose another name")


@contextmanager
def open_target(target: str | None, out: Path, allowed: Sequence[Path] = ()) -> Iterator[TargetFile]:
    """Open the folder of a target, create it if necessary, and lock it against other writers.

    Errors of the operating system inside the block become StorageFullError or DeliveryError.
    """
    try:
        path = PurePosixPath(check_target(target, out, allowed))
        base, inner = _split(path, out, allowed, repr(target))
    except InputError as error:
        raise DeliveryError(f"the target is not valid: {error.message}", hint=error.hint) from error
    with _explained(base / inner):
        make_private_folder(base)
        mode = stat.S_IMODE(base.stat().st_mode)
        handle = _walk(base, inner.parts[:-1], mode & _MOST_OPEN_FOLDER | FOLDER_MODE)
        try:
            _lock(handle)
            yield TargetFile(handle, inner.name, base / inner, mode & _MOST_OPEN_FILE | FILE_MODE)
        finally:
            os.close(handle)


def _walk(base: Path, parts: Sequence[str], mode: int) -> int:
    """Return the handle of a folder below a base. Missing folders are created with this mode."""
    handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        outer = handle
        try:
            is_new = _make_folder(outer, part)
            handle = os.open(part, _FOLDER, dir_fd=outer)
            if is_new:
                os.fchmod(handle, mode)
                os.fsync(outer)
        finally:
            os.close(outer)
    return handle


def _make_folder(outer: int, name: str) -> bool:
    try:
        os.mkdir(name, FOLDER_MODE, dir_fd=outer)
    except FileExistsError:
        return False
    return True


def _lock(folder: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert errors of the operating system into errors of Runnel."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFullError(
                f"no disk space left for {path}", hint="free disk space; processing resumes automatically"
            ) from error
        hint = "check the folder and its permissions"
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            hint = "symbolic links are not followed; remove the link or choose another target"
        raise DeliveryError(f"{path} cannot be written: {error.strerror or error}", hint=hint) from error
