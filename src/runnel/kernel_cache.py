"""Where compiled kernels are kept: in a folder for exactly these sources. No compiler is needed to ask.

Anyone who can write to the folder can run code as the user who loads the kernels, so no other user may.
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
    """The folder of the kernels compiled from these sources: beside them, or in the user's cache."""
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
            _make(folder)
        except (OSError, RuntimeError):
            continue
        return str(folder)
    return None


def _make(folder: Path) -> None:
    """Make the folder, if need be, and remove those of sources that are gone for a week.

    PermissionError if this user cannot use it, or another user could write to it or replace it.
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
    """Make the missing folders above a folder, for others to read at most."""
    if not folder.parent.exists():
        _make_parents(folder.parent)
        folder.parent.mkdir(0o755, exist_ok=True)


def _is_safe(folder: Path) -> bool:
    """Whether a path is a folder, not a link to one, to which only root and this user can write."""
    found = folder.lstat()
    is_ours = found.st_uid in (0, os.geteuid())
    return is_ours and stat.S_ISDIR(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def kernels_are_kept() -> bool:
    """Whether all kernels were compiled from these sources and kept."""
    folder = kernel_folder()
    return folder is not None and (Path(folder) / _COMPLETE).exists()


def note_kernels() -> None:
    """Note that all kernels are compiled and kept."""
    folder = kernel_folder()
    if folder is not None:
        (Path(folder) / _COMPLETE).touch()
