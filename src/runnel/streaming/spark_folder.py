"""A private folder for the temporary files of Spark: shuffles, native libraries, artifacts.

Spark removes them when it ends in order. A kill leaves them behind, and nobody would remove them from the
system's temporary folder. So every process that opens Spark claims a folder of its own below the workspace, and holds
a lock on it for as long as it lives. The runner removes those that nobody holds.
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
    """A claimed folder, which only its user can read."""

    path: Path
    _descriptor: int

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def claim_folder(parent: Path) -> SparkFolder:
    """A new folder below `parent`, locked until it is removed or this process ends.

    >>> folder = claim_folder(Path(tempfile.mkdtemp()) / "spark")
    >>> oct(folder.path.stat().st_mode), remove_abandoned(folder.path.parent), folder.path.exists()
    ('0o40700', 0, True)
    >>> folder.remove()
    >>> folder.path.exists()
    False
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    descriptor = _locked(path)
    if descriptor is None:  # removed as abandoned in the moment before it was locked
        return claim_folder(parent)
    return SparkFolder(path, descriptor)


def remove_abandoned(parent: Path) -> int:
    """Remove the folders below `parent` whose process has ended; gives how many."""
    removed = 0
    for path in parent.glob("*-*"):
        descriptor = _locked(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)
            removed += 1
    return removed


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of a folder, or None where another process does or the folder is gone."""
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
