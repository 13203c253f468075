"""The streaming port: the interface between the streaming query and the matching of whole or distributed plans.

By default every worker loads the whole plan. The queries of a large plan are distributed over workers; then the plan
version refers to a folder, its *distribution*, which describes how. The implementation for distributed plans is
imported only when a version needs it. The port that publishes plans is in `engine.planning.ports`.
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
    """Reads, matches and commits items with plan versions of one kind, whole or distributed.

    A streaming query keeps the stages that it started with, while the plan may change between whole and distributed.
    `match_slice` therefore works in the stages of either kind.
    """

    def range_items(self, connection: Any, job: Job, after: int, plan: PublishedPlan) -> int:
        """Reading: return how many items after `after` form a range, whose matches are written together.

        Return 0 if each slice may be a range of its own.
        """
        ...

    def slots(self, plan: PublishedPlan, parallelism: int) -> int:
        """Matching: return the number of slots of the keyed stage for a plan, or 0 if it needs no keyed stage."""
        ...

    def match_stream(self, spark: Any, slices: Any, job: Job) -> Any:
        """Matching: return the stages of the streaming query, a DataFrame of match parts made from one of slices."""
        ...

    def match_slice(
        self,
        storage: Storage,
        version: PlanVersion,
        slice_: Slice,
        buffer: MatchBuffer,
        snapshot: OperatorSnapshot,
        budget: int,
    ) -> None:
        """Matching: add the matches of one slice to a buffer, with at most `budget` bytes of plans mapped.

        The budget does not apply to plans that every worker loads as a whole.
        """
        ...

    def note_work(self, connection: Any, plan: PublishedPlan, work: Mapping[int, Counter[str]]) -> None:
        """Committing: record the load of each partition of a plan, in the transaction that commits the batch."""
        ...


def stream_port(distribution: str | None) -> StreamPort:
    """Return the port for plan versions with this distribution; None stands for plans that every worker loads."""
    return cast(StreamPort, resolve_name(_WHOLE if distribution is None else _DISTRIBUTED))
