"""Whole files: read with care, replaced so that nobody ever sees half of one.

In: a TargetFile and its new bytes. Out: the file, durable when `replace_whole` returns. A crash at any point leaves
the old content or the new.
"""

from __future__ import annotations

import os
import stat

from runnel.errors import DeliveryError
from runnel.private_files import FILE_MODE
from runnel.sinks.files.targets import TargetFile, draft_name

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_SET_ASIDE = 1000


def read_whole(file: TargetFile, limit: int) -> bytes | None:
    """The content of the file; None where there is none, or more than the limit."""
    try:
        handle = os.open(file.name, _READ, dir_fd=file.folder)
    except FileNotFoundError:
        return None
    try:
        require_regular(handle, file)
        if os.fstat(handle).st_size > limit:
            return None
        with os.fdopen(handle, "rb", closefd=False) as reader:
            return reader.read(limit)
    finally:
        os.close(handle)


def exists(file: TargetFile) -> bool:
    """Whether something has the file's name."""
    try:
        os.stat(file.name, dir_fd=file.folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def replace_whole(file: TargetFile, data: bytes) -> None:
    """Put new content in the file's place."""
    draft = draft_name(file.name)
    # What a crash left under this name, or somebody put there, must not be written through.
    _remove(draft, file.folder)
    try:
        handle = os.open(draft, _WRITE, FILE_MODE, dir_fd=file.folder)
        try:
            os.fchmod(handle, file.mode)
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(draft, file.name, src_dir_fd=file.folder, dst_dir_fd=file.folder)
    except OSError:
        _remove(draft, file.folder)
        raise
    os.fsync(file.folder)


def rename_aside(file: TargetFile) -> str:
    """Give what is at the file's place another name, and tell which; nothing of somebody else's is ever lost."""
    for number in range(1, _MOST_SET_ASIDE):
        name = f"{file.name}.foreign-{number}"
        try:
            # A link fails where the name is taken; a rename would put an end to what has it.
            os.link(file.name, name, src_dir_fd=file.folder, dst_dir_fd=file.folder, follow_symlinks=False)
        except FileExistsError:
            continue
        os.unlink(file.name, dir_fd=file.folder)
        os.fsync(file.folder)
        return name
    raise DeliveryError(
        f"too many files that Runnel did not write, next to {file.path}",
        hint=f"delete or move the files {file.name}.foreign-…",
    )


def write_all(handle: int, data: bytes) -> None:
    """Write all bytes, however often the system takes only some."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def require_regular(handle: int, file: TargetFile) -> None:
    """Refuse pipes, devices and folders that stand at the file's place."""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise DeliveryError(f"{file.path} is not a regular file", hint="remove it or choose another target")


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return
