"""The port of plans whose queries are divided into partitions: how their items are read, matched and committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runnel.model.segment import Slice
from runnel.plan.store import PlanVersion, PublishedPlan
from runnel.scaleout.stages.route_slice import RoutedSlice, held_first, match_routed, route_slice
from runnel.scaleout.stages.shards import shard_count
from runnel.storage.file_storage import Storage
from runnel.streaming.job import Job
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.ports import StreamPort
from runnel.streaming.worker.match_buffer import PART_DDL, MatchBuffer

_RANGE_BYTES = 32 << 20
"""What the matches of a range may take, as far as that can be foreseen: readers hold them together."""
_RANGE_ITEMS = 16_384
"""Items of a range at most, however little matched before."""
_MATCH_BYTES = 2
_RECENT = 100_000
"""Items before a batch by which the number of matches per item is foreseen."""

_STAGE = "RUNNEL_STAGE"


class PartitionedStream(StreamPort):
    """Items are routed to partitions, and each partition stays on the executor of its shard."""

    def range_items(self, connection: Any, job: Job, after: int, plan: PublishedPlan) -> int:
        """The items whose matches will fit into one range, as far as those before tell.

        Matches with other queries tell nothing: then a slice is a range.
        """
        from runnel.catalog.logs import match_segments, plan_versions

        last = plan_versions.plan_by_version(connection, match_segments.last_plan(connection))
        if last is None or last.base != plan.base:
            return job.slice_items
        known = match_segments.most_per_item(connection, max(0, after - _RECENT), after)
        return min(_RANGE_ITEMS, int(_RANGE_BYTES / (_MATCH_BYTES * max(1.0, known))))

    def slots(self, plan: PublishedPlan, parallelism: int) -> int:
        return shard_count(len(plan.pieces) - 1, parallelism)

    def match_stream(self, spark: Any, slices: Any, job: Job) -> Any:
        from runnel.scaleout.stages.two_stages import ROUTED_DDL, STATE_DDL, match_shard, route_slices

        spark.conf.set("spark.sql.shuffle.partitions", str(job.slots))
        routed = slices.mapInArrow(route_slices(job.storage, job.lineage, job.slots, job.plan_bytes), ROUTED_DDL)
        step = match_shard(job.storage, job.lineage, job.plan_bytes)
        with _own_processes(spark.sparkContext):
            return routed.groupBy("key").applyInPandasWithState(step, PART_DDL, STATE_DDL, "append", "NoTimeout")

    def match_slice(
        self,
        storage: Storage,
        version: PlanVersion,
        slice_: Slice,
        found: MatchBuffer,
        snapshot: OperatorSnapshot,
        budget: int,
    ) -> None:
        """Both stages in one process, partition by partition."""
        routed = dict(route_slice(storage, version, slice_, found, snapshot, budget))
        for number in held_first(storage, version, routed, budget):
            some = [RoutedSlice(slice_, routed[number])]
            match_routed(storage, version, some, number, lambda _: found, snapshot, budget)

    def note_work(self, connection: Any, plan: PublishedPlan, work: Mapping[int, Counter[str]]) -> None:
        from runnel.scaleout.planning.partition_loads import PartitionLoad, note_loads

        loads = (
            PartitionLoad(number, took["items"], took["matches"], took["microseconds"], took["loads"])
            for number, took in sorted(work.items())
        )
        note_loads(connection, plan.distribution or "", loads)


@contextmanager
def _own_processes(context: Any) -> Iterator[None]:
    """Let functions that are made inside run in Python processes that nothing else uses.

    Spark gives a task any process that is idle; several serve a core in turn, and each would come to map every
    partition of the executor. Processes with another environment are kept apart.
    """
    environment = context.environment
    environment[_STAGE] = "partitions"
    try:
        yield
    finally:
        del environment[_STAGE]


PARTITIONED_STREAM = PartitionedStream()
