"""Rebalancing: move queries between partitions if one partition takes much longer than the others.

In: the measured loads of the partitions of the current version, and the partition of each query. Out: a version with
the same queries in other partitions. Unchanged partitions keep their folders. Matching continues meanwhile, and the
result is published only if no other version was published in the meantime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.match_segments import matched_upto
from runnel.catalog.store import leases
from runnel.engine.workspace import Workspace
from runnel.scaleout.divide.balance import Load, is_uneven, query_times, rebalanced, skew
from runnel.scaleout.partitioning import Assignment, Partitioning, read_assignment
from runnel.scaleout.planning import partition_loads
from runnel.scaleout.planning.partition_figures import all_loads
from runnel.scaleout.planning.partition_loads import PartitionLoad
from runnel.scaleout.planning.partition_plan import partition_queries, partitioning_of, publish_partitioning
from runnel.scaleout.planning.stream_knowledge import StreamKnowledge, match_rates, read_stream_knowledge

logger = logging.getLogger("runnel")


@dataclass(frozen=True, slots=True)
class RebalanceResult:
    """The result of rebalancing: the skew before and the expected skew after it, and the number of moved queries.

    The skew is the time of the busiest partition as a multiple of the mean. `version` is None if the result was not
    published, because another version was published in the meantime.
    """

    before: float
    then: float
    moved: int
    queries: int
    kept: int
    """The number of partitions that kept their folders."""
    version: int | None = None

    def describe(self) -> str:
        """Describe the result for the application log.

        >>> print(RebalanceResult(2.4, 1.13, 310, 5_000, 6, 9).describe().replace("; ", ";\\n"))
        rebalanced the partitions as plan version 9: the busiest took 2.4 times the mean, 1.1 times are expected now;
        310 of 5,000 queries moved, 6 partitions are unchanged
        """
        return (
            f"rebalanced the partitions as plan version {self.version}: the busiest took {self.before:.1f} times the "
            f"mean, {self.then:.1f} times are expected now; {self.moved:,} of {self.queries:,} queries moved, "
            f"{self.kept:,} partitions are unchanged"
        )


MAX_FUTILE_MOVES = 2
"""Rebalancing stops after this many moves in a row that did not reduce the skew."""

_MAX_HELPFUL_RATIO = 0.9
"""A move helped if the skew is at most this fraction of the skew before."""

_FUTILE_MOVES, _SKEW_BEFORE = "moves_in_vain", "skew_before_percent"


def rebalance(
    workspace: Workspace, epoch: int, *, proceed: Callable[[], None] = lambda: None
) -> RebalanceResult | None:
    """Move queries between the partitions of the current version if one has a much higher load than the others.

    Return None if the version has no partitions, their loads are even, too little was measured, or moving queries has
    not helped before. `proceed` is called between the steps, and may raise an error to end them.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        if current is None or current.distribution is None:
            return None
        measured = partition_loads.known_loads(connection, current.distribution)
        upto = matched_upto(connection)
    if not measured:
        return None
    before = partitioning_of(workspace, current)
    if before is None:
        return None
    measured = all_loads(measured, len(before.partitions))
    loads = [Load(load.partition, load.items, load.matches, load.microseconds) for load in measured]
    futile_moves = _count_futile_moves(before, skew(loads))
    if not is_uneven(loads) or futile_moves >= MAX_FUTILE_MOVES:
        _fade(workspace, epoch, before.folder)
        return None
    assignment = read_assignment(workspace.storage, before.folder)
    matches = StreamKnowledge(matched=match_rates(workspace, upto)).matches(assignment.query_ids)
    new_partitions = rebalanced(assignment, loads, matches=matches)
    if new_partitions is None:
        _fade(workspace, epoch, before.folder)
        return None
    with workspace.catalog.read() as connection:
        statistics = read_stream_knowledge(workspace, connection)
    after = partition_queries(
        workspace,
        before.base,
        len(before.partitions),
        statistics,
        before=before,
        partitions=new_partitions,
        noted={_FUTILE_MOVES: futile_moves, _SKEW_BEFORE: round(100 * skew(loads))},
        proceed=proceed,
    )
    version = publish_partitioning(workspace, epoch, current, after)
    if version is not None:
        _forget_others(workspace, epoch, after.folder)
    return RebalanceResult(
        before=skew(loads),
        then=expected_skew(assignment, measured, new_partitions, matches),
        moved=int(np.count_nonzero(new_partitions != assignment.partitions)),
        queries=len(new_partitions),
        kept=len(set(before.pieces[1:]) & set(after.pieces[1:])),
        version=version,
    )


def _count_futile_moves(partitioning: Partitioning, current_skew: float) -> int:
    """Return how many times in a row moving queries did not reduce the skew. Log a warning at the maximum.

    The cost of a query is estimated from the time of its partition. If a single query is expensive but has the same
    estimate as all others, moving the others away does not help, and each attempt costs a new partitioning.
    """
    skew_before = partitioning.counters.get(_SKEW_BEFORE)
    if skew_before is None or 100 * current_skew <= _MAX_HELPFUL_RATIO * skew_before:
        return 0
    futile_moves = partitioning.counters.get(_FUTILE_MOVES, 0) + 1
    if futile_moves == MAX_FUTILE_MOVES:
        logger.warning(
            "the busiest partition takes %.1f times the mean, and moving queries did not help %d times; queries are "
            "not moved again until the plan is recompiled; `runnel queries --slow` lists expensive queries",
            current_skew,
            futile_moves,
        )
    return futile_moves


def _fade(workspace: Workspace, epoch: int, partitioning: str) -> None:
    """Halve the recorded loads, so that old measurements count less and less."""
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        partition_loads.fade_loads(connection, partitioning)


def _forget_others(workspace: Workspace, epoch: int, partitioning: str) -> None:
    """Delete the recorded loads of all other partitionings.

    Batches in progress may still record some; the next cleanup deletes those.
    """
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        partition_loads.forget_loads(connection, [partitioning])


def expected_skew(
    assignment: Assignment, loads: Sequence[PartitionLoad], partitions: Array, matches: Array | None = None
) -> float:
    """Return the skew of new partitions if every query keeps the share of the time that it took in its old one."""
    times = np.array([load.microseconds for load in loads], dtype=np.float64)
    after = np.bincount(partitions, weights=query_times(assignment, times, matches), minlength=len(times))
    return float(after.max() / after.mean()) if after.sum() else 1.0
