"""The marker of a workspace: a small file next to the data files that identifies their workspace.

In: the storage of a workspace. Out: its identity, and the point of its history at which the marker was written. The
catalog stores the same identity. A catalog with a different identity does not belong to these files.
"""

from __future__ import annotations

from dataclasses import dataclass

from runnel.errors import CorruptDataError
from runnel.storage.checksums import decode_checked_json, encode_checked_json
from runnel.storage.file_storage import Storage

MARKER = "workspace.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class WorkspaceMarker:
    """The identity of a workspace, and the point of its history at which the marker was written."""

    identity: str
    sequence: int = 0
    epoch: int = 0


def read_marker(storage: Storage) -> WorkspaceMarker | None:
    """Read the marker in a storage, or return None if there is none."""
    try:
        value = decode_checked_json(storage.read(MARKER))
        identity = str(value["identity"])
        int(identity, 16)
        return WorkspaceMarker(identity, int(value["sequence"]), int(value["epoch"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorruptDataError(
            f"{MARKER} cannot be read: {error}", hint="check the disk, and that this user may read the file"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptDataError(
            f"{MARKER} of {storage.url} is damaged: {error}",
            hint="if the catalog and the files belong together, write it again with `runnel adopt`",
        ) from error


def write_marker(storage: Storage, marker: WorkspaceMarker) -> None:
    """Replace the marker."""
    value = {
        "format": _FORMAT,
        "identity": marker.identity,
        "sequence": marker.sequence,
        "epoch": marker.epoch,
    }
    storage.replace(MARKER, encode_checked_json(value))
