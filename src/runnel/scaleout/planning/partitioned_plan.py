"""The planning port for partitioned plans: publish, repair, rebalance and explain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from runnel.catalog.logs.plan_versions import PlanRow
from runnel.engine.planning.ports import PlanFigures, PlanPort, Proceed
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.plan.store import Plan, verify
from runnel.scaleout.partitioning import ASSIGNMENT, MANIFEST, REBUILD_HINT, Partitioning, verify_partitioning
from runnel.scaleout.planning.explain_partition import ExplainedPartition, explain_partition
from runnel.scaleout.planning.partition_figures import partition_gauges, read_partition_figures
from runnel.scaleout.planning.partition_plan import (
    ensure_partitioning,
    partition_at_once,
    partition_if_wanted,
    repair_partitioning,
)
from runnel.scaleout.planning.rebalance import rebalance
from runnel.storage.file_storage import Storage


class PartitionedPlan(PlanPort):
    """Plans whose queries are in partitions behind a router."""

    delta_factor = 2
    """Twice the usual size, so that usually the runner compiles and partitions a new base, not a declaration.

    A base from a declaration has no partitions at first, so each worker would map all of it.
    """

    def distribute_at_once(
        self, workspace: Workspace, connection: Connection, base: str, queries: int
    ) -> Partitioning | None:
        return partition_at_once(workspace, connection, base, queries)

    def distribute(self, workspace: Workspace, base: str, *, proceed: Proceed) -> Partitioning | None:
        return partition_if_wanted(workspace, base, proceed=proceed)

    def ensure(self, workspace: Workspace, epoch: int, *, proceed: Proceed) -> str | None:
        result = ensure_partitioning(workspace, epoch, proceed=proceed)
        if result is None:
            return None
        return f"plan version {result.version} has {result.partitions} partitions: {result.reason}"

    def rebalance(self, workspace: Workspace, epoch: int, *, proceed: Proceed) -> str | None:
        result = rebalance(workspace, epoch, proceed=proceed)
        return result.describe() if result is not None and result.version is not None else None

    def repair(self, workspace: Workspace, epoch: int, plans: Iterable[PlanRow]) -> bool:
        return repair_partitioning(workspace, epoch, plans)

    def figures(self, workspace: Workspace, connection: Connection, plan: PlanRow) -> PlanFigures:
        return read_partition_figures(workspace, connection, plan)

    def gauges(self, connection: Connection, plan: PlanRow) -> Mapping[str, float | None]:
        return partition_gauges(connection, plan)

    def describe(self, plan: PlanRow) -> str:
        return f" in {len(plan.pieces) - 1} partitions"

    def explain(
        self, workspace: Workspace, row: PlanRow, plan: Plan, query: int, names: Mapping[int, str]
    ) -> ExplainedPartition | None:
        return explain_partition(workspace, row, plan, query, names)

    def verify(self, storage: Storage, plan: PlanRow) -> None:
        """Verify the router and all partitions, and that they are those in the catalog."""
        partitioning = verify_partitioning(storage, plan.distribution or "")
        if partitioning.base != plan.base or set(partitioning.pieces) != set(plan.pieces):
            raise CorruptDataError(
                f"{partitioning.folder} differs from the partitioning in the catalog", hint=REBUILD_HINT
            )
        try:
            for folder in partitioning.pieces:
                verify(storage, folder)
        except CorruptDataError as error:
            raise CorruptDataError(error.message, hint=REBUILD_HINT) from error

    def files(self, distribution: str) -> Sequence[str]:
        return [f"{distribution}/{name}" for name in (MANIFEST, ASSIGNMENT)]


PARTITIONED_PLAN = PartitionedPlan()
