"""The claims of a batch, settled before it is committed: in the driver, one batch after another.

In: the parts that the tasks have written, and their claims. Out: the parts with what has passed the gates of distinct
feeds, and the keys to remember. Nothing is in force before the transaction that commits the batch: a crash leaves
files that nobody names, and a batch that is run again finds the keys as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.logs import match_segments, seen_keys
from runnel.catalog.store.connection import Catalog
from runnel.errors import LineageConflictError
from runnel.logs.matches.added_matches import add_matches
from runnel.matching.distinct.claims import Claims
from runnel.matching.distinct.settle_gates import NOTHING, settle_gates
from runnel.model.seen_key import SeenKey
from runnel.model.segment import MatchPart
from runnel.storage.file_storage import Storage


@dataclass(frozen=True, slots=True)
class SettledBatch:
    """A batch as it will be committed, if the log still ends where it ended when the keys were read."""

    parts: tuple[MatchPart, ...]
    added: int
    keys: tuple[SeenKey, ...]
    upto: int

    def remember(self, connection: Connection, first_sequence: int) -> None:
        """Remember the batch's keys, in the transaction that has committed its segment."""
        if self.upto != first_sequence - 1:
            raise LineageConflictError(
                f"what came before item {first_sequence} was not committed yet when duplicates were looked for"
            )
        seen_keys.remember_keys(connection, self.keys)


def settle_batch(
    catalog: Catalog, storage: Storage, lineage: int, parts: Sequence[MatchPart], sealed: Sequence[bytes | None]
) -> SettledBatch:
    """Settle the claims of a batch, those of each part, against the keys that were seen before it.

    There may be ten thousand readers of a distinct feed, so only what comes to gates is held for the whole batch.
    """
    first = min(part.first_sequence for part in parts)
    with catalog.read() as connection:
        upto = match_segments.matched_upto(connection)
        if upto != first - 1:
            # Committed before a crash, or out of turn: the commit finds out which.
            return SettledBatch(tuple(parts), 0, (), upto)
        claims = Claims.of([Claims.opened(one).at_gates() for one in sealed if one])
        gates = settle_gates(claims, lambda keys: seen_keys.seen_keys(connection, keys))
    written: list[tuple[MatchPart, int]] = []
    for part, one in zip(parts, sealed, strict=True):
        found = gates.matches(Claims.opened(one)) if one else (NOTHING, NOTHING)
        written.append(add_matches(storage, lineage, part, *found))
    return SettledBatch(tuple(part for part, _ in written), sum(added for _, added in written), gates.keys, upto)
