"""Files that are read and replaced as a whole, so that readers never see a partial file.

In: a TargetFile and its new content. Out: the file, durable when `replace_whole` returns. A crash at any point leaves
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
    """Return the content of the file, or None if it does not exist or exceeds the limit."""
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
    """Return whether the file's name exists."""
    try:
        os.stat(file.name, dir_fd=file.folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def replace_whole(file: TargetFile, data: bytes) -> None:
    """Replace the content of the file atomically."""
    draft = draft_name(file.name)
    # Remove a file that a crash left under this name, or a link that would redirect the write.
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
    """Rename a file that Runnel did not write, so that it is not lost, and return its new name."""
    for number in range(1, _MOST_SET_ASIDE):
        name = f"{file.name}.foreign-{number}"
        try:
            # Creating a link fails if the name exists; a rename would replace the existing file.
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
    """Write all bytes, even if the system accepts only part of them at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def require_regular(handle: int, file: TargetFile) -> None:
    """Refuse pipes, devices and folders."""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise DeliveryError(f"{file.path} is not a regular file", hint="remove it or choose another target")


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return
