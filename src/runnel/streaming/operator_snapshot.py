"""What travels with slices to the workers for the sake of operators, and how the driver puts it together.

Secrets never travel: what look-ups and services need is in a file of the root, see
`matching.operators.ask.operator_environment`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.matching.operators.ask.operator_environment import FOLDER
from runnel.model.operator import OperatorDeclaration
from runnel.storage.file_storage import Storage

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LEARNED = f"{FOLDER}/learned"
_KEPT = 3
_SECONDS, _MOST_SECONDS = 15.0, 600.0
"""How long workers go on by what was learned before: at first briefly, then longer and longer."""


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """The operators that there are, where known answers and what was learned lie, and which items are there again.

    `again` has, by the sequence of an item that is in the log once more, the queries for which alone it counts.
    """

    declarations: tuple[OperatorDeclaration, ...] = ()
    segments: tuple[str, ...] = ()
    learned: str | None = None
    share: float = 1.0
    again: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def dump(self) -> str | None:
        """As text; None where there is nothing to say."""
        if not self.declarations and not self.again:
            return None
        told = {
            "declarations": [one.to_json() for one in self.declarations],
            "segments": self.segments,
            "learned": self.learned,
            "share": self.share,
            "again": {str(sequence): queries for sequence, queries in self.again.items()},
        }
        return json.dumps(told)

    @staticmethod
    def load(text: str | None) -> OperatorSnapshot:
        """The brief of a text."""
        if not text:
            return OperatorSnapshot()
        told = json.loads(text)
        return OperatorSnapshot(
            tuple(map(OperatorDeclaration.from_json, told["declarations"])),
            tuple(told["segments"]),
            told["learned"],
            told["share"],
            {int(sequence): tuple(queries) for sequence, queries in told["again"].items()},
        )


class OperatorSnapshots:
    """Puts briefs together, in the driver; what was learned is written down when it has changed."""

    def __init__(self, storage: Storage, share: float) -> None:
        self._storage = storage
        self._share = share
        self._learned: tuple[float, str | None] | None = None
        self._pause = _SECONDS

    def brief(self, connection: Connection, after: int, upto: int) -> OperatorSnapshot:
        """The brief for the items in (after, upto]."""
        from runnel.catalog.declared.operators import callable_operators
        from runnel.catalog.learned.operator_cache import live_segments
        from runnel.catalog.logs.undecided import supplements_between

        again = {one.sequence: one.queries for one in supplements_between(connection, after, upto)}
        declarations = tuple(callable_operators(connection))
        if not declarations:
            return OperatorSnapshot(again=again)
        segments = tuple(one.path for one in live_segments(connection))
        return OperatorSnapshot(declarations, segments, self._known(connection), self._share, again)

    def _known(self, connection: Connection) -> str | None:
        """Where what was learned lies; written anew now and then, for workers choose their order by it."""
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
        """Only the last few are of use: whoever finds one gone does without."""
        folder = self._storage.local(newest).parent
        old = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-_KEPT]
        for path in old:
            path.unlink(missing_ok=True)
