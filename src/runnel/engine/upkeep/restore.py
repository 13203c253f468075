"""Restore a workspace from a backup, after verifying every file with the manifest.

In: the folder of a backup, which may have been modified. Out: a workspace with the same ids, in which sequences and
message numbers continue. Only regular files are read, and only verified content is used. The settings file is written
last: a folder without it is not a workspace.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from runnel.catalog.declared import stylesheets
from runnel.catalog.store.connection import Catalog, Clock, without_password
from runnel.engine.seal_secrets import restore_key
from runnel.engine.upkeep.backup import Report
from runnel.engine.upkeep.backup_manifest import HINT, Digest, Manifest, read_manifest, verified_chunks
from runnel.engine.upkeep.catalog_copy import copy_in, make_ready
from runnel.engine.upkeep.setting_rights import GivenRight, rights_in
from runnel.engine.workspace import make_folders, write_settings
from runnel.engine.workspace_identity import mark_restored
from runnel.errors import CorruptDataError, NotAllowedError, StorageFullError, WorkspaceError, WorkspaceExistsError
from runnel.matching.operators.ask.operator_environment import FOLDER as OPERATORS
from runnel.private_files import make_private_folder, open_private
from runnel.settings import FILE
from runnel.storage.file_storage import Storage, open_storage
from runnel.storage.key_file import KEY_FILE, KeyFile
from runnel.workspace_key import WorkspaceKey

_STAGING = ".restoring"
_IN_MEMORY = 64 << 20
"""Maximum size of files that are copied through memory. Larger files are copied through a private file."""


class Signer(StrEnum):
    """Who signed a backup."""

    CHECKED = "checked"
    """The workspace whose key was given."""
    UNKNOWN = "unknown"
    """An unknown workspace: no key was given to verify the signature."""
    NONE = "none"
    """Nobody: the signature was removed."""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The restored content, and the time of the backup."""

    folder: Path
    files: int
    bytes: int
    made: str
    last_sequence: int
    rights: tuple[GivenRight, ...]
    signer: Signer
    lost_secrets: int
    """Number of secrets that could not be restored because the key was not given."""


def restore(
    source: Path,
    folder: Path,
    *,
    catalog: str = "",
    storage: str = "",
    accept_settings: bool = False,
    key: WorkspaceKey | None = None,
    clock: Clock = time.time,
    report: Report = lambda done, every: None,
) -> RestoreReport:
    """Create a workspace from a backup in a folder that is empty or does not exist.

    Unless URLs are given, the catalog is a SQLite file in the folder, and the files are in the folder. Settings that
    grant rights, such as `operator_modules`, must be accepted. With the key of the original workspace, the signature
    of the backup is verified. Without it, the secrets in the catalog cannot be restored.
    """
    source, folder = source.absolute(), folder.absolute()
    manifest = read_manifest(source)
    if key is not None:
        manifest.check_signature(key)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WorkspaceExistsError(f"{folder} is not empty", hint="restore into a new folder")
    with _undone_on_failure(folder):
        make_folders(folder, shared_output=False)
        _refuse_too_large(folder, manifest)
        staging = folder / _STAGING
        snapshot = staging / manifest.snapshot
        _stage_snapshot(source / "snapshots" / manifest.snapshot, snapshot, manifest)
        settings = settings_for(_settings_text(snapshot), catalog, storage)
        rights = _refuse_rights(settings, accept_settings)
        target_storage = open_storage(storage or folder.as_uri())
        key_file = KeyFile(target_storage)
        if target_storage.local(
            KEY_FILE
        ).exists():  # replacing the key would destroy the secrets of another workspace
            raise WorkspaceError(
                f"the storage already contains {KEY_FILE}", hint="restore into an empty storage location"
            )
        opened = Catalog(catalog or f"sqlite:///{folder / 'catalog.sqlite'}", clock=clock, key=key_file.read)
        try:
            _refuse_used(opened)
            _copy_files(source / "files", target_storage, manifest, staging, report)
            _write_operators(snapshot / OPERATORS, target_storage)
            rows = copy_in(opened, snapshot / "catalog", version=manifest.catalog_version, ids=manifest.identities)
            if rows != manifest.tables:
                raise CorruptDataError(
                    "the backup's catalog does not have the number of rows in its manifest", hint=HINT
                )
            with opened.write() as connection:
                make_ready(connection)
            lost = restore_key(opened, key_file, key)
            mark_restored(opened, target_storage)
        finally:
            opened.close()
        _write_sheets(snapshot / "folder", folder)
        shutil.rmtree(staging)
        write_settings(folder, settings)  # last, because it makes the folder a workspace
    size = sum(digest.size for digest in manifest.files.values())
    signer = Signer.CHECKED if key is not None else Signer.NONE if manifest.signer is None else Signer.UNKNOWN
    return RestoreReport(
        folder, len(manifest.files), size, manifest.made, manifest.last_sequence, tuple(rights), signer, lost
    )


@contextmanager
def _undone_on_failure(folder: Path) -> Iterator[None]:
    """Remove everything from the folder if the restore fails."""
    try:
        yield
    except BaseException as error:
        for path in folder.iterdir() if folder.exists() else ():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageFullError(
                f"the workspace cannot be written: {error.strerror}",
                hint="check the free disk space and the permissions",
            ) from error
        raise


def _refuse_used(catalog: Catalog) -> None:
    if catalog.version() > 0:
        raise WorkspaceError(
            f"the catalog {catalog.shown} is in use",
            hint="restore into an empty database or schema, or without --catalog",
        )


def _stage_snapshot(snapshot: Path, staging: Path, manifest: Manifest) -> None:
    """Copy the verified files of a snapshot to a private folder, so that nobody can change them before
    they are used.
    """
    there = {
        (Path(folder) / name).relative_to(snapshot).as_posix()
        for folder, _, names in os.walk(snapshot)
        for name in names
    }
    if there - manifest.snapshot_files.keys():
        raise CorruptDataError("the backup contains files that are not listed in its manifest", hint=HINT)
    for name, digest in manifest.snapshot_files.items():
        make_private_folder((staging / name).parent)
        _copy_verified(snapshot, name, digest, staging / name)


def _copy_verified(folder: Path, name: str, digest: Digest, target: Path) -> None:
    with open(target, "xb", opener=open_private) as file:
        for data in verified_chunks(folder, name, digest):
            file.write(data)


def _copy_files(files: Path, storage: Storage, manifest: Manifest, staging: Path, report: Report) -> None:
    for done, (name, digest) in enumerate(manifest.files.items()):
        report(done, len(manifest.files))
        if digest.size <= _IN_MEMORY:
            _put(storage, name, b"".join(verified_chunks(files, name, digest)))
            continue
        staged = staging / "large"
        _copy_verified(files, name, digest, staged)
        with (
            staged.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            _put(storage, name, view)
        staged.unlink()
    report(len(manifest.files), len(manifest.files))


def _refuse_rights(text: str, accepted: bool) -> list[GivenRight]:
    """Return the settings that grant rights. Raise NotAllowedError unless the admin has accepted them."""
    rights = rights_in(text)
    if rights and not accepted:
        raise NotAllowedError(
            "settings of the backup grant rights that the defaults do not grant:\n  "
            + "\n  ".join(str(right) for right in rights),
            hint="check each of them; `--accept-settings` restores the workspace with them",
        )
    return rights


def _refuse_too_large(folder: Path, manifest: Manifest) -> None:
    """Refuse a backup that does not fit before anything is written."""
    free = shutil.disk_usage(folder).free
    if manifest.size > free:
        raise StorageFullError(
            f"the backup has {manifest.size:,} bytes, but only {free:,} bytes are free in {folder}",
            hint="free disk space, or restore to another disk",
        )


def _settings_text(snapshot: Path) -> str:
    try:
        return (snapshot / "folder" / FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptDataError(f"{FILE} cannot be read from the backup, or is not UTF-8 text", hint=HINT) from error


def _write_sheets(source: Path, folder: Path) -> None:
    """Write the users' stylesheets. The stored copies are among the files of the logs."""
    for path in sorted((source / stylesheets.FOLDER).rglob("*")):
        target = folder / path.relative_to(source)
        if path.is_file() and not target.exists():
            make_private_folder(target.parent)
            path.rename(target)


def _write_operators(source: Path, storage: Storage) -> None:
    """Write the users' files for operators, next to the files of the logs."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            _put(storage, f"{OPERATORS}/{path.relative_to(source).as_posix()}", path.read_bytes())


def _put(storage: Storage, name: str, data: bytes | memoryview) -> None:
    try:
        storage.write(name, data)
    except FileExistsError as error:
        raise WorkspaceError(
            f"the storage already contains {name}", hint="restore into an empty storage location"
        ) from error


def settings_for(text: str, catalog: str, storage: str) -> str:
    """Return the settings for a restored workspace, with its new catalog and storage.

    >>> settings_for('storage = "file:///old"\\nlag_limit = 5\\n', "", "")
    'lag_limit = 5\\n'
    """
    lines = re.sub(r"^[ \t]*(catalog|storage)[ \t]*=.*\n?", "", text, flags=re.MULTILINE)
    if catalog:
        lines += f"\n# The password, where there is one, comes from RUNNEL_CATALOG.\ncatalog = {_quoted(catalog)}\n"
    if storage:
        lines += f"storage = {json.dumps(storage)}\n"
    try:
        if {"catalog", "storage"} & tomllib.loads(lines).keys() - ({"catalog"} if catalog else set()) - (
            {"storage"} if storage else set()
        ):
            raise CorruptDataError(f"{FILE} in the backup must set catalog and storage as plain keys", hint=HINT)
    except tomllib.TOMLDecodeError as error:
        raise CorruptDataError(f"{FILE} in the backup is not valid: {error}", hint=HINT) from error
    return lines


def _quoted(url: str) -> str:
    return json.dumps(without_password(url))
