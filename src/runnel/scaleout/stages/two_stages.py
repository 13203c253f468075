"""The matching step in two stages, as Spark functions: route slices to shards, then match them in partitions.

Stage one (`route_slices`, for `mapInArrow`) matches items with the delta and routes them to partitions. Stage two
(`match_shard`, for `applyInPandasWithState`) is keyed by shard. Spark runs a key on the executor that has the key's
state, so the partitions of a shard are already loaded there (004 §3, §4.5). The state itself is a count of items.

The rows between the stages are references: a slice and a bitmap of its rows. Descriptions of the parts that stage one
has written pass through stage two unchanged. All parts of a *range* of slices cover the same sequences, so a reader
of the match log can merge them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd
import pyarrow as pa

from runnel.model.segment import Slice, Tier
from runnel.plan.store import PlanVersion
from runnel.scaleout.stages.route_slice import RoutedSlice, cached_partitions_first, match_routed, route_slice
from runnel.scaleout.stages.shards import shard_keys
from runnel.storage.file_storage import open_storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.failures import reporting_failures
from runnel.streaming.worker.match_buffer import MAX_BUFFER_BYTES, MatchBuffer
from runnel.streaming.worker.match_job import match_slice, parse_plan_version, parse_slice

ROUTED_DDL = (
    "key long, partition int, tier string, path string, first_row long, rows long, first_sequence long, "
    "accepted long, first long, last long, chosen binary, context string, part string, claims binary"
)
ROUTED_SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("partition", pa.int32()),
        ("tier", pa.string()),
        ("path", pa.string()),
        ("first_row", pa.int64()),
        ("rows", pa.int64()),
        ("first_sequence", pa.int64()),
        ("accepted", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("chosen", pa.binary()),
        ("context", pa.string()),
        ("part", pa.string()),
        ("claims", pa.binary()),
    ]
)
STATE_DDL = "items long"

Range = tuple[int, int]
"""The first and the last sequence of a range of slices, whose matches are written together."""


def route_slices(
    storage_url: str, lineage: int, shards: int, budget: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function of stage one. It yields rows for the shards, and one row per range that it has written."""

    def route_batches(batches: Iterator[Any]) -> Iterator[Any]:
        task = _RoutingTask(storage_url, lineage, shards, budget)
        with reporting_failures(storage_url):
            for row in (row for batch in batches for row in batch.to_pylist()):
                routed = list(task.route(row))
                if routed:
                    yield pa.RecordBatch.from_pylist(routed, schema=ROUTED_SCHEMA)
            yield pa.RecordBatch.from_pylist(task.finish_range(), schema=ROUTED_SCHEMA)

    return route_batches


class _RoutingTask:
    """A task of stage one."""

    def __init__(self, storage_url: str, lineage: int, shards: int, budget: int) -> None:
        self._storage = open_storage(storage_url)
        self._lineage = lineage
        self._keys = shard_keys(shards)
        self._budget = budget
        self._range: Range | None = None
        self._buffer = MatchBuffer()
        self._shards_with_context: set[int] = set()

    def route(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Route a slice, and yield a row for each partition that receives items. Write the last range if it ended."""
        row_range = row["range_first"], row["range_last"]
        if row_range != self._range:
            yield from self.finish_range()
            self._range = row_range
        version, slice_ = parse_plan_version(row), parse_slice(row)
        if version is None or version.distribution is None or slice_.tier == Tier.LOST:
            match_slice(self._storage, row, self._buffer, self._budget)
            return
        self._buffer.plan = version.version
        snapshot = OperatorSnapshot.load(row["operators"])
        for number, chosen in route_slice(self._storage, version, slice_, self._buffer, snapshot, self._budget):
            yield self._routed_row(row, version, number, RoutedSlice(slice_, chosen))

    def _routed_row(
        self, row: dict[str, Any], version: PlanVersion, number: int, routed: RoutedSlice
    ) -> dict[str, Any]:
        shard = number % len(self._keys)
        context = None
        if shard not in self._shards_with_context:
            # The context is the same for all rows of a batch, and long if there are operators. So a task sends it to
            # each shard only once.
            context = json.dumps({"version": asdict(version), "operators": row["operators"]})
            self._shards_with_context.add(shard)
        first, last = self._range or (0, 0)
        return {
            "key": self._keys[shard],
            "partition": number,
            **asdict(routed.slice),
            "first": first,
            "last": last,
            "chosen": routed.chosen,
            "context": context,
        }

    def finish_range(self) -> list[dict[str, Any]]:
        """Write the matches of the current range, if any, as a part, and return the row that describes the part."""
        if self._range is None:
            return []
        part, claims = self._buffer.write(self._storage, self._lineage, self._range)
        # The shard depends only on the range, so a repeated task sends the part to the same shard: it is neither lost
        # nor committed twice.
        key = self._keys[self._range[0] % len(self._keys)]
        self._buffer, self._range = MatchBuffer(), None
        return [{"key": key, "partition": -1, "part": part, "claims": claims}]


def match_shard(
    storage_url: str, lineage: int, budget: int
) -> Callable[[tuple[int], Iterable[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """Return the function of stage two. For one key it yields all parts: its own, and those from stage one."""

    def match_rows(key: tuple[int], frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        rows = [row for frame in frames for row in frame.to_dict("records")]
        task = _ShardTask(storage_url, lineage, budget)
        parts = [(row["part"], row["claims"]) for row in rows if row["part"] is not None]
        with reporting_failures(storage_url):
            parts += task.match([row for row in rows if row["part"] is None])
        before = state.get[0] if state.exists else 0
        state.update((before + task.items,))
        yield pd.DataFrame({"part": [part for part, _ in parts], "claims": [claims for _, claims in parts]})

    return match_rows


class _ShardTask:
    """A task of stage two: one shard, all slices of a batch."""

    def __init__(self, storage_url: str, lineage: int, budget: int) -> None:
        self._storage = open_storage(storage_url)
        self._lineage = lineage
        self._budget = budget
        self._buffers: dict[Range, MatchBuffer] = defaultdict(MatchBuffer)
        self.items = 0

    def match(self, rows: list[dict[str, Any]]) -> list[tuple[str, bytes | None]]:
        """Match all rows and write the matches. Return the descriptions and encoded claims of the parts."""
        if not rows:
            return []
        context = json.loads(next(row["context"] for row in rows if row["context"] is not None))
        version = PlanVersion(**context["version"] | {"removed": tuple(context["version"]["removed"])})
        snapshot = OperatorSnapshot.load(context["operators"])
        by_partition: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: int(row["first_sequence"])):
            by_partition[int(row["partition"])].append(row)
        written: list[tuple[str, bytes | None]] = []
        for number in cached_partitions_first(self._storage, version, by_partition, self._budget):
            for chunk in _chunks(by_partition[number]):
                written += self._match(version, number, chunk, snapshot)
        return written + self._write_buffers()

    def _match(
        self, version: PlanVersion, number: int, rows: list[dict[str, Any]], snapshot: OperatorSnapshot
    ) -> list[tuple[str, bytes | None]]:
        """Match rows with a partition. Write the buffers if they are large, and return the parts written."""
        ranges = {_slice(row): (int(row["first"]), int(row["last"])) for row in rows}

        def buffer_for(routed_slice: RoutedSlice) -> MatchBuffer:
            buffer = self._buffers[ranges[routed_slice.slice]]
            buffer.plan = version.version
            return buffer

        routed = [RoutedSlice(_slice(row), bytes(row["chosen"])) for row in rows]
        match_routed(self._storage, version, routed, number, buffer_for, snapshot, self._budget)
        self.items += sum(routed_slice.items for routed_slice in routed)
        size = sum(buffer.size for buffer in self._buffers.values())
        return self._write_buffers() if size >= MAX_BUFFER_BYTES else []

    def _write_buffers(self) -> list[tuple[str, bytes | None]]:
        written = [buffer.write(self._storage, self._lineage, key) for key, buffer in self._buffers.items()]
        self._buffers.clear()
        return written


_CHUNK_SLICES = 4
"""The size of the buffers is checked after this many slices."""


def _chunks(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(rows), _CHUNK_SLICES):
        yield rows[start : start + _CHUNK_SLICES]


def _slice(row: dict[str, Any]) -> Slice:
    numbers = (int(row[name]) for name in ("first_row", "rows", "first_sequence", "accepted"))
    return Slice(row["tier"], row["path"], *numbers)
