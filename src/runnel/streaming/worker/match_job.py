"""The matching step: reads slices of items, matches them and writes the matches. Runs in Spark's Python workers.

Each slice refers to the plan version that it is matched with. The port of that version matches it, so a streaming
query survives a change between whole and distributed plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.model.segment import Slice, Tier
from runnel.plan.store import PlanVersion
from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.ports import stream_port
from runnel.streaming.worker.failures import reporting_failures
from runnel.streaming.worker.match_buffer import MAX_BUFFER_BYTES, PART_SCHEMA, MatchBuffer
from runnel.streaming.worker.plan_cache import DEFAULT_BUDGET

MATCHING_ITEMS_DDL = "sequences array<long>, claims binary"
_MATCHING_ITEMS_SCHEMA = pa.schema([("sequences", pa.list_(pa.int64())), ("claims", pa.binary())])


def match_slices(
    storage_url: str, lineage: int, budget: int = DEFAULT_BUDGET
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that matches each slice with the plan version named in its row.

    The matches go to the match log in parts of about `MAX_BUFFER_BYTES`; the function yields one row per part.
    """

    def match_batches(batches: Iterator[Any]) -> Iterator[Any]:
        storage = open_storage(storage_url)
        buffer, slices = MatchBuffer(), list[Slice]()
        with reporting_failures(storage_url):
            for batch in batches:
                for row in batch.to_pylist():
                    slices.append(match_slice(storage, row, buffer, budget))
                    if buffer.size >= MAX_BUFFER_BYTES:
                        yield _write_part(storage, lineage, buffer, slices)
                        buffer, slices = MatchBuffer(), []
            if slices:
                yield _write_part(storage, lineage, buffer, slices)

    return match_batches


def find_matching_items(storage_url: str, budget: int = DEFAULT_BUDGET) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that matches slices without writing to the match log.

    It yields one row per slice: the sequences of the items that match at least one query, and the claims.
    """

    def match_batches(batches: Iterator[Any]) -> Iterator[Any]:
        storage = open_storage(storage_url)
        for batch in batches:
            for row in batch.to_pylist():
                buffer = MatchBuffer()
                match_slice(storage, row, buffer, budget)
                sequences = [sequence for records in buffer.records for sequence in _matched_sequences(records)]
                columns = [
                    pa.array([sequences], pa.list_(pa.int64())),
                    pa.array([buffer.encode_claims()], pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_MATCHING_ITEMS_SCHEMA)

    return match_batches


def _matched_sequences(records: Any) -> list[int]:
    """Return the sequences of the records that match a query; a record may be present only for its bindings."""
    has_match = pc.greater(pc.list_value_length(records.column("steps")), 0)
    sequences: list[int] = records.filter(has_match).column("sequence").to_pylist()
    return sequences


def match_slice(storage: Storage, row: dict[str, Any], buffer: MatchBuffer, budget: int) -> Slice:
    """Match the slice that a row describes, add its matches to the buffer, and return the slice."""
    slice_ = parse_slice(row)
    buffer.plan = row["plan"]
    version = parse_plan_version(row)
    if version is None or slice_.tier == Tier.LOST:
        return slice_
    snapshot = OperatorSnapshot.load(row["operators"])
    stream_port(version.distribution).match_slice(storage, version, slice_, buffer, snapshot, budget)
    return slice_


def parse_slice(row: dict[str, Any]) -> Slice:
    """Build a slice from a row of the item source."""
    return Slice(row["tier"], row["path"], row["first_row"], row["rows"], row["first_sequence"], row["accepted"])


def parse_plan_version(row: dict[str, Any]) -> PlanVersion | None:
    """Build a plan version from a row of the item source, or return None if no plan exists yet."""
    if row["base"] is None:
        return None
    removed = tuple(row["removed"] if row["removed"] is not None else ())
    return PlanVersion(row["plan"], row["base"], row["delta"], removed, row["distribution"])


def _write_part(storage: Storage, lineage: int, buffer: MatchBuffer, slices: list[Slice]) -> Any:
    """Write the buffer as one part of the match log, and return the row that describes the part."""
    part, claims = buffer.write(storage, lineage, (slices[0].first_sequence, slices[-1].last_sequence))
    return pa.RecordBatch.from_arrays([pa.array([part]), pa.array([claims], pa.binary())], schema=PART_SCHEMA)
