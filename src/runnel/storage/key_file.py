"""The key file of a workspace: `private/key.json` in its storage, readable only by its user.

All hosts that share the workspace read it from there, independently of the catalog's database. It is never in a
backup, so a copy of the catalog reveals no secrets.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from runnel.errors import CorruptDataError, WorkspaceError
from runnel.regular_files import open_regular
from runnel.storage.file_storage import Storage
from runnel.workspace_key import WorkspaceKey

KEY_FILE = "private/key.json"
_FORMAT = 1
_MAX_BYTES = 4096


class KeyFile:
    """The key of one workspace, read when it is first needed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: WorkspaceKey | None = None

    def read(self) -> WorkspaceKey:
        """Return the key. Raise WorkspaceError if the file is missing."""
        if self._known is None:
            path = self._storage.local(KEY_FILE)
            try:
                self._known = _parse(self._storage.read(KEY_FILE), path)
            except FileNotFoundError as error:
                raise WorkspaceError(
                    f"the key of the workspace, {path}, is missing",
                    hint="restore this file from your copy; without a copy, run `runnel adopt --new-key`, and"
                    " replace all secrets that were encrypted with the lost key",
                ) from error
            except PermissionError as error:
                raise WorkspaceError(
                    f"{path} cannot be read: {error.strerror}", hint="run the command as the user who owns the file"
                ) from error
        return self._known

    def read_or_make(self) -> WorkspaceKey:
        """Return the key, and create it durably if there is none. The caller holds the catalog's write lock."""
        if self._known is None and not self._storage.local(KEY_FILE).exists():
            self.write(WorkspaceKey.make())
        return self.read()

    def write(self, key: WorkspaceKey) -> None:
        """Replace the key."""
        self._storage.replace(KEY_FILE, json.dumps({"format": _FORMAT, "key": key.value.hex()}).encode())
        self._known = key


def read_key_file(path: Path) -> WorkspaceKey:
    """Read the key from a copy of a key file."""
    try:
        with os.fdopen(open_regular(path.parent, (path.name,)), "rb") as file:
            return _parse(file.read(_MAX_BYTES), path)
    except OSError as error:
        hint = f"pass the path of a copy of {KEY_FILE}"
        raise WorkspaceError(f"{path} cannot be read: {error.strerror}", hint=hint) from error


def _parse(data: bytes, path: Path) -> WorkspaceKey:
    try:
        value = json.loads(data)
        if value["format"] != _FORMAT:
            raise ValueError(f"this Runnel reads only format {_FORMAT}")
        return WorkspaceKey(bytes.fromhex(value["key"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptDataError(
            f"{path} is not the key file of a workspace: {error}", hint="use another copy of the key file"
        ) from error
