"""Where a query is, in a plan that is divided over workers, and what brings an item there.

In: a version, its partitioning and a query. Out: the query's partition, its kin there, the condition that the router
asks of an item first, what the partition was expected to cost and what it was measured to, and the ways of dividing
that were weighed. This tells what others want, so it is for the operator alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from runnel.algebra.nodes.expressions import Expression, Not
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.render import render, render_name
from runnel.catalog.logs import plan_versions
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.matching.explain.explain_query import part_of, targets_of
from runnel.optimizer.describe import clause_expression, counted, stored_atom, wrapped
from runnel.optimizer.subsumption.subsumes import subsumes
from runnel.plan.gates import query_of
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.store import Plan, load_part
from runnel.scaleout.cover.contract import cover_of
from runnel.scaleout.partitioning import WeighedStrategy, read_assignment, read_partitioning
from runnel.scaleout.planning.partition_figures import PartitionFigure, PartitionFigures, partition_figures

_MOST_COMPARED = 60_000
"""Literals of a query times atoms of the router, to find what lets an item through; a pair takes 7 to 10 µs."""

_READING = 3
"""What reading an atom takes, in such pairs."""

_NAMED = 3
"""Sources that are named one by one."""


@dataclass(frozen=True, slots=True)
class RouterCondition:
    """What the router asks of an item of some sources, as far as the query has to do with it.

    `others` counts the other conditions by which an item of these sources comes to the partition too. Without a
    `condition` it is one of those; where they were not `looked_at`, there are too many to say which.
    """

    condition: str | None
    others: int
    looked_at: bool = True


@dataclass(frozen=True, slots=True)
class ExplainedPartition:
    """A query in a plan that is divided. One that was added since is in no partition: every worker has it."""

    figures: PartitionFigures
    weighed: tuple[WeighedStrategy, ...]
    partition: PartitionFigure | None = None
    group: int = 0
    """Queries of its group, with it."""
    group_here: int = 0
    """Those of them that are in the same partition."""
    router: tuple[RouterCondition, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "partition": None if self.partition is None else asdict(self.partition),
            "partitions": len(self.figures.partitions),
            "strategy": self.figures.strategy,
            "reason": self.figures.reason,
            "count_reason": self.figures.count_reason,
            "next_start": self.figures.next_start,
            "expected_copies": self.figures.expected_copies,
            "expected_busiest": self.figures.expected_busiest,
            "copies": self.figures.copies,
            "skew": self.figures.skew,
            "group": self.group,
            "group_here": self.group_here,
            "router": [asdict(one) for one in self.router],
            "weighed": [_weighed(one) for one in self.weighed],
        }

    def lines(self) -> list[str]:
        """As text, a line a fact."""
        count, one = len(self.figures.partitions), self.partition
        if one is None:
            shown = [f"in none of the {count:,} partitions: it was added since, and every worker has it"]
        else:
            where = f"in partition {one.number:,} of {count:,}, with {counted(one.queries, 'query')}"
            shown = [f"{where}; {self._kin()}"]
            shown += [f"  the router asks first: {_asked(condition)}" for condition in self.router]
            shown += [f"  expected: {one.share:.1%} of the items, {one.expected_microseconds:,.2f} µs for an item"]
            shown += [_measured(one)]
        shown += [f"divided {self.figures.strategy}: {self.figures.reason}"]
        # Where it was chosen, the reason has the figures.
        missing = [way for way in self.weighed if f"{way.strategy}:" not in self.figures.reason]
        shown += [f"  {self._way(way)}" for way in missing]
        shown += [f"  {self.figures.next_start}"] if self.figures.next_start else []
        return wrapped(shown)

    def _way(self, way: WeighedStrategy) -> str:
        """What was expected of a way of dividing, in words."""
        told = f"{way.strategy}: {way.copies:,.2f} copies of an item, {way.microseconds:,.1f} µs in all"
        busiest = self.figures.expected_busiest
        if way.strategy == self.figures.strategy and busiest is not None:
            return f"{told}, {busiest:,.1f} µs on the busiest worker, if every partition had one"
        return f"{told}, {way.longest:,.1f} µs until the router and the longest partition are done"

    def _kin(self) -> str:
        if self.group == 1:
            return "alone in its group"
        some = "all" if self.group_here == self.group else f"{self.group_here:,} of"
        verb = "is" if self.group_here == 1 else "are"
        return f"{some} {self.group:,} queries of its group {verb} there"


def _weighed(one: WeighedStrategy) -> dict[str, Any]:
    """A way of dividing as a JSON value; `longest` alone would not say that the router is in it."""
    return {
        "strategy": one.strategy,
        "copies": one.copies,
        "microseconds": one.microseconds,
        "router_and_longest": one.longest,
    }


def _asked(one: RouterCondition) -> str:
    if not one.looked_at:
        return f"one of {counted(one.others, 'condition')}; these are too many to look which"
    if one.condition is None:
        return f"one of {counted(one.others, 'condition')}"
    return f"{one.condition} (or {counted(one.others, 'other condition')})" if one.others else one.condition


def _measured(one: PartitionFigure) -> str:
    if not one.items:
        return "  measured: nothing yet"
    each, found = one.microseconds / one.items, "1 match" if one.matches == 1 else f"{one.matches:,} matches"
    told = f"{counted(one.items, 'item')}, {found}, {each:,.1f} µs for each of these items"
    return f"  measured lately: {told}; loaded {counted(one.loads, 'time')}"


def explain_partition(
    workspace: Workspace, row: plan_versions.PlanRow, plan: Plan, query: int, names: Mapping[int, str]
) -> ExplainedPartition | None:
    """Where a query of a version is; None where every worker has all queries."""
    if row.distribution is None:
        return None
    try:
        with workspace.catalog.read() as connection:
            figures = partition_figures(workspace, connection, row, row.distribution)
    except CorruptDataError:
        return None
    made = read_partitioning(workspace.storage, row.distribution)
    part, _ = part_of(plan, query, names)
    if part is not plan.base:
        return ExplainedPartition(figures, made.weighed)
    assignment = read_assignment(workspace.storage, made.folder)
    place = int(np.searchsorted(assignment.query_ids, query))
    if place >= len(assignment.query_ids) or assignment.query_ids[place] != query:
        return ExplainedPartition(figures, made.weighed)
    number = int(assignment.partitions[place])
    kin = assignment.groups == assignment.groups[place]
    router = load_part(workspace.storage, made.router).logical
    return ExplainedPartition(
        figures,
        made.weighed,
        figures.partitions[number],
        int(np.count_nonzero(kin)),
        int(np.count_nonzero(kin & (assignment.partitions == number))),
        tuple(dict.fromkeys(_conditions(router, number, plan.base.logical, query, names))),
    )


@dataclass(frozen=True, slots=True)
class _Route:
    """A way into a partition: its clauses in the router, and the sources of a target whose items may take it."""

    clauses: tuple[int, ...]
    sources: tuple[int, ...]


def _conditions(
    router: LogicalPlan, partition: int, own: LogicalPlan, query: int, names: Mapping[int, str]
) -> Iterable[RouterCondition]:
    """What the router asks for each target of a query and its ways."""
    room = _MOST_COMPARED  # for all targets: a query may have many
    places = np.flatnonzero(query_of(own.query_ids) == query).tolist()
    entries = targets_of(router, partition) if partition < len(router.query_ids) else []
    for target in dict.fromkeys(target for place in places for target in targets_of(own, place)):
        sources = set(own.scopes.row(int(own.target_scopes[target])).tolist())
        predicate = own.predicates.row(int(own.target_predicates[target])).tolist()
        routes = [route for entry in entries if (route := _route(router, entry, sources)).sources]
        atoms = sum(int(router.clauses.lengths[clause]) for one in routes for clause in one.clauses)
        literals = sum(int(own.clauses.lengths[clause]) for clause in predicate)
        room -= atoms * (_READING + literals)
        if room < 0:
            yield RouterCondition(None, sum(_alternatives(router, one.clauses) for one in routes), looked_at=False)
        else:
            yield _condition(router, routes, [_literals(own, clause) for clause in predicate], names)


def _route(router: LogicalPlan, entry: int, sources: set[int]) -> _Route:
    """A target of the router as a way for items of some sources."""
    found = sources.intersection(router.scopes.row(int(router.target_scopes[entry])).tolist())
    return _Route(tuple(router.predicates.row(int(router.target_predicates[entry])).tolist()), tuple(sorted(found)))


def _condition(
    router: LogicalPlan,
    routes: Sequence[_Route],
    clauses: Sequence[Sequence[Expression]],
    names: Mapping[int, str],
) -> RouterCondition:
    """The first of several conditions of the router that a predicate with these clauses implies.

    Of a clause only the literals that the predicate implies are shown: the others are there for other queries.
    """
    alternatives = sum(_alternatives(router, one.clauses) for one in routes)
    for one in routes:
        parts = [_implied(_literals(router, clause), clauses) for clause in one.clauses]
        if all(parts):
            text = " and ".join(render(clause_expression(part)) for part in parts) or _nothing(one.sources, names)
            used = len(parts[0]) if len(parts) == 1 else 1
            return RouterCondition(text, max(0, alternatives - used))
    return RouterCondition(None, alternatives)


def _nothing(sources: Sequence[int], names: Mapping[int, str]) -> str:
    """That all items of some sources go to a partition; sources whose names are not known are not told one by one.

    >>> _nothing([1, 2], {1: "News", 2: "Wire"}), _nothing([1, 2], {})
    ('nothing: all items of News and Wire go there', 'nothing: all items of its sources go there')
    """
    if not all(source in names for source in sources):
        return "nothing: all items of its sources go there"
    told = [render_name(names[source]) for source in sources[:_NAMED]]
    if len(sources) > _NAMED:
        told.append(f"{len(sources) - _NAMED:,} more")
    return f"nothing: all items of {', '.join(told[:-1])}{' and ' if told[1:] else ''}{told[-1]} go there"


def _alternatives(router: LogicalPlan, condition: Sequence[int]) -> int:
    """A condition of one clause is as many as the clause has literals: the router unites such conditions."""
    return int(router.clauses.lengths[condition[0]]) if len(condition) == 1 else 1


def _implied(wide: Sequence[Expression], clauses: Sequence[Sequence[Expression]]) -> list[Expression]:
    """The literals of a clause that one of some clauses implies; none where no clause implies it."""
    for narrow in clauses:
        found = [next((one for one in wide if _follows(one, literal)), None) for literal in narrow]
        used = [one for one in found if one is not None]
        if len(used) == len(found):
            return list(dict.fromkeys(used))
    return []


def _follows(wide: Expression, narrow: Expression) -> bool:
    if isinstance(wide, ItemPattern) and isinstance(narrow, ItemPattern) and wide.family == narrow.family:
        return cover_of(wide.family).contains(wide, narrow)
    return subsumes(wide, narrow)


def _literals(logical: LogicalPlan, clause: int) -> list[Expression]:
    return [_signed(stored_atom(logical, one >> 1), one) for one in logical.clauses.row(clause).tolist()]


def _signed(atom: Expression, literal: int) -> Expression:
    return Not(atom) if literal & 1 else atom
