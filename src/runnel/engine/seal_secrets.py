"""Check that the key of a workspace is the one that encrypts the secrets in its catalog.

In: an upgraded catalog, and the key file. Out: None, or an error with a hint. The key is durable before the catalog
contains its fingerprint, so a process may be killed at any point: the next one finds the key.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection

from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sealed_secrets import forget_secrets, read_fingerprint, set_fingerprint
from runnel.errors import ReadOnlyError, RunnerActiveError, WorkspaceError
from runnel.storage.key_file import KEY_FILE, KeyFile
from runnel.workspace_key import WorkspaceKey


def check_key(catalog: Catalog, file: KeyFile) -> None:
    """Raise WorkspaceError unless the key is the right one. A workspace without a key gets one."""
    with catalog.read() as connection:
        fingerprint = read_fingerprint(connection)
    if fingerprint is None:
        with (
            suppress(ReadOnlyError),
            catalog.write() as connection,
        ):  # the next process that can write creates the key
            _set_key(connection, file)
    elif file.read().fingerprint != fingerprint:
        raise WorkspaceError(
            f"{KEY_FILE} is not the key that encrypted the secrets in {catalog.shown}",
            hint="put the key file of this workspace back; if it is lost, `runnel adopt --new-key` creates a new key",
        )


def replace_key(catalog: Catalog, file: KeyFile) -> int:
    """Give a workspace a new key. Return the number of secrets that are lost with the old one.

    Raise RunnerActiveError while a runner is active, because it would continue with the old key. Everything happens
    in one transaction, so that there is always a fingerprint by which other processes notice that they have the old
    key.
    """
    with catalog.write() as connection:
        lease = leases.state(connection)
        if lease is not None and lease.alive:
            raise RunnerActiveError(
                "the key cannot be replaced while a runner is active on the workspace",
                hint="stop the runner and all other processes that use the workspace first",
            )
        lost = forget_secrets(connection)
        file.write(WorkspaceKey.make())
        _set_key(connection, file)
    return lost


def restore_key(catalog: Catalog, file: KeyFile, key: WorkspaceKey | None) -> int:
    """Give a restored workspace its key, or a new one if it is not known. Return the number of lost secrets."""
    with catalog.write() as connection:
        fingerprint = read_fingerprint(connection)
        if key is not None:
            file.write(key)
        is_known = key is not None and key.fingerprint == fingerprint
        lost = 0 if is_known else forget_secrets(connection)
    check_key(catalog, file)
    return lost


def _set_key(connection: Connection, file: KeyFile) -> None:
    """Create the key of the workspace unless another process has done so."""
    if read_fingerprint(connection) is None:
        set_fingerprint(connection, file.read_or_make().fingerprint)
