"""The folder in which compiled kernels are cached, one per version of the sources. Does not import the compiler.

Anyone who can write to the folder can run code as the user who loads the kernels, so other users must not have write
access.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent
_WEEK = 7 * 86_400.0
_COMPLETE = "complete"
_HAS_KERNELS = re.compile(rb"runnel\.kernel\b")


@cache
def kernel_folder() -> str | None:
    """Return the folder of kernels from these sources: next to the sources or in the user's cache, or None."""
    digest = hashlib.blake2b(digest_size=12)
    for file in sorted(_PACKAGE.rglob("*.py")):
        content = file.read_bytes()
        if _HAS_KERNELS.search(content) or file.name == "kernel.py":
            digest.update(content)
    for parent in (
        _PACKAGE / "__pycache__",
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "runnel",
    ):
        folder = parent / f"kernels-{digest.hexdigest()}"
        try:
            _prepare(folder)
        except (OSError, RuntimeError):
            continue
        return str(folder)
    return None


def _prepare(folder: Path) -> None:
    """Create the folder if it does not exist, and then delete the folders of other sources older than a week.

    Raise PermissionError if this user cannot use the folder, or if another user could write to it or replace it.
    """
    if not folder.exists():
        _make_parents(folder)
        folder.mkdir(0o700, exist_ok=True)
        for other in folder.parent.glob("kernels-*"):
            if time.time() - other.stat().st_mtime > _WEEK:
                shutil.rmtree(other, ignore_errors=True)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK) or not (_is_safe(folder) and _is_safe(folder.parent)):
        raise PermissionError(folder)


def _make_parents(folder: Path) -> None:
    """Create the missing parents of a folder. Other users can read them but not write to them."""
    if not folder.parent.exists():
        _make_parents(folder.parent)
        folder.parent.mkdir(0o755, exist_ok=True)


def _is_safe(folder: Path) -> bool:
    """Return whether a path is a folder, not a link to one, to which only root and this user can write."""
    status = folder.lstat()
    is_owned = status.st_uid in (0, os.geteuid())
    return is_owned and stat.S_ISDIR(status.st_mode) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def kernels_are_kept() -> bool:
    """Return whether the folder contains all kernels, compiled from these sources."""
    folder = kernel_folder()
    return folder is not None and (Path(folder) / _COMPLETE).exists()


def note_kernels() -> None:
    """Record that the folder contains all kernels."""
    folder = kernel_folder()
    if folder is not None:
        (Path(folder) / _COMPLETE).touch()
