"""Item segments as files, for workers. This module does not import the catalog, so that workers start quickly.

A segment of the tier `log` contains only the publisher's data; sequence and time come from the slice. Archived
segments contain both as columns.
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


def read_items(storage: Storage, item_slice: Slice) -> ItemBatch:
    """Read the items of a slice with their sequences and times. A lost segment has no items."""
    if item_slice.tier == Tier.LOST:
        return ItemBatch(pa.RecordBatch.from_pylist([], schema=ITEM_SCHEMA))
    if item_slice.tier != Tier.LOG:
        table = read_parquet_rows(storage, item_slice.path, item_slice.first_row, item_slice.rows)
        return ItemBatch(_single_batch(table.select(ITEM_SCHEMA.names), ITEM_SCHEMA))
    stored = _single_batch(
        read_arrow(storage, item_slice.path).slice(item_slice.first_row, item_slice.rows), STORED_SCHEMA
    )
    sequences = pa.array(
        np.arange(item_slice.first_sequence, item_slice.first_sequence + item_slice.rows, dtype=np.int64)
    )
    times = pa.array(np.full(item_slice.rows, item_slice.accepted, dtype=np.int64)).cast(
        ITEM_SCHEMA.field("accepted").type
    )
    return ItemBatch(pa.RecordBatch.from_arrays([sequences, times, *stored.columns], schema=ITEM_SCHEMA))


def read_feeds(storage: Storage, item_slice: Slice) -> npt.NDArray[np.int64]:
    """Read the source feed of every item of a slice. For archived segments, no other column is decoded."""
    if item_slice.tier == Tier.LOST:
        return np.empty(0, dtype=np.int64)
    if item_slice.tier != Tier.LOG:
        table = read_parquet_rows(storage, item_slice.path, item_slice.first_row, item_slice.rows, ["feed"])
    else:
        table = read_arrow(storage, item_slice.path).slice(item_slice.first_row, item_slice.rows)
    return np.asarray(table.column("feed").to_numpy())


def _single_batch(table: Any, schema: Any) -> Any:
    """Combine the rows of a table into one record batch."""
    batches = table.combine_chunks().cast(schema).to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
