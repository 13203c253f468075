"""The interface between the engine and the distribution of plans over workers.

By default, every worker loads the whole plan. If a plan does not fit into memory, or if the settings require it, its
queries are distributed, and the plan version names a folder, its *distribution*. The implementation is loaded only if
the settings require it or a version has a distribution. `streaming.ports` has the ports for reading, matching and
committing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pkgutil import resolve_name
from typing import Any, Protocol, cast

from sqlalchemy import Connection

from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.plan.manifest import PlanManifest
from runnel.plan.store import Plan, read_manifest
from runnel.settings import Settings
from runnel.storage.file_storage import Storage

Proceed = Callable[[], None]
"""Called between the steps of long work. It may raise an exception to abort the work."""

_DISTRIBUTED = "runnel.scaleout.planning.partitioned_plan:PARTITIONED_PLAN"

GAUGES = {
    "runnel_partitions": "Number of partitions of the plan; 1 if every worker has all queries.",
    "runnel_partition_skew": "Matching time of the slowest partition, as a multiple of the mean.",
    "runnel_partition_copies": "Mean number of partitions to which an item of the newest batches was routed.",
    "runnel_partition_loads": "Number of times that plans of partitions were loaded recently.",
}
"""The metrics of a distribution, and their help texts."""

_WHOLE_GAUGES = {
    "runnel_partitions": 1.0,
    "runnel_partition_skew": 1.0,
    "runnel_partition_copies": 1.0,
    "runnel_partition_loads": 0.0,
}


class Distribution(Protocol):
    """The distribution of a base's queries over partitions, written to a folder of its own."""

    @property
    def folder(self) -> str: ...

    @property
    def pieces(self) -> tuple[str, ...]:
        """The plan folders that the distribution references."""
        ...

    def is_complete(self, storage: Storage) -> bool:
        """Return whether the folder of the distribution and all plan folders that it references exist."""
        ...


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table of numbers with a title and sentences above it."""

    title: str
    facts: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PlanFigures(Protocol):
    """A description of how the queries of a plan version are distributed."""

    def lines(self) -> list[str]:
        """Return lines for a terminal."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return fields of a JSON object. All kinds of plans use the same names."""
        ...

    def table(self) -> FigureTable | None:
        """Return a table for the report, or None if the plan is not distributed."""
        ...


@dataclass(frozen=True, slots=True)
class WholePlanFigures:
    """A plan that is not distributed, with the reason, or a plan whose distribution is damaged.

    `reason` is None if there is no plan.
    """

    reason: str | None = None
    damaged: bool = False

    def lines(self) -> list[str]:
        if self.reason is None:
            return []
        return (
            [f"damaged: {self.reason}", "`runnel doctor` shows details"] if self.damaged else [f"none: {self.reason}"]
        )

    def to_json(self) -> dict[str, Any]:
        return {"partitions": None, "undivided": None if self.reason is None else asdict(self)}

    def table(self) -> FigureTable | None:
        return None


class QueryPlacement(Protocol):
    """The partition of a query in a distributed plan, as `explain` shows it."""

    def lines(self) -> Sequence[str]: ...

    def to_json(self) -> dict[str, Any]: ...


class PlanPort:
    """The port for plans that every worker loads whole. The port for distributed plans overrides its methods."""

    delta_factor = 1
    """The factor by which a delta may exceed the usual size before a declaration must compile a new base."""

    def distribute_at_once(
        self, workspace: Workspace, connection: Connection, base: str, queries: int
    ) -> Distribution | None:
        """Distribute a new base in the transaction that publishes it. Return None if it is not distributed now."""
        return None

    def distribute(self, workspace: Workspace, base: str, *, proceed: Proceed) -> Distribution | None:
        """Distribute a new base as the settings require, which may take minutes."""
        return None

    def ensure(self, workspace: Workspace, epoch: int, *, proceed: Proceed) -> str | None:
        """Publish the current plan with the distribution that the settings require, if it has another one.

        Return a line for the log if a version was published, otherwise None.
        """
        return None

    def rebalance(self, workspace: Workspace, epoch: int, *, proceed: Proceed) -> str | None:
        """Distribute the current plan again if the load is uneven. Return a line for the log if so, else None."""
        return None

    def repair(self, workspace: Workspace, epoch: int, plans: Iterable[PlanRow]) -> bool:
        """Distribute the current plan again if one of these versions is damaged. Return whether one is damaged."""
        return False

    def figures(self, workspace: Workspace, connection: Connection, plan: PlanRow) -> PlanFigures:
        """Describe how the queries of a version are distributed."""
        reason = why_whole(workspace.settings, read_manifest(workspace.storage, plan.base))
        return WholePlanFigures(f"every worker has all queries ({reason})")

    def gauges(self, connection: Connection, plan: PlanRow) -> Mapping[str, float | None]:
        """Return the values of `GAUGES`, or None for a metric that was not measured yet."""
        return _WHOLE_GAUGES

    def describe(self, plan: PlanRow) -> str:
        """Return a suffix for log lines that count queries: empty, or ` in 8 partitions`."""
        return ""

    def explain(
        self, workspace: Workspace, row: PlanRow, plan: Plan, query: int, names: Mapping[int, str]
    ) -> QueryPlacement | None:
        """Return the placement of a query, or None if every worker has it."""
        return None

    def verify(self, storage: Storage, plan: PlanRow) -> None:
        """Read all files of a version's distribution. Raise CorruptDataError if one is damaged."""

    def files(self, distribution: str) -> Sequence[str]:
        """Return the names of the files in the folder of a distribution."""
        return ()


_WHOLE = PlanPort()


def plan_port(distribution: str | None) -> PlanPort:
    """Return the port for plan versions with a distribution, or for whole plans if `distribution` is None."""
    return _WHOLE if distribution is None else cast(PlanPort, resolve_name(_DISTRIBUTED))


def wanted_port(settings: Settings, base: PlanManifest) -> PlanPort:
    """Return the port that the settings require for a base."""
    return _WHOLE if why_whole(settings, base) is not None else cast(PlanPort, resolve_name(_DISTRIBUTED))


def _port_of(workspace: Workspace, plan: PlanRow) -> PlanPort:
    """Return the port of a version, or the port that the settings require if it is not distributed yet."""
    if plan.distribution is not None:
        return plan_port(plan.distribution)
    return wanted_port(workspace.settings, read_manifest(workspace.storage, plan.base))


def why_whole(settings: Settings, base: PlanManifest) -> str | None:
    """Return why every worker has all queries of a base, or None if they must be distributed."""
    return reason_for_whole_plan(
        queries=base.counts.get("queries", 0),
        plan_bytes=base.size,
        budget_bytes=settings.plan_megabytes << 20,
        wanted=settings.partitions,
    )


def reason_for_whole_plan(*, queries: int, plan_bytes: int, budget_bytes: int, wanted: int) -> str | None:
    """Return why a plan is not distributed, or None if it must be. `wanted` is the setting `partitions`.

    >>> reason_for_whole_plan(queries=9, plan_bytes=900, budget_bytes=4 << 30, wanted=0)
    'the plan takes 900 bytes and a worker may map 4.0 GiB'
    >>> reason_for_whole_plan(queries=9, plan_bytes=900, budget_bytes=4 << 30, wanted=2) is None
    True
    """
    if not queries:
        return "there are no queries"
    if wanted == 1:
        return "as the settings say"
    if not wanted and plan_bytes <= budget_bytes:
        return f"the plan takes {byte_count(plan_bytes)} and a worker may map {byte_count(budget_bytes)}"
    if queries == 1:
        although = f", although the settings say {wanted:,} partitions" if wanted else ""
        return f"a single query cannot be divided{although}"
    return None


def byte_count(count: float) -> str:
    """Format a number of bytes with a unit.

    >>> byte_count(900), byte_count(5 << 20), byte_count(3 << 29)
    ('900 bytes', '5.0 MiB', '1.5 GiB')
    """
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def read_figures(workspace: Workspace, connection: Connection, plan: PlanRow | None) -> PlanFigures:
    """Describe how the queries of a version are distributed, or will be distributed."""
    if plan is None:
        return WholePlanFigures()
    try:
        return _port_of(workspace, plan).figures(workspace, connection, plan)
    except CorruptDataError as error:
        return WholePlanFigures(error.message, damaged=True)


def ensure_distribution(workspace: Workspace, epoch: int, *, proceed: Proceed = lambda: None) -> str | None:
    """Publish the current plan with the distribution that the settings require, if it has another one.

    Return a line for the log if a version was published, otherwise None. The new version has the same base, and the
    delta and removals of the version that is current at that time, so declarations need not wait for it. If nothing
    is to be done, only two small files are read.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    return None if current is None else _port_of(workspace, current).ensure(workspace, epoch, proceed=proceed)


def rebalance_plan(workspace: Workspace, epoch: int, *, proceed: Proceed = lambda: None) -> str | None:
    """Distribute the current plan again if the load is uneven. Return a line for the log if so, otherwise None."""
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    return None if current is None else plan_port(current.distribution).rebalance(workspace, epoch, proceed=proceed)


def repair_distributions(workspace: Workspace, epoch: int) -> bool:
    """Distribute the current plan again if a version that a batch may still use has a damaged distribution.

    Return whether one was damaged. The base contains all queries, so no query is lost with a distribution.
    """
    with workspace.catalog.read() as connection:
        plans = plan_versions.distributed_plans(connection, since=match_segments.last_plan(connection))
    return bool(plans) and plan_port(plans[-1].distribution).repair(workspace, epoch, plans)
