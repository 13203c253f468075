"""Explain in which partition of a partitioned plan a query is, and which items the router sends there.

In: a version, its partitioning and a query. Out: the query's partition, how many queries of its group are there, the
conditions that the router checks, the expected and the measured cost of the partition, and the expected costs of the
strategies. This reveals queries of other owners, so it is only for admins.
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

_MAX_COMPARISONS = 60_000
"""Limit for comparisons of a literal of the query with an atom of the router. Each takes 7 to 10 µs."""

_READ_COST = 3
"""The time for reading an atom, as a number of comparisons."""

_MAX_NAMED_SOURCES = 3
"""Further sources are only counted."""


@dataclass(frozen=True, slots=True)
class RouterCondition:
    """The router's condition that an item must satisfy to reach the partition of a query.

    `others` counts the further conditions with which items of the same sources reach the partition. `condition` is
    None if it could not be determined; then `others` counts all possible conditions. `looked_at` is False if there
    were too many conditions to compare.
    """

    condition: str | None
    others: int
    looked_at: bool = True


@dataclass(frozen=True, slots=True)
class ExplainedPartition:
    """The partition of a query, or None if the query was added later and is in the delta, which every worker has."""

    figures: PartitionFigures
    weighed: tuple[WeighedStrategy, ...]
    partition: PartitionFigure | None = None
    group: int = 0
    """The number of queries in its group, including the query itself."""
    group_here: int = 0
    """How many of them are in the same partition."""
    router: tuple[RouterCondition, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
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
            "router": [asdict(condition) for condition in self.router],
            "weighed": [_strategy_json(strategy) for strategy in self.weighed],
        }

    def lines(self) -> list[str]:
        """Return the explanation as lines of text."""
        count, partition = len(self.figures.partitions), self.partition
        if partition is None:
            lines = [f"in none of the {count:,} partitions: the query was added later, and every worker has it"]
        else:
            position = f"in partition {partition.number:,} of {count:,}, with {counted(partition.queries, 'query')}"
            cost = f"{partition.share:.1%} of the items, {partition.expected_microseconds:,.2f} µs per item"
            lines = [f"{position}; {self._describe_group()}"]
            lines += [f"  the router checks first: {_describe_condition(condition)}" for condition in self.router]
            lines += [f"  expected: {cost}"]
            lines += [_describe_load(partition)]
        lines += [f"strategy {self.figures.strategy}: {self.figures.reason}"]
        # If the strategy was chosen by cost, the reason contains the figures.
        missing = [strategy for strategy in self.weighed if f"{strategy.strategy}:" not in self.figures.reason]
        lines += [f"  {self._describe_strategy(strategy)}" for strategy in missing]
        lines += [f"  {self.figures.next_start}"] if self.figures.next_start else []
        return wrapped(lines)

    def _describe_strategy(self, strategy: WeighedStrategy) -> str:
        """Describe the expected cost of a strategy."""
        text = (
            f"{strategy.strategy}: {strategy.copies:,.2f} copies per item, {strategy.microseconds:,.1f} µs in total"
        )
        busiest = self.figures.expected_busiest
        if strategy.strategy == self.figures.strategy and busiest is not None:
            return f"{text}, {busiest:,.1f} µs on the busiest worker, with one worker per partition"
        return f"{text}, {strategy.longest:,.1f} µs in the router and the slowest partition"

    def _describe_group(self) -> str:
        if self.group == 1:
            return "alone in its group"
        members = "all" if self.group_here == self.group else f"{self.group_here:,} of"
        verb = "is" if self.group_here == 1 else "are"
        return f"{members} {self.group:,} queries of its group {verb} there"


def _strategy_json(strategy: WeighedStrategy) -> dict[str, Any]:
    """Return the expected cost of a strategy as a JSON value. `longest` is renamed because it includes the router."""
    return {
        "strategy": strategy.strategy,
        "copies": strategy.copies,
        "microseconds": strategy.microseconds,
        "router_and_longest": strategy.longest,
    }


def _describe_condition(condition: RouterCondition) -> str:
    if not condition.looked_at:
        return f"one of {counted(condition.others, 'condition')}, too many to determine which"
    if condition.condition is None:
        return f"one of {counted(condition.others, 'condition')}"
    others = f" (or {counted(condition.others, 'other condition')})" if condition.others else ""
    return f"{condition.condition}{others}"


def _describe_load(partition: PartitionFigure) -> str:
    if not partition.items:
        return "  measured: nothing yet"
    each = partition.microseconds / partition.items
    matches = "1 match" if partition.matches == 1 else f"{partition.matches:,} matches"
    load = f"{counted(partition.items, 'item')}, {matches}, {each:,.1f} µs per item of these"
    return f"  measured recently: {load}; loaded {counted(partition.loads, 'time')}"


def explain_partition(
    workspace: Workspace, row: plan_versions.PlanRow, plan: Plan, query: int, names: Mapping[int, str]
) -> ExplainedPartition | None:
    """Explain where a query of a version is. Return None if the version has no partitions, or they are damaged."""
    if row.distribution is None:
        return None
    try:
        with workspace.catalog.read() as connection:
            figures = partition_figures(workspace, connection, row, row.distribution)
    except CorruptDataError:
        return None
    partitioning = read_partitioning(workspace.storage, row.distribution)
    part, _ = part_of(plan, query, names)
    if part is not plan.base:
        return ExplainedPartition(figures, partitioning.weighed)
    assignment = read_assignment(workspace.storage, partitioning.folder)
    index = int(np.searchsorted(assignment.query_ids, query))
    if index >= len(assignment.query_ids) or assignment.query_ids[index] != query:
        return ExplainedPartition(figures, partitioning.weighed)
    number = int(assignment.partitions[index])
    in_group = assignment.groups == assignment.groups[index]
    router = load_part(workspace.storage, partitioning.router).logical
    return ExplainedPartition(
        figures,
        partitioning.weighed,
        figures.partitions[number],
        int(np.count_nonzero(in_group)),
        int(np.count_nonzero(in_group & (assignment.partitions == number))),
        tuple(dict.fromkeys(_conditions(router, number, plan.base.logical, query, names))),
    )


@dataclass(frozen=True, slots=True)
class _Route:
    """A route into a partition: its clauses in the router, and the sources whose items may take it."""

    clauses: tuple[int, ...]
    sources: tuple[int, ...]


def _conditions(
    router: LogicalPlan, partition: int, own: LogicalPlan, query: int, names: Mapping[int, str]
) -> Iterable[RouterCondition]:
    """Yield the router's condition for each target of a query and its disjuncts."""
    comparisons_left = _MAX_COMPARISONS  # for all targets together
    positions = np.flatnonzero(query_of(own.query_ids) == query).tolist()
    entries = targets_of(router, partition) if partition < len(router.query_ids) else []
    for target in dict.fromkeys(target for position in positions for target in targets_of(own, position)):
        sources = set(own.scopes.row(int(own.target_scopes[target])).tolist())
        predicate = own.predicates.row(int(own.target_predicates[target])).tolist()
        routes = [route for entry in entries if (route := _route(router, entry, sources)).sources]
        atoms = sum(int(router.clauses.lengths[clause]) for route in routes for clause in route.clauses)
        literals = sum(int(own.clauses.lengths[clause]) for clause in predicate)
        comparisons_left -= atoms * (_READ_COST + literals)
        if comparisons_left < 0:
            count = sum(_count_alternatives(router, route.clauses) for route in routes)
            yield RouterCondition(None, count, looked_at=False)
        else:
            yield _find_condition(router, routes, [_literals(own, clause) for clause in predicate], names)


def _route(router: LogicalPlan, entry: int, sources: set[int]) -> _Route:
    """Return the route of a target of the router, restricted to some sources."""
    common = sources.intersection(router.scopes.row(int(router.target_scopes[entry])).tolist())
    return _Route(tuple(router.predicates.row(int(router.target_predicates[entry])).tolist()), tuple(sorted(common)))


def _find_condition(
    router: LogicalPlan,
    routes: Sequence[_Route],
    clauses: Sequence[Sequence[Expression]],
    names: Mapping[int, str],
) -> RouterCondition:
    """Return the first condition of the router that is implied by a predicate with these clauses.

    Of each clause, only the literals that the predicate implies are shown, because the others belong to other
    queries.
    """
    alternatives = sum(_count_alternatives(router, route.clauses) for route in routes)
    for route in routes:
        implied = [_implied_literals(_literals(router, clause), clauses) for clause in route.clauses]
        if all(implied):
            conjuncts = [render(clause_expression(literals)) for literals in implied]
            text = " and ".join(conjuncts) or _describe_open_route(route.sources, names)
            used = len(implied[0]) if len(implied) == 1 else 1
            return RouterCondition(text, max(0, alternatives - used))
    return RouterCondition(None, alternatives)


def _describe_open_route(sources: Sequence[int], names: Mapping[int, str]) -> str:
    """Return a text that says that all items of some sources go to a partition.

    >>> _describe_open_route([1, 2], {1: "News", 2: "Wire"}), _describe_open_route([1, 2], {})
    ('nothing: all items of News and Wire go there', 'nothing: all items of its sources go there')
    """
    if not all(source in names for source in sources):
        return "nothing: all items of its sources go there"
    shown = [render_name(names[source]) for source in sources[:_MAX_NAMED_SOURCES]]
    if len(sources) > _MAX_NAMED_SOURCES:
        shown.append(f"{len(sources) - _MAX_NAMED_SOURCES:,} more")
    return f"nothing: all items of {', '.join(shown[:-1])}{' and ' if shown[1:] else ''}{shown[-1]} go there"


def _count_alternatives(router: LogicalPlan, condition: Sequence[int]) -> int:
    """Count the literals of a condition with one clause, because the router merges single literals into a clause.

    Other conditions count as one.
    """
    return int(router.clauses.lengths[condition[0]]) if len(condition) == 1 else 1


def _implied_literals(wide: Sequence[Expression], clauses: Sequence[Sequence[Expression]]) -> list[Expression]:
    """Return the literals of the clause `wide` that are implied by the first of `clauses` that implies `wide`.

    Return an empty list if no clause implies it.
    """
    for narrow in clauses:
        implied = [next((weaker for weaker in wide if _is_implied(weaker, literal)), None) for literal in narrow]
        literals = [literal for literal in implied if literal is not None]
        if len(literals) == len(implied):
            return list(dict.fromkeys(literals))
    return []


def _is_implied(wide: Expression, narrow: Expression) -> bool:
    if isinstance(wide, ItemPattern) and isinstance(narrow, ItemPattern) and wide.family == narrow.family:
        return cover_of(wide.family).contains(wide, narrow)
    return subsumes(wide, narrow)


def _literals(logical: LogicalPlan, clause: int) -> list[Expression]:
    return [_signed(stored_atom(logical, literal >> 1), literal) for literal in logical.clauses.row(clause).tolist()]


def _signed(atom: Expression, literal: int) -> Expression:
    return Not(atom) if literal & 1 else atom
