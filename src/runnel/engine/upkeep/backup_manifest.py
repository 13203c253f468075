"""The manifest of a backup: its content with the digest of every file, signed with the key of the workspace.

In: the folder of a backup, which may have been modified. Out: a manifest whose file names stay within their folders,
whether its signature is valid, and the verified content of its files.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from runnel.catalog.declared import stylesheets
from runnel.catalog.store import migrations
from runnel.errors import CorruptDataError, NewerWorkspaceError, NotFoundError, WorkspaceError
from runnel.logs.garbage import DATA_FOLDERS
from runnel.matching.operators.ask.operator_environment import FOLDER as OPERATORS
from runnel.regular_files import open_regular
from runnel.settings import FILE
from runnel.workspace_key import WorkspaceKey

MANIFEST = "backup.json"
UNFINISHED = "backup.unfinished"
FORMAT = 1
HINT = "use another backup; this one is not reliable"
_MAX_MANIFEST_BYTES = 512 << 20
_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_FILES = tuple(f"{folder}/" for folder in (*DATA_FOLDERS, stylesheets.FOLDER))
_SNAPSHOT_FILES = ("catalog/", f"folder/{stylesheets.FOLDER}/", f"{OPERATORS}/")


@dataclass(frozen=True, slots=True)
class Digest:
    """The size of a file and the SHA-256 of its content."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The description of a backup."""

    format: int
    made: str
    root: int
    catalog_version: int
    catalog_fingerprint: str
    last_sequence: int
    snapshot: str
    identities: dict[str, int]
    tables: dict[str, int]
    snapshot_files: dict[str, Digest]
    files: dict[str, Digest]
    signer: int | None = None
    """The fingerprint of the key that signed the manifest, or None if the signature was removed."""
    signature: str | None = None

    def signed(self, key: WorkspaceKey) -> Manifest:
        """Return the manifest signed with a key."""
        unsigned = replace(self, signer=key.fingerprint, signature=None)
        return replace(unsigned, signature=key.sign(unsigned.to_json()))

    def is_signed_by(self, key: WorkspaceKey) -> bool:
        """Return whether the signature of this key is valid."""
        signature = self.signature or ""
        return self.signer == key.fingerprint and hmac.compare_digest(signature, str(self.signed(key).signature))

    def check_signature(self, key: WorkspaceKey) -> None:
        """Raise CorruptDataError unless the signature of this key is valid."""
        if self.signature is None or self.signer is None:
            raise CorruptDataError(
                "the backup is not signed", hint="restore it without --key-file if you trust its folder"
            )
        if self.signer != key.fingerprint:
            raise CorruptDataError(
                "the backup was signed with the key of another workspace",
                hint="pass the key file of that workspace; without --key-file the signature is not checked",
            )
        if not self.is_signed_by(key):
            raise CorruptDataError("the backup was changed after it was signed", hint=HINT)

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(digest.size for digest in (*self.files.values(), *self.snapshot_files.values()))


def read_manifest(source: Path) -> Manifest:
    """Read the manifest of a backup. Raise NotFoundError if there is none, CorruptDataError if it is not valid."""
    try:
        with os.fdopen(open_regular(source, (MANIFEST,)), "rb") as file:
            data = file.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        if (source / UNFINISHED).exists():
            raise CorruptDataError(f"the backup in {source} is incomplete", hint="make it again") from error
        raise NotFoundError(
            f"{source} does not contain a backup", hint="create a backup with `runnel backup`"
        ) from error
    try:
        if len(data) > _MAX_MANIFEST_BYTES:
            raise ValueError(f"it has more than {_MAX_MANIFEST_BYTES >> 20} MB")
        return _parse(json.loads(data, object_pairs_hook=_without_duplicates))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptDataError(f"{source / MANIFEST} cannot be read: {error}", hint="use another backup") from error


def _parse(value: dict[str, Any]) -> Manifest:
    history, version, fingerprint = migrations.HISTORY, value["catalog_version"], value.get("catalog_fingerprint")
    if fingerprint is not None and (value["format"] > FORMAT or version > history.version):
        raise NewerWorkspaceError(
            "the backup was created by a newer version of Runnel", hint="use that version or a newer one"
        )
    if fingerprint is None or version < 1 or fingerprint != history.fingerprint_of(version):
        raise WorkspaceError(
            "the backup was created by a development version of Runnel",
            hint="restore it with the version that created it",
        )
    snapshot_files = _digests(value["snapshot_files"], _SNAPSHOT_FILES, (f"folder/{FILE}",))
    manifest = Manifest(**{**value, "snapshot_files": snapshot_files, "files": _digests(value["files"], _FILES)})
    if not _is_signature(manifest.signer, manifest.signature):
        raise ValueError("the signature is not valid")
    if uuid.UUID(hex=manifest.snapshot).hex != manifest.snapshot:
        raise ValueError("the name of the snapshot is not valid")
    return manifest


def _is_signature(signer: object, signature: object) -> bool:
    if signer is None and signature is None:
        return True
    return type(signer) is int and type(signature) is str and _SHA256.match(signature) is not None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object. Duplicate names are refused, because different readers would read different values."""
    value: dict[str, Any] = {}
    for name, member in pairs:
        if name in value:
            raise ValueError(f"the name {name[:80]!r} occurs twice in an object")
        value[name] = member
    return value


def _digests(
    values: Mapping[str, Mapping[str, Any]], folders: Sequence[str], others: Sequence[str] = ()
) -> dict[str, Digest]:
    """Parse the digests of files. Each must have a plain name below one of the folders, or one of the other names."""
    digests: dict[str, Digest] = {}
    for name, value in values.items():
        pure = PurePosixPath(name)
        is_plain = pure.as_posix() == name and not pure.is_absolute() and ".." not in pure.parts
        if not is_plain or "\\" in name or "\0" in name or not (name.startswith(tuple(folders)) or name in others):
            raise ValueError(f"{name!r} is not a valid file name in a backup")
        size, sha256 = value["size"], value["sha256"]
        if type(size) is not int or size < 0 or type(sha256) is not str or not _SHA256.match(sha256):
            raise ValueError(f"{name!r} has no valid size and digest")
        digests[name] = Digest(size, sha256)
    return digests


def verified_chunks(folder: Path, name: str, expected: Digest) -> Iterator[bytes]:
    """Yield the content of a file of a backup in chunks.

    Raise CorruptDataError, at the latest at the end, if it is not the content that was backed up. The chunks must not
    be used before that.
    """
    try:
        handle = open_regular(folder, PurePosixPath(name).parts)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{name} is missing from the backup", hint=HINT) from error
    except OSError as error:
        raise CorruptDataError(
            f"{name} is not a regular file, or cannot be read: {error.strerror}", hint=HINT
        ) from error
    digest, left = hashlib.sha256(), expected.size
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_size == expected.size:
            while left and (data := file.read(min(_CHUNK, left))):
                digest.update(data)
                left -= len(data)
                yield data
    if left or digest.hexdigest() != expected.sha256:
        raise CorruptDataError(f"{name} was changed after the backup: its digest differs", hint=HINT)


def file_digest(path: Path) -> Digest:
    """Compute the digest of a file."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            digest.update(data)
            size += len(data)
    return Digest(size, digest.hexdigest())
