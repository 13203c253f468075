"""The item log as a Spark streaming source.

The offset is {"sequence": last item of the batch, "plan": version it is matched with}. Spark writes it down before
the batch runs, so a replay after a crash reads the same items and uses the same plan. Without new items the offset
does not move, whatever happens to the plan. Only references travel through Spark; workers map the files.

Spark imports this module in half a dozen processes, one after the other, before the first batch. Only one of them
asks the catalog, so what that needs is imported where it is used.
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
    "stretch_first long, stretch_last long"
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
        ("stretch_first", pa.int64()),
        ("stretch_last", pa.int64()),
    ]
)

_TASK_ITEMS = 250

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
    """What operators need, see `operator_snapshot`."""
    stretch_items: int
    """Items whose matches are written together."""

    def __init__(
        self, slices: Sequence[Slice], plan: PlanRow | None, operators: str | None, stretch_items: int
    ) -> None:
        super().__init__(None)
        self.operators = operators
        self.stretch_items = stretch_items
        self.slices = tuple(slices)
        self.plan, self.base, self.delta, self.removed, self.distribution = 0, None, None, (), None
        if plan is not None:
            self.plan, self.base, self.delta, self.removed = plan.version, plan.base, plan.delta, plan.removed
            self.distribution = plan.distribution

    def stretches(self) -> Iterator[list[Slice]]:
        """The slices in runs whose matches are written together."""
        run: list[Slice] = []
        for one in self.slices:
            if run and one.last_sequence - run[0].first_sequence >= self.stretch_items:
                yield run
                run = []
            run.append(one)
        if run:
            yield run


class ItemSource(DataSource):  # type: ignore[misc]
    """The format `runnel_items`; its option `job` says which root and how."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SLICE_DDL

    def streamReader(self, schema: Any) -> ItemReader:  # noqa: N802
        return ItemReader(Job.load(self.options["job"]))


class ItemReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Cuts the item log into bounded batches."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._last: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the reader to its workers, which read slices and need no catalog.
        return {"_job": self._job, "_last": self._last}

    @cached_property
    def _catalog(self) -> Catalog:
        return self._job.open_catalog()

    @cached_property
    def _items(self) -> ItemLog:
        from runnel.logs.items.item_log import ItemLog

        return ItemLog(self._catalog, self._job.open_storage())

    @cached_property
    def _briefing(self) -> OperatorSnapshots:
        from runnel.streaming.operator_snapshot import OperatorSnapshots

        return OperatorSnapshots(self._job.open_storage(), 1.0 / self._job.parallelism)

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"sequence": self._job.after_sequence, "plan": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """A bounded run ends with the items that are there when it begins."""
        with reporting_failures(self._job.storage):
            self._last = self._items.last_sequence()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        from runnel.catalog.logs import plan_versions
        from runnel.catalog.store.sequencer import last_sequence

        with reporting_failures(self._job.storage), self._catalog.read() as connection:
            last = last_sequence(connection)
            if self._last is not None:
                last = min(last, self._last)
            if last <= start["sequence"]:
                return start
            plan = plan_versions.current_plan(connection)
            upto = self._bounded(connection, start["sequence"], last)
        return {"sequence": upto, "plan": plan.version if plan else 0}

    def _bounded(self, connection: Any, after: int, last: int) -> int:
        """The last sequence of a batch after `after` that stays within the limits of items and bytes."""
        from runnel.catalog.logs.item_segments import segments_between

        last = min(last, after + self._job.max_batch_items)
        room = self._job.max_batch_bytes
        for segment in segments_between(connection, after, last):
            per_item = max(1, segment.bytes // segment.items)
            taken = min(segment.last_sequence, last) - max(segment.first_sequence, after + 1) + 1
            if per_item * taken > room:
                start = max(segment.first_sequence, after + 1)
                return max(start + room // per_item - 1, after + 1)
            room -= per_item * taken
        return last

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with reporting_failures(self._job.storage):
            return self._partitions(start, end)

    def _partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from runnel.catalog.logs import plan_versions

        slices = self._items.slices(start["sequence"], end["sequence"], rows=self._job.slice_items)
        with self._catalog.read() as connection:
            plan = plan_versions.plan_by_version(connection, end["plan"])
            operators = self._briefing.brief(connection, start["sequence"], end["sequence"]).dump()
            stretch = 0
            if plan is not None:
                port = stream_port(plan.distribution)
                stretch = port.range_items(connection, self._job, start["sequence"], plan)
        # A task costs more than matching a few hundred items, so small batches are not divided.
        enough = max(1, (end["sequence"] - start["sequence"]) // _TASK_ITEMS)
        count = min(self._job.parallelism, len(slices), enough)
        bounds = [len(slices) * part // count for part in range(count + 1)] if count else []
        return [SlicePartition(slices[low:high], plan, operators, stretch) for low, high in pairwise(bounds)]

    def read(self, partition: SlicePartition) -> Iterator[Any]:
        rows = [
            {
                "tier": one.tier,
                "path": one.path,
                "first_row": one.first_row,
                "rows": one.rows,
                "first_sequence": one.first_sequence,
                "accepted": one.accepted,
                "plan": partition.plan,
                "base": partition.base,
                "delta": partition.delta,
                "removed": partition.removed,
                "distribution": partition.distribution,
                "operators": partition.operators,
                "stretch_first": run[0].first_sequence,
                "stretch_last": run[-1].last_sequence,
            }
            for run in partition.stretches()
            for one in run
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
