"""Resolution of the gates of a batch, in the driver, before the batch is committed.

In: the parts that the tasks have written, and their claims. Out: the parts with the matches that passed the gates,
the gate states to store, and the items to add to windows. Nothing takes effect before the transaction that commits
the batch. After a crash before it, the new files are orphans, and a replay of the batch starts from the old states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from runnel.catalog.logs import gate_states, match_segments
from runnel.catalog.logs.join_work import CountedWork, add_work
from runnel.catalog.store.connection import Catalog
from runnel.errors import LineageConflictError
from runnel.logs.matches.added_matches import add_matches
from runnel.matching.gates.claims import Claims
from runnel.matching.gates.resolve_gates import NO_NUMBERS, resolve_gates
from runnel.model.annotation import encode_annotations
from runnel.model.gate_state import GateState
from runnel.model.segment import MatchPart
from runnel.storage.file_storage import Storage

if TYPE_CHECKING:
    from runnel.streaming.fill_windows import BatchWindows


@dataclass(frozen=True, slots=True)
class ResolvedBatch:
    """A batch to be committed if the match log ends at sequence `upto`. `added` counts matches that passed gates.

    `failures` has (sequence, query, reason) of the items on which a gate failed, and `work` the work of joins.
    """

    parts: tuple[MatchPart, ...]
    added: int
    states: tuple[GateState, ...]
    upto: int
    windows: BatchWindows | None = None
    failures: tuple[tuple[int, int, str], ...] = ()
    work: tuple[CountedWork, ...] = ()

    def new_files(self) -> list[str]:
        """Return the files that the transaction will reference."""
        return [part.path for part in self.parts] + [
            segment.path for segment in (self.windows.segments if self.windows else ())
        ]

    def store(self, connection: Connection, first_sequence: int) -> None:
        """Store the gate states and windows, in the transaction that commits the segment of the batch.

        Raise LineageConflictError if the gates were resolved with the states of another position in the match log.
        """
        if self.upto != first_sequence - 1:
            raise LineageConflictError(
                f"gates were resolved when the match log ended at {self.upto}; the batch begins at {first_sequence}"
            )
        gate_states.store_states(connection, self.states)
        add_work(connection, self.work)
        if self.windows is not None:
            self.windows.store(connection)


def resolve_batch(
    catalog: Catalog,
    storage: Storage,
    lineage: int,
    plan: int,
    parts: Sequence[MatchPart],
    encoded: Sequence[bytes | None],
) -> ResolvedBatch:
    """Resolve the claims of a batch with the gate states before it. `encoded` are the encoded claims of each part.

    Ten thousand queries may read a gated feed, so only the claims of the gates themselves are in memory for the whole
    batch; all others are decoded one part at a time.
    """
    sequences = min(part.first_sequence for part in parts), max(part.last_sequence for part in parts)
    with catalog.read() as connection:
        upto = match_segments.matched_upto(connection)
    if upto != sequences[0] - 1:
        # The batch was committed before a crash, or it does not continue the match log. The commit checks which.
        return ResolvedBatch(tuple(parts), 0, (), upto)
    gate_claims = Claims.of([Claims.decode(claims).at_gates() for claims in encoded if claims])
    windows = _open_windows(catalog, storage, gate_claims, plan, sequences)
    with catalog.read() as connection:
        gates = resolve_gates(
            gate_claims,
            lambda keys: gate_states.read_states(connection, keys),
            lambda: windows.parts if windows else (),
            windows.keys if windows else {},
        )
    written: list[tuple[MatchPart, int]] = []
    for part, part_claims in zip(parts, encoded, strict=True):
        claims = Claims.decode(part_claims or b"")
        matches = gates.matches(claims) if len(claims) else (NO_NUMBERS, NO_NUMBERS)
        annotations = {
            sequence: text
            for sequence, by_query in gates.annotations_of(claims).items()
            if (text := encode_annotations(by_query)) is not None
        }
        written.append(add_matches(storage, lineage, part, *matches, annotations))
    if windows is not None:
        windows.add_batch(gates)
    return ResolvedBatch(
        tuple(part for part, _ in written),
        sum(added for _, added in written),
        gates.states,
        upto,
        windows,
        tuple((sequence, feed, reason) for (feed, sequence), reason in gates.failures.items()),
        tuple(
            CountedWork(feed, gates.gates.history(position), sequences[0] - 1, gates.work[feed])
            for position, feed in enumerate(gates.gates.feeds.tolist())
            if feed in gates.work
        ),
    )


def _open_windows(
    catalog: Catalog, storage: Storage, claims: Claims, plan: int, sequences: tuple[int, int]
) -> BatchWindows | None:
    """Open the windows of a batch, or return None if no item reaches a window or a join."""
    if not any(rule.stores_items for rule in claims.gates.rules):
        return None
    from runnel.streaming.fill_windows import open_windows

    return open_windows(catalog, storage, claims, plan, sequences)
