"""Create a partitioning: write the plan folders of the router and the partitions of a base.

First, find groups of related queries and a condition that covers each group (`subsuming_roots`, `cover_predicates`).
Then estimate the costs of the queries and assign them to partitions (`weigh_queries`, `assign_queries`). Finally, cut
out each partition, compile it, and write it to a plan folder of its own. The manifest of the partitioning is written
last, so that all folders that it lists exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from runnel.arrays import Array
from runnel.errors import RunnelError
from runnel.matching.compile.build_matcher import STREAMS
from runnel.matching.compile.compile_plan import compute_layout
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout, Frequencies
from runnel.plan.gates import GateTable, query_of
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.manifest import PlanManifest
from runnel.scaleout.cover.contract import Samples
from runnel.scaleout.cover.cover_predicates import Cover, cover_predicates
from runnel.scaleout.cover.expected_routes import ExpectedRoutes
from runnel.scaleout.cover.router_plan import router_plan
from runnel.scaleout.cover.subsuming_roots import find_subsuming_roots
from runnel.scaleout.divide.assign_queries import ChosenAssignment, choose_assignment, weigh_assignment
from runnel.scaleout.divide.cut_plan import cut_plan
from runnel.scaleout.divide.weigh_queries import Weights, weigh_queries
from runnel.scaleout.partitioning import (
    Assignment,
    Partition,
    Partitioning,
    Strategy,
    read_assignment,
    write_partitioning,
)
from runnel.storage.file_storage import Storage

_PREDICATES_PER_CONDITION = 16
"""The router has at most one condition per this many predicates of the base, so that its plan is small."""

_MIN_CONDITIONS = 1_024
"""For small bases the limit is not lower than this."""


def make_partitioning(
    storage: Storage,
    logical: LogicalPlan,
    laid_atoms: AtomLayout,
    *,
    base: str,
    count: int,
    new_folder: Callable[[], str],
    strategy: Strategy | None = None,
    most_conditions: int | None = None,
    frequencies: Frequencies | None = None,
    matcher: str = STREAMS,
    matches: Array | None = None,
    operator_milliseconds: Mapping[str, float] | None = None,
    samples: Samples | None = None,
    before: Partitioning | None = None,
    partitions: Array | None = None,
    noted: Mapping[str, int] | None = None,
    proceed: Callable[[], None] = lambda: None,
) -> Partitioning:
    """Divide the queries of a base into `count` partitions, and write the plan folders and the manifest.

    `partitions` has the partition of each query, by ascending query IDs. Without it, an assignment is chosen, with
    the `strategy` if one is given. A new partition with exactly the queries of a partition of `before` reuses its
    folder. `noted` is added to the counters. A large base takes minutes. `proceed` is called between the steps, and
    may raise an error to end them; the files written until then are orphans.

    >>> import tempfile
    >>> from itertools import count
    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import Contains
    >>> from runnel.algebra.nodes.query import Filter, Read
    >>> from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
    >>> from runnel.optimizer.optimize import optimize
    >>> from runnel.plan.logical_plan import PlanQuery
    >>> definitions = {n: Filter(Read(1), Contains(Attribute("title"), (f"word{n}",))) for n in range(7, 17)}
    >>> logical, names = optimize(map(PlanQuery, definitions), definitions), (f"plans/piece-{n}" for n in count())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     from runnel.storage.file_storage import FileStorage
    ...     partitioning = make_partitioning(
    ...         FileStorage(f"file://{folder}"),
    ...         logical,
    ...         compute_atom_layout(logical),
    ...         base="plans/base",
    ...         count=2,
    ...         new_folder=lambda: next(names),
    ...     )
    >>> [partition.queries for partition in partitioning.partitions], partitioning.router
    ([5, 5], 'plans/piece-0')
    """
    if count < 1:
        raise RunnelError(
            f"queries cannot be divided into {count} partitions", hint="the number of partitions must be at least 1"
        )
    anchors = choose_anchors(logical, laid_atoms)
    proceed()
    roots = find_subsuming_roots(logical, laid_atoms, anchors)
    proceed()
    most = _max_conditions(logical) if most_conditions is None else most_conditions
    cover = cover_predicates(logical, laid_atoms, anchors, roots, most=most, samples=samples)
    proceed()
    weights = weigh_queries(
        logical,
        laid_atoms,
        anchors,
        cover.of_predicates,
        cover.shares,
        matches=matches,
        operator_milliseconds=operator_milliseconds,
    )
    proceed()
    if partitions is None:
        chosen = choose_assignment(weights, count, strategy)
    else:
        chosen = _check_assignment(weights, partitions, count, strategy or (before.strategy if before else "grouped"))
    writer = _PartitioningWriter(storage, logical, new_folder, frequencies, matcher, proceed)
    partitioning = writer.write(base, cover, weights, chosen, _ReusablePartitions(storage, base, before))
    counters = {**roots.counters, **cover.counters, **partitioning.counters, **(noted or {})}
    partitioning = replace(partitioning, counters=counters)
    write_partitioning(
        storage,
        partitioning,
        Assignment(weights.owners, chosen.partitions, weights.marked_groups, weights.microseconds),
    )
    return partitioning


def _max_conditions(logical: LogicalPlan) -> int:
    return max(_MIN_CONDITIONS, len(logical.predicates) // _PREDICATES_PER_CONDITION)


def _check_assignment(weights: Weights, partitions: Array, count: int, strategy: Strategy) -> ChosenAssignment:
    """Check an assignment from the caller, and estimate its cost."""
    if len(partitions) != len(weights):
        raise RunnelError(f"the assignment has {len(partitions):,} queries, the plan has {len(weights):,}")
    if len(partitions) and not 0 <= int(partitions.min()) <= int(partitions.max()) < count:
        raise RunnelError(f"the assignment refers to a partition outside of 0 to {count - 1}")
    division = weigh_assignment(weights, partitions, count, strategy)
    reason = f"moved to balance the load: {division.weighed.copies:.2f} copies per item are expected"
    return ChosenAssignment(partitions, strategy, (division.weighed,), division, reason)


@dataclass(frozen=True)
class _PartitioningWriter:
    """Writes the plan folders of a partitioning."""

    storage: Storage
    logical: LogicalPlan
    new_folder: Callable[[], str]
    frequencies: Frequencies | None
    matcher: str
    proceed: Callable[[], None]

    def write(
        self, base: str, cover: Cover, weights: Weights, chosen: ChosenAssignment, reusable: _ReusablePartitions
    ) -> Partitioning:
        """Write the router, and all partitions that cannot be reused."""
        owners = np.searchsorted(weights.owners, query_of(self.logical.query_ids))
        count = len(chosen.division.shares)
        router = self._write_router(cover, chosen.partitions[owners], chosen.division.routes)
        partitions = [self._write_partition(weights, chosen, number, owners, reusable) for number in range(count)]
        return Partitioning(
            folder=self.new_folder(),
            base=base,
            router=router.folder,
            router_bytes=router.size,
            partitions=tuple(partitions),
            strategy=chosen.strategy,
            weighed=chosen.weighed,
            reason=chosen.reason,
            counters={"queries": len(weights), "groups": weights.group_count, "reused": reusable.reused},
        )

    def _write_plan(self, logical: LogicalPlan, matcher: str) -> PlanManifest:
        """Compile a plan, and write it to a new folder."""
        self.proceed()
        return compute_layout(logical, self.frequencies, matcher=matcher).write_base(self.storage, self.new_folder())

    def _write_router(self, cover: Cover, partitions: Array, routes: ExpectedRoutes) -> PlanManifest:
        """Write the router. `partitions` has the partition of each query by position in `query_ids`.

        The router has the gates of the base, because queries in a delta may read gated feeds of the base.
        """
        # Its clauses have up to a thousand words. The matcher with streams evaluates them six times as fast as a
        # tree.
        opened = routes.open_partitions, routes.open_scopes
        plan = router_plan(self.logical, cover, partitions, len(routes.shares), opened=opened)
        return self._write_plan(replace(plan, gates=GateTable(texts=self.logical.gates.texts)), STREAMS)

    def _write_partition(
        self, weights: Weights, chosen: ChosenAssignment, number: int, owners: Array, reusable: _ReusablePartitions
    ) -> Partition:
        """Write a partition, unless one with exactly the same queries can be reused.

        `owners` has, by position in `query_ids`, the index of the query that an ID belongs to.
        """
        own = chosen.partitions == number
        expected = float(chosen.division.shares[number]), float(chosen.division.microseconds[number])
        existing = reusable.take(weights.owners[own])
        if existing is not None:
            return Partition(existing.folder, existing.queries, existing.bytes, *expected)
        manifest = self._write_plan(cut_plan(self.logical, own[owners]), self.matcher)
        return Partition(manifest.folder, int(np.count_nonzero(own)), manifest.size, *expected)


class _ReusablePartitions:
    """The partitions of an earlier partitioning of the same base. Each is reused at most once."""

    def __init__(self, storage: Storage, base: str, before: Partitioning | None) -> None:
        self._by_queries: dict[bytes, Partition] = {}
        self.reused = 0
        # Partitions of another base cannot be reused, even if they have the same queries.
        if before is not None and before.base == base:
            assignment = read_assignment(storage, before.folder)
            for number, partition in enumerate(before.partitions):
                self._by_queries[_key(assignment.query_ids[assignment.partitions == number])] = partition

    def take(self, queries: Array) -> Partition | None:
        """Remove and return the partition with exactly these queries (ascending IDs), or return None."""
        partition = self._by_queries.pop(_key(queries), None)
        self.reused += partition is not None
        return partition


def _key(queries: Array) -> bytes:
    return queries.astype(np.int64).tobytes()
