"""Translate database errors into Runnel's errors, with hints and without secrets."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, OperationalError

from runnel.errors import (
    CatalogUnavailableError,
    CorruptDataError,
    ReadOnlyError,
    RunnelError,
    StorageFullError,
    WorkspaceError,
)

READ_ONLY_HINT = "run the command as the user who owns the workspace, or make the disk and the folder writable"
_ROOM_HINT = "free disk space; processing resumes automatically"
_BUSY = "the catalog is busy"
_BUSY_HINT = "another transaction takes a long time; try again"

# SQLSTATE codes of PostgreSQL, by their meaning for Runnel.
_FULL = {"53100"}
_SLOW = {"55P03", "57014", "25P03", "40001", "40P01"}
_CROWDED = {"53300", "53200", "53000", "53400"}
_AWAY = {"57P01", "57P02", "57P03", "57P05", "25006"}
_DENIED = {"28P01", "28000", "42501", "3D000", "3F000", "25P01"}
_DAMAGED = {"XX001", "XX002"}


def translate_db_error(error: DBAPIError, place: str) -> RunnelError | None:
    """Return the error for the user, or None if the error is a bug and not a problem of the database.

    `place` is the catalog's URL without its password.
    """
    code = getattr(error.orig, "sqlstate", None)
    if code is not None:
        return _by_code(str(code), _reason(error), place)
    return _by_message(error, _reason(error), place)


def _by_code(code: str, reason: str, place: str) -> RunnelError | None:
    if code in _FULL:
        return StorageFullError("no disk space left for the catalog", hint=_ROOM_HINT)
    if code in _SLOW:
        return CatalogUnavailableError(_BUSY, hint=_BUSY_HINT)
    if code in _CROWDED:
        return CatalogUnavailableError(
            f"the catalog's server is overloaded: {reason}", hint="raise the limits of the server, or try again later"
        )
    if code in _AWAY or code.startswith("08"):
        return CatalogUnavailableError(
            f"lost the connection to the catalog's server: {reason}",
            hint="try again when it is back; publishing the same items again is harmless",
        )
    if code in _DENIED:
        return WorkspaceError(
            f"{place} cannot be accessed: {reason}",
            hint="check the user, its privileges and the name of the database",
        )
    if code in _DAMAGED:
        return CorruptDataError(f"the catalog cannot be read: {reason}", hint="restore the workspace from a backup")
    return None


def _by_message(error: DBAPIError, reason: str, place: str) -> RunnelError | None:
    """Classify an error by its message: SQLite and failed connections to PostgreSQL have no SQLSTATE code."""
    words = str(error.orig).lower()
    if any(sign in words for sign in ("disk is full", "no space left", "disk i/o error")):
        return StorageFullError("no disk space left for the catalog", hint=_ROOM_HINT)
    if "readonly database" in words:
        return ReadOnlyError(f"{place} cannot be written: {reason}", hint=READ_ONLY_HINT)
    if "unable to open database file" in words:
        return ReadOnlyError(
            f"{place} cannot be opened: {reason}",
            hint="check that the folder exists and that this user can read the folder and the file",
        )
    if "not a database" in words or "malformed" in words:
        return CorruptDataError(
            f"the catalog cannot be read: {error.orig}", hint="restore the workspace from a backup"
        )
    if not isinstance(error, OperationalError):
        return None
    if "locked" in words or "busy" in words:
        return CatalogUnavailableError(_BUSY, hint=_BUSY_HINT)
    if type(error.orig).__module__.startswith("sqlite3"):
        return None
    if any(sign in words for sign in ("authentication failed", "no password supplied", "does not exist", "pg_hba")):
        return WorkspaceError(
            f"{place} cannot be accessed: {reason}", hint="check the user, the password and the name of the database"
        )
    return CatalogUnavailableError(
        f"cannot connect to the catalog's server: {reason}",
        hint="check that it is running and that its address is right, then try again",
    )


def _reason(error: DBAPIError) -> str:
    """Return the database's message in one line."""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return (lines or ["no reason given"])[-1 if len(lines) > 1 and lines[0].endswith(":") else 0][:200]
