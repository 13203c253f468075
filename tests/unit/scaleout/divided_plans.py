"""Partitioned plans with a trivial assignment: queries in turn, and a router that sends every item to all partitions.

They serve to test partitions independently of the choice of partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from runnel.arrays import Array
from runnel.matching.compile.compile_plan import compile_logical
from runnel.optimizer.table_builder import TableBuilder
from runnel.plan.gates import GateTable, query_of
from runnel.plan.logical_plan import LogicalPlan, PlanQuery
from runnel.plan.store import Plan, PlanVersion
from runnel.scaleout.cover.expected_routes import ExpectedRoutes, expect_routes
from runnel.scaleout.divide import assign_queries
from runnel.scaleout.divide.cut_plan import cut_plan
from runnel.scaleout.divide.weigh_queries import Weights
from runnel.scaleout.partitioning import Assignment, Partition, Partitioning, read_partitioning, write_partitioning
from runnel.scaleout.route.loaded_partition import PartitionPlan, delta_plan, load_partition, load_router
from runnel.storage.file_storage import Storage

_folders = itertools.count()


def divided(
    storage: Storage, plan: Plan, count: int, turn: Callable[[int], int] = lambda query: query
) -> PlanVersion:
    """Partition the base of a plan, assigning queries to partitions in turn, and return the version."""
    number = next(_folders)
    logical = plan.base.logical
    owners = np.unique(query_of(logical.query_ids))
    partitions = np.array([turn(owner) % count for owner in owners.tolist()], dtype=np.int64)
    of_ids = partitions[np.searchsorted(owners, query_of(logical.query_ids))]
    made = []
    for value in range(count):
        manifest = compile_logical(storage, f"piece-{number}-{value}", cut_plan(logical, of_ids == value))
        made.append(Partition(manifest.folder, int(np.count_nonzero(partitions == value)), manifest.size, 1.0, 1.0))
    router = compile_logical(storage, f"router-{number}", everywhere(logical, count))
    folder = f"partitioning-{number}"
    partitioning = Partitioning(folder, plan.version.base, router.folder, router.size, tuple(made), "spread")
    zeros = np.zeros(len(owners))
    write_partitioning(storage, partitioning, Assignment(owners, partitions, zeros.astype(np.int64), zeros))
    return replace(plan.version, distribution=folder)


def everywhere(logical: LogicalPlan, count: int) -> LogicalPlan:
    """Return a router that sends every item of the plan's sources to all partitions."""
    builder = TableBuilder()
    scope = builder.scope(np.unique(logical.scopes.values).tolist())
    for partition in range(count):
        builder.add(builder.predicate([]), scope, partition + 1)
    made = builder.finish([PlanQuery(partition + 1) for partition in range(count)])
    return replace(made, gates=GateTable(texts=logical.gates.texts))


def pieces_of(storage: Storage, version: PlanVersion) -> list[PartitionPlan]:
    """Load the delta of a version, if it has one, and its partitions."""
    assert version.distribution is not None
    partitioning = read_partitioning(storage, version.distribution)
    delta = delta_plan(storage, version, load_router(storage, version, partitioning.router))
    partitions = [load_partition(storage, version, partition.folder) for partition in partitioning.partitions]
    return partitions if delta is None else [delta, *partitions]


@contextmanager
def closed_routes() -> Iterator[None]:
    """Make the router check every route, even if open routes would be cheaper."""

    none = np.empty(0, dtype=np.int64)

    def asking(weights: Weights, holders: Array, roots: Array, count: int) -> ExpectedRoutes:
        return replace(expect_routes(weights, holders, roots, count), open_partitions=none, open_scopes=none)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assign_queries, "expect_routes", asking)
        yield
