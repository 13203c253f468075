"""The ports through which the streaming query reads, matches and commits the items of a batch.

How that is done depends on the plan version of the batch. By default every worker has the whole plan. The queries of
a large plan are distributed over workers; then the version names a folder, its *distribution*, which says how. The
implementation of a distributed plan is loaded when a version needs it, and never otherwise. `engine.planning.ports`
has the fourth port, which publishes plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, Protocol, cast

from runnel.model.segment import Slice
from runnel.plan.store import PlanVersion, PublishedPlan
from runnel.storage.file_storage import Storage
from runnel.streaming.job import Job
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.match_buffer import MatchBuffer

_WHOLE = "runnel.streaming.worker.whole_plan:WHOLE_PLAN"
_DISTRIBUTED = "runnel.scaleout.stages.partitioned_stream:PARTITIONED_STREAM"


class StreamPort(Protocol):
    """Reads, matches and commits items with plan versions of one kind.

    A streaming query keeps the stages that it started with. Batches may be matched with any version meanwhile, so
    `match_slice` works in the stages of every kind.
    """

    def range_items(self, connection: Any, job: Job, after: int, plan: PublishedPlan) -> int:
        """Read: the items after a sequence whose matches are written together; 0: one part per slice is enough."""
        ...

    def slots(self, plan: PublishedPlan, parallelism: int) -> int:
        """Match: the slots of a keyed stage that a plan is best matched in; 0: one stage without keys."""
        ...

    def match_stream(self, spark: Any, slices: Any, job: Job) -> Any:
        """Match: the stages of the streaming query, from slices to written parts."""
        ...

    def match_slice(
        self,
        storage: Storage,
        version: PlanVersion,
        slice_: Slice,
        found: MatchBuffer,
        snapshot: OperatorSnapshot,
        budget: int,
    ) -> None:
        """Match: add the matches of one slice to a buffer, with at most `budget` bytes of plans mapped."""
        ...

    def note_work(self, connection: Any, plan: PublishedPlan, work: Mapping[int, Counter[str]]) -> None:
        """Commit: note what the parts of the plan took, in the transaction of their batch."""
        ...


def stream_port(distribution: str | None) -> StreamPort:
    """The port of the plan versions with a distribution, or of those whose plan every worker has."""
    return cast(StreamPort, resolve_name(_WHOLE if distribution is None else _DISTRIBUTED))
