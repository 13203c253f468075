"""Partitions, routers and deltas of a partitioned plan version, each loaded as a plan of its own.

In: a plan folder, and the version that it belongs to. Out: a plan with a single part that ignores the queries which
the version has removed. Matchers, gates, operators and bindings use it like a whole plan.
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
    """A partition, the router or the delta of a version as a plan of its own, whose only part is `base`.

    `dead` are the IDs of its queries and disjuncts that the version has removed. `version` has the folder of this
    plan as its base, so caches by version have an entry for each partition. If this is a delta, `known_gates` are the
    gates of the whole base: a query in the delta may read a gated feed of the base, and only the base knows where the
    gate starts.
    """

    dead: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    known_gates: GateTable | None = None

    @property
    def tombstones(self) -> Array:
        """The IDs of removed queries and disjuncts."""
        return self.dead

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return self.base.manifest.size

    def removed(self, part: PlanPart) -> Array:
        """Return a mask of the queries of the part, by position, that were removed."""
        ids = part.queries.query_ids
        return np.asarray(np.isin(ids, self.dead) | np.isin(query_of(ids), self.dead))

    @cached_property
    def gates(self) -> GateTable:
        """The disjuncts of this plan that have gates, and these gates."""
        own = self.base.queries.gates
        if self.known_gates is not None and len(self.known_gates):
            return self.known_gates.with_delta(own.without(self.dead), np.empty(0, dtype=np.int64))
        if not len(self.dead) or not len(own):
            return own
        return own.with_delta(GateTable(), self.dead)

    @cached_property
    def operators(self) -> OperatorTable:
        """The disjuncts of this plan that call operators."""
        return self.base.queries.operators.without(self.dead)

    def bound_patterns(self, part: PlanPart) -> PatternBindings:
        """Return the patterns with which queries of this plan bind variables."""
        return part.queries.bound_patterns.without(self.dead)


def load_partition(storage: Storage, version: PlanVersion, folder: str) -> PartitionPlan:
    """Load a partition of a version. Its files stay mapped for as long as the result is referenced."""
    part = _base_part(folder, read_part(storage, folder))
    dead = np.array(version.removed, dtype=np.int64)
    if version.delta is not None:
        # Only the tombstones of the delta are needed here. Its files are not mapped when this function returns.
        delta = _delta_part(storage, version, version.delta)
        kept = _left_to_base(part.queries.gates, delta)
        removed = delta.tombstones[~np.isin(query_of(delta.tombstones), kept)]
        dead = np.concatenate([dead, removed])
    return PartitionPlan(replace(version, base=folder), part, dead=np.unique(dead))


def load_router(storage: Storage, version: PlanVersion, folder: str) -> PartitionPlan:
    """Load a router. Its queries are partitions, so it does not depend on the queries that the version removed."""
    part = _base_part(folder, read_part(storage, folder))
    return PartitionPlan(replace(version, base=folder), part)


def delta_plan(storage: Storage, version: PlanVersion, router: Plan) -> PartitionPlan | None:
    """Load the delta of a partitioned version, or return None. `router` provides the gates of the base."""
    if version.delta is None:
        return None
    part = _delta_part(storage, version, version.delta)
    known = router.base.queries.gates
    dead = np.union1d(np.array(version.removed, dtype=np.int64), _left_to_base(known, part))
    return PartitionPlan(replace(version, base=version.delta), part, dead=dead, known_gates=known)


def _left_to_base(known: GateTable, delta: PlanPart) -> Array:
    """Return the gated feeds of the base that the delta reads but does not define. `known` are the gates of the base.

    Base and delta contain the same disjuncts of these feeds, but only the base binds the variables of such a feed.
    """
    of_delta = delta.queries.gates
    if not len(known) or not len(of_delta):
        return np.empty(0, dtype=np.int64)
    shown = np.array([gate.feed for gate in known.gates() if gate.shown], dtype=np.int64)
    read = np.array([gate.feed for gate in of_delta.gates() if not gate.shown], dtype=np.int64)
    return np.setdiff1d(np.intersect1d(shown, read), delta.tombstones)


def _base_part(folder: str, part: PlanPart) -> PlanPart:
    if part.manifest.kind != "base":
        raise CorruptDataError(f"{folder} is neither a partition nor a router")
    return part


def _delta_part(storage: Storage, version: PlanVersion, folder: str) -> PlanPart:
    """Load the delta of a version without caching it, because every declaration creates a new delta."""
    part = read_part(storage, folder)
    if part.manifest.kind != "delta" or part.manifest.parent != version.base:
        raise CorruptDataError(f"{folder} is not a delta of {version.base}")
    return part
