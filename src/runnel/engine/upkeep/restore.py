"""Restoring: a new root from a backup, after every file has been compared with the manifest.

In: the folder of a backup. Out: a root with the same ids, in which sequences and message numbers go on. The settings
file comes last, so what was restored in part is no root.
"""

from __future__ import annotations

import json
import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runnel.catalog.store.connection import Catalog, Clock, without_password
from runnel.engine.identity import mark_restored
from runnel.engine.upkeep.backup import Digest, Manifest, Report, digest_of, read_manifest
from runnel.engine.upkeep.catalog_copy import copy_in, make_ready
from runnel.engine.workspace import make_folders, write_settings
from runnel.errors import CorruptDataError, StorageFullError, WorkspaceError, WorkspaceExistsError
from runnel.matching.operators.ask.operator_environment import FOLDER as OPERATORS
from runnel.matching.operators.builtin.configuration import PRIVATE
from runnel.settings import FILE
from runnel.storage.file_storage import Storage, open_storage

_HINT = "use another backup; this one cannot be relied on"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, and from when it is."""

    folder: Path
    files: int
    bytes: int
    made: str
    last_sequence: int


def restore(
    source: Path,
    folder: Path,
    *,
    catalog: str = "",
    storage: str = "",
    clock: Clock = time.time,
    report: Report = lambda done, every: None,
) -> Restored:
    """Make a root in a folder, which must be empty or not exist, from a backup.

    The catalog is a SQLite file there and the files are there, unless URLs say otherwise.
    """
    source, folder = source.absolute(), folder.absolute()
    manifest = read_manifest(source)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WorkspaceExistsError(f"{folder} is not empty", hint="restore into a new folder")
    with _undone_unless_whole(folder):
        make_folders(folder, shared_output=False)
        opened = Catalog(catalog or f"sqlite:///{folder / 'catalog.sqlite'}", clock=clock)
        try:
            _refuse_used(opened)
            snapshot = source / "snapshots" / manifest.snapshot
            _verify_snapshot(snapshot, manifest)
            kept = open_storage(storage or folder.as_uri())
            _copy_files(source / "files", kept, manifest, report)
            _write_operators(snapshot / OPERATORS, kept)
            rows = copy_in(opened, snapshot / "catalog", version=manifest.catalog_version, ids=manifest.identities)
            if rows != manifest.tables:
                raise CorruptDataError("the backup's catalog does not have the rows that it should", hint=_HINT)
            with opened.write() as connection:
                make_ready(connection)
            mark_restored(opened, kept)
        finally:
            opened.close()
        _write_folder(snapshot / "folder", folder, catalog, storage)
    size = sum(one.size for one in manifest.files.values())
    return Restored(folder, len(manifest.files), size, manifest.made, manifest.last_sequence)


@contextmanager
def _undone_unless_whole(folder: Path) -> Iterator[None]:
    """What cannot be restored wholly leaves nothing in the folder."""
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
                f"the root cannot be written: {error.strerror}", hint="look at the room and the permissions there"
            ) from error
        raise


def _refuse_used(catalog: Catalog) -> None:
    if catalog.version() > 0:
        raise WorkspaceError(
            f"the catalog {catalog.shown} is in use",
            hint="restore into an empty database or schema, or without --catalog",
        )


def _verify_snapshot(snapshot: Path, manifest: Manifest) -> None:
    for name, digest in manifest.snapshot_files.items():
        try:
            found = digest_of(snapshot / name)
        except OSError as error:
            raise CorruptDataError(f"{name} is missing in the backup", hint=_HINT) from error
        _compare(name, found, digest)
    there = {path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()}
    if there != manifest.snapshot_files.keys():
        raise CorruptDataError("there are files in the backup that its manifest does not know", hint=_HINT)


def _copy_files(files: Path, storage: Storage, manifest: Manifest, report: Report) -> None:
    for done, (name, digest) in enumerate(manifest.files.items()):
        report(done, len(manifest.files))
        try:
            _compare(name, digest_of(files / name), digest)
            data = (files / name).read_bytes()
        except OSError as error:
            raise CorruptDataError(f"{name} is missing in the backup", hint=_HINT) from error
        _put(storage, name, data)
    report(len(manifest.files), len(manifest.files))


def _compare(name: str, found: Digest, expected: Digest) -> None:
    if found != expected:
        raise CorruptDataError(f"{name} is not what was backed up: its digest differs", hint=_HINT)


def _write_folder(source: Path, folder: Path, catalog: str, storage: str) -> None:
    """The stylesheets, and at last the settings, which make the folder a root."""
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and relative.as_posix() != FILE and not (folder / relative).exists():
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / relative)
    write_settings(folder, settings_for(source.joinpath(FILE).read_text("utf-8"), catalog, storage))


def _write_operators(source: Path, storage: Storage) -> None:
    """The files that people gave operators; they lie where the files of the logs lie. Secrets are for this user."""
    private = storage.local(f"{OPERATORS}/{PRIVATE}")
    if (source / PRIVATE).exists():
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in sorted(source.rglob("*")):
        if path.is_file():
            name = f"{OPERATORS}/{path.relative_to(source).as_posix()}"
            _put(storage, name, path.read_bytes())
            if storage.local(name).is_relative_to(private):
                storage.local(name).chmod(0o600)


def _put(storage: Storage, name: str, data: bytes) -> None:
    try:
        storage.write(name, data)
    except FileExistsError as error:
        raise WorkspaceError(f"{name} is in the storage already", hint="restore into an empty storage") from error


def settings_for(text: str, catalog: str, storage: str) -> str:
    """The settings of a root as they are for its restored copy: where its catalog and files are is said anew.

    >>> settings_for('storage = "file:///old"\\nlag_limit = 5\\n', "", "")
    'lag_limit = 5\\n'
    """
    kept = re.sub(r"^[ \t]*(catalog|storage)[ \t]*=.*\n?", "", text, flags=re.MULTILINE)
    if catalog:
        kept += f"\n# The password, where there is one, comes from RUNNEL_CATALOG.\ncatalog = {_quoted(catalog)}\n"
    if storage:
        kept += f"storage = {json.dumps(storage)}\n"
    try:
        if {"catalog", "storage"} & tomllib.loads(kept).keys() - ({"catalog"} if catalog else set()) - (
            {"storage"} if storage else set()
        ):
            raise CorruptDataError(f"{FILE} in the backup says in an unusual way where things are", hint=_HINT)
    except tomllib.TOMLDecodeError as error:
        raise CorruptDataError(f"{FILE} in the backup is not valid: {error}", hint=_HINT) from error
    return kept


def _quoted(url: str) -> str:
    return json.dumps(without_password(url))
