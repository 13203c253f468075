"""From what is declared to what is matched: the plan version that a transaction ends with.

A small change writes a delta next to the current base; when the delta has grown, everything becomes a new base. Where
queries are only removed, no file is written: the new version names them. Three steps: `read_change` reads from the
catalog what is to be compiled, `compile_plan` compiles and writes it without the catalog, `publish_draft` makes the
result current. Only the last step needs the catalog's write lock; `commit_change` checks that the catalog has not
changed in between.
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
    from runnel.matching.compile.compile_plan import LaidOut

logger = logging.getLogger("runnel")

_DELTA_AT_LEAST = 500
_DELTA_SHARE = 0.1
_DELTA_BYTES = 1 << 20
"""Size up to which a delta is always compiled again with the next change; about 0.2 s of CPU."""
_NAMED_AT_MOST = 256
"""Removed queries that a version names itself. Every version's row repeats them, and every slice of a batch."""
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class PlanChange:
    """What is to be compiled: queries with their definitions, and the base's queries that count no more.

    Without a `current` plan, or where more is new than old, the queries are all that there are. Those that are
    `fresh` count after `sequence`, unless the log has grown until they are published.
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
    """The delta as it is, where all that changes is what the base does not have any more."""
    removed: frozenset[int] | None = None
    """Where nothing is to be written at all: what the new version has less than its folders."""


@dataclass(frozen=True)
class CompiledChange:
    """A compiled change, which `publish_draft` makes current. Where nothing was compiled it has no part."""

    change: PlanChange
    laid_out: LaidOut | None = None
    part: UnfinishedPart | None = None

    def finish(self) -> PlanManifest:
        """Write the rest of the part, whose queries count from where they did when the change was read."""
        if self.laid_out is None or self.part is None:
            raise RunnelError("the change has no compiled plan")
        return self.part.finish(self.laid_out.logical)


@dataclass(frozen=True)
class Uncommitted:
    """Declarations of a transaction that the catalog does not have yet.

    `definitions` are the nodes of new and redefined virtual feeds, None for those that read nothing any more;
    `new` are the feeds that the catalog does not have at all, and `dropped` those that go.
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
    """Read from the committed catalog what a change has to compile; None if nothing."""
    removed = {*activation.remove, *uncommitted.dropped}
    current = plan_versions.current_plan(connection)
    if not activation.compile and (not removed or current is None):
        return None
    reader = _Reader(connection, uncommitted, activation)
    if current is None:
        return reader.everything()
    try:
        loaded = load(workspace.storage, PlanVersion.of(current))
    except CorruptDataError as error:
        logger.warning("the plan cannot be read, and all queries are compiled again: %s", error)
        return reader.everything()
    fewer = None if activation.compile else reader.named(loaded, current, removed)
    if fewer is not None:
        return fewer
    in_base = visible(loaded.base.queries.query_ids)
    in_delta = set(_in_delta(loaded).tolist())
    added = (in_delta.difference(current.removed) | activation.compile) - removed
    dead = _among({*loaded.tombstones.tolist(), *removed, *activation.compile}, in_base)
    total = len(in_base) - len(dead) + len(added)
    factor = plan_port(current.distribution).delta_factor
    is_small = _is_small(len(added) + len(dead), len(in_base), factor)
    is_small = is_small and not _is_heavy(loaded, factor)
    if not is_small and len(added) > len(in_base):
        return reader.everything()  # more is new than old: merging would save nothing
    if is_small and loaded.delta is not None and added == in_delta and not activation.compile:
        return reader.fewer(loaded.delta, current, dead, total)
    return reader.some(added, current, dead, total, is_small)


def read_everything(connection: Connection) -> PlanChange:
    """All queries as they are declared, to compile a base from their definitions."""
    return _Reader(connection, Uncommitted(), Activation(frozenset(), frozenset())).everything()


class _Reader:
    """Reads queries and definitions: those of the catalog, with the uncommitted changes on top."""

    def __init__(self, connection: Connection, uncommitted: Uncommitted, activation: Activation) -> None:
        self._connection = connection
        self._uncommitted = uncommitted
        self._fresh = activation.fresh
        self._gone = activation.remove | uncommitted.dropped

    @cached_property
    def _sequence(self) -> int:
        return last_sequence(self._connection)

    def everything(self) -> PlanChange:
        """All that is matched."""
        changed = self._uncommitted.definitions
        nodes = {**feeds.planned_definitions(self._connection), **changed}
        definitions = {
            feed: node for feed, node in nodes.items() if node is not None and feed not in self._uncommitted.dropped
        }
        since = feeds.since_of(self._connection)
        queries = self._queries({feed: since[feed] for feed in since.keys() - self._gone}, self._fresh)
        words = word_frequencies(self._connection)
        return PlanChange(queries, definitions, words, self._fresh, self._sequence, len(queries))

    def named(self, loaded: Plan, current: PlanRow, removed: set[int]) -> PlanChange | None:
        """The folders as they are, and a version that names what it has less; None where that would be too much.

        What this costs depends on what is removed, not on what there is.
        """
        in_base, in_delta = visible(loaded.base.queries.query_ids), _in_delta(loaded)
        of_base, of_delta = _among(removed, in_base), _among(removed, in_delta)
        gone = of_base | of_delta | {*current.removed}
        if len(gone) > _NAMED_AT_MOST:
            return None
        dead = loaded.delta.tombstones if loaded.delta else _NONE
        lost = of_delta | (of_base - _among(of_base, dead))
        total = current.queries - len(lost.difference(current.removed))
        added = len(in_delta) - len(_among(gone, in_delta))
        changes = len(in_base) + 2 * added - total
        if not _is_small(changes, len(in_base), plan_port(current.distribution).delta_factor):
            return None  # of the base, all are dead that are neither added nor among the total
        nothing = frozenset[int]()
        return PlanChange(
            (), {}, {}, nothing, 0, total, current, removed=frozenset(gone)
        )  # nothing begins: no sequence

    def fewer(self, delta: PlanPart, current: PlanRow, dead: set[int], total: int) -> PlanChange:
        """The delta as it is, and less of the base: nothing is to be compiled."""
        gone = frozenset(dead)
        return PlanChange((), {}, {}, frozenset(), self._sequence, total, current, gone, delta=delta)

    def some(self, added: set[int], current: PlanRow, dead: set[int], total: int, is_small: bool) -> PlanChange:
        """What was added to a base, and what was taken from it."""
        nodes = self._definitions(added)
        since = feeds.since_of(self._connection, added - self._uncommitted.new)
        queries = self._queries(since, self._fresh & added)
        words = word_frequencies(self._connection)
        gone = frozenset(dead)
        return PlanChange(queries, nodes, words, self._fresh, self._sequence, total, current, gone, is_small)

    def _definitions(self, wanted: set[int]) -> dict[int, Node]:
        """The nodes of virtual feeds and of all that these read, directly or through others."""
        changed = self._uncommitted.definitions
        found: dict[int, Node] = {}
        seen: set[int] = set()
        waiting = wanted
        while waiting:
            seen |= waiting
            known = waiting - changed.keys()
            nodes = {feed: changed[feed] for feed in waiting & changed.keys()}
            step = {**feeds.planned_definitions(self._connection, known - self._uncommitted.new), **nodes}
            fresh = {feed: node for feed, node in step.items() if node is not None}
            found |= fresh
            seen |= fresh.keys()
            waiting = {source for node in fresh.values() for source in reads(node)} - seen
        return found

    def _queries(self, since: Mapping[int, int], fresh: Iterable[int]) -> tuple[PlanQuery, ...]:
        starts = {**since, **dict.fromkeys(fresh, self._sequence)}
        return tuple(PlanQuery(feed, start) for feed, start in sorted(starts.items()))


def compile_plan(workspace: Workspace, change: PlanChange) -> CompiledChange:
    """Compile a change, and write as much of it as does not depend on the log's end. The catalog is not asked."""
    from runnel.matching.compile.compile_plan import LaidOut, lay_out
    from runnel.optimizer.merge_plans import merge_plans
    from runnel.optimizer.optimize import optimize

    current = change.current
    if current is not None and change.removed is not None:
        return CompiledChange(change)
    if current is not None and change.delta is not None:
        laid_out = LaidOut(change.delta.logical, Layout(change.delta.layout))
    else:
        laid_out = lay_out(
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
        laid_out = lay_out(merge_plans(both), change.frequencies, matcher=workspace.settings.matcher)
    return CompiledChange(change, laid_out, laid_out.start_base(workspace.storage, new_folder()))


def publish_draft(workspace: Workspace, connection: Connection, draft: CompiledChange) -> int:
    """Make a compiled change the current plan, in the transaction that declares it; gives the version."""
    change, laid_out, part = draft.change, draft.laid_out, draft.part
    if laid_out is None or part is None:
        if change.current is None or change.removed is None:
            raise RunnelError("the change has no compiled plan, and does not only remove queries")
        return _publish_beside(connection, change.current, change.current.delta, change.total, change.removed)
    if change.fresh and last_sequence(connection) != change.sequence:
        laid_out = laid_out.starting_after(last_sequence(connection), change.fresh)
    manifest = part.finish(laid_out.logical)
    if part.kind == "base" or change.current is None:
        port = wanted_port(workspace.settings, manifest)
        made = port.distribute_at_once(workspace, connection, part.folder, change.total)
        return publish_base(connection, part.folder, change.total, made)
    # The next change begins with this delta, which was just written and need not be read.
    keep_part(workspace.storage, PlanPart(manifest, laid_out.logical, laid_out.layout.every(), part.tombstones))
    return _publish_beside(connection, change.current, part.folder, change.total)


def publish_base(connection: Connection, base: str, queries: int, made: Distribution | None) -> int:
    """Make a base that is written the current plan, with its distribution where it has one."""
    if made is None:
        return plan_versions.publish_plan(connection, base, None, queries)
    return plan_versions.publish_plan(connection, base, None, queries, distribution=made.folder, pieces=made.pieces)


def _publish_beside(
    connection: Connection, current: PlanRow, delta: str | None, queries: int, removed: Iterable[int] = ()
) -> int:
    """Publish a version with the base of the current one, which stays distributed as it is."""
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
    """Whether so much was added to a plan's base, or taken from it, that a new base is due."""
    in_base = visible(plan.base.queries.query_ids)
    dead = _among(set(plan.tombstones.tolist()), in_base)
    return not _is_small(len(_in_delta(plan)) + len(dead), len(in_base))


def _is_small(changes: int, in_base: int, factor: int = 1) -> bool:
    """Whether changes can be a delta, of at most `factor` times the usual size."""
    return changes <= factor * max(_DELTA_AT_LEAST, _DELTA_SHARE * in_base)


def _is_heavy(plan: Plan, factor: int) -> bool:
    """Whether few queries of a delta are so large that compiling them with every change would hold up all others."""
    if plan.delta is None:
        return False
    most = max(_DELTA_BYTES, _DELTA_SHARE * plan.base.manifest.size)
    return plan.delta.manifest.size > factor * most


def _in_delta(plan: Plan) -> Array:
    """The queries of a plan's delta, where it has one."""
    return visible(plan.delta.queries.query_ids) if plan.delta else _NONE


def _among(wanted: set[int], ids: Array) -> set[int]:
    """Those of some ids that are among very many, which ascend."""
    few = np.array(sorted(wanted), dtype=np.int64)
    places = np.searchsorted(ids, few)
    inside = places < len(ids)
    inside[inside] = ids[places[inside]] == few[inside]
    return set(few[inside].tolist())
