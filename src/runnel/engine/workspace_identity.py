"""Check that a catalog and the files of a storage belong to the same workspace.

In: a catalog and a storage, before anything else is done with them. Out: None, or an error with a hint. Both contain
the identity of their workspace: the catalog in its counters, the storage in `workspace.json`. A workspace whose
`workspace.json` was lost gets it again when it is opened, if the files that its catalog references exist.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Connection, text

from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.identity import read_history, read_identity, set_identity
from runnel.errors import ReadOnlyError, WorkspaceError
from runnel.logs.garbage import DATA_FOLDERS
from runnel.storage.file_storage import Storage
from runnel.storage.workspace_marker import WorkspaceMarker, read_marker, write_marker

_RIGHT_CATALOG = (
    "set `catalog` in runnel.toml (or RUNNEL_CATALOG) to the catalog of this workspace, or restore the workspace "
    "from a backup; if you are sure that this catalog is the right one, accept it with `runnel adopt`"
)
_SAMPLE = 1_000
"""Maximum number of files that are checked to find out whether a catalog and a storage belong together."""


@dataclass(frozen=True, slots=True)
class IdentityEvidence:
    """Evidence whether a catalog and a storage belong together.

    `named` is the number of files that were looked up: the newest `_SAMPLE` segments of the catalog and its plan.
    `present` is the number of those that exist. `has_files` is whether the storage contains any data files.
    """

    named: int
    present: int
    has_files: bool

    @property
    def is_clear(self) -> bool:
        """Whether the catalog and the files clearly belong together."""
        return 2 * self.present > self.named if self.named else not self.has_files


def new_identity() -> str:
    """Return a random identity of 62 bits, which every database can store as a number."""
    return f"{secrets.randbits(62):016x}"


def check_identity(catalog: Catalog, storage: Storage) -> None:
    """Raise WorkspaceError unless the catalog belongs to the files. A foreign catalog is not changed."""
    _refuse_empty(catalog)
    marker = read_marker(storage)
    with catalog.read() as connection:
        identity = read_identity(connection)
    if marker is None:
        _adopt_unmarked(catalog, storage)
    elif identity != marker.identity:
        raise WorkspaceError(
            f"the catalog {catalog.shown} does not belong to the files in {storage.url}", hint=_RIGHT_CATALOG
        )


def claim_new(catalog: Catalog, storage: Storage) -> None:
    """Give a new workspace its identity, unless the catalog or the files belong to another workspace.

    The marker is written first, so that an interrupted `init` can be repeated.
    """
    with (
        catalog.write() as connection
    ):  # processes that create the same workspace now wait and then find its identity
        marker, identity = read_marker(storage), read_identity(connection)
        if identity is not None and (marker is None or marker.identity != identity):
            raise WorkspaceError(
                f"the catalog {catalog.shown} belongs to another workspace",
                hint="give every workspace a database or a schema of its own; to move a workspace, copy its folder",
            )
        if marker is None:
            marker = WorkspaceMarker(new_identity())
            write_marker(storage, marker)
        set_identity(connection, marker.identity)


def refuse_files(storage: Storage) -> None:
    """Raise WorkspaceError if the storage of a new workspace already has data files."""
    if _has_files(storage):
        raise WorkspaceError(
            f"{storage.url} already holds the files of a workspace",
            hint="choose another folder; if its runnel.toml or its catalog was lost, restore them from a backup",
        )


def mark_restored(catalog: Catalog, storage: Storage) -> None:
    """Give a restored workspace its own identity, because the original workspace may still exist."""
    with catalog.write() as connection:
        set_identity(connection, new_identity())
    _mark(catalog, storage)


def adopt(catalog: Catalog, storage: Storage, *, force: bool = False) -> IdentityEvidence:
    """Record that a catalog and the files of a storage belong together, and return the evidence.

    Raise WorkspaceError if the evidence is not clear, unless `force` is set.
    """
    _refuse_empty(catalog)
    with catalog.read() as connection:
        belonging = _belonging(connection, storage)
    if not belonging.is_clear and not force:
        raise WorkspaceError(
            f"the catalog {catalog.shown} names {belonging.named} files, of which {belonging.present} are in "
            f"{storage.url}" + ("; other data files are there" if belonging.has_files else ""),
            hint="check that `catalog` and `storage` in runnel.toml are right; `--force` accepts the catalog anyway",
        )
    _mark(catalog, storage)
    return belonging


def _refuse_empty(catalog: Catalog) -> None:
    if catalog.version() == 0:
        raise WorkspaceError(f"there is no catalog in {catalog.shown}", hint=_RIGHT_CATALOG)


def _adopt_unmarked(catalog: Catalog, storage: Storage) -> None:
    """Write the missing marker. Raise WorkspaceError unless the catalog and the files clearly belong together."""
    with catalog.read() as connection:
        belonging = _belonging(connection, storage)
    if belonging.is_clear:
        with suppress(ReadOnlyError):  # reading needs no marker; the next process that can write creates it
            _mark(catalog, storage)
        return
    if belonging.named:
        raise WorkspaceError(
            f"{belonging.named - belonging.present} of {belonging.named} files that the catalog {catalog.shown} "
            f"names are not in {storage.url}",
            hint=f"check that the storage is mounted and is the right one; {_RIGHT_CATALOG}",
        )
    raise WorkspaceError(
        f"the catalog {catalog.shown} names no files, but there are files in {storage.url}", hint=_RIGHT_CATALOG
    )


def _mark(catalog: Catalog, storage: Storage) -> None:
    """Write the marker of a catalog's workspace. A catalog without an identity gets one."""
    with catalog.write() as connection:
        identity = read_identity(connection)
        if identity is None:
            identity = new_identity()
            set_identity(connection, identity)
        history = read_history(connection)
    write_marker(storage, WorkspaceMarker(identity, history.sequence, history.epoch))


def _belonging(connection: Connection, storage: Storage) -> IdentityEvidence:
    paths = _named_files(connection)
    present = sum(1 for path in paths if storage.local(path).exists())
    return IdentityEvidence(len(paths), present, _has_files(storage))


def _named_files(connection: Connection) -> list[str]:
    """Return the newest files in the catalog. The statements work with the tables of every version."""
    segments = text(
        "select path from item_segments where retired is null and tier <> 'lost'"
        " order by last_sequence desc limit :most"
    )
    plans = text("select base from plans order by version desc limit 1")
    return [row.path for row in connection.execute(segments, {"most": _SAMPLE})] + [
        row.base for row in connection.execute(plans)
    ]


def _has_files(storage: Storage) -> bool:
    return any(True for folder in DATA_FOLDERS for _ in storage.files(folder))
