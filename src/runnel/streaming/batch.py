"""The matching step as a bounded Spark job over slices of the past: no stream, no checkpoint, no log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.log.match_files import MATCH_SCHEMA
from runnel.model.segment import Slice
from runnel.streaming.match_job import BLOCK_DDL, match_slices
from runnel.streaming.reader import SLICE_DDL


def match_past(spark: Any, storage_url: str, slices: Sequence[Slice], plan: str) -> npt.NDArray[np.int64]:
    """The sequences of the items that match any query of a plan folder, in order."""
    rows = [
        (one.tier, one.path, one.first_row, one.rows, one.first_sequence, one.accepted, 0, plan, None)
        for one in slices
    ]
    frame = spark.createDataFrame(rows, SLICE_DDL).repartition(spark.sparkContext.defaultParallelism)
    blocks = frame.mapInArrow(match_slices(storage_url), BLOCK_DDL).select("block").collect()
    found = [np.empty(0, dtype=np.int64)]
    for row in blocks:
        batch = pa.ipc.read_record_batch(pa.py_buffer(bytes(row["block"])), MATCH_SCHEMA)
        found.append(batch.column("sequence").to_numpy())
    return np.sort(np.concatenate(found))
