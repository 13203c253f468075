"""Log undecided items again, so that the queries whose operators failed are retried.

In: undecided items that are due. Out: a segment of the item log with the same items under new sequences. One
transaction accepts it and removes the items from the undecided ones, so a crash neither repeats nor loses a retry.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import undecided
from runnel.catalog.logs.quarantine import OPERATOR, Quarantined, add_quarantined
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sequencer import take_sequences
from runnel.logs.items.item_files import STORED_SCHEMA
from runnel.logs.items.item_log import ItemLog
from runnel.model.segment import Tier
from runnel.model.undecided import Undecided
from runnel.storage.arrow_files import write_arrow
from runnel.storage.checksums import ChecksummedFile
from runnel.storage.file_storage import Storage

_MAX_ITEMS = 5_000


def log_again(catalog: Catalog, storage: Storage, *, epoch: int, limit: int = _MAX_ITEMS) -> int:
    """Log the undecided items that are due again. Return their number."""
    with catalog.read() as connection:
        due = undecided.due_undecided(connection, limit)
        kept_after = manifest.kept_after(connection, 0)
    deleted = [item for item in due if item.sequence <= kept_after]
    if deleted:
        with catalog.write() as connection:
            undecided.forget_undecided(connection, [item.id for item in deleted])
            for item in deleted:
                reason = f"{item.reason}; the item was deleted before the retry"
                add_quarantined(
                    connection, Quarantined(OPERATOR, f"item {item.sequence}", reason, query=item.queries[0])
                )
    waiting = sorted((item for item in due if item.sequence > kept_after), key=lambda item: (item.sequence, item.id))
    if not waiting:
        return 0
    file = _write(catalog, storage, waiting)
    if _commit(catalog, storage, file, waiting, epoch):
        return len(waiting)
    storage.delete(file.path)
    return 0


def _write(catalog: Catalog, storage: Storage, waiting: Sequence[Undecided]) -> ChecksummedFile:
    """Write the items in order, each once per waiting entry."""
    sequences = sorted({item.sequence for item in waiting})
    rows = {sequence: row for row, sequence in enumerate(sequences)}
    items = pa.Table.from_batches([batch.records for batch in ItemLog(catalog, storage).get(sequences)])
    stored = items.take(pa.array([rows[item.sequence] for item in waiting])).select(STORED_SCHEMA.names)
    path = f"items/log/{uuid.uuid4().hex}.arrow"
    return write_arrow(storage, path, stored.cast(STORED_SCHEMA).combine_chunks().to_batches(), STORED_SCHEMA)


def _commit(
    catalog: Catalog, storage: Storage, file: ChecksummedFile, waiting: Sequence[Undecided], epoch: int
) -> bool:
    with catalog.write() as connection:
        leases.check(connection, epoch)
        still_waiting = undecided.still_undecided(connection, [item.id for item in waiting])
        if len(still_waiting) < len(waiting) or not storage.local(file.path).exists():
            return False
        first, accepted = take_sequences(connection, len(waiting))
        sequences = (first, first + len(waiting) - 1)
        times = (accepted, accepted)
        manifest.add_segment(connection, Tier.LOG, file.path, sequences=sequences, times=times, size=file.size)
        undecided.supplement(connection, ((item, first + row) for row, item in enumerate(waiting)))
    return True
