"""Workspaces: create, open and adopt the folder of one installation."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from runnel.catalog.declared.feeds import feed_names
from runnel.catalog.store.connection import Catalog, Clock, sqlite_file, without_password
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.seal_secrets import check_key, replace_key
from runnel.engine.workspace_identity import IdentityEvidence, adopt, check_identity, claim_new, refuse_files
from runnel.errors import NotAWorkspaceError, WorkspaceError, WorkspaceExistsError
from runnel.logs.items.item_log import ItemLog
from runnel.logs.matches.match_log import MatchLog
from runnel.logs.tables.table_store import TableStore
from runnel.private_files import FOLDER_MODE, make_folders_above, make_private_folder
from runnel.settings import FILE, Settings
from runnel.storage.file_storage import Storage, open_storage
from runnel.storage.key_file import KeyFile
from runnel.streaming.cluster_checks import require_shared_catalog

_TEMPLATE = """\
# Settings of this Runnel workspace. Every setting has a default; the settings reference lists them all.
# The environment wins: RUNNEL_LAG_LIMIT=1000 overrides lag_limit.

# master = "local[*]"
# lag_limit = 1000000
"""
_CATALOG_LINES = """
# The password belongs into RUNNEL_CATALOG (the whole URL) or ~/.pgpass; or here, if only you can read this file.
catalog = {url}
"""


@dataclass(frozen=True)
class Workspace:
    """An open workspace: its folder, settings, catalog, files, logs and key."""

    folder: Path
    settings: Settings
    catalog: Catalog
    storage: Storage
    items: ItemLog
    matches: MatchLog
    tables: TableStore
    key: KeyFile

    @property
    def out(self) -> Path:
        """The folder for relative targets of subscriptions."""
        return self.folder / "out"

    @property
    def spark_folder(self) -> Path:
        """The folder for the private temporary folders of processes that use Spark."""
        return self.folder / "spark"

    def close(self) -> None:
        """Close the catalog."""
        self.catalog.close()


def create_workspace(folder: Path, *, clock: Clock = time.time, **overrides: Any) -> Workspace:
    """Create a workspace in a folder that contains none. The folder may not exist yet."""
    folder = folder.absolute()
    if (folder / FILE).exists():
        raise WorkspaceExistsError(f"{folder} is already a workspace", hint="use it, or choose another folder")
    settings = Settings.load(folder, **overrides)
    try:
        make_folders(folder, shared_output=settings.shared_output)
    except OSError as error:
        raise WorkspaceError(f"{folder} cannot be created: {error.strerror}", hint="choose another folder") from error
    refuse_files(_storage(folder, settings))
    workspace = _open(folder, settings, clock)
    try:
        workspace.catalog.migrate()
        _refuse_used(workspace.catalog)
        claim_new(workspace.catalog, workspace.storage)
        check_key(workspace.catalog, workspace.key)
    except BaseException:
        workspace.close()
        raise
    # The settings file makes the folder a workspace, so write it last. It contains the URL of a catalog elsewhere, so
    # that opening the workspace without RUNNEL_CATALOG does not silently start a new catalog.
    url = without_password(settings.catalog) if settings.catalog else None
    write_settings(folder, _TEMPLATE + ("" if url is None else _CATALOG_LINES.format(url=json.dumps(url))))
    return workspace


def make_folders(folder: Path, *, shared_output: bool) -> None:
    """Create the folder of a workspace and its `out`, accessible only to this user.

    With `shared_output`, other users can list and read `out`, and pass through the folder to reach it.
    An existing folder with other content keeps its permissions: it may be a home folder, or one that many users
    share.
    """
    make_folders_above(folder)
    make_private_folder(folder)
    if not any(folder.iterdir()):
        with suppress(PermissionError):  # it belongs to another user, who is responsible for its permissions
            folder.chmod(0o711 if shared_output else FOLDER_MODE)
    make_private_folder(folder / "out")
    if shared_output:
        (folder / "out").chmod(0o755)


def write_settings(folder: Path, text: str) -> None:
    """Write the settings file durably and readable only by this user, because it may contain passwords."""
    open_storage(folder.as_uri()).replace(FILE, text.encode())


def open_workspace(folder: Path, *, clock: Clock = time.time, **overrides: Any) -> Workspace:
    """Open a workspace and upgrade its catalog."""
    workspace = _open_existing(folder.absolute(), clock, overrides)
    try:
        check_identity(workspace.catalog, workspace.storage)
        workspace.catalog.migrate()
        check_key(workspace.catalog, workspace.key)
    except BaseException:
        workspace.close()
        raise
    return workspace


def adopt_workspace(
    folder: Path, *, force: bool = False, new_key: bool = False, **overrides: Any
) -> IdentityEvidence:
    """Declare that the catalog and the files in the settings of a workspace belong together.

    With `new_key`, the workspace gets a new key; the secrets that were encrypted with the old key are deleted.
    """
    workspace = _open_existing(folder.absolute(), time.time, overrides)
    try:
        belonging = adopt(workspace.catalog, workspace.storage, force=force)
        if new_key:
            workspace.catalog.migrate()
            replace_key(workspace.catalog, workspace.key)
        return belonging
    finally:
        workspace.close()


def _open_existing(folder: Path, clock: Clock, overrides: dict[str, Any]) -> Workspace:
    """Open a workspace without checking its content. Only `init` creates a missing catalog."""
    if not (folder / FILE).exists():
        raise NotAWorkspaceError(
            f"{folder} is not a workspace", hint=f"create a workspace with `runnel init {folder}`"
        )
    settings = Settings.load(folder, **overrides)
    file = sqlite_file(_catalog_url(folder, settings))
    if file is not None and not file.exists():
        raise WorkspaceError(
            f"the catalog {file} is missing",
            hint="restore the workspace from a backup, or set `catalog` in runnel.toml (or RUNNEL_CATALOG) to the "
            "URL of its catalog",
        )
    return _open(folder, settings, clock)


def _refuse_used(catalog: Catalog) -> None:
    """Raise WorkspaceError if a catalog has feeds or items: the files that it references would be missing."""
    with catalog.read() as connection:
        is_used = last_sequence(connection) > 0 or feed_names(connection)
    if is_used:
        raise WorkspaceError(
            f"the catalog {catalog.shown} belongs to another workspace",
            hint="give every workspace a database or a schema of its own; to move a workspace, copy its folder",
        )


def _refuse_invalid_path(folder: Path) -> None:
    if "?" in str(folder) or "#" in str(folder):
        raise WorkspaceError(
            f"{folder}: the path of a workspace must not contain ? or #", hint="choose another folder"
        )


def _open(folder: Path, settings: Settings, clock: Clock) -> Workspace:
    _refuse_invalid_path(folder)
    url = _catalog_url(folder, settings)
    require_shared_catalog(settings.master, url)
    storage = _storage(folder, settings)
    key = KeyFile(storage)
    catalog = Catalog(url, max_bytes=settings.catalog_max_bytes, clock=clock, key=key.read)
    items, matches = ItemLog(catalog, storage), MatchLog(catalog, storage)
    return Workspace(folder, settings, catalog, storage, items, matches, TableStore(catalog, storage, items), key)


def _storage(folder: Path, settings: Settings) -> Storage:
    return open_storage(settings.storage or folder.as_uri())


def _catalog_url(folder: Path, settings: Settings) -> str:
    return _with_password(settings) or f"sqlite:///{folder / 'catalog.sqlite'}"


def _with_password(settings: Settings) -> str:
    """Return the URL of the catalog with the password from `catalog_password_file`, if that is set."""
    if not settings.catalog or not settings.catalog_password_file:
        return settings.catalog
    try:
        password = Path(settings.catalog_password_file).read_text("utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkspaceError(
            f"{settings.catalog_password_file} cannot be read: {error}", hint="see the setting catalog_password_file"
        ) from error
    return make_url(settings.catalog).set(password=password).render_as_string(hide_password=False)
