"""Backups: a consistent copy of a workspace, even while its runner is active.

In: a workspace. Out: a folder with a snapshot of the catalog, every file that it references, the settings, the
stylesheets, the users' files for operators, and finally a signed manifest with the digest of each. The key of the
workspace is not included. Files of the logs never change, so a second backup into the same folder copies only new
files.

    backup.json                     the manifest; a folder without it is not a backup
    snapshots/<id>/catalog/         one Parquet file per table
    snapshots/<id>/folder/          files of the workspace's folder: settings, stylesheets
    snapshots/<id>/operators/       files for operators, such as regions and rules, which users may change
    files/                          files of the logs, with their names in the workspace
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from runnel.catalog.declared import stylesheets
from runnel.catalog.logs import (
    item_segments,
    match_segments,
    plan_versions,
    quarantine,
    table_files,
    windows,
)
from runnel.catalog.store import migrations
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import known_number, last_sequence, workspace_number
from runnel.engine.planning.ports import plan_port
from runnel.engine.upkeep.backup_manifest import (
    FORMAT,
    MANIFEST,
    UNFINISHED,
    Digest,
    Manifest,
    file_digest,
    read_manifest,
)
from runnel.engine.upkeep.catalog_copy import copy_out, identities
from runnel.engine.workspace import Workspace
from runnel.errors import (
    CorruptDataError,
    InputError,
    StorageFullError,
    WorkspaceError,
)
from runnel.matching.operators.ask.cache_files import FOLDER as ANSWERS
from runnel.matching.operators.ask.operator_environment import FOLDER as OPERATORS
from runnel.model.segment import Tier
from runnel.plan.store import MANIFEST as PLAN_MANIFEST
from runnel.plan.store import read_manifest as read_plan
from runnel.private_files import FOLDER_MODE, make_folders_above, make_private_folder, open_private, sync_folder
from runnel.settings import FILE
from runnel.storage.checksums import check_file
from runnel.storage.file_storage import Storage

_LEARNED = f"{OPERATORS}/learned"
_DECLARED = f"{OPERATORS}/declared"
_ATTEMPTS = 5
_CHUNK = 1 << 20
_FOR_EVER = 1 << 62
_NO_EMPTY_FOLDER = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}

Report = Callable[[int, int], None]
"""Called with the number of files that are done and the total number of files."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The content of a backup, and the number of files that were copied now."""

    folder: Path
    files: int
    bytes: int
    copied: int
    last_sequence: int
    rows: int


class _VanishedError(Exception):
    """A file was merged and deleted before it could be copied."""


def back_up(
    workspace: Workspace, target: Path, *, link: bool = False, report: Report = lambda done, every: None
) -> BackupReport:
    """Create a backup of a workspace in a folder, or update the backup in it.

    With `link`, files on the same file system are hard-linked instead of copied.
    """
    target = target.absolute()
    number = _number(workspace)
    before = _prepare(workspace, target, number)
    try:
        manifest, copied = _attempts(workspace, target, number, before, link, report)
        manifest = manifest.signed(workspace.key.read())
        _replace(target / MANIFEST, manifest.to_json())
        (target / UNFINISHED).unlink(missing_ok=True)
        _prune(target, manifest)
    except OSError as error:
        raise StorageFullError(
            f"the backup cannot be written: {error.strerror}", hint="check the free disk space and the permissions"
        ) from error
    return BackupReport(
        target, len(manifest.files), manifest.size, copied, manifest.last_sequence, sum(manifest.tables.values())
    )


def _number(workspace: Workspace) -> int:
    """Return the number of a workspace, and assign it if no message or backup has done so."""
    with workspace.catalog.read() as connection:
        number = known_number(connection)
    if number is not None:
        return number
    with workspace.catalog.write() as connection:
        return workspace_number(connection)


def _attempts(
    workspace: Workspace, target: Path, number: int, before: Manifest | None, link: bool, report: Report
) -> tuple[Manifest, int]:
    """Repeat the backup until no file of the snapshot was merged and deleted before it could be copied."""
    problem: _VanishedError | None = None
    for _ in range(_ATTEMPTS):
        try:
            return _attempt(workspace, target, number, before, link, report)
        except _VanishedError as vanished:
            problem = vanished
    raise WorkspaceError(
        f"files are missing, or were deleted before they could be copied: {problem}",
        hint="find missing files with `runnel doctor`; otherwise use --link, or raise orphan_seconds",
    ) from problem


def _prepare(workspace: Workspace, target: Path, number: int) -> Manifest | None:
    """Check and prepare the folder of a backup. Return the manifest of an existing backup."""
    if target.is_relative_to(workspace.folder) or workspace.folder.is_relative_to(target):
        raise InputError("the folder of a backup must not contain the workspace, nor be inside it", place=str(target))
    before = read_manifest(target) if (target / MANIFEST).exists() else None
    if before is not None and before.root != number:
        raise InputError(
            "the folder contains the backup of another workspace", place=str(target), hint="choose another folder"
        )
    foreign = before is None and target.exists() and any(target.iterdir()) and not (target / UNFINISHED).exists()
    if foreign:
        raise InputError("the folder contains other files", place=str(target), hint="choose an empty folder")
    try:
        make_folders_above(target)
        make_private_folder(target)
        _refuse_links(target)
        target.chmod(FOLDER_MODE)  # it contains the items of all owners
        with suppress(FileExistsError):
            os.close(open_private(target / UNFINISHED, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", place=str(target)) from error
    return before


def _attempt(
    workspace: Workspace, target: Path, number: int, before: Manifest | None, link: bool, report: Report
) -> tuple[Manifest, int]:
    """Copy one snapshot of the catalog and the files that it references. Return also the number of copied files."""
    snapshot = uuid.uuid4().hex
    snapshot_folder = target / "snapshots" / snapshot
    with workspace.catalog.read() as connection:
        tables = copy_out(connection, snapshot_folder / "catalog")
        paths = sorted(_named_files(workspace, connection))
        ids = identities(connection)
        last = last_sequence(connection)
        created = datetime.fromtimestamp(now(connection) / 1e6, UTC)
    for relative in _folder_files(workspace.folder):
        _copy(workspace.folder / relative, snapshot_folder / "folder" / relative, link=False)
    for relative in _operator_files(workspace.storage):
        _copy(workspace.storage.local(f"{OPERATORS}/{relative}"), snapshot_folder / OPERATORS / relative, link=False)
    # Digests of a manifest that may have been modified must not be copied into the new, signed one.
    known_digests = before.files if before is not None and before.is_signed_by(workspace.key.read()) else {}
    files: dict[str, Digest] = {}
    copied = 0
    for done, path in enumerate(paths):
        report(done, len(paths))
        copy = target / "files" / path
        if path in known_digests and copy.exists():
            files[path] = known_digests[
                path
            ]  # the file never changes, and its digest was computed when it was copied
            continue
        if workspace.storage.local(path).exists():
            check_file(workspace.storage, path)  # a damaged file must not silently replace a good copy
        files[path] = _copy(workspace.storage.local(path), copy, link=link)
        copied += 1
    report(len(paths), len(paths))
    own = {
        path.relative_to(snapshot_folder).as_posix(): file_digest(path)
        for path in sorted(snapshot_folder.rglob("*"))
        if path.is_file()
    }
    manifest = Manifest(
        FORMAT,
        created.isoformat(),
        number,
        migrations.HISTORY.version,
        migrations.HISTORY.fingerprint,
        last,
        snapshot,
        ids,
        tables,
        own,
        files,
    )
    return manifest, copied


def _named_files(workspace: Workspace, connection: Connection) -> Iterator[str]:
    """Return every file that the catalog needs."""
    for segment in item_segments.segments_between(connection, 0, _FOR_EVER):
        if segment.tier != Tier.LOST:
            yield segment.path
    for part in match_segments.match_parts(connection, 0, _FOR_EVER):
        yield part.path
        if part.by_query is not None:
            yield part.by_query
    yield from (file.path for file in table_files.live_files(connection))
    since = match_segments.last_plan(connection)
    distributions = {plan.distribution for plan in plan_versions.distributed_plans(connection, since=since)}
    for folder in plan_versions.plan_folders(connection, since=since):
        yield from (
            plan_port(folder).files(folder) if folder in distributions else _plan_files(workspace.storage, folder)
        )
    for window in windows.live_segments(connection):
        if _is_sound(workspace.storage, window.path):  # windows are filled again without the others
            yield window.path
    yield from quarantine.quarantined_paths(connection)
    yield from stylesheets.stylesheets_in_use(connection)


def _is_sound(storage: Storage, path: str) -> bool:
    try:
        check_file(storage, path)
    except CorruptDataError:
        return False
    return True


def _plan_files(storage: Storage, folder: str) -> Iterator[str]:
    """Return the files of a plan's folder."""
    yield f"{folder}/{PLAN_MANIFEST}"
    try:
        files = read_plan(storage, folder).files
    except CorruptDataError as error:
        raise _VanishedError(error.message) from error
    yield from (f"{folder}/{name}" for name in files)


def _folder_files(folder: Path) -> Iterator[str]:
    """Return the settings and the users' stylesheets in the workspace's folder."""
    yield FILE
    for path in sorted((folder / stylesheets.FOLDER).rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix()


def _operator_files(storage: Storage) -> Iterator[str]:
    """Return the admin's files for operators. Cached answers, declarations and statistics are created again.

    As for operators, a link counts as the file to which it points, unless that is outside the folder.
    """
    folder = storage.local(OPERATORS)
    generated = [storage.local(folder) for folder in (ANSWERS, _LEARNED, _DECLARED)]
    for path in sorted(folder.rglob("*")):
        is_generated = any(path.is_relative_to(folder) for folder in generated)
        if not is_generated and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            yield path.relative_to(folder).as_posix()


def _copy(source: Path, target: Path, *, link: bool) -> Digest:
    """Copy a file atomically. Raise _VanishedError if it no longer exists."""
    make_private_folder(target.parent)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        if link:
            try:
                draft.hardlink_to(source)
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    raise
                _copy_bytes(source, draft)  # another file system, or one without hard links
        else:
            _copy_bytes(source, draft)
    except FileNotFoundError as error:
        raise _VanishedError(source.name) from error
    digest = file_digest(draft)
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(target)
    return digest


def _copy_bytes(source: Path, draft: Path) -> None:
    with source.open("rb") as reader, open(draft, "xb", opener=open_private) as writer:
        shutil.copyfileobj(reader, writer, _CHUNK)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with open(draft, "xb", opener=open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    for folder in {path.parent, *(inner for inner in path.parent.rglob("*") if inner.is_dir())}:
        sync_folder(folder)
    draft.replace(path)
    sync_folder(path.parent)


def _refuse_links(target: Path) -> None:
    """Refuse a folder that contains a link, because files elsewhere would be written or deleted through it."""
    for folder, folders, files in os.walk(target, onerror=_raise):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise InputError(
                    "a backup must not contain symbolic links",
                    place=str(path),
                    hint="remove the link after finding out where it comes from, or choose an empty folder",
                )


def _raise(error: OSError) -> None:
    raise error


def _prune(target: Path, manifest: Manifest) -> None:
    """Delete files that only earlier backups in this folder needed, without following links."""
    _remove_others(target / "files", manifest.files.keys())
    _remove_others(target / "snapshots", {f"{manifest.snapshot}/{name}" for name in manifest.snapshot_files})


def _remove_others(top: Path, needed: Set[str]) -> None:
    """Delete the files in a folder that are not needed, and folders that become empty."""
    try:
        handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the folder does not exist, because nothing was copied
    try:
        for folder, folders, files, inside in os.fwalk(".", topdown=False, onerror=_raise, dir_fd=handle):
            for name in files:
                if os.path.normpath(f"{folder}/{name}") not in needed:
                    os.unlink(name, dir_fd=inside)
            for name in folders:
                try:
                    os.rmdir(name, dir_fd=inside)
                except OSError as error:
                    if error.errno not in _NO_EMPTY_FOLDER:
                        raise
    finally:
        os.close(handle)
