"""What workers need to know of operators: a short text in every slice, which names files of the workspace.

In: the catalog, in the driver. Out: the text, which workers load. The declarations of operators are in a file that is
named by its digest and stays the same until an operator is registered or dropped. Secrets are in another file, see
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

_LEARNED = f"{FOLDER}/learned"
_DECLARED = f"{FOLDER}/declared"
_KEPT = 3
_SECONDS, _MOST_SECONDS = 15.0, 600.0
"""How long workers use what was learned before: at first briefly, then longer and longer."""

_UNUSED_SECONDS = 86_400.0
"""Declarations that no batch has used for this long are removed."""


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """The files with declarations, known answers and what was learned, and the items that are in the log again.

    `again` has, by the sequence of such an item, the queries for which alone it counts.
    """

    declared: str | None = None
    segments: tuple[str, ...] = ()
    learned: str | None = None
    share: float = 1.0
    again: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def dump(self) -> str | None:
        """The snapshot as text; None where there are neither operators nor such items."""
        return json.dumps(asdict(self)) if self.declared is not None or self.again else None

    @staticmethod
    def load(text: str | None) -> OperatorSnapshot:
        """The snapshot of a text."""
        if not text:
            return OperatorSnapshot()
        told = json.loads(text)
        again = {int(sequence): tuple(queries) for sequence, queries in told["again"].items()}
        return OperatorSnapshot(told["declared"], tuple(told["segments"]), told["learned"], told["share"], again)


def read_declarations(storage: Storage, path: str) -> tuple[OperatorDeclaration, ...]:
    """The declarations of a snapshot's file."""
    data = storage.read(path)
    if path != _declared_path(data):
        raise CorruptDataError(f"{path} does not have the declarations that it had")
    return tuple(map(OperatorDeclaration.from_json, json.loads(data)))


def _declared_path(data: bytes) -> str:
    return f"{_DECLARED}/{hashlib.blake2b(data, digest_size=16).hexdigest()}.json"


class OperatorSnapshots:
    """Makes snapshots, in the driver, and writes the files that they name."""

    def __init__(self, storage: Storage, share: float) -> None:
        self._storage = storage
        self._share = share
        self._declared: str | None = None
        self._learned: tuple[float, str | None] | None = None
        self._pause = _SECONDS

    def brief(self, connection: Connection, after: int, upto: int) -> OperatorSnapshot:
        """The snapshot for the items in (after, upto]."""
        from runnel.catalog.declared.operators import callable_operators
        from runnel.catalog.learned.operator_cache import live_segments
        from runnel.catalog.logs.undecided import supplements_between

        again = {one.sequence: one.queries for one in supplements_between(connection, after, upto)}
        declarations = callable_operators(connection)
        if not declarations:
            return OperatorSnapshot(again=again)
        segments = tuple(one.path for one in live_segments(connection))
        declared = self._write_declarations(declarations)
        return OperatorSnapshot(declared, segments, self._known(connection), self._share, again)

    def _write_declarations(self, declarations: Sequence[OperatorDeclaration]) -> str:
        """The file with these declarations, which is marked as used now."""
        data = json.dumps([one.to_json() for one in declarations]).encode()
        path = _declared_path(data)
        file = self._storage.local(path)
        if path == self._declared and file.exists():
            os.utime(file)
            return path
        self._storage.replace(path, data)
        self._declared = path
        for other in file.parent.glob("*.json"):
            with suppress(FileNotFoundError):  # another process removes them, too
                if other.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                    other.unlink()
        return path

    def _known(self, connection: Connection) -> str | None:
        """The file with what was learned, by which workers choose their order; written again now and then."""
        from runnel.catalog.learned.operator_statistics import learned_operators

        if self._learned is None or time.monotonic() - self._learned[0] >= self._pause:
            if self._learned is not None:
                self._pause = min(2 * self._pause, _MOST_SECONDS)
            learned = learned_operators(connection)
            path = f"{_LEARNED}/{uuid.uuid4().hex}.json" if learned else None
            if path is not None:
                self._storage.write(path, json.dumps(learned.to_json()).encode())
                self._drop_old(path)
            self._learned = time.monotonic(), path
        return self._learned[1]

    def _drop_old(self, newest: str) -> None:
        """Remove all but the last few: a worker that finds its file gone does without it."""
        folder = self._storage.local(newest).parent
        old = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-_KEPT]
        for path in old:
            path.unlink(missing_ok=True)
