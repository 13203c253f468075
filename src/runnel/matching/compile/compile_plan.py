"""Compile queries into plan folders, which contain the optimizer's logical plan and the matchers' arrays.

`compile_base` and `compile_delta` start from definitions, `compile_logical` from a logical plan, and `compile_merged`
from a loaded plan (compaction). `compute_layout` computes the arrays without writing them, so that a plan can be
prepared before the sequences after which its new queries start are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from runnel.algebra.nodes.query import Node
from runnel.matching.compile.build_matcher import STREAMS, name_arrays
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import NOTHING, Frequencies, compute_atom_layout
from runnel.matching.filters.streams.stream_layout import compute_stream_layout
from runnel.matching.patterns.plan_patterns import compute_pattern_layouts
from runnel.optimizer.merge_plans import merge_plans
from runnel.optimizer.optimize import optimize
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.plan.gates import FIRST_DISJUNCT, query_of
from runnel.plan.logical_plan import CostRecord, LogicalPlan, PlanQuery
from runnel.plan.manifest import PlanManifest
from runnel.plan.store import Layout, Plan, UnfinishedPart, start_base, start_delta, write_base, write_delta
from runnel.storage.file_storage import Storage


def compile_base(
    storage: Storage,
    folder: str,
    queries: Iterable[PlanQuery],
    definitions: Mapping[int, Node],
    *,
    settings: OptimizerSettings | None = None,
    frequencies: Frequencies | None = None,
    matcher: str = STREAMS,
) -> PlanManifest:
    """Compile queries into a new base folder. `matcher` is the name of the matcher that workers build for it.

    >>> import tempfile
    >>> from runnel.algebra.nodes.query import Read, Union
    >>> from runnel.storage.file_storage import FileStorage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     storage = FileStorage(f"file://{folder}")
    ...     compile_base(storage, "plans/base-1", [PlanQuery(7)], {7: Union((Read(1), Read(2)))}).counts["queries"]
    1
    """
    logical = optimize(queries, definitions, settings=settings)
    return compile_logical(storage, folder, logical, frequencies=frequencies, matcher=matcher)


def compile_logical(
    storage: Storage,
    folder: str,
    logical: LogicalPlan,
    *,
    frequencies: Frequencies | None = None,
    matcher: str = STREAMS,
) -> PlanManifest:
    """Compute the matchers' arrays of a logical plan and write both as a new base folder.

    >>> import tempfile
    >>> from runnel.algebra.nodes.query import Read
    >>> from runnel.storage.file_storage import FileStorage
    >>> logical = optimize([PlanQuery(7)], {7: Read(1)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     compile_logical(FileStorage(f"file://{folder}"), "plans/base-1", logical).kind
    'base'
    """
    return compute_layout(logical, frequencies, matcher=matcher).write_base(storage, folder)


def compile_delta(
    storage: Storage,
    folder: str,
    queries: Iterable[PlanQuery],
    definitions: Mapping[int, Node],
    tombstones: Iterable[int],
    parent: str,
    *,
    settings: OptimizerSettings | None = None,
    frequencies: Frequencies | None = None,
) -> PlanManifest:
    """Compile all queries that were added or replaced since the base `parent` into a new delta folder.

    `tombstones` are the base's queries that were removed. Replaced queries become tombstones automatically.
    """
    logical = optimize(queries, definitions, settings=settings)
    return compute_layout(logical, frequencies).write_delta(storage, folder, tombstones, parent)


def compile_merged(
    storage: Storage,
    folder: str,
    plan: Plan,
    *,
    frequencies: Frequencies | None = None,
    matcher: str = STREAMS,
) -> PlanManifest:
    """Merge a plan's base and delta into a new base folder, without the removed queries."""
    return compile_logical(storage, folder, merge_plans(plan), frequencies=frequencies, matcher=matcher)


@dataclass(frozen=True)
class LaidOutPlan:
    """A plan part that is ready to be written: the logical plan and the matchers' arrays."""

    logical: LogicalPlan
    layout: Layout

    def write_base(self, storage: Storage, folder: str) -> PlanManifest:
        """Write the part as a new base folder."""
        return write_base(storage, folder, self.logical, self.layout)

    def write_delta(self, storage: Storage, folder: str, tombstones: Iterable[int], parent: str) -> PlanManifest:
        """Write the part as a new delta folder of the base `parent`."""
        return write_delta(storage, folder, self.logical, tombstones, parent, self.layout)

    def start_base(self, storage: Storage, folder: str) -> UnfinishedPart:
        """Start writing a new base folder; the sequences after which queries start may still change."""
        return start_base(storage, folder, self.logical, self.layout)

    def start_delta(self, storage: Storage, folder: str, tombstones: Iterable[int], parent: str) -> UnfinishedPart:
        """Start writing a new delta folder of the base `parent`; the starts of queries may still change."""
        return start_delta(storage, folder, self.logical, tombstones, parent, self.layout)

    def starting_after(self, sequence: int, queries: Iterable[int]) -> LaidOutPlan:
        """Return this part with these queries starting after `sequence`."""
        query_set = frozenset(queries)
        logical = self.logical
        ids = logical.query_ids
        is_changed = np.isin(query_of(ids), np.fromiter(query_set, dtype=np.int64, count=len(query_set)))
        gates = logical.gates
        if len(gates):
            # The disjuncts of gated feeds keep their start: all items that reach a gate are matched, and the gate,
            # which is resolved after matching, ignores items before its own start.
            gated_feeds = np.array([gate.feed for gate in gates.gates()], dtype=np.int64)
            is_changed &= (ids < FIRST_DISJUNCT) | ~np.isin(query_of(ids), gated_feeds)
            gates = gates.starting_after(sequence, query_set)
        since = logical.query_since.copy()
        since[is_changed] = sequence
        return replace(self, logical=replace(logical, query_since=since, gates=gates))


def compute_layout(
    logical: LogicalPlan, frequencies: Frequencies | None = None, *, matcher: str = STREAMS
) -> LaidOutPlan:
    """Compute the arrays that the named matcher needs for a logical plan.

    >>> from runnel.algebra.nodes.query import Read
    >>> laid_out = compute_layout(optimize([PlanQuery(7), PlanQuery(8)], {7: Read(1), 8: Read(1)}))
    >>> laid_out.starting_after(90, [8]).logical.query_since.tolist()
    [0, 90]
    """
    started = perf_counter()
    atoms = compute_atom_layout(logical, frequencies)
    anchors = choose_anchors(logical, atoms)
    streams = compute_stream_layout(logical, atoms, anchors)
    patterns = compute_pattern_layouts(logical, atoms, frequencies).values()
    counters = {
        "keys": len(atoms.key_tokens),
        "words": len(streams.vocabulary),
        "entries": len(anchors.keys.values),
        "unanchored": int(np.count_nonzero(anchors.clauses == NOTHING)),
    }
    for family in patterns:
        counters |= family.counters
    record = CostRecord("layout", perf_counter() - started, counters)
    arrays, seldom = atoms.arrays() | streams.arrays() | name_arrays(matcher), streams.seldom()
    for family in patterns:
        arrays, seldom = {**arrays, **family.arrays()}, {**seldom, **family.seldom()}
    layout = Layout(arrays, seldom)
    return LaidOutPlan(replace(logical, costs=(*logical.costs, record)), layout)
