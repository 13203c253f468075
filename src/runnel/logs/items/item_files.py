"""Item segments as files: what a worker reads. No catalog here, so that workers start quickly.

A segment of the tier `log` holds only what the publisher gave; sequence and time come with the slice. Archived
segments hold both as columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.model.item_batch import ITEM_SCHEMA, ItemBatch
from runnel.model.segment import Slice, Tier
from runnel.storage.arrow_files import read_arrow, read_parquet_rows
from runnel.storage.file_storage import Storage

STORED_SCHEMA = pa.schema(list(ITEM_SCHEMA)[2:], metadata=ITEM_SCHEMA.metadata)
"""The columns of a segment of the tier `log`."""


def read_items(storage: Storage, one: Slice) -> ItemBatch:
    """The items of a slice, with their sequences and times; none of a lost segment."""
    if one.tier == Tier.LOST:
        return ItemBatch(pa.RecordBatch.from_pylist([], schema=ITEM_SCHEMA))
    if one.tier != Tier.LOG:
        table = read_parquet_rows(storage, one.path, one.first_row, one.rows)
        return ItemBatch(_single_batch(table.select(ITEM_SCHEMA.names), ITEM_SCHEMA))
    stored = _single_batch(read_arrow(storage, one.path).slice(one.first_row, one.rows), STORED_SCHEMA)
    sequences = pa.array(np.arange(one.first_sequence, one.first_sequence + one.rows, dtype=np.int64))
    times = pa.array(np.full(one.rows, one.accepted, dtype=np.int64)).cast(ITEM_SCHEMA.field("accepted").type)
    return ItemBatch(pa.RecordBatch.from_arrays([sequences, times, *stored.columns], schema=ITEM_SCHEMA))


def read_feeds(storage: Storage, one: Slice) -> npt.NDArray[np.int64]:
    """The source feed of every item of a slice; of archived segments nothing else is decoded."""
    if one.tier == Tier.LOST:
        return np.empty(0, dtype=np.int64)
    if one.tier != Tier.LOG:
        table = read_parquet_rows(storage, one.path, one.first_row, one.rows, ["feed"])
    else:
        table = read_arrow(storage, one.path).slice(one.first_row, one.rows)
    return np.asarray(table.column("feed").to_numpy())


def _single_batch(table: Any, schema: Any) -> Any:
    """A table's rows as one record batch."""
    batches = table.combine_chunks().cast(schema).to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
