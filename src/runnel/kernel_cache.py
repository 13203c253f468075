"""Where compiled kernels are kept: in a folder for exactly these sources. No compiler is needed to ask."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
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
    """Make the folder, if need be, and remove those of sources that are gone for a week."""
    if not os.access(folder, os.W_OK):
        folder.mkdir(parents=True, exist_ok=True)
        for other in folder.parent.glob("kernels-*"):
            if time.time() - other.stat().st_mtime > _WEEK:
                shutil.rmtree(other, ignore_errors=True)


def kernels_are_kept() -> bool:
    """Whether all kernels were compiled from these sources and kept."""
    folder = kernel_folder()
    return folder is not None and (Path(folder) / _COMPLETE).exists()


def note_kernels() -> None:
    """Note that all kernels are compiled and kept."""
    folder = kernel_folder()
    if folder is not None:
        (Path(folder) / _COMPLETE).touch()
