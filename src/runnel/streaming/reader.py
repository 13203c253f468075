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

if TYPE_CHECKING:
    from runnel.catalog.connection import Catalog
    from runnel.catalog.plans import PlanRow
    from runnel.log.item_log import ItemLog
    from runnel.streaming.operator_brief import Briefing

FORMAT = "runnel_items"
SLICE_DDL = (
    "tier string, path string, first_row long, rows long, first_sequence long, accepted long, "
    "plan long, base string, delta string, removed array<long>, operators string"
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
        ("operators", pa.string()),
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
    operators: str | None
    """What operators need, see `operator_brief`."""

    def __init__(self, slices: Sequence[Slice], plan: PlanRow | None, operators: str | None) -> None:
        super().__init__(None)
        self.operators = operators
        self.slices = tuple(slices)
        self.plan, self.base, self.delta, self.removed = 0, None, None, ()
        if plan is not None:
            self.plan, self.base, self.delta, self.removed = plan.version, plan.base, plan.delta, plan.removed


class ItemLogSource(DataSource):  # type: ignore[misc]
    """The format `runnel_items`; its option `job` says which root and how."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SLICE_DDL

    def streamReader(self, schema: Any) -> ItemLogReader:  # noqa: N802
        return ItemLogReader(Job.load(self.options["job"]))


class ItemLogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
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
        from runnel.log.item_log import ItemLog

        return ItemLog(self._catalog, self._job.open_storage())

    @cached_property
    def _briefing(self) -> Briefing:
        from runnel.streaming.operator_brief import Briefing

        return Briefing(self._job.open_storage(), 1.0 / self._job.parallelism)

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"sequence": self._job.after_sequence, "plan": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """A bounded run ends with the items that are there when it begins."""
        self._last = self._items.last_sequence()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        from runnel.catalog import plans
        from runnel.catalog.sequencer import last_sequence

        with self._catalog.read() as connection:
            last = last_sequence(connection)
            if self._last is not None:
                last = min(last, self._last)
            if last <= start["sequence"]:
                return start
            end = self._bounded(connection, start["sequence"], last)
            plan = plans.current_plan(connection)
        return {"sequence": end, "plan": plan.version if plan else 0}

    def _bounded(self, connection: Any, after: int, last: int) -> int:
        """The last sequence of a batch after `after` that stays within the limits of items and bytes."""
        from runnel.catalog.items import segments_between

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
        from runnel.catalog import plans

        slices = self._items.slices(start["sequence"], end["sequence"], rows=self._job.slice_items)
        with self._catalog.read() as connection:
            plan = plans.plan_by_version(connection, end["plan"])
            operators = self._briefing.brief(connection, start["sequence"], end["sequence"]).dump()
        # A task costs more than matching a few hundred items, so small batches are not divided.
        enough = max(1, (end["sequence"] - start["sequence"]) // _TASK_ITEMS)
        count = min(self._job.parallelism, len(slices), enough)
        bounds = [len(slices) * part // count for part in range(count + 1)] if count else []
        return [SlicePartition(slices[low:high], plan, operators) for low, high in pairwise(bounds)]

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
                "operators": partition.operators,
            }
            for one in partition.slices
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
