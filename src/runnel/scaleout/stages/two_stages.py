"""The matching step of two stages: slices in, written matches out; partitions stay on their executors.

Stage one (`route_slices`, for `mapInArrow`) matches what is in no partition yet and says where each item goes. Stage
two (`match_shard`, for `applyInPandasWithState`) is keyed by shard, and Spark brings a key to the executor that has
its state: the plans of its partitions are mapped there already (004 §3, §4.5). The state itself is a count of items.

Rows between the stages are references: a slice and a bit for each of its items. What the first stage has written goes
through the second as it is. All parts of a *stretch* of slices have the same range, so that whoever reads the log can
lay them on one another.
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
from runnel.scaleout.stages.route_slice import RoutedSlice, held_first, match_routed, route_slice
from runnel.scaleout.stages.shards import shard_keys
from runnel.storage.file_storage import open_storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.failures import reporting_failures
from runnel.streaming.worker.match_buffer import MOST_BYTES, MatchBuffer
from runnel.streaming.worker.match_job import match_slice, slice_of, version_of

ROUTED_DDL = (
    "key long, partition int, tier string, path string, first_row long, rows long, first_sequence long, "
    "accepted long, first long, last long, chosen binary, told string, part string, claims binary"
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
        ("told", pa.string()),
        ("part", pa.string()),
        ("claims", pa.binary()),
    ]
)
STATE_DDL = "items long"

Range = tuple[int, int]


def route_slices(
    storage_url: str, lineage: int, shards: int, budget: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Stage one: what goes to the shards, and what was written of every stretch."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        stage = _RoutingTask(storage_url, lineage, shards, budget)
        with reporting_failures(storage_url):
            for row in (row for batch in batches for row in batch.to_pylist()):
                found = list(stage.route(row))
                if found:
                    yield pa.RecordBatch.from_pylist(found, schema=ROUTED_SCHEMA)
            yield pa.RecordBatch.from_pylist(stage.finish(), schema=ROUTED_SCHEMA)

    return run


class _RoutingTask:
    """A task of stage one."""

    def __init__(self, storage_url: str, lineage: int, shards: int, budget: int) -> None:
        self._storage = open_storage(storage_url)
        self._lineage = lineage
        self._keys = shard_keys(shards)
        self._budget = budget
        self._stretch: Range | None = None
        self._found = MatchBuffer()
        self._told: set[int] = set()

    def route(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows that a slice becomes."""
        stretch = row["stretch_first"], row["stretch_last"]
        if stretch != self._stretch:
            yield from self.finish()
            self._stretch = stretch
        version, one = version_of(row), slice_of(row)
        if version is None or version.distribution is None or one.tier == Tier.LOST:
            match_slice(self._storage, row, self._found, self._budget)
            return
        self._found.plan = version.version
        brief = OperatorSnapshot.load(row["operators"])
        for number, chosen in route_slice(self._storage, version, one, self._found, brief, self._budget):
            yield self._routed(row, version, number, RoutedSlice(one, chosen))

    def _routed(self, row: dict[str, Any], version: PlanVersion, number: int, routed: RoutedSlice) -> dict[str, Any]:
        shard = number % len(self._keys)
        told = None
        if shard not in self._told:
            # The same for all rows of a batch, and long where there are operators: once a task is often enough.
            told = json.dumps({"version": asdict(version), "operators": row["operators"]})
            self._told.add(shard)
        first, last = self._stretch or (0, 0)
        return {
            "key": self._keys[shard],
            "partition": number,
            **asdict(routed.slice),
            "first": first,
            "last": last,
            "chosen": routed.chosen,
            "told": told,
        }

    def finish(self) -> list[dict[str, Any]]:
        """Write what was found in the stretch; gives the row that says where it is."""
        if self._stretch is None:
            return []
        part, claims = self._found.sealed(self._storage, self._lineage, self._stretch)
        # The same stretch goes to the same shard whenever a task is run again: nothing comes twice, or never.
        key = self._keys[self._stretch[0] % len(self._keys)]
        self._found, self._stretch = MatchBuffer(), None
        return [{"key": key, "partition": -1, "part": part, "claims": claims}]


def match_shard(
    storage_url: str, lineage: int, budget: int
) -> Callable[[tuple[int], Iterable[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """Stage two, for one key: the parts of its partitions, and those that stage one has written."""

    def run(key: tuple[int], frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        rows = [row for frame in frames for row in frame.to_dict("records")]
        shard = _ShardTask(storage_url, lineage, budget)
        parts = [(row["part"], row["claims"]) for row in rows if row["part"] is not None]
        with reporting_failures(storage_url):
            parts += shard.match([row for row in rows if row["part"] is None])
        before = state.get[0] if state.exists else 0
        state.update((before + shard.items,))
        yield pd.DataFrame({"part": [part for part, _ in parts], "claims": [claims for _, claims in parts]})

    return run


class _ShardTask:
    """A task of stage two: one shard, all slices of a batch."""

    def __init__(self, storage_url: str, lineage: int, budget: int) -> None:
        self._storage = open_storage(storage_url)
        self._lineage = lineage
        self._budget = budget
        self._found: dict[Range, MatchBuffer] = defaultdict(MatchBuffer)
        self.items = 0

    def match(self, rows: list[dict[str, Any]]) -> list[tuple[str, bytes | None]]:
        """Match all rows; gives what was written."""
        if not rows:
            return []
        told = json.loads(next(row["told"] for row in rows if row["told"] is not None))
        version = PlanVersion(**told["version"] | {"removed": tuple(told["version"]["removed"])})
        brief = OperatorSnapshot.load(told["operators"])
        by_partition: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: int(row["first_sequence"])):
            by_partition[int(row["partition"])].append(row)
        written: list[tuple[str, bytes | None]] = []
        for number in held_first(self._storage, version, by_partition, self._budget):
            for some in _bounded(by_partition[number]):
                written += self._match(version, number, some, brief)
        return written + self._seal()

    def _match(
        self, version: PlanVersion, number: int, rows: list[dict[str, Any]], brief: OperatorSnapshot
    ) -> list[tuple[str, bytes | None]]:
        stretches = {_slice(row): (int(row["first"]), int(row["last"])) for row in rows}

        def found_for(one: RoutedSlice) -> MatchBuffer:
            found = self._found[stretches[one.slice]]
            found.plan = version.version
            return found

        routed = [RoutedSlice(_slice(row), bytes(row["chosen"])) for row in rows]
        match_routed(self._storage, version, routed, number, found_for, brief, self._budget)
        self.items += sum(one.items for one in routed)
        held = sum(found.size for found in self._found.values())
        return self._seal() if held >= MOST_BYTES else []

    def _seal(self) -> list[tuple[str, bytes | None]]:
        written = [found.sealed(self._storage, self._lineage, stretch) for stretch, found in self._found.items()]
        self._found.clear()
        return written


_AT_ONCE = 4
"""Slices after which it is looked whether matches are to be written."""


def _bounded(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


def _slice(row: dict[str, Any]) -> Slice:
    numbers = (int(row[name]) for name in ("first_row", "rows", "first_sequence", "accepted"))
    return Slice(row["tier"], row["path"], *numbers)
