"""Compile a change of the declarations into a new plan version.

A small change writes a delta next to the current base. A larger change writes a new base. A change that only removes
a few queries writes no file: the new version's row lists the removed queries. There are three steps: `read_change`
reads the queries to compile from the catalog, `compile_plan` compiles and writes them without using the catalog, and
`publish_change` makes the result the current plan. Only the last step needs the catalog's write lock. `commit_change`
checks that the catalog has not changed in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node, reads
from runnel.arrays import Array
from runnel.catalog.declared import feeds
from runnel.catalog.learned.stream_statistics import word_frequencies
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.declare.activation import Activation
from runnel.engine.planning.ports import Distribution, plan_port, wanted_port
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError, RunnelError
from runnel.plan.gates import visible
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.manifest import PlanManifest
from runnel.plan.store import Layout, Plan, PlanPart, PlanVersion, UnfinishedPart, keep_part, load, new_folder

if TYPE_CHECKING:
    from runnel.matching.compile.compile_plan import LaidOutPlan

logger = logging.getLogger("runnel")

_MIN_DELTA_QUERIES = 500
"""A delta may always have this many queries."""
_DELTA_FRACTION = 0.1
"""A larger delta may have up to this fraction of the base's queries and bytes."""
_DELTA_BYTES = 1 << 20
"""A delta may always have this size. It is compiled again with each change, which takes about 0.2 s of CPU time."""
_MAX_NAMED_REMOVALS = 256
"""The maximum number of removed queries in a version's row, because every later row and every slice repeats them."""
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class PlanChange:
    """The queries to compile with their definitions, and the queries of the base that are removed (`dead`).

    If `current` is None, `queries` are all queries, and a base is compiled from scratch. Queries in `fresh` start
    after `sequence`, or after the last sequence at the time when they are published.
    """

    queries: tuple[PlanQuery, ...]
    definitions: Mapping[int, Node]
    frequencies: Mapping[str, float]
    fresh: frozenset[int]
    sequence: int
    total: int
    current: PlanRow | None = None
    dead: frozenset[int] = frozenset()
    is_small: bool = True
    delta: PlanPart | None = None
    """The current delta, if the change only removes queries of the base and needs no compilation."""
    removed: frozenset[int] | None = None
    """If no file is to be written: the queries that the new version's row lists as removed."""


@dataclass(frozen=True)
class CompiledChange:
    """A compiled change, which `publish_change` makes current. `part` is None if nothing was compiled."""

    change: PlanChange
    laid_out: LaidOutPlan | None = None
    part: UnfinishedPart | None = None

    def finish(self) -> PlanManifest:
        """Write the rest of the part. Queries keep the start sequences that they had when the change was read."""
        if self.laid_out is None or self.part is None:
            raise RunnelError("the change has no compiled plan")
        return self.part.finish(self.laid_out.logical)


@dataclass(frozen=True)
class Uncommitted:
    """Declarations that are not committed to the catalog yet.

    `definitions` are the nodes of new and redefined virtual feeds, or None for feeds that no longer read anything.
    `new` are feeds that do not exist in the catalog, and `dropped` are feeds that are dropped.
    """

    definitions: Mapping[int, Node | None] = field(default_factory=dict)
    new: Set[int] = frozenset()
    dropped: Set[int] = frozenset()


def read_change(
    workspace: Workspace,
    connection: Connection,
    activation: Activation,
    uncommitted: Uncommitted,
) -> PlanChange | None:
    """Read the queries that a change must compile from the catalog, or return None if the plan does not change."""
    removed = {*activation.remove, *uncommitted.dropped}
    current = plan_versions.current_plan(connection)
    if not activation.compile and (not removed or current is None):
        return None
    reader = _Reader(connection, uncommitted, activation)
    if current is None:
        return reader.read_all()
    try:
        loaded = load(workspace.storage, PlanVersion.of(current))
    except CorruptDataError as error:
        logger.warning("the plan cannot be read, so all queries are compiled again: %s", error)
        return reader.read_all()
    removal = None if activation.compile else reader.remove_by_name(loaded, current, removed)
    if removal is not None:
        return removal
    in_base = visible(loaded.base.queries.query_ids)
    in_delta = set(_in_delta(loaded).tolist())
    added = (in_delta.difference(current.removed) | activation.compile) - removed
    dead = _among({*loaded.tombstones.tolist(), *removed, *activation.compile}, in_base)
    total = len(in_base) - len(dead) + len(added)
    factor = plan_port(current.distribution).delta_factor
    is_small = _is_small(len(added) + len(dead), len(in_base), factor)
    is_small = is_small and not _is_heavy(loaded, factor)
    if not is_small and len(added) > len(in_base):
        return reader.read_all()  # most queries are new, so merging with the base would save nothing
    if is_small and loaded.delta is not None and added == in_delta and not activation.compile:
        return reader.keep_delta(loaded.delta, current, dead, total)
    return reader.read_added(added, current, dead, total, is_small)


def read_everything(connection: Connection) -> PlanChange:
    """Read the definitions of all declared queries, to compile a base from scratch."""
    return _Reader(connection, Uncommitted(), Activation(frozenset(), frozenset())).read_all()


class _Reader:
    """Reads queries and definitions from the catalog, overridden by uncommitted changes."""

    def __init__(self, connection: Connection, uncommitted: Uncommitted, activation: Activation) -> None:
        self._connection = connection
        self._uncommitted = uncommitted
        self._fresh = activation.fresh
        self._removed = activation.remove | uncommitted.dropped

    @cached_property
    def _sequence(self) -> int:
        return last_sequence(self._connection)

    def read_all(self) -> PlanChange:
        """Read all matched queries."""
        changed = self._uncommitted.definitions
        nodes = {**feeds.planned_definitions(self._connection), **changed}
        definitions = {
            feed: node for feed, node in nodes.items() if node is not None and feed not in self._uncommitted.dropped
        }
        since = feeds.since_of(self._connection)
        queries = self._queries({feed: since[feed] for feed in since.keys() - self._removed}, self._fresh)
        words = word_frequencies(self._connection)
        return PlanChange(queries, definitions, words, self._fresh, self._sequence, len(queries))

    def remove_by_name(self, loaded: Plan, current: PlanRow, removed: set[int]) -> PlanChange | None:
        """Return a change that keeps all files and lists the removed queries in the version's row.

        Return None if that would be too many. The cost depends on the number of removed queries only.
        """
        in_base, in_delta = visible(loaded.base.queries.query_ids), _in_delta(loaded)
        of_base, of_delta = _among(removed, in_base), _among(removed, in_delta)
        named = of_base | of_delta | {*current.removed}
        if len(named) > _MAX_NAMED_REMOVALS:
            return None
        dead = loaded.delta.tombstones if loaded.delta else _NONE
        lost = of_delta | (of_base - _among(of_base, dead))
        total = current.queries - len(lost.difference(current.removed))
        added = len(in_delta) - len(_among(named, in_delta))
        # Added queries plus dead queries of the base, where dead = in_base - (total - added).
        changes = len(in_base) + 2 * added - total
        if not _is_small(changes, len(in_base), plan_port(current.distribution).delta_factor):
            return None
        no_queries = frozenset[int]()
        return PlanChange((), {}, {}, no_queries, 0, total, current, removed=frozenset(named))

    def keep_delta(self, delta: PlanPart, current: PlanRow, dead: set[int], total: int) -> PlanChange:
        """Return a change that keeps the delta's queries and adds tombstones, so nothing must be compiled."""
        return PlanChange((), {}, {}, frozenset(), self._sequence, total, current, frozenset(dead), delta=delta)

    def read_added(self, added: set[int], current: PlanRow, dead: set[int], total: int, is_small: bool) -> PlanChange:
        """Read the queries that were added to the base, next to those that were removed from it (`dead`)."""
        nodes = self._definitions(added)
        since = feeds.since_of(self._connection, added - self._uncommitted.new)
        queries = self._queries(since, self._fresh & added)
        words = word_frequencies(self._connection)
        tombstones = frozenset(dead)
        return PlanChange(queries, nodes, words, self._fresh, self._sequence, total, current, tombstones, is_small)

    def _definitions(self, ids: set[int]) -> dict[int, Node]:
        """Return the nodes of virtual feeds, and of all feeds that they read, directly or indirectly."""
        changed = self._uncommitted.definitions
        definitions: dict[int, Node] = {}
        seen: set[int] = set()
        waiting = ids
        while waiting:
            seen |= waiting
            unchanged = waiting - changed.keys()
            nodes = {feed: changed[feed] for feed in waiting & changed.keys()}
            step = {**feeds.planned_definitions(self._connection, unchanged - self._uncommitted.new), **nodes}
            present = {feed: node for feed, node in step.items() if node is not None}
            definitions |= present
            seen |= present.keys()
            waiting = {source for node in present.values() for source in reads(node)} - seen
        return definitions

    def _queries(self, since: Mapping[int, int], fresh: Iterable[int]) -> tuple[PlanQuery, ...]:
        starts = {**since, **dict.fromkeys(fresh, self._sequence)}
        return tuple(PlanQuery(feed, start) for feed, start in sorted(starts.items()))


def compile_plan(workspace: Workspace, change: PlanChange) -> CompiledChange:
    """Compile a change, and write the files that do not depend on the last sequence. The catalog is not used."""
    from runnel.matching.compile.compile_plan import LaidOutPlan, compute_layout
    from runnel.optimizer.merge_plans import merge_plans
    from runnel.optimizer.optimize import optimize

    current = change.current
    if current is not None and change.removed is not None:
        return CompiledChange(change)
    if current is not None and change.delta is not None:
        laid_out = LaidOutPlan(change.delta.logical, Layout(change.delta.layout))
    else:
        laid_out = compute_layout(
            optimize(change.queries, change.definitions), change.frequencies, matcher=workspace.settings.matcher
        )
    if current is not None and change.is_small:
        return CompiledChange(
            change, laid_out, laid_out.start_delta(workspace.storage, new_folder(), change.dead, current.base)
        )
    if current is not None:
        folder = new_folder()
        laid_out.write_delta(workspace.storage, folder, change.dead, current.base)
        both = load(workspace.storage, PlanVersion(0, current.base, folder))
        laid_out = compute_layout(merge_plans(both), change.frequencies, matcher=workspace.settings.matcher)
    return CompiledChange(change, laid_out, laid_out.start_base(workspace.storage, new_folder()))


def publish_change(workspace: Workspace, connection: Connection, compiled: CompiledChange) -> int:
    """Make a compiled change the current plan, in the transaction that declares it, and return the version."""
    change, laid_out, part = compiled.change, compiled.laid_out, compiled.part
    if laid_out is None or part is None:
        if change.current is None or change.removed is None:
            raise RunnelError("a change that adds or replaces queries needs a compiled plan")
        return _publish_with_same_base(connection, change.current, change.current.delta, change.total, change.removed)
    if change.fresh and last_sequence(connection) != change.sequence:
        laid_out = laid_out.starting_after(last_sequence(connection), change.fresh)
    manifest = part.finish(laid_out.logical)
    if part.kind == "base" or change.current is None:
        port = wanted_port(workspace.settings, manifest)
        distribution = port.distribute_at_once(workspace, connection, part.folder, change.total)
        return publish_base(connection, part.folder, change.total, distribution)
    # The next change starts from this delta. Cache it, so that it need not be read again.
    keep_part(workspace.storage, PlanPart(manifest, laid_out.logical, laid_out.layout.every(), part.tombstones))
    return _publish_with_same_base(connection, change.current, part.folder, change.total)


def publish_base(connection: Connection, base: str, queries: int, distribution: Distribution | None) -> int:
    """Make a written base the current plan, with its distribution if it has one, and return the version."""
    if distribution is None:
        return plan_versions.publish_plan(connection, base, None, queries)
    return plan_versions.publish_plan(
        connection, base, None, queries, distribution=distribution.folder, pieces=distribution.pieces
    )


def _publish_with_same_base(
    connection: Connection, current: PlanRow, delta: str | None, queries: int, removed: Iterable[int] = ()
) -> int:
    """Publish a version with the base and the distribution of the current version."""
    return plan_versions.publish_plan(
        connection,
        current.base,
        delta,
        queries,
        removed,
        distribution=current.distribution,
        pieces=current.pieces,
    )


def has_grown(plan: Plan) -> bool:
    """Return whether enough queries were added to or removed from a plan's base to compile a new base."""
    in_base = visible(plan.base.queries.query_ids)
    dead = _among(set(plan.tombstones.tolist()), in_base)
    return not _is_small(len(_in_delta(plan)) + len(dead), len(in_base))


def _is_small(changes: int, in_base: int, factor: int = 1) -> bool:
    """Return whether a number of changes fits into a delta of at most `factor` times the usual size."""
    return changes <= factor * max(_MIN_DELTA_QUERIES, _DELTA_FRACTION * in_base)


def _is_heavy(plan: Plan, factor: int) -> bool:
    """Return whether a delta is too large to compile it again with every change."""
    if plan.delta is None:
        return False
    limit = max(_DELTA_BYTES, _DELTA_FRACTION * plan.base.manifest.size)
    return plan.delta.manifest.size > factor * limit


def _in_delta(plan: Plan) -> Array:
    """Return the ids of the queries in a plan's delta, or an empty array if it has none."""
    return visible(plan.delta.queries.query_ids) if plan.delta else _NONE


def _among(candidates: set[int], ids: Array) -> set[int]:
    """Return the candidates that are in the sorted array `ids`, by binary search."""
    wanted = np.array(sorted(candidates), dtype=np.int64)
    positions = np.searchsorted(ids, wanted)
    is_present = positions < len(ids)
    is_present[is_present] = ids[positions[is_present]] == wanted[is_present]
    return set(wanted[is_present].tolist())
