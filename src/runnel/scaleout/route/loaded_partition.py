"""The pieces of a partitioned version at work: what one partition, the delta or the router is as a plan of its own.

In: the folder of a piece, and the version that it belongs to. Out: a plan of one part that knows which of its queries
the version does not have any more; matchers, gates, operators and bindings take it as they take a whole plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from runnel.arrays import Array
from runnel.errors import CorruptDataError
from runnel.plan.gates import GateTable, query_of
from runnel.plan.operator_table import OperatorTable
from runnel.plan.pattern_bindings import PatternBindings
from runnel.plan.store import Plan, PlanPart, PlanVersion, read_part
from runnel.storage.file_storage import Storage


@dataclass(frozen=True)
class PartitionPlan(Plan):
    """One part of a version (always `base` here) as a plan of its own.

    `dead` are the ids of its queries and ways that do not count. `version` names the piece as its base, so that what
    is kept by version is kept by piece. `known_gates` are the gates of the whole base, where the piece is a delta: a
    query that was added may read a gated feed of the base, and only the base knows where that one starts.
    """

    dead: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    known_gates: GateTable | None = None

    @property
    def tombstones(self) -> Array:
        """The ids that do not count."""
        return self.dead

    @property
    def bytes(self) -> int:
        """The bytes of its files."""
        return self.base.manifest.size

    def removed(self, part: PlanPart) -> Array:
        """Which queries of the part (by position) do not count."""
        ids = part.queries.query_ids
        return np.asarray(np.isin(ids, self.dead) | np.isin(query_of(ids), self.dead))

    @cached_property
    def gates(self) -> GateTable:
        """The disjuncts of the piece that have gates, and these gates."""
        own = self.base.queries.gates
        if self.known_gates is not None and len(self.known_gates):
            return self.known_gates.with_delta(own.without(self.dead), np.empty(0, dtype=np.int64))
        if not len(self.dead) or not len(own):
            return own
        return own.with_delta(GateTable(), self.dead)

    @cached_property
    def operators(self) -> OperatorTable:
        """The ways of the piece that operators decide."""
        return self.base.queries.operators.without(self.dead)

    def bound_patterns(self, part: PlanPart) -> PatternBindings:
        """The patterns by which queries of the piece bind variables."""
        return part.queries.bound_patterns.without(self.dead)


def load_partition(storage: Storage, version: PlanVersion, folder: str) -> PartitionPlan:
    """The partition in a folder, as the version has it. It stays mapped while somebody holds it, and no longer."""
    part = _base_part(folder, read_part(storage, folder))
    dead = np.array(version.removed, dtype=np.int64)
    if version.delta is not None:
        # Only what it says of the base is needed here: nothing refers to its files when this is done.
        delta = _delta_part(storage, version, version.delta)
        kept = _left_to_base(part.queries.gates, delta)
        gone = delta.tombstones[~np.isin(query_of(delta.tombstones), kept)]
        dead = np.concatenate([dead, gone])
    return PartitionPlan(replace(version, base=folder), part, dead=np.unique(dead))


def load_router(storage: Storage, version: PlanVersion, folder: str) -> PartitionPlan:
    """The router in a folder: its queries are partitions, so nothing that the version removes concerns it."""
    part = _base_part(folder, read_part(storage, folder))
    return PartitionPlan(replace(version, base=folder), part)


def delta_plan(storage: Storage, version: PlanVersion, router: Plan) -> PartitionPlan | None:
    """The delta of a partitioned version, where it has one; the router knows the gates of the base."""
    if version.delta is None:
        return None
    part = _delta_part(storage, version, version.delta)
    known = router.base.queries.gates
    dead = np.union1d(np.array(version.removed, dtype=np.int64), _left_to_base(known, part))
    return PartitionPlan(replace(version, base=version.delta), part, dead=dead, known_gates=known)


def _left_to_base(known: GateTable, delta: PlanPart) -> Array:
    """The gated feeds of the base, with these gates, that the delta only reads.

    Both have the disjuncts of these feeds, which are the same; but only the base binds the variables of such a feed.
    """
    of_delta = delta.queries.gates
    if not len(known) or not len(of_delta):
        return np.empty(0, dtype=np.int64)
    shown = np.array([gate.feed for gate in known.gates() if gate.shown], dtype=np.int64)
    read = np.array([gate.feed for gate in of_delta.gates() if not gate.shown], dtype=np.int64)
    return np.setdiff1d(np.intersect1d(shown, read), delta.tombstones)


def _base_part(folder: str, part: PlanPart) -> PlanPart:
    if part.manifest.kind != "base":
        raise CorruptDataError(f"{folder} is not a piece of a partitioning")
    return part


def _delta_part(storage: Storage, version: PlanVersion, folder: str) -> PlanPart:
    """The delta of a version, mapped while somebody holds it: a new one comes with every declaration."""
    part = read_part(storage, folder)
    if part.manifest.kind != "delta" or part.manifest.parent != version.base:
        raise CorruptDataError(f"{folder} is not a delta of {version.base}")
    return part
