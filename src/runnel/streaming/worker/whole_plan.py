"""The streaming port for plans that every worker loads as a whole. They are matched in one stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from runnel.logs.items.item_files import read_items
from runnel.model.segment import Slice
from runnel.plan.store import PlanVersion, PublishedPlan
from runnel.storage.file_storage import Storage
from runnel.streaming.job import Job
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.ports import StreamPort
from runnel.streaming.worker.match_buffer import PART_DDL, MatchBuffer
from runnel.streaming.worker.match_job import match_slices
from runnel.streaming.worker.plan_cache import load_whole_plan


class WholePlan(StreamPort):
    """Each worker matches its share of the items with all queries."""

    def range_items(self, connection: Any, job: Job, after: int, plan: PublishedPlan) -> int:
        return 0

    def slots(self, plan: PublishedPlan, parallelism: int) -> int:
        return 0

    def match_stream(self, spark: Any, slices: Any, job: Job) -> Any:
        return slices.mapInArrow(match_slices(job.storage, job.lineage, job.plan_bytes), PART_DDL)

    def match_slice(
        self,
        storage: Storage,
        version: PlanVersion,
        slice_: Slice,
        buffer: MatchBuffer,
        snapshot: OperatorSnapshot,
        budget: int,
    ) -> None:
        items = read_items(storage, slice_)
        plan, observer = load_whole_plan(storage.url, version)
        buffer.add(storage, items, plan, snapshot)
        buffer.observe(items, observer)

    def note_work(self, connection: Any, plan: PublishedPlan, work: Mapping[int, Counter[str]]) -> None:
        pass


WHOLE_PLAN = WholePlan()
