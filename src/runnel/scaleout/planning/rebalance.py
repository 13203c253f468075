"""Dividing queries anew while running, once one partition is found to take much longer than the others.

In: what the partitions of the current version were measured to cost, batch by batch, and which query is in which.
Out: a version with the same queries in other partitions; folders that hold the same as before are used again. Like a
plan that is compiled again it is made without holding up anybody, and published only if nobody was faster.
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
class Rebalanced:
    """What came of it: how uneven partitions were and are expected to be, and the queries that moved.

    1 is even; 2 means that the partition which takes longest takes twice as long as the mean. Without a version
    somebody else published one meanwhile.
    """

    before: float
    then: float
    moved: int
    queries: int
    kept: int
    """Partitions whose folders are the same as before."""
    version: int | None = None

    def told(self) -> str:
        """In plain words.

        >>> print(Rebalanced(2.4, 1.13, 310, 5_000, 6, 9).told().replace("; ", ";\\n"))
        divided the queries anew as version 9: the longest partition took 2.4 times the mean, 1.1 times are expected;
        310 of 5,000 queries moved, 6 partitions are as before
        """
        return (
            f"divided the queries anew as version {self.version}: the longest partition took {self.before:.1f} times "
            f"the mean, {self.then:.1f} times are expected; {self.moved:,} of {self.queries:,} queries moved, "
            f"{self.kept:,} partitions are as before"
        )


MOST_FUTILE_MOVES = 2
"""Times in a row that queries are moved without the partitions becoming more even."""

_HELPED = 0.9
"""The part of what it was before that the longest partition takes at most after a move that helped."""

_VAIN, _BEFORE = "moves_in_vain", "skew_before_percent"


def rebalance(workspace: Workspace, epoch: int, *, proceed: Callable[[], None] = lambda: None) -> Rebalanced | None:
    """Divide the queries of the current version anew if one partition is loaded much more than the others.

    None where they are not divided, the partitions are loaded alike, too little was measured yet, or moving queries
    has not helped before. `proceed` is called between the steps of dividing, and may raise to end it.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        if current is None or current.distribution is None:
            return None
        measured = partition_loads.known_loads(connection, current.distribution)
        upto = matched_upto(connection)
    if not measured:
        return None
    there = partitioning_of(workspace, current)
    if there is None:
        return None
    measured = all_loads(measured, len(there.partitions))
    loads = [Load(one.partition, one.items, one.matches, one.microseconds) for one in measured]
    vain = _moves_in_vain(there, skew(loads))
    if not is_uneven(loads) or vain >= MOST_FUTILE_MOVES:
        _fade(workspace, epoch, there.folder)
        return None
    assignment = read_assignment(workspace.storage, there.folder)
    matches = StreamKnowledge(matched=match_rates(workspace, upto)).matches(assignment.query_ids)
    given = rebalanced(assignment, loads, matches=matches)
    if given is None:
        _fade(workspace, epoch, there.folder)
        return None
    with workspace.catalog.read() as connection:
        known = read_stream_knowledge(workspace, connection)
    made = partition_queries(
        workspace,
        there.base,
        len(there.partitions),
        known,
        before=there,
        partitions=given,
        noted={_VAIN: vain, _BEFORE: round(100 * skew(loads))},
        proceed=proceed,
    )
    version = publish_partitioning(workspace, epoch, current, made)
    if version is not None:
        _forget_others(workspace, epoch, made.folder)
    return Rebalanced(
        before=skew(loads),
        then=expected_skew(assignment, measured, given, matches),
        moved=int(np.count_nonzero(given != assignment.partitions)),
        queries=len(given),
        kept=len(set(there.pieces[1:]) & set(made.pieces[1:])),
        version=version,
    )


def _moves_in_vain(there: Partitioning, uneven: float) -> int:
    """How many times in a row queries were moved and the partitions stayed as uneven as they were.

    What a query costs is guessed from what its partition takes. Where one query is dear and looks like all others,
    moving the others away helps nobody, and each time it costs a division.
    """
    before = there.counters.get(_BEFORE)
    if before is None or 100 * uneven <= _HELPED * before:
        return 0
    vain = there.counters.get(_VAIN, 0) + 1
    if vain == MOST_FUTILE_MOVES:
        logger.warning(
            "one partition takes %.1f times the mean, and moving queries did not help %d times: they stay where they "
            "are until the plan is compiled again; `runnel queries --slow` shows which of them are dear",
            uneven,
            vain,
        )
    return vain


def _fade(workspace: Workspace, epoch: int, partitioning: str) -> None:
    """What was measured long ago counts less and less."""
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        partition_loads.fade_loads(connection, partitioning)


def _forget_others(workspace: Workspace, epoch: int, partitioning: str) -> None:
    """What others did says nothing of this one. Batches under way may still tell of theirs; tidying drops that."""
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        partition_loads.forget_loads(connection, [partitioning])


def expected_skew(
    assignment: Assignment, loads: Sequence[PartitionLoad], given: Array, matches: Array | None = None
) -> float:
    """How uneven partitions would be if every query went on to take its part of what its partition took."""
    times = np.array([one.microseconds for one in loads], dtype=np.float64)
    after = np.bincount(given, weights=query_times(assignment, times, matches), minlength=len(times))
    return float(after.max() / after.mean()) if after.sum() else 1.0
