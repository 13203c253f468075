"""The gates of a batch, resolved before it is committed: in the driver, one batch after another.

In: the parts that the tasks have written, and their claims. Out: the parts with the matches that passed the gates,
and the states to store. Nothing is in force before the transaction that commits the batch: a crash leaves files that
no row names, and a batch that is run again finds the states as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.logs import gate_states, match_segments
from runnel.catalog.store.connection import Catalog
from runnel.errors import LineageConflictError
from runnel.logs.matches.added_matches import add_matches
from runnel.matching.gates.claims import Claims
from runnel.matching.gates.resolve_gates import NO_NUMBERS, resolve_gates
from runnel.model.gate_state import GateState
from runnel.model.segment import MatchPart
from runnel.storage.file_storage import Storage


@dataclass(frozen=True, slots=True)
class ResolvedBatch:
    """A batch as it will be committed, provided that the match log still ends at `upto`."""

    parts: tuple[MatchPart, ...]
    added: int
    states: tuple[GateState, ...]
    upto: int

    def store_states(self, connection: Connection, first_sequence: int) -> None:
        """Store the states of gates, in the transaction that has committed the batch's segment."""
        if self.upto != first_sequence - 1:
            raise LineageConflictError(
                f"the items before {first_sequence} were not committed yet when the gates of a batch were resolved"
            )
        gate_states.store_states(connection, self.states)


def resolve_batch(
    catalog: Catalog, storage: Storage, lineage: int, parts: Sequence[MatchPart], sealed: Sequence[bytes | None]
) -> ResolvedBatch:
    """Resolve the claims of a batch, given by part, with the states that precede it.

    A gated feed may have ten thousand readers, so only the claims at gates are held for the whole batch.
    """
    first = min(part.first_sequence for part in parts)
    with catalog.read() as connection:
        upto = match_segments.matched_upto(connection)
        if upto != first - 1:
            # Committed before a crash, or out of turn: the commit finds out which.
            return ResolvedBatch(tuple(parts), 0, (), upto)
        claims = Claims.of([Claims.opened(one).at_gates() for one in sealed if one])
        gates = resolve_gates(claims, lambda keys: gate_states.read_states(connection, keys))
    written: list[tuple[MatchPart, int]] = []
    for part, one in zip(parts, sealed, strict=True):
        matches = gates.matches(Claims.opened(one)) if one else (NO_NUMBERS, NO_NUMBERS)
        written.append(add_matches(storage, lineage, part, *matches))
    return ResolvedBatch(tuple(part for part, _ in written), sum(added for _, added in written), gates.states, upto)
