"""Stylesheets: read them by name, and store their content permanently.

In: the name in a statement. Out: the content of a file below the workspace's folder `sheets`, never of any other
file. The content is stored under its digest, so editing the file has no effect until the stylesheet is declared
again.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path, PurePosixPath

from sqlalchemy import Connection, select

from runnel.catalog.store import schema
from runnel.errors import InputError
from runnel.regular_files import open_regular

FOLDER = "sheets"
MAX_BYTES = 1 << 20
_KEPT = re.compile(r"[0-9a-f]{64}\.xsl\Z")
_STORED = re.compile(FOLDER + r"/(?:[0-9a-f]{64}\.xsl|\.[0-9a-f]{64}\.xsl\.[0-9a-f]{32})\Z")
_HINT = "put the file into the workspace's folder `sheets` and give its name, such as 'title.xsl'"
_f, _s = schema.feeds.c, schema.subscriptions.c


def read_stylesheet(workspace: Path, name: str) -> bytes:
    """Read a stylesheet in a workspace's folder `sheets`, or raise InputError.

    Folders are opened one after the other by handle without following symbolic links, so that no other file can be
    read.
    """
    parts = _parts(name)
    try:
        handle = open_regular(workspace / FOLDER, parts)
    except OSError as error:
        raise InputError(
            f"the stylesheet cannot be read: {error.strerror or 'not a file'}", place=name[:80], hint=_HINT
        ) from error
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"the stylesheet is larger than {MAX_BYTES >> 20} MB", place=name[:80], hint="shorten it")
    return data


def kept_path(data: bytes) -> str:
    """Return the path in the workspace's storage under which a stylesheet is stored.

    >>> kept_path(b"")[:20]
    'sheets/e3b0c44298fc1'
    """
    return f"{FOLDER}/{sha256(data).hexdigest()}.xsl"


def is_kept(path: str) -> bool:
    """Return whether a path in the workspace's storage is a stored copy, complete or not, and not a user's file.

    >>> is_kept(kept_path(b"")), is_kept("sheets/title.xsl"), is_kept("sheets/mine/" + "0" * 64 + ".xsl")
    (True, False, False)
    """
    return _STORED.match(path) is not None


def stylesheets_in_use(connection: Connection) -> set[str]:
    """Return the paths of the stylesheets that live feeds and subscriptions apply."""
    of_feeds = select(_f.sheet).where(_f.sheet.is_not(None), _f.dropped.is_(None))
    of_subscriptions = select(_s.sheet).where(_s.sheet.is_not(None), _s.ended.is_(None))
    return {row.sheet for query in (of_feeds, of_subscriptions) for row in connection.execute(query.distinct())}


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or "://" in name:
        raise InputError(
            "the path of a stylesheet must be relative to the folder `sheets`, without '..'",
            place=name[:80],
            hint=_HINT,
        )
    if _KEPT.match(path.name):
        raise InputError("this file name is reserved for Runnel's copies of stylesheets", place=name[:80], hint=_HINT)
    return path.parts
