"""Match parts as files: what a worker writes. No catalog here, so that workers start quickly.

A part is Arrow with MATCH_SCHEMA, one row per item that matched anything; the commit of its batch makes it exist.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.log.arrow_files import write_arrow
from runnel.log.storage import Storage
from runnel.model.match import Matches
from runnel.model.segment import MatchPart

MATCH_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("queries", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ],
    metadata={"runnel.format": "matches/1"},
)


def match_records(sequences: npt.NDArray[np.int64], matches: Matches) -> Any:
    """A record batch of MATCH_SCHEMA: the items that matched something."""
    lengths = np.diff(matches.offsets)
    kept = lengths > 0
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths[kept])]).astype(np.int32)
    queries = pa.ListArray.from_arrays(pa.array(offsets), pa.array(matches.queries), type=MATCH_SCHEMA.field(1).type)
    return pa.RecordBatch.from_arrays([pa.array(sequences[kept]), queries], schema=MATCH_SCHEMA)


def write_part(storage: Storage, lineage: int, batches: Sequence[Any], sequences: tuple[int, int]) -> MatchPart:
    """Write one part under a name that no other attempt uses."""
    path = f"matches/{lineage}/{sequences[0]:020d}-{uuid.uuid4().hex}.arrow"
    size = write_arrow(storage, path, list(batches), MATCH_SCHEMA)
    return MatchPart(path, sequences[0], sequences[1], size)
