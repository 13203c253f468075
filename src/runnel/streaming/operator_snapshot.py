"""Snapshots of the operators for workers: a short text in every slice that refers to files of the workspace.

In: the catalog, in the driver. Out: the text, which workers parse. The declarations of operators are in a file that
is named after its digest, so a new file is written only when they change. Secrets are in another file, see
`matching.operators.ask.operator_environment`.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from runnel.errors import CorruptDataError
from runnel.matching.operators.ask.operator_environment import FOLDER
from runnel.model.operator import OperatorDeclaration
from runnel.storage.file_storage import Storage

if TYPE_CHECKING:
    from sqlalchemy import Connection

_STATISTICS_FOLDER = f"{FOLDER}/learned"
_DECLARATIONS_FOLDER = f"{FOLDER}/declared"
_KEPT_STATISTICS_FILES = 3
_FIRST_REFRESH_SECONDS, _MAX_REFRESH_SECONDS = 15.0, 600.0
"""How long a file with statistics is used before it is written again. The interval doubles up to the maximum."""

_UNUSED_SECONDS = 86_400.0
"""Files with declarations that no batch has used for this long are deleted."""


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """Paths of the files with declarations, cached answers and statistics, and the items that were logged again.

    `share` is the fraction of each operator's budget that one worker may use. `again` maps the sequence of an item
    that was logged again to the only queries that it is matched with.
    """

    declared: str | None = None
    segments: tuple[str, ...] = ()
    learned: str | None = None
    share: float = 1.0
    again: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def dump(self) -> str | None:
        """Return the snapshot as text, or None if there are neither operators nor items that were logged again."""
        return json.dumps(asdict(self)) if self.declared is not None or self.again else None

    @staticmethod
    def load(text: str | None) -> OperatorSnapshot:
        """Parse the text that `dump` returned."""
        if not text:
            return OperatorSnapshot()
        value = json.loads(text)
        again = {int(sequence): tuple(queries) for sequence, queries in value["again"].items()}
        return OperatorSnapshot(value["declared"], tuple(value["segments"]), value["learned"], value["share"], again)


def read_declarations(storage: Storage, path: str) -> tuple[OperatorDeclaration, ...]:
    """Read the declarations of a snapshot. Raise CorruptDataError if the file's digest differs from its name."""
    data = storage.read(path)
    if path != _declarations_path(data):
        raise CorruptDataError(f"{path} is damaged: its digest differs from the one in its name")
    return tuple(map(OperatorDeclaration.from_json, json.loads(data)))


def _declarations_path(data: bytes) -> str:
    return f"{_DECLARATIONS_FOLDER}/{hashlib.blake2b(data, digest_size=16).hexdigest()}.json"


class OperatorSnapshots:
    """Creates snapshots in the driver, and writes the files that they refer to."""

    def __init__(self, storage: Storage, share: float) -> None:
        self._storage = storage
        self._share = share
        self._declarations: str | None = None
        self._statistics: tuple[float, str | None] | None = None
        """When the last file with statistics was written, and its path."""
        self._refresh_seconds = _FIRST_REFRESH_SECONDS

    def create(self, connection: Connection, after: int, upto: int) -> OperatorSnapshot:
        """Create the snapshot for a batch of the items in (after, upto]."""
        from runnel.catalog.declared.operators import callable_operators
        from runnel.catalog.learned.operator_cache import live_segments
        from runnel.catalog.logs.undecided import supplements_between

        supplements = supplements_between(connection, after, upto)
        again = {supplement.sequence: supplement.queries for supplement in supplements}
        declarations = callable_operators(connection)
        if not declarations:
            return OperatorSnapshot(again=again)
        segments = tuple(segment.path for segment in live_segments(connection))
        declared = self._write_declarations(declarations)
        return OperatorSnapshot(declared, segments, self._write_statistics(connection), self._share, again)

    def _write_declarations(self, declarations: Sequence[OperatorDeclaration]) -> str:
        """Write the declarations to a file unless it exists, mark the file as used now, and return its path.

        If a file is written, delete those that were not used for a day.
        """
        data = json.dumps([declaration.to_json() for declaration in declarations]).encode()
        path = _declarations_path(data)
        file = self._storage.local(path)
        if path == self._declarations and file.exists():
            os.utime(file)
            return path
        self._storage.replace(path, data)
        self._declarations = path
        for other in file.parent.glob("*.json"):
            with suppress(FileNotFoundError):  # another process may delete it at the same time
                if other.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                    other.unlink()
        return path

    def _write_statistics(self, connection: Connection) -> str | None:
        """Return the path of the file with operator statistics, or None if there are none. Write it if it is due.

        Workers use the statistics to choose the order in which they call operators.
        """
        from runnel.catalog.learned.operator_statistics import learned_operators

        if self._statistics is None or time.monotonic() - self._statistics[0] >= self._refresh_seconds:
            if self._statistics is not None:
                self._refresh_seconds = min(2 * self._refresh_seconds, _MAX_REFRESH_SECONDS)
            statistics = learned_operators(connection)
            path = f"{_STATISTICS_FOLDER}/{uuid.uuid4().hex}.json" if statistics else None
            if path is not None:
                self._storage.write(path, json.dumps(statistics.to_json()).encode())
                self._delete_old_statistics(path)
            self._statistics = time.monotonic(), path
        return self._statistics[1]

    def _delete_old_statistics(self, newest: str) -> None:
        """Delete all but the newest files with statistics. A worker can do without the file of its snapshot."""
        folder = self._storage.local(newest).parent
        by_age = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in by_age[:-_KEPT_STATISTICS_FILES]:
            path.unlink(missing_ok=True)
