"""The port through which plans are published, and asked how their queries are distributed over workers.

By default every worker has the whole plan. The queries of a plan that does not fit, or whose settings say so, are
distributed; then the plan version names a folder, its *distribution*. The implementation of that is loaded when the
settings want it or a version has it, and never otherwise. `streaming.ports` has the ports that read, match and
commit.
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
"""Called between the steps of long work; it may raise to end the work."""

_DISTRIBUTED = "runnel.scaleout.planning.partitioned_plan:PARTITIONED_PLAN"

GAUGES = {
    "runnel_partitions": "Partitions that the queries are divided into; 1: every worker has all.",
    "runnel_partition_skew": "What the longest partition takes, as a multiple of the mean.",
    "runnel_partition_copies": "How often an item of the newest batches was given to a partition.",
    "runnel_partition_loads": "How often plans of partitions were loaded lately.",
}
"""The metrics of a distribution, and what they mean."""

_WHOLE_GAUGES = {
    "runnel_partitions": 1.0,
    "runnel_partition_skew": 1.0,
    "runnel_partition_copies": 1.0,
    "runnel_partition_loads": 0.0,
}


class Distribution(Protocol):
    """How the queries of a base are distributed, written to a folder next to it."""

    @property
    def folder(self) -> str: ...

    @property
    def pieces(self) -> tuple[str, ...]:
        """The plan folders that it names."""
        ...

    def is_complete(self, storage: Storage) -> bool:
        """Whether its folder and all its pieces exist."""
        ...


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Figures as a table of numbers, with facts above it."""

    title: str
    facts: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PlanFigures(Protocol):
    """How the queries of a plan version are distributed, to be shown."""

    def lines(self) -> list[str]:
        """For a terminal."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Fields of a JSON value; those of all kinds of plans have the same names."""
        ...

    def table(self) -> FigureTable | None:
        """For the report; None where there is nothing to compare."""
        ...


@dataclass(frozen=True, slots=True)
class WholePlanFigures:
    """A plan that is not distributed, and why; or one of which that cannot be read, and what is damaged.

    There is no reason where there is no plan.
    """

    reason: str | None = None
    damaged: bool = False

    def lines(self) -> list[str]:
        if self.reason is None:
            return []
        return [f"damaged: {self.reason}", "`runnel doctor` says more"] if self.damaged else [f"none: {self.reason}"]

    def to_json(self) -> dict[str, Any]:
        return {"partitions": None, "undivided": None if self.reason is None else asdict(self)}

    def table(self) -> FigureTable | None:
        return None


class QueryPlacement(Protocol):
    """Where a query of a distributed plan is, to be shown by `explain`."""

    def lines(self) -> Sequence[str]: ...

    def to_json(self) -> dict[str, Any]: ...


class PlanPort:
    """The port of plans that every worker has whole. Ports of distributed plans override what they do in addition."""

    delta_factor = 1
    """How many times larger than usual a delta may become before a declaration has to compile a new base."""

    def distribute_at_once(
        self, workspace: Workspace, connection: Connection, base: str, queries: int
    ) -> Distribution | None:
        """Distribute a new base in the transaction that publishes it; None: not at all, or later."""
        return None

    def distribute(self, workspace: Workspace, base: str, *, proceed: Proceed) -> Distribution | None:
        """Distribute a new base as the settings want, however long that takes."""
        return None

    def ensure(self, workspace: Workspace, epoch: int, *, proceed: Proceed) -> str | None:
        """Publish the current plan as the settings want it distributed; gives a line for the log if that was due."""
        return None

    def rebalance(self, workspace: Workspace, epoch: int, *, proceed: Proceed) -> str | None:
        """Distribute the current plan again if workers are loaded unevenly; gives a line for the log if so."""
        return None

    def repair(self, workspace: Workspace, epoch: int, plans: Iterable[PlanRow]) -> bool:
        """Whether one of these versions was damaged; the current one is distributed again."""
        return False

    def figures(self, workspace: Workspace, connection: Connection, plan: PlanRow) -> PlanFigures:
        """How the queries of a version are distributed."""
        why = why_whole(workspace.settings, read_manifest(workspace.storage, plan.base))
        return WholePlanFigures(f"every worker has all queries ({why})")

    def gauges(self, connection: Connection, plan: PlanRow) -> Mapping[str, float | None]:
        """The values of `GAUGES`; None where nothing was measured."""
        return _WHOLE_GAUGES

    def describe(self, plan: PlanRow) -> str:
        """In few words, for lines that count queries: empty, or ` in 8 partitions`."""
        return ""

    def explain(
        self, workspace: Workspace, row: PlanRow, plan: Plan, query: int, names: Mapping[int, str]
    ) -> QueryPlacement | None:
        """Where a query is; None where every worker has it."""
        return None

    def verify(self, storage: Storage, plan: PlanRow) -> None:
        """Read all files of the distribution of a version; CorruptDataError where one is damaged."""

    def files(self, distribution: str) -> Sequence[str]:
        """The files in the folder of a distribution."""
        return ()


_WHOLE = PlanPort()


def plan_port(distribution: str | None) -> PlanPort:
    """The port of the plan versions with a distribution, or of those whose plan every worker has."""
    return _WHOLE if distribution is None else cast(PlanPort, resolve_name(_DISTRIBUTED))


def wanted_port(settings: Settings, base: PlanManifest) -> PlanPort:
    """The port of the plans that the settings want of a base."""
    return _WHOLE if why_whole(settings, base) is not None else cast(PlanPort, resolve_name(_DISTRIBUTED))


def _port_of(workspace: Workspace, plan: PlanRow) -> PlanPort:
    """The port of a version, or the one that the settings want for a version that is not distributed yet."""
    if plan.distribution is not None:
        return plan_port(plan.distribution)
    return wanted_port(workspace.settings, read_manifest(workspace.storage, plan.base))


def why_whole(settings: Settings, base: PlanManifest) -> str | None:
    """Why every worker has all queries of a base; None where they have to be distributed."""
    return reason_for_whole_plan(
        queries=base.counts.get("queries", 0),
        plan_bytes=base.size,
        budget_bytes=settings.plan_megabytes << 20,
        wanted=settings.partitions,
    )


def reason_for_whole_plan(*, queries: int, plan_bytes: int, budget_bytes: int, wanted: int) -> str | None:
    """Why a plan stays whole; None where it does not. `wanted` is the number of partitions in the settings, or 0.

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
    """A number of bytes as people read it.

    >>> byte_count(900), byte_count(5 << 20), byte_count(3 << 29)
    ('900 bytes', '5.0 MiB', '1.5 GiB')
    """
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def read_figures(workspace: Workspace, connection: Connection, plan: PlanRow | None) -> PlanFigures:
    """How the queries of a version are distributed, or will be."""
    if plan is None:
        return WholePlanFigures()
    try:
        return _port_of(workspace, plan).figures(workspace, connection, plan)
    except CorruptDataError as error:
        return WholePlanFigures(error.message, damaged=True)


def ensure_distribution(workspace: Workspace, epoch: int, *, proceed: Proceed = lambda: None) -> str | None:
    """Publish the current plan as the settings want it distributed; gives a line for the log if that was due.

    The new version has the same base, and the delta and the removals of the one that is current by then. So nobody
    waits for it. Finding that nothing is due reads two small files.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    return None if current is None else _port_of(workspace, current).ensure(workspace, epoch, proceed=proceed)


def rebalance_plan(workspace: Workspace, epoch: int, *, proceed: Proceed = lambda: None) -> str | None:
    """Distribute the current plan again if workers are loaded unevenly; gives a line for the log if so."""
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    return None if current is None else plan_port(current.distribution).rebalance(workspace, epoch, proceed=proceed)


def repair_distributions(workspace: Workspace, epoch: int) -> bool:
    """Whether the distribution of a version was damaged that a batch may still want; it must be planned again.

    A base has all queries, so nothing is lost with a distribution, and the current plan gets a new one.
    """
    with workspace.catalog.read() as connection:
        plans = plan_versions.distributed_plans(connection, since=match_segments.last_plan(connection))
    return bool(plans) and plan_port(plans[-1].distribution).repair(workspace, epoch, plans)
