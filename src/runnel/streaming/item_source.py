"""The item log as a Spark streaming source.

The offset is {"sequence": last item of the batch, "plan": plan version that the batch is matched with}. Spark writes
it to the checkpoint before the batch runs, so a replay after a crash reads the same items and uses the same plan.
Without new items the offset does not change, even if the plan does. Only references to items go through Spark;
workers map the files.

Spark imports this module in about six processes, one after the other, before the first batch. Only one of them uses
the catalog, so the modules needed for that are imported inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from runnel.model.segment import Slice
from runnel.streaming.job import Job
from runnel.streaming.ports import stream_port
from runnel.streaming.worker.failures import reporting_failures

if TYPE_CHECKING:
    from runnel.catalog.logs.plan_versions import PlanRow
    from runnel.catalog.store.connection import Catalog
    from runnel.logs.items.item_log import ItemLog
    from runnel.streaming.operator_snapshot import OperatorSnapshots

FORMAT = "runnel_items"
SLICE_DDL = (
    "tier string, path string, first_row long, rows long, first_sequence long, accepted long, "
    "plan long, base string, delta string, removed array<long>, distribution string, operators string, "
    "range_first long, range_last long"
)
_ARROW = pa.schema(
    [
        ("tier", pa.string()),
        ("path", pa.string()),
        ("first_row", pa.int64()),
        ("rows", pa.int64()),
        ("first_sequence", pa.int64()),
        ("accepted", pa.int64()),
        ("plan", pa.int64()),
        ("base", pa.string()),
        ("delta", pa.string()),
        ("removed", pa.list_(pa.int64())),
        ("distribution", pa.string()),
        ("operators", pa.string()),
        ("range_first", pa.int64()),
        ("range_last", pa.int64()),
    ]
)

_TASK_ITEMS = 250
"""A batch gets one task per this many items, up to the parallelism of the job."""

Offset = dict[str, int]


@dataclass
class SlicePartition(InputPartition):  # type: ignore[misc]
    """The slices that one task matches, and the plan to match them with."""

    slices: tuple[Slice, ...]
    plan: int
    base: str | None
    delta: str | None
    removed: tuple[int, ...]
    distribution: str | None
    operators: str | None
    """The text of an `OperatorSnapshot`."""
    range_items: int
    """Items per range. The matches of a range are written together."""

    def __init__(
        self, slices: Sequence[Slice], plan: PlanRow | None, operators: str | None, range_items: int
    ) -> None:
        super().__init__(None)
        self.operators = operators
        self.range_items = range_items
        self.slices = tuple(slices)
        self.plan, self.base, self.delta, self.removed, self.distribution = 0, None, None, (), None
        if plan is not None:
            self.plan, self.base, self.delta, self.removed = plan.version, plan.base, plan.delta, plan.removed
            self.distribution = plan.distribution

    def split_into_ranges(self) -> Iterator[list[Slice]]:
        """Yield the slices of one range after the other."""
        slices: list[Slice] = []
        for slice_ in self.slices:
            if slices and slice_.last_sequence - slices[0].first_sequence >= self.range_items:
                yield slices
                slices = []
            slices.append(slice_)
        if slices:
            yield slices


class ItemSource(DataSource):  # type: ignore[misc]
    """The Spark data source `runnel_items`. Its option `job` is the text of a `Job`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SLICE_DDL

    def streamReader(self, schema: Any) -> ItemReader:  # noqa: N802
        return ItemReader(Job.load(self.options["job"]))


class ItemReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Splits the item log into batches of limited size, and batches into slices."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._last_of_run: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the reader to its workers, which read slices and need no catalog.
        return {"_job": self._job, "_last_of_run": self._last_of_run}

    @cached_property
    def _catalog(self) -> Catalog:
        return self._job.open_catalog()

    @cached_property
    def _items(self) -> ItemLog:
        from runnel.logs.items.item_log import ItemLog

        return ItemLog(self._catalog, self._job.open_storage())

    @cached_property
    def _snapshots(self) -> OperatorSnapshots:
        from runnel.streaming.operator_snapshot import OperatorSnapshots

        return OperatorSnapshots(self._job.open_storage(), 1.0 / self._job.parallelism)

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"sequence": self._job.after_sequence, "plan": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit a bounded run to the items that exist when it starts."""
        with reporting_failures(self._job.storage):
            self._last_of_run = self._items.last_sequence()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        from runnel.catalog.logs import plan_versions
        from runnel.catalog.store.sequencer import last_sequence

        with reporting_failures(self._job.storage), self._catalog.read() as connection:
            last = last_sequence(connection)
            if self._last_of_run is not None:
                last = min(last, self._last_of_run)
            if last <= start["sequence"]:
                return start
            plan = plan_versions.current_plan(connection)
            upto = self._limit_batch(connection, start["sequence"], last)
        return {"sequence": upto, "plan": plan.version if plan else 0}

    def _limit_batch(self, connection: Any, after: int, last: int) -> int:
        """Return the last sequence, at most `last`, of a batch that starts after `after` and is within the limits."""
        from runnel.catalog.logs.item_segments import segments_between

        last = min(last, after + self._job.max_batch_items)
        bytes_left = self._job.max_batch_bytes
        for segment in segments_between(connection, after, last):
            bytes_per_item = max(1, segment.bytes // segment.items)
            start = max(segment.first_sequence, after + 1)
            items = min(segment.last_sequence, last) - start + 1
            if bytes_per_item * items > bytes_left:
                return max(start + bytes_left // bytes_per_item - 1, after + 1)
            bytes_left -= bytes_per_item * items
        return last

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with reporting_failures(self._job.storage):
            return self._partitions(start, end)

    def _partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from runnel.catalog.logs import plan_versions

        slices = self._items.slices(start["sequence"], end["sequence"], rows=self._job.slice_items)
        with self._catalog.read() as connection:
            plan = plan_versions.plan_by_version(connection, end["plan"])
            operators = self._snapshots.create(connection, start["sequence"], end["sequence"]).dump()
            range_items = 0
            if plan is not None:
                port = stream_port(plan.distribution)
                range_items = port.range_items(connection, self._job, start["sequence"], plan)
        # Starting a task takes longer than matching a few hundred items, so small batches get fewer tasks.
        max_tasks = max(1, (end["sequence"] - start["sequence"]) // _TASK_ITEMS)
        tasks = min(self._job.parallelism, len(slices), max_tasks)
        bounds = [len(slices) * task // tasks for task in range(tasks + 1)] if tasks else []
        return [SlicePartition(slices[low:high], plan, operators, range_items) for low, high in pairwise(bounds)]

    def read(self, partition: SlicePartition) -> Iterator[Any]:
        rows = [
            {
                "tier": slice_.tier,
                "path": slice_.path,
                "first_row": slice_.first_row,
                "rows": slice_.rows,
                "first_sequence": slice_.first_sequence,
                "accepted": slice_.accepted,
                "plan": partition.plan,
                "base": partition.base,
                "delta": partition.delta,
                "removed": partition.removed,
                "distribution": partition.distribution,
                "operators": partition.operators,
                "range_first": slices[0].first_sequence,
                "range_last": slices[-1].last_sequence,
            }
            for slices in partition.split_into_ranges()
            for slice_ in slices
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
