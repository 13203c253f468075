"""The matching step of one stage: slices in, written matches out. Runs in Spark's Python workers.

Each slice names the plan version that it is matched with. The port of that version matches it, so that a query can
go on whatever the plan becomes.
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
from runnel.streaming.worker.match_buffer import MOST_BYTES, PART_SCHEMA, MatchBuffer
from runnel.streaming.worker.plan_cache import DEFAULT_BUDGET

LOOKED_DDL = "sequences array<long>, claims binary"
_LOOKED = pa.schema([("sequences", pa.list_(pa.int64())), ("claims", pa.binary())])


def match_slices(
    storage_url: str, lineage: int, budget: int = DEFAULT_BUDGET
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow`: matches every slice it is given with the plan that the slice names."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        storage = open_storage(storage_url)
        found, slices = MatchBuffer(), list[Slice]()
        with reporting_failures(storage_url):
            for batch in batches:
                for row in batch.to_pylist():
                    slices.append(match_slice(storage, row, found, budget))
                    if found.size >= MOST_BYTES:
                        yield _sealed(storage, lineage, found, slices)
                        found, slices = MatchBuffer(), []
            if slices:
                yield _sealed(storage, lineage, found, slices)

    return run


def look_at_slices(storage_url: str, budget: int = DEFAULT_BUDGET) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The same for looking only: gives the sequences of the items that match anything, and all claims."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        storage = open_storage(storage_url)
        for batch in batches:
            for row in batch.to_pylist():
                found = MatchBuffer()
                match_slice(storage, row, found, budget)
                sequences = [one for records in found.records for one in _matched(records)]
                columns = [
                    pa.array([sequences], pa.list_(pa.int64())),
                    pa.array([found.sealed_claims()], pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_LOOKED)

    return run


def _matched(records: Any) -> list[int]:
    """The sequences of the items that match something; others may be there for the sake of their bindings."""
    matched = pc.greater(pc.list_value_length(records.column("steps")), 0)
    found: list[int] = records.filter(matched).column("sequence").to_pylist()
    return found


def match_slice(storage: Storage, row: dict[str, Any], found: MatchBuffer, budget: int) -> Slice:
    """Match one slice, and add what was found to what was found before."""
    one = slice_of(row)
    found.plan = row["plan"]
    version = version_of(row)
    if version is None or one.tier == Tier.LOST:
        return one
    brief = OperatorSnapshot.load(row["operators"])
    stream_port(version.distribution).match_slice(storage, version, one, found, brief, budget)
    return one


def slice_of(row: dict[str, Any]) -> Slice:
    """The slice that a row of the reader names."""
    return Slice(row["tier"], row["path"], row["first_row"], row["rows"], row["first_sequence"], row["accepted"])


def version_of(row: dict[str, Any]) -> PlanVersion | None:
    """The version of the plan that a row of the reader names; None where there is no plan yet."""
    if row["base"] is None:
        return None
    removed = tuple(row["removed"] if row["removed"] is not None else ())
    return PlanVersion(row["plan"], row["base"], row["delta"], removed, row["distribution"])


def _sealed(storage: Storage, lineage: int, found: MatchBuffer, slices: list[Slice]) -> Any:
    """What was found as a part; gives one row that says where it is."""
    part, claims = found.sealed(storage, lineage, (slices[0].first_sequence, slices[-1].last_sequence))
    return pa.RecordBatch.from_arrays([pa.array([part]), pa.array([claims], pa.binary())], schema=PART_SCHEMA)
