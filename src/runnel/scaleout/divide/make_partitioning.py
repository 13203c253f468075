"""Making a partitioning: the queries of a base in, folders of the router and the partitions out.

Related queries are found and what they have in common (`subsuming_roots`, `cover_predicates`), queries are weighed
and divided (`weigh_queries`, `assign_queries`), and each part is cut out, laid out and written as a plan folder of
its own. What says how all this belongs together is written last, so that whoever finds it finds every folder that it
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from runnel.arrays import Array
from runnel.errors import RunnelError
from runnel.matching.compile.build_matcher import STREAMS
from runnel.matching.compile.compile_plan import lay_out
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

_ROUTER_PART = 16
"""The router has one condition for so many predicates of the base, so that its plan is small beside that."""

_FEW_CONDITIONS = 1_024
"""So many conditions are no burden, however small the base is."""


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
    """Divide the queries of a base over so many partitions, and write the folders of it.

    `partitions` is an assignment that is given, by ascending ids of the queries; without it one is chosen, of the
    `strategy` if that is said. A partition of `before` that has exactly the queries of a new one keeps its folder.
    What is `noted` is kept with its counters. A large base takes minutes: `proceed` is called between the steps, and
    may raise to end it; what was written until then is nobody's.

    >>> import tempfile
    >>> from itertools import count
    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import Contains
    >>> from runnel.algebra.nodes.query import Filter, Read
    >>> from runnel.matching.filters.atoms.atom_layout import lay_out_atoms
    >>> from runnel.optimizer.optimize import optimize
    >>> from runnel.plan.logical_plan import PlanQuery
    >>> asked = {n: Filter(Read(1), Contains(Attribute("title"), (f"word{n}",))) for n in range(7, 17)}
    >>> logical, names = optimize(map(PlanQuery, asked), asked), (f"plans/piece-{n}" for n in count())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     from runnel.storage.file_storage import FileStorage
    ...     made = make_partitioning(
    ...         FileStorage(f"file://{folder}"),
    ...         logical,
    ...         lay_out_atoms(logical),
    ...         base="plans/base",
    ...         count=2,
    ...         new_folder=lambda: next(names),
    ...     )
    >>> [one.queries for one in made.partitions], made.router
    ([5, 5], 'plans/piece-0')
    """
    if count < 1:
        raise RunnelError(f"queries cannot be divided into {count} partitions", hint="ask for one or more")
    anchors = choose_anchors(logical, laid_atoms)
    proceed()
    kin = find_subsuming_roots(logical, laid_atoms, anchors)
    proceed()
    most = _most_conditions(logical) if most_conditions is None else most_conditions
    cover = cover_predicates(logical, laid_atoms, anchors, kin, most=most, samples=samples)
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
        chosen = _given(weights, partitions, count, strategy or (before.strategy if before else "grouped"))
    make = _Making(storage, logical, new_folder, frequencies, matcher, proceed)
    made = make.partitioning(base, cover, weights, chosen, _Old(storage, base, before))
    made = replace(made, counters={**kin.counters, **cover.counters, **made.counters, **(noted or {})})
    write_partitioning(
        storage, made, Assignment(weights.owners, chosen.partitions, weights.marked_groups, weights.microseconds)
    )
    return made


def _most_conditions(logical: LogicalPlan) -> int:
    return max(_FEW_CONDITIONS, len(logical.predicates) // _ROUTER_PART)


def _given(weights: Weights, partitions: Array, count: int, strategy: Strategy) -> ChosenAssignment:
    """An assignment that somebody else made."""
    if len(partitions) != len(weights):
        raise RunnelError(f"an assignment of {len(partitions):,} queries does not fit a plan of {len(weights):,}")
    if len(partitions) and not 0 <= int(partitions.min()) <= int(partitions.max()) < count:
        raise RunnelError(f"an assignment names a partition that is not one of the {count}")
    division = weigh_assignment(weights, partitions, count, strategy)
    told = f"divided as was asked for: {division.weighed.copies:.2f} copies of an item are expected"
    return ChosenAssignment(partitions, strategy, (division.weighed,), division, told)


@dataclass(frozen=True)
class _Making:
    """A plan that is being divided, and how folders are named, laid out and written."""

    storage: Storage
    logical: LogicalPlan
    new_folder: Callable[[], str]
    frequencies: Frequencies | None
    matcher: str
    proceed: Callable[[], None]

    def partitioning(
        self, base: str, cover: Cover, weights: Weights, chosen: ChosenAssignment, old: _Old
    ) -> Partitioning:
        """Write the router and all partitions that are not there yet."""
        owners = np.searchsorted(weights.owners, query_of(self.logical.query_ids))
        count = len(chosen.division.shares)
        router = self._router(cover, chosen.partitions[owners], chosen.division.routes)
        made = [self._partition(weights, chosen, number, owners, old) for number in range(count)]
        return Partitioning(
            folder=self.new_folder(),
            base=base,
            router=router.folder,
            router_bytes=router.size,
            partitions=tuple(made),
            strategy=chosen.strategy,
            weighed=chosen.weighed,
            reason=chosen.reason,
            counters={"queries": len(weights), "groups": weights.group_count, "reused": old.reused},
        )

    def _write(self, logical: LogicalPlan, matcher: str) -> PlanManifest:
        """Lay out a plan, and write it into a new folder."""
        self.proceed()
        return lay_out(logical, self.frequencies, matcher=matcher).write_base(self.storage, self.new_folder())

    def _router(self, cover: Cover, partitions: Array, routes: ExpectedRoutes) -> PlanManifest:
        """Write the router of an assignment, which is by position in `query_ids`, with routes that are to be open.

        It keeps the gates of the base for the sake of deltas, whose queries may lead through them.
        """
        # Clauses of a thousand words: a filter tree takes six times as long as streams here.
        opened = routes.open_partitions, routes.open_scopes
        plan = router_plan(self.logical, cover, partitions, len(routes.shares), opened=opened)
        return self._write(replace(plan, gates=GateTable(texts=self.logical.gates.texts)), STREAMS)

    def _partition(
        self, weights: Weights, chosen: ChosenAssignment, number: int, owners: Array, old: _Old
    ) -> Partition:
        """Write a partition, unless there is one with just the same queries; `owners` are those of all ids."""
        own = chosen.partitions == number
        expected = float(chosen.division.shares[number]), float(chosen.division.microseconds[number])
        known = old.taken(weights.owners[own])
        if known is not None:
            return Partition(known.folder, known.queries, known.bytes, *expected)
        manifest = self._write(cut_plan(self.logical, own[owners]), self.matcher)
        return Partition(manifest.folder, int(np.count_nonzero(own)), manifest.size, *expected)


class _Old:
    """The partitions of an earlier partitioning of the same base; each is used again once at most."""

    def __init__(self, storage: Storage, base: str, before: Partitioning | None) -> None:
        self._by_queries: dict[bytes, Partition] = {}
        self.reused = 0
        # Folders that were cut out of another base are of no use, whatever queries they have.
        if before is not None and before.base == base:
            assignment = read_assignment(storage, before.folder)
            for number, one in enumerate(before.partitions):
                self._by_queries[_key(assignment.query_ids[assignment.partitions == number])] = one

    def taken(self, queries: Array) -> Partition | None:
        """The partition that has exactly these queries (ids, ascending), if there is one."""
        found = self._by_queries.pop(_key(queries), None)
        self.reused += found is not None
        return found


def _key(queries: Array) -> bytes:
    return queries.astype(np.int64).tobytes()
