"""Compiling: queries in, a plan folder out. The optimiser's plan and the matchers' arrays are written together.

`compile_base` and `compile_delta` start from definitions, `compile_logical` from a logical plan, `compile_merged`
from a loaded plan (compaction).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import perf_counter

import numpy as np

from runnel.algebra.query import Node
from runnel.log.storage import Storage
from runnel.matching.filters.anchors import choose_anchors
from runnel.matching.filters.atom_layout import NOTHING, Frequencies, lay_out_atoms
from runnel.matching.filters.streams.layout import lay_out_streams
from runnel.optimizer.merge import merge
from runnel.optimizer.optimize import optimize
from runnel.optimizer.settings import OptimizerSettings
from runnel.plan.arrays import Arrays
from runnel.plan.logical import CostRecord, LogicalPlan, PlanQuery
from runnel.plan.manifest import PlanManifest
from runnel.plan.store import Plan, write_base, write_delta


def compile_base(
    storage: Storage,
    folder: str,
    queries: Iterable[PlanQuery],
    definitions: Mapping[int, Node],
    *,
    settings: OptimizerSettings | None = None,
    frequencies: Frequencies | None = None,
) -> PlanManifest:
    """Compile queries into a new base folder.

    >>> import tempfile
    >>> from runnel.algebra.query import Read, Union
    >>> from runnel.log.storage import FileStorage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     storage = FileStorage(f"file://{folder}")
    ...     compile_base(storage, "plans/base-1", [PlanQuery(7)], {7: Union((Read(1), Read(2)))}).counts["queries"]
    1
    """
    logical = optimize(queries, definitions, settings=settings)
    return compile_logical(storage, folder, logical, frequencies=frequencies)


def compile_logical(
    storage: Storage, folder: str, logical: LogicalPlan, *, frequencies: Frequencies | None = None
) -> PlanManifest:
    """Lay out a logical plan and write it as a new base folder.

    >>> import tempfile
    >>> from runnel.algebra.query import Read
    >>> from runnel.log.storage import FileStorage
    >>> logical = optimize([PlanQuery(7)], {7: Read(1)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     compile_logical(FileStorage(f"file://{folder}"), "plans/base-1", logical).kind
    'base'
    """
    laid_out, arrays = _laid_out(logical, frequencies)
    return write_base(storage, folder, laid_out, arrays)


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

    `tombstones` are the base's queries that were removed; those that are replaced are tombstones by themselves.
    """
    logical = optimize(queries, definitions, settings=settings)
    logical, arrays = _laid_out(logical, frequencies)
    return write_delta(storage, folder, logical, tombstones, parent, arrays)


def compile_merged(
    storage: Storage, folder: str, plan: Plan, *, frequencies: Frequencies | None = None
) -> PlanManifest:
    """Write a plan's base and delta as one new base, without its tombstones."""
    return compile_logical(storage, folder, merge(plan.base, plan.delta), frequencies=frequencies)


def _laid_out(logical: LogicalPlan, frequencies: Frequencies | None) -> tuple[LogicalPlan, Arrays]:
    started = perf_counter()
    atoms = lay_out_atoms(logical, frequencies)
    anchors = choose_anchors(logical, atoms)
    streams = lay_out_streams(logical, atoms, anchors)
    counters = {
        "keys": len(atoms.key_tokens),
        "words": len(streams.vocabulary),
        "entries": len(anchors.keys.values),
        "unanchored": int(np.count_nonzero(anchors.clauses == NOTHING)),
    }
    record = CostRecord("layout", perf_counter() - started, counters)
    return replace(logical, costs=(*logical.costs, record)), atoms.arrays() | streams.arrays()
