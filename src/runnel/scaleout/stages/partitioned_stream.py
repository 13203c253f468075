"""The streaming port for partitioned plans: how items are read, matched and committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runnel.model.segment import Slice
from runnel.plan.store import PlanVersion, PublishedPlan
from runnel.scaleout.stages.route_slice import RoutedSlice, cached_partitions_first, match_routed, route_slice
from runnel.scaleout.stages.shards import shard_count
from runnel.storage.file_storage import Storage
from runnel.streaming.job import Job
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.ports import StreamPort
from runnel.streaming.worker.match_buffer import PART_DDL, MatchBuffer

_RANGE_BYTES = 32 << 20
"""Limit for the estimated size of the matches of a range, because readers of the log load a range at once."""
_RANGE_ITEMS = 16_384
"""The maximum number of items in a range."""
_MATCH_BYTES = 2
_RECENT_ITEMS = 100_000
"""Items before a batch from which the number of matches per item is estimated."""

_STAGE_VARIABLE = "RUNNEL_STAGE"


class PartitionedStream(StreamPort):
    """Routes items to partitions, and keeps each partition on the executor of its shard."""

    def range_items(self, connection: Any, job: Job, after: int, plan: PublishedPlan) -> int:
        """Estimate from recent matches how many items fit into one range.

        If the last batch was matched with another base, there is no estimate, and a range has the size of a slice.
        """
        from runnel.catalog.logs import match_segments, plan_versions

        last = plan_versions.plan_by_version(connection, match_segments.last_plan(connection))
        if last is None or last.base != plan.base:
            return job.slice_items
        matches_per_item = match_segments.most_per_item(connection, max(0, after - _RECENT_ITEMS), after)
        return min(_RANGE_ITEMS, int(_RANGE_BYTES / (_MATCH_BYTES * max(1.0, matches_per_item))))

    def slots(self, plan: PublishedPlan, parallelism: int) -> int:
        return shard_count(len(plan.pieces) - 1, parallelism)

    def match_stream(self, spark: Any, slices: Any, job: Job) -> Any:
        from runnel.scaleout.stages.two_stages import ROUTED_DDL, STATE_DDL, match_shard, route_slices

        spark.conf.set("spark.sql.shuffle.partitions", str(job.slots))
        routed = slices.mapInArrow(route_slices(job.storage, job.lineage, job.slots, job.plan_bytes), ROUTED_DDL)
        step = match_shard(job.storage, job.lineage, job.plan_bytes)
        with _separate_processes(spark.sparkContext):
            return routed.groupBy("key").applyInPandasWithState(step, PART_DDL, STATE_DDL, "append", "NoTimeout")

    def match_slice(
        self,
        storage: Storage,
        version: PlanVersion,
        slice_: Slice,
        buffer: MatchBuffer,
        snapshot: OperatorSnapshot,
        budget: int,
    ) -> None:
        """Run both stages in this process, one partition after the other."""
        rows_by_partition = dict(route_slice(storage, version, slice_, buffer, snapshot, budget))
        for number in cached_partitions_first(storage, version, rows_by_partition, budget):
            routed = [RoutedSlice(slice_, rows_by_partition[number])]
            match_routed(storage, version, routed, number, lambda _: buffer, snapshot, budget)

    def note_work(self, connection: Any, plan: PublishedPlan, work: Mapping[int, Counter[str]]) -> None:
        from runnel.scaleout.planning.partition_loads import PartitionLoad, note_loads

        loads = (
            PartitionLoad(number, load["items"], load["matches"], load["microseconds"], load["loads"])
            for number, load in sorted(work.items())
        )
        note_loads(connection, plan.distribution or "", loads)


@contextmanager
def _separate_processes(context: Any) -> Iterator[None]:
    """Make functions that are created inside run in Python processes of their own.

    Spark runs a task in any idle Python process, so every process would eventually load all partitions of the
    executor. Processes with a different environment are not shared with other tasks.
    """
    environment = context.environment
    environment[_STAGE_VARIABLE] = "partitions"
    try:
        yield
    finally:
        del environment[_STAGE_VARIABLE]


PARTITIONED_STREAM = PartitionedStream()
