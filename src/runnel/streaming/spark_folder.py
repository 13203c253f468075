"""A private folder for the temporary files of Spark: shuffles, native libraries, artifacts.

Spark deletes these files when it shuts down in order. A killed process leaves them behind, and in the system's
temporary folder they would stay. Each process that opens Spark therefore creates its own folder below the workspace
and holds a lock on it until the process ends. The runner deletes folders that are not locked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class SparkFolder:
    """A folder that this process has created and locked. Only the user of the process can read it."""

    path: Path
    _descriptor: int

    def remove(self) -> None:
        """Delete the folder with its contents, and release the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def claim_folder(parent: Path) -> SparkFolder:
    """Create a folder below `parent`, and lock it until it is removed or this process ends.

    >>> folder = claim_folder(Path(tempfile.mkdtemp()) / "spark")
    >>> oct(folder.path.stat().st_mode), remove_abandoned(folder.path.parent), folder.path.exists()
    ('0o40700', 0, True)
    >>> folder.remove()
    >>> folder.path.exists()
    False
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    descriptor = _try_lock(path)
    if descriptor is None:  # another process has deleted it as abandoned, before it was locked
        return claim_folder(parent)
    return SparkFolder(path, descriptor)


def remove_abandoned(parent: Path) -> int:
    """Delete the folders below `parent` whose process has ended. Return their number."""
    removed = 0
    for path in parent.glob("*-*"):
        descriptor = _try_lock(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)
            removed += 1
    return removed


def _try_lock(path: Path) -> int | None:
    """Lock a folder and return the descriptor, or None if another process has locked it or it does not exist."""
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    if not (path / _LOCK).exists():
        os.close(descriptor)
        return None
    return descriptor
